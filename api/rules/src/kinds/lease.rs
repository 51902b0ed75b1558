//! Lease.

use super::Rules;
use crate::at::At;
use crate::checks::Checks;

/// The rules of Leases.
pub const RULES: Rules = Rules::new(|_| {}, validate_create, |_, new, _, checks| validate_create(new, checks));

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    let duration = spec.get("leaseDurationSeconds");
    if duration.exists() && duration.int() <= 0 {
        checks.invalid(&duration, "must be greater than 0");
    }
    checks.not_negative(&spec.get("leaseTransitions"));
    let holder = spec.get("holderIdentity");
    if spec.get("preferredHolder").exists() && !spec.get("strategy").exists() {
        checks.required(&spec.get("strategy"), "strategy must be specified when preferredHolder is specified");
    }
    if holder.exists() && holder.text().is_empty() {
        checks.required(&holder, "if specified, must not be empty");
    }
}
