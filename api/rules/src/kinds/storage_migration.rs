//! StorageVersionMigration: a request to rewrite every object of a resource.

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::{conditions, format};

/// The rules of StorageVersionMigrations.
pub const RULES: Rules = Rules::new(|_| {}, validate_create, validate_update);

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let (resource, group) = (object.find("spec.resource.resource"), object.find("spec.resource.group"));
    if resource.text().is_empty() {
        checks.required(&resource, "resource is required");
    } else {
        let wrong = format::dns_1035_label(resource.text());
        if !wrong.is_empty() {
            checks.invalid(&resource, wrong.join(","));
        }
    }
    if !group.text().is_empty() {
        let wrong = format::dns_subdomain(group.text());
        if !wrong.is_empty() {
            checks.invalid(&group, wrong.join(","));
        }
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub != Some("status") {
        validate_create(new, checks);
        return checks.immutable(&new.get("spec"), &old.get("spec"));
    }
    let (version, before) = (new.find("status.resourceVersion"), old.find("status.resourceVersion"));
    if !version.text().is_empty() && !version.text().bytes().all(|b| b.is_ascii_digit()) {
        checks.invalid(&version, "resource version is not well formed");
    }
    conditions::validate(&new.find("status.conditions"), checks);
    if !before.text().is_empty() && version.text() != before.text() {
        checks.invalid(&version, "resourceVersion cannot be updated");
    }
    let holds = |object: &At<'_>, kind: &str| conditions::is_true(&object.find("status.conditions"), kind);
    for (kind, other) in [("Succeeded", "Failed"), ("Failed", "Succeeded")] {
        if holds(old, kind) && !holds(new, kind) {
            let detail = format!("{kind} condition cannot be set to false once it is true");
            checks.invalid(&new.find("status.conditions"), detail);
        }
        if kind == "Succeeded" && holds(new, kind) && holds(new, other) {
            checks.invalid(&new.find("status.conditions"), "Both success and failed conditions cannot be true at the same time");
        }
    }
}
