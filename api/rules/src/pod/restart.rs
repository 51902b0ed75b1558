//! The restart policy and the restart rules of a container, and which ended containers may run again by them.

use crate::at::At;
use crate::checks::Checks;

const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const RESTART_ALL: &str = "RestartAllContainers";
const ACTIONS: [&str; 2] = ["Restart", RESTART_ALL];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// Checks `restartPolicy` and `restartPolicyRules` of a container or an init container.
pub fn validate(container: &At<'_>, checks: &mut Checks) {
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    if !policy.exists() {
        if rules.len() > 0 {
            checks.required(&policy, "must specify restartPolicy when restart rules are used");
        }
    } else {
        checks.one_of_if_set(&policy, &POLICIES);
    }
    if rules.len() > RULES_MAX {
        checks.too_many(&rules, RULES_MAX);
    }
    for rule in rules.items() {
        self::rule(&rule, checks);
    }
}

fn rule(rule: &At<'_>, checks: &mut Checks) {
    let (action, codes) = (rule.get("action"), rule.get("exitCodes"));
    if !ACTIONS.contains(&action.text()) {
        checks.not_supported(&action, &ACTIONS);
    }
    if !codes.exists() {
        return checks.required(&codes, "must be specified");
    }
    let (operator, values) = (codes.get("operator"), codes.get("values"));
    if !OPERATORS.contains(&operator.text()) {
        checks.not_supported(&operator, &OPERATORS);
    }
    if values.len() > EXIT_CODES_MAX {
        checks.too_many(&values, EXIT_CODES_MAX);
    }
}

/// Whether a rule of the Pod restarts all its containers, ended ones included.
pub fn may_restart_all(spec: &At<'_>) -> bool {
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| spec.get(list).items());
    let mut rules = containers.flat_map(|container| container.get("restartPolicyRules").items());
    rules.any(|rule| rule.get("action").text() == RESTART_ALL)
}

/// Whether a container that ended with a code may run again. `policy` is the Pod's.
pub fn may_restart(container: Option<&At<'_>>, policy: &str, code: i64) -> bool {
    let own = container.map(|container| container.get("restartPolicy")).filter(At::exists);
    let by_rule = container.filter(|_| own.is_some()).is_some_and(|container| {
        let applies = |rule: At<'_>| {
            let codes = rule.get("exitCodes");
            let listed = codes.get("values").items().any(|value| value.int() == code);
            match codes.get("operator").text() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        };
        container.get("restartPolicyRules").items().any(applies)
    });
    let policy = own.as_ref().map_or(policy, |own| own.text());
    by_rule || policy == "Always" || (policy == "OnFailure" && code != 0)
}
