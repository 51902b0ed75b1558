//! RuntimeClass.

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::pod::{self, resources};

/// The rules of RuntimeClasses.
pub const RULES: Rules = Rules { warnings, ..Rules::new(|_| {}, validate_create, validate_update) };

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let handler = object.get("handler");
    checks.format(&handler, crate::format::dns_label(handler.text()));
    let overhead = object.get("overhead");
    if overhead.exists() {
        resources::validate_limits_only(&At::new(overhead.get("podFixed").value(), overhead.path.clone()), checks);
    }
    let scheduling = object.get("scheduling");
    checks.labels(&scheduling.get("nodeSelector"));
    let tolerations = scheduling.get("tolerations");
    pod::validate_tolerations(&tolerations, checks);
    let all: Vec<At<'_>> = tolerations.items().collect();
    for (index, toleration) in all.iter().enumerate() {
        if all.iter().take(index).any(|earlier| earlier.same(toleration)) {
            checks.duplicate(toleration);
        }
    }
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_create(new, checks);
    checks.immutable(&new.get("handler"), &old.get("handler"));
}

fn warnings(object: &At<'_>) -> Vec<String> {
    let selector = object.find("scheduling.nodeSelector");
    pod::warnings::old_labels(&selector)
}
