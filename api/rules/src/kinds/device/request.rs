//! One request of a claim: for devices of one class, or a list of alternatives of which the first that fits is used.

use super::{EXPRESSION_LEN_MAX, LIST_LEN_MAX, default_tolerations, selectors, set, taint};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, Fields, fill};

/// Most alternatives of a request.
const ALTERNATIVES_MAX: usize = 8;
/// Most tolerations of a request.
const TOLERATIONS_MAX: usize = 16;
const MODES: [&str; 2] = ["All", "ExactCount"];

/// Fills in a request of a claim.
pub(super) fn default_request(request: &mut Fields) {
    if let Some(exactly) = edit::inner(request, "exactly") {
        fill_in(exactly);
    }
    edit::each(request, "firstAvailable").for_each(fill_in);
}

fn fill_in(request: &mut Fields) {
    fill(request, "allocationMode", "ExactCount");
    if edit::text(request, "allocationMode") == "ExactCount" {
        fill(request, "count", 1);
    }
    default_tolerations(request);
}

/// Checks a request; `devices` is the claim's `devices` field, which contains the request.
pub(super) fn validate(request: &At<'_>, devices: &At<'_>, checks: &mut Checks) {
    let (name, exactly, alternatives) = (request.get("name"), request.get("exactly"), request.get("firstAvailable"));
    checks.dns_label(&name);
    match (exactly.exists(), alternatives.len() > 0) {
        (false, false) => checks.required(request, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            checks.invalid_value(&request.path, serde_json::Value::Null, detail);
        }
        (true, false) => one(&exactly, name.text(), devices, checks),
        (false, true) => set(&alternatives, ALTERNATIVES_MAX, "name", checks, |sub, checks| {
            checks.dns_label(&sub.get("name"));
            one(sub, &format!("{}/{}", name.text(), sub.get("name").text()), devices, checks);
        }),
    }
}

fn one(request: &At<'_>, name: &str, devices: &At<'_>, checks: &mut Checks) {
    let class = request.get("deviceClassName");
    if class.text().is_empty() {
        checks.required(&class, "");
    } else {
        checks.dns_subdomain(&class);
    }
    selectors(&request.get("selectors"), checks);
    set(&request.get("derivedAttributes"), LIST_LEN_MAX, "name", checks, |attribute, checks| {
        derived(attribute, name, devices, checks);
    });
    let (mode, count) = (request.get("allocationMode"), request.get("count"));
    match mode.text() {
        "All" if count.int() != 0 => checks.invalid(&count, "must not be specified when allocationMode is 'All'"),
        "All" => {}
        "ExactCount" => checks.positive(&count),
        _ => checks.not_supported(&mode, &MODES),
    }
    super::list(&request.get("tolerations"), TOLERATIONS_MAX, checks, taint::toleration);
}

/// A derived attribute: an expression over other attributes. A constraint on this request must refer to it.
fn derived(attribute: &At<'_>, request: &str, devices: &At<'_>, checks: &mut Checks) {
    let (name, expression) = (attribute.get("name"), attribute.get("expression"));
    for at in [&name, &expression] {
        if at.text().is_empty() {
            checks.required(at, "");
        }
    }
    if expression.text().len() > EXPRESSION_LEN_MAX {
        checks.too_long(&expression, EXPRESSION_LEN_MAX);
    }
    let concerns = |constraint: &At<'_>| {
        let of = constraint.get("requests");
        let parent = request.split('/').next().unwrap_or_default();
        of.len() == 0 || of.texts().any(|name| name == request || name == parent)
    };
    let speaks =
        |constraint: &At<'_>| ["matchAttribute", "distinctAttribute"].iter().any(|field| constraint.get(field).text() == name.text());
    let used = devices.get("constraints").items().any(|constraint| concerns(&constraint) && speaks(&constraint));
    if !name.text().is_empty() && !used {
        checks.invalid(&name, "must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request");
    }
}
