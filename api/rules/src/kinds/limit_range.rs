//! LimitRange.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, Fields, each, make, text};
use crate::format;
use crate::pod::resources;
use crate::quantity::{self, compare};

/// The rules of LimitRanges.
pub const RULES: Rules = Rules::new(default, validate_create, |_, new, _, checks| validate_create(new, checks));

const KINDS: [&str; 3] = ["Pod", "Container", "PersistentVolumeClaim"];
const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];

/// Defaults for containers: the limit is max; the request is the limit, else min.
fn default(object: &mut Value) {
    let Some(spec) = edit::spec(object) else {
        return;
    };
    for limit in each(spec, "limits").filter(|limit| text(limit, "type") == "Container") {
        for (target, source) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            copy_missing(limit, target, source);
        }
    }
}

fn copy_missing(limit: &mut Fields, target: &str, source: &str) {
    let amounts = limit.get(source).and_then(Value::as_object).cloned().unwrap_or_default();
    if amounts.is_empty() {
        return;
    }
    if let Some(target) = make(limit, target) {
        for (name, amount) in amounts {
            target.entry(name).or_insert(amount);
        }
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let mut seen = HashSet::new();
    for limit in object.find("spec.limits").items() {
        let kind = limit.get("type");
        let wrong = format::qualified_name(kind.text());
        if wrong.is_empty() && !kind.text().contains('/') && !KINDS.contains(&kind.text()) {
            checks.invalid(&kind, "must be a standard limit type or fully qualified");
        }
        checks.format(&kind, wrong);
        if !seen.insert(kind.text()) {
            checks.duplicate(&kind);
        }
        names(&limit, kind.text(), checks);
        let all: BTreeSet<&str> = LISTS.iter().flat_map(|list| limit.get(list).fields()).collect();
        for name in all {
            amounts(&limit, name, checks);
        }
    }
}

fn names(limit: &At<'_>, kind: &str, checks: &mut Checks) {
    for list in LISTS {
        let amounts = limit.get(list);
        if kind == "Pod" && amounts.len() > 0 && matches!(list, "default" | "defaultRequest") {
            checks.forbidden(&amounts, "may not be specified when `type` is 'Pod'");
            continue;
        }
        for (name, amount) in amounts.entries() {
            if matches!(kind, "Pod" | "Container") {
                resources::validate_container_name(&amount.path, name, checks);
            } else {
                resources::validate_name(&amount.path, name, checks);
            }
        }
    }
    let storage = |list: &str| limit.get(list).key("storage").exists();
    if kind == "PersistentVolumeClaim" && !storage("min") && !storage("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        checks.required(&limit.get("limits"), detail);
    }
}

/// Checks that min, request, default and max are in ascending order.
fn amounts(limit: &At<'_>, name: &str, checks: &mut Checks) {
    let amount = |list: &str| limit.get(list).key(name);
    let (min, max, default, request) = (amount("min"), amount("max"), amount("default"), amount("defaultRequest"));
    let exceeds = |a: &At<'_>, b: &At<'_>| a.exists() && b.exists() && compare(a.text(), b.text()) == Ordering::Greater;
    let say =
        |a: &str, av: &At<'_>, b: &str, bv: &At<'_>, word: &str| format!("{a} value {} is {word} than {b} value {}", av.text(), bv.text());
    if exceeds(&min, &max) {
        checks.invalid(&min, say("min", &min, "max", &max, "greater"));
    }
    if exceeds(&min, &request) {
        checks.invalid(&request, say("min", &min, "default request", &request, "greater"));
    }
    if exceeds(&request, &max) {
        checks.invalid(&request, say("default request", &request, "max", &max, "greater"));
    }
    if exceeds(&request, &default) {
        checks.invalid(&request, say("default request", &request, "default limit", &default, "greater"));
    }
    if exceeds(&min, &default) {
        checks.invalid_value(&default.path, min.text(), say("min", &min, "default", &default, "greater"));
    }
    if exceeds(&default, &max) {
        checks.invalid_value(&default.path, max.text(), say("default", &default, "max", &max, "greater"));
    }
    ratio(&amount("maxLimitRequestRatio"), &min, &max, checks);
    if !resources::is_overcommit_allowed(name)
        && default.exists()
        && request.exists()
        && compare(default.text(), request.text()) != Ordering::Equal
    {
        let detail = format!("default value {} must equal to defaultRequest value {} in {name}", default.text(), request.text());
        checks.invalid(&request, detail);
    }
}

fn ratio(ratio: &At<'_>, min: &At<'_>, max: &At<'_>, checks: &mut Checks) {
    if !ratio.exists() {
        return;
    }
    if compare(ratio.text(), "1") == Ordering::Less {
        checks.invalid(ratio, format!("ratio {} is less than 1", ratio.text()));
    }
    let nano = |at: &At<'_>| quantity::parse(at.text()).ok().map(quantity::Quantity::nano);
    let (Some(wanted), Some(least), Some(most)) = (nano(ratio), nano(min), nano(max)) else {
        return;
    };
    // ratio > max / min, without a division: both sides times `min`; the ratio is in billionths.
    let exceeds = least > 0 && wanted.saturating_mul(least) > most.saturating_mul(1_000_000_000);
    if exceeds {
        let thousandths = most.saturating_mul(1_000_000) / least;
        let detail = format!("ratio {} is greater than max/min = {}.{:06}", ratio.text(), thousandths / 1_000_000, thousandths % 1_000_000);
        checks.invalid(ratio, detail);
    }
}
