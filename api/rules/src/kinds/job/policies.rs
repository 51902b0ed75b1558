//! The policies of a Job for failure and success: `podFailurePolicy`, `successPolicy`, and limits of failures in each
//! index and of failed indexes.

use api_model::message::Message;
use std::collections::HashSet;

use api_model::field::FieldError;

use super::INDEXED_PARALLELISM_MAX;
use crate::at::At;
use crate::checks::Checks;

const FAILED_INDEXES_MAX: i64 = 100_000;
/// With a limit of failures an index and more completions than this, lower limits apply.
const COMPLETIONS_MANY: i64 = 100_000;
const PARALLELISM_OF_MANY_MAX: i64 = 10_000;
const FAILED_INDEXES_OF_MANY_MAX: i64 = 10_000;
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const CONDITIONS_MAX: usize = 20;
const INDEXES_LEN_MAX: usize = 64 * 1024;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];

/// Checks the completion mode and the fields that depend on it: limits of failures an index and of failed indexes.
pub fn indexes(spec: &At<'_>, checks: &mut Checks) {
    let (per_index, failed) = (spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes"));
    checks.not_negative(&per_index);
    checks.not_negative(&failed);
    if failed.exists() && !per_index.exists() {
        checks.required(&per_index, "when maxFailedIndexes is specified");
    }
    let mode = spec.get("completionMode");
    checks.one_of_if_set(&mode, &super::COMPLETION_MODES);
    match mode.text() {
        "Indexed" => indexed(spec, checks),
        "" | "NonIndexed" => {
            for field in [per_index, failed].iter().filter(|field| field.exists()) {
                checks.invalid(field, "requires indexed completion mode");
            }
        }
        _ => {}
    }
}

fn indexed(spec: &At<'_>, checks: &mut Checks) {
    let (completions, parallelism, failed) = (spec.get("completions"), spec.get("parallelism"), spec.get("maxFailedIndexes"));
    if !completions.exists() {
        checks.required(&completions, "when completion mode is Indexed");
    }
    let at_most = |checks: &mut Checks, at: &At<'_>, max: i64, when: &str| {
        if at.int() > max {
            checks.invalid(at, format!("must be less than or equal to {max}{when}"));
        }
    };
    at_most(checks, &parallelism, INDEXED_PARALLELISM_MAX, " when completion mode is Indexed");
    if completions.exists() && failed.int() > completions.int() {
        checks.invalid(&failed, "must be less than or equal to completions");
    }
    at_most(checks, &failed, FAILED_INDEXES_MAX, "");
    if completions.int() <= COMPLETIONS_MANY || !spec.get("backoffLimitPerIndex").exists() {
        return;
    }
    if !failed.exists() {
        checks.required(&failed, &format!("must be specified when completions is above {COMPLETIONS_MANY}"));
    }
    let when = format!(" when completions are above {COMPLETIONS_MANY} and used with backoff limit per index");
    at_most(checks, &parallelism, PARALLELISM_OF_MANY_MAX, &when);
    at_most(checks, &failed, FAILED_INDEXES_OF_MANY_MAX, &when);
}

/// Checks `podReplacementPolicy`; with a failure policy, Pods are replaced only after they have failed.
pub fn replacement(spec: &At<'_>, checks: &mut Checks) {
    let allowed: &[&str] = if spec.get("podFailurePolicy").exists() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    checks.one_of_if_set(&spec.get("podReplacementPolicy"), allowed);
}

/// Checks the failure policy.
pub fn failure(spec: &At<'_>, checks: &mut Checks) {
    let policy = spec.get("podFailurePolicy");
    if !policy.exists() {
        return;
    }
    let rules = policy.get("rules");
    if rules.len() > RULES_MAX {
        checks.too_many(&rules, RULES_MAX);
    }
    let pod = spec.find("template.spec");
    let containers: HashSet<&str> =
        ["containers", "initContainers"].into_iter().flat_map(|list| pod.get(list).items()).map(|c| c.get("name").text()).collect();
    for rule in rules.items() {
        let action = rule.get("action");
        match action.text() {
            "" => checks.required(&action, &valid(&ACTIONS)),
            "FailIndex" if !spec.get("backoffLimitPerIndex").exists() => {
                checks.invalid(&action, "requires the backoffLimitPerIndex to be set");
            }
            text if !ACTIONS.contains(&text) => checks.not_supported(&action, &ACTIONS),
            _ => {}
        }
        let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
        if codes.exists() {
            exit_codes(&codes, &containers, checks);
        }
        pod_conditions(&conditions, checks);
        match (codes.exists(), conditions.len() > 0) {
            (true, true) => whole(&rule, "specifying both OnExitCodes and OnPodConditions is not supported", checks),
            (false, false) => whole(&rule, "specifying one of OnExitCodes and OnPodConditions is required", checks),
            _ => {}
        }
    }
}

