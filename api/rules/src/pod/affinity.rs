//! Node selectors, affinity and topology spread.

use std::collections::HashSet;

use api_model::field::FieldError;

use crate::at::At;
use crate::checks::Checks;
use crate::format;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks `affinity`.
pub fn validate(affinity: &At<'_>, checks: &mut Checks) {
    let node = affinity.get("nodeAffinity");
    if node.get(REQUIRED).exists() {
        node_selector(&node.get(REQUIRED), checks);
    }
    for term in node.get(PREFERRED).items() {
        weight(&term.get("weight"), checks);
        node_term(&term.get("preference"), false, checks);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for term in affinity.get(kind).get(REQUIRED).items() {
            pod_term(&term, checks);
        }
        for term in affinity.get(kind).get(PREFERRED).items() {
            weight(&term.get("weight"), checks);
            pod_term(&term.get("podAffinityTerm"), checks);
        }
    }
}

fn weight(weight: &At<'_>, checks: &mut Checks) {
    if !(1..=100).contains(&weight.int()) {
        checks.invalid_value(&weight.path, weight.int(), "must be in the range 1-100");
    }
}

/// Checks a `NodeSelector`.
pub fn node_selector(selector: &At<'_>, checks: &mut Checks) {
    let terms = selector.get("nodeSelectorTerms");
    if terms.len() == 0 {
        checks.required(&terms, "must have at least one node selector term");
    }
    for term in terms.items() {
        node_term(&term, true, checks);
    }
}

/// Checks a term. `check_values` is set for required terms; a preferred term may have label values that match nothing.
fn node_term(term: &At<'_>, check_values: bool, checks: &mut Checks) {
    for expression in term.get("matchExpressions").items() {
        let (operator, values) = (expression.get("operator"), expression.get("values"));
        match operator.text() {
            "In" | "NotIn" if values.len() == 0 => checks.required(&values, "must be specified when `operator` is 'In' or 'NotIn'"),
            "Exists" | "DoesNotExist" if values.len() > 0 => {
                checks.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            "Gt" | "Lt" if values.len() != 1 => {
                checks.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => checks.invalid_value(&operator.path, other, "not a valid selector operator"),
        }
        checks.qualified_name(&expression.get("key"));
        for value in values.items().filter(|_| check_values) {
            checks.format(&value, format::label_value(value.text()));
        }
    }
    for field in term.get("matchFields").items() {
        let (key, operator, values) = (field.get("key"), field.get("operator"), field.get("values"));
        match operator.text() {
            "In" | "NotIn" if values.len() == 1 => {}
            "In" | "NotIn" => {
                checks.required(&values, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector");
            }
            other => checks.invalid_value(&operator.path, other, "not a valid selector operator"),
        }
        if key.text() == "metadata.name" {
            for value in values.items() {
                checks.dns_subdomain(&value);
            }
        } else {
            checks.invalid_value(&key.path, key.text(), "not a valid field selector key");
        }
    }
}

fn pod_term(term: &At<'_>, checks: &mut Checks) {
    checks.label_selector(&term.get("labelSelector"));
    checks.label_selector(&term.get("namespaceSelector"));
    for name in term.get("namespaces").texts() {
        for message in format::dns_label(name) {
            checks.invalid_value(&term.path.child("namespace"), name, message);
        }
    }
    let selector = term.get("labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = term.get(field);
        if keys.len() > 0 && !selector.exists() {
            checks.forbidden(&keys, "must not be specified when labelSelector is not set");
            continue;
        }
        for key in keys.items() {
            checks.qualified_name(&key);
        }
    }
    for key in term.get("matchLabelKeys").items() {
        if term.get("mismatchLabelKeys").texts().any(|other| other == key.text()) {
            checks.invalid(&key, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
    let topology = term.get("topologyKey");
    if topology.text().is_empty() {
        checks.required(&topology, "can not be empty");
    }
    for message in format::qualified_name(topology.text()) {
        checks.invalid_value(&topology.path, topology.text(), message);
    }
}

/// Checks `topologySpreadConstraints`.
pub fn validate_spread(constraints: &At<'_>, checks: &mut Checks) {
    let pair = |at: &At<'_>| (at.get("topologyKey").text().to_owned(), at.get("whenUnsatisfiable").text().to_owned());
    let all: Vec<_> = constraints.items().collect();
    for (index, constraint) in all.iter().enumerate() {
        checks.positive(&constraint.get("maxSkew"));
        if constraint.get("topologyKey").text().is_empty() {
            checks.required(&constraint.get("topologyKey"), "can not be empty");
        }
        let action = constraint.get("whenUnsatisfiable");
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action.text()) {
            checks.not_supported(&action, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        let (key, unsatisfiable) = pair(constraint);
        if all.iter().skip(index + 1).any(|other| pair(other) == (key.clone(), unsatisfiable.clone())) {
            let path = constraint.path.child("{topologyKey, whenUnsatisfiable}");
            checks.push(FieldError::duplicate(&path, format!("{{{key}, {unsatisfiable}}}")));
        }
        let domains = constraint.get("minDomains");
        if domains.exists() {
            checks.positive(&domains);
            if action.text() != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", action.text());
                checks.invalid(&domains, detail);
            }
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            checks.one_of_if_set(&constraint.get(policy), &["Honor", "Ignore"]);
        }
        spread_keys(constraint, checks);
        checks.label_selector(&constraint.get("labelSelector"));
    }
}

fn spread_keys(constraint: &At<'_>, checks: &mut Checks) {
    let (keys, selector) = (constraint.get("matchLabelKeys"), constraint.get("labelSelector"));
    if keys.len() > 0 && !selector.exists() {
        checks.forbidden(&keys, "must not be specified when labelSelector is not set");
    }
    let labels: HashSet<&str> = selector.get("matchLabels").fields().collect();
    for key in keys.items() {
        checks.qualified_name(&key);
        let in_expression = selector.get("matchExpressions").items().any(|expression| expression.get("key").text() == key.text());
        if labels.contains(key.text()) || in_expression {
            checks.invalid(&key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}

/// Checks one `TopologySelectorTerm` of a StorageClass.
pub fn topology_term(term: &At<'_>, checks: &mut Checks) {
    let mut keys = HashSet::new();
    for expression in term.get("matchLabelExpressions").items() {
        let (key, values) = (expression.get("key"), expression.get("values"));
        if values.len() == 0 {
            checks.required(&values, "");
        }
        let mut seen = HashSet::new();
        for value in values.items() {
            if !seen.insert(value.text()) {
                checks.duplicate(&value);
            }
        }
        checks.qualified_name(&key);
        if !keys.insert(key.text()) {
            checks.duplicate(&key);
        }
    }
}
