//! PriorityClass.

use serde_json::Value;

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::fill_absent;
use crate::pod::PREEMPTION_POLICIES;

/// The rules of PriorityClasses.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);

const USER_PRIORITY_MAX: i64 = 1_000_000_000;
/// The classes that may have the reserved prefix, with their values.
const SYSTEM: [(&str, i64); 2] = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

fn default(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fill_absent(fields, "preemptionPolicy", "PreemptLowerPriority");
    }
}

fn validate_create(class: &At<'_>, checks: &mut Checks) {
    let (name, value) = (class.find("metadata.name"), class.get("value"));
    if name.text().starts_with("system-") {
        let problem = match SYSTEM.iter().find(|(system, _)| *system == name.text()) {
            None => Some(format!("{} is not a known system priority class", name.text())),
            Some((system, wanted)) if value.int() != *wanted => Some(format!("value of {system} PriorityClass must be {wanted}")),
            Some((system, _)) if class.get("globalDefault").flag() => {
                Some(format!("globalDefault of {system} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(problem) = problem {
            let words = "priority class names with 'system-' prefix are reserved for system use only. error:";
            checks.forbidden(&name, format!("{words} {problem}"));
        }
    } else if value.int() > USER_PRIORITY_MAX {
        checks.forbidden(&value, format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"));
    }
    let policy = class.get("preemptionPolicy");
    if policy.exists() {
        checks.one_of(&policy, &PREEMPTION_POLICIES);
    }
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if new.get("value").int() != old.get("value").int() {
        checks.forbidden(&new.get("value"), "may not be changed in an update.");
    }
    checks.immutable(&new.get("preemptionPolicy"), &old.get("preemptionPolicy"));
}