/// A list of choices as Go prints it.
fn valid(choices: &[&str]) -> String {
    let quoted: Vec<String> = choices.iter().map(|choice| format!("{choice:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

/// An error of an element as a whole; as upstream, the message does not contain the element.
fn whole(at: &At<'_>, detail: &str, checks: &mut Checks) {
    checks.push(FieldError { value: None, ..FieldError::invalid(&at.path, "", detail) });
}

fn exit_codes(codes: &At<'_>, containers: &HashSet<&str>, checks: &mut Checks) {
    let (operator, name, values) = (codes.get("operator"), codes.get("containerName"), codes.get("values"));
    match operator.text() {
        "" => checks.required(&operator, &valid(&OPERATORS)),
        text if !OPERATORS.contains(&text) => checks.not_supported(&operator, &OPERATORS),
        _ => {}
    }
    if name.exists() && !containers.contains(name.text()) {
        checks.invalid(&name, "must be one of the container or initContainer names in the pod template");
    }
    match values.len() {
        0 => checks.invalid(&values, "at least one value is required"),
        1..=EXIT_CODES_MAX => {}
        _ => checks.too_many(&values, EXIT_CODES_MAX),
    }
    let (mut seen, mut last, mut is_ordered) = (HashSet::new(), i64::MIN, true);
    for value in values.items() {
        if operator.text() == "In" && value.int() == 0 {
            checks.invalid(&value, "must not be 0 for the In operator");
        }
        if !seen.insert(value.int()) {
            checks.duplicate(&value);
        }
        is_ordered &= last <= value.int();
        last = value.int();
    }
    if !is_ordered {
        checks.invalid(&values, "must be ordered");
    }
}

fn pod_conditions(conditions: &At<'_>, checks: &mut Checks) {
    if conditions.len() > CONDITIONS_MAX {
        checks.too_many(conditions, CONDITIONS_MAX);
    }
    for condition in conditions.items() {
        checks.qualified_name(&condition.get("type"));
        let status = condition.get("status");
        match status.text() {
            "" => checks.required(&status, &valid(&STATUSES)),
            text if !STATUSES.contains(&text) => checks.not_supported(&status, &STATUSES),
            _ => {}
        }
    }
}

/// Checks the success policy: when the Job is complete before all of its indexes are.
pub fn success(spec: &At<'_>, checks: &mut Checks) {
    let policy = spec.get("successPolicy");
    if !policy.exists() {
        return;
    }
    if spec.get("completionMode").text() != "Indexed" {
        return checks.invalid(&policy, "requires indexed completion mode");
    }
    let rules = policy.get("rules");
    match rules.len() {
        0 => checks.required(&rules, "at least one rules must be specified when the successPolicy is specified"),
        1..=RULES_MAX => {}
        _ => checks.too_many(&rules, RULES_MAX),
    }
    for rule in rules.items() {
        success_rule(&rule, spec.get("completions").int(), checks);
    }
}

fn success_rule(rule: &At<'_>, completions: i64, checks: &mut Checks) {
    let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
    if !count.exists() && !indexes.exists() {
        checks.required(rule, "at least one of succeededCount or succeededIndexes must be specified");
    }
    if indexes.text().len() > INDEXES_LEN_MAX {
        checks.too_long(&indexes, INDEXES_LEN_MAX);
    }
    let total = count_indexes(indexes.text(), completions);
    if let Err(problem) = &total {
        checks.invalid(&indexes, format!("error parsing succeededIndexes: {problem}"));
    }
    checks.not_negative(&count);
    if count.int() > completions {
        checks.invalid(&count, format!("must be less than or equal to {completions} (the number of specified completions)"));
    }
    let total = total.unwrap_or_default();
    if indexes.exists() && count.int() > total {
        let detail = format!("must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)");
        checks.invalid(&count, detail);
    }
}

/// The number of indexes in a list such as `0,2-4`; they must ascend and be less than the completions.
fn count_indexes(list: &str, completions: i64) -> Result<i64, Message> {
    let (mut last, mut total) = (None, 0);
    for interval in list.split(',').filter(|_| !list.is_empty()) {
        let (first, end) = interval_of(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}").into());
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn interval_of(interval: &str, completions: i64) -> Result<(i64, i64), Message> {
    let index = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}").into()),
        Ok(index) if index >= completions => Err(format!("too large index: {text:?}").into()),
        Ok(index) => Ok(index),
    };
    match interval.split('-').collect::<Vec<_>>().as_slice() {
        [only] => index(only).map(|only| (only, only)),
        [first, end] => match (index(first)?, index(end)?) {
            (first, end) if first >= end => Err(format!("non-increasing order, previous: {first}, current: {end}").into()),
            interval => Ok(interval),
        },
        _ => Err(format!(
            "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        )
        .into()),
    }
}
