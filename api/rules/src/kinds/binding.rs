//! Binding: the scheduler's decision to run a Pod on a node.

use super::Rules;
use crate::at::At;
use crate::checks::Checks;

/// The rules of Bindings.
pub const RULES: Rules = Rules::new(|_| {}, validate_create, |_, _, _, _| {});

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let (kind, name) = (object.find("target.kind"), object.find("target.name"));
    if !kind.text().is_empty() && kind.text() != "Node" {
        checks.not_supported(&kind, &["Node", "<empty>"]);
    }
    if name.text().is_empty() {
        checks.required(&name, "");
    }
}
