//! `MatchResources`: the requests to which a policy or a binding applies.

use serde_json::json;

use crate::at::At;
use crate::checks::Checks;
use crate::edit::{Fields, each, fill_absent};
use crate::format;
use crate::kinds::webhook::rule;

const LISTS: [&str; 2] = ["resourceRules", "excludeResourceRules"];

/// Adds defaults, which exclude no request.
pub fn default(matched: &mut Fields) {
    fill_absent(matched, "matchPolicy", "Equivalent");
    fill_absent(matched, "namespaceSelector", json!({}));
    fill_absent(matched, "objectSelector", json!({}));
    for list in LISTS {
        for rule in each(matched, list) {
            fill_absent(rule, "scope", "*");
        }
    }
}

/// Checks the policy, the selectors and the rules.
pub fn validate(matched: &At<'_>, checks: &mut Checks) {
    let policy = matched.get("matchPolicy");
    if policy.exists() {
        checks.one_of_if_set(&policy, &["Equivalent", "Exact"]);
    } else {
        checks.required(&policy, "");
    }
    for field in ["namespaceSelector", "objectSelector"] {
        let selector = matched.get(field);
        if selector.exists() {
            checks.label_selector(&selector);
        } else {
            checks.required(&selector, "");
        }
    }
    for rule in LISTS.into_iter().flat_map(|list| matched.get(list).items()) {
        names(&rule.get("resourceNames"), checks);
        rule::validate(&rule, checks);
    }
}

fn names(names: &At<'_>, checks: &mut Checks) {
    let mut seen: Vec<&str> = Vec::new();
    for name in names.items() {
        checks.format(&name, format::path_segment(name.text()));
        if seen.contains(&name.text()) {
            checks.duplicate(&name);
        } else {
            seen.push(name.text());
        }
    }
}
