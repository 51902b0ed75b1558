//! ResourceClaim and ResourceClaimTemplate: requests for devices, constraints on them, and configuration for
//! their drivers.

use std::collections::HashMap;

use serde_json::Value;

use super::request::{self, default_request};
use super::{LIST_LEN_MAX, configuration, fully_qualified_name, list, set, status};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, each};
use crate::meta;

/// The message about a reference to a request that does not exist.
const NO_REQUEST: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

pub(super) fn default(object: &mut Value) {
    if let Some(spec) = edit::spec(object) {
        default_spec(spec);
    }
}

pub(super) fn default_template(object: &mut Value) {
    if let Some(spec) = edit::spec(object).and_then(|template| edit::make(template, "spec")) {
        default_spec(spec);
    }
}

fn default_spec(spec: &mut edit::Fields) {
    if let Some(devices) = edit::inner(spec, "devices") {
        each(devices, "requests").for_each(default_request);
    }
}

pub(super) fn validate_create(claim: &At<'_>, checks: &mut Checks) {
    validate_spec(&claim.get("spec"), checks);
}

pub(super) fn validate_template(template: &At<'_>, checks: &mut Checks) {
    let spec = template.get("spec");
    checks.labels(&spec.find("metadata.labels"));
    meta::annotations(&spec.find("metadata.annotations"), checks);
    validate_spec(&spec.get("spec"), checks);
}

/// Only the status of a claim may change.
pub(super) fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    match sub {
        Some("status") => status::validate(new, old, &RequestNames::new(&new.find("spec.devices")), checks),
        _ => checks.immutable(&new.get("spec"), &old.get("spec")),
    }
}

pub(super) fn update_template(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    checks.immutable(&new.get("spec"), &old.get("spec"));
}

fn validate_spec(spec: &At<'_>, checks: &mut Checks) {
    let devices = spec.get("devices");
    let names = RequestNames::new(&devices);
    set(&devices.get("requests"), LIST_LEN_MAX, "name", checks, |item, checks| request::validate(item, &devices, checks));
    list(&devices.get("constraints"), LIST_LEN_MAX, checks, |item, checks| constraint(item, &names, checks));
    list(&devices.get("config"), LIST_LEN_MAX, checks, |item, checks| {
        names.validate_all(&item.get("requests"), checks);
        configuration(item, checks);
    });
}

fn constraint(constraint: &At<'_>, names: &RequestNames<'_>, checks: &mut Checks) {
    names.validate_all(&constraint.get("requests"), checks);
    let (same, distinct) = (constraint.get("matchAttribute"), constraint.get("distinctAttribute"));
    if same.exists() {
        fully_qualified_name(&same, checks);
    } else if distinct.exists() {
        fully_qualified_name(&distinct, checks);
    } else {
        // Upstream's text, although no field is set.
        let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
        checks.required(constraint, detail);
    }
}

/// The names of the requests of a claim, each with the names of its subrequests.
pub(super) struct RequestNames<'a>(HashMap<&'a str, Vec<&'a str>>);

impl<'a> RequestNames<'a> {
    pub(super) fn new(devices: &At<'a>) -> Self {
        let alternatives = |request: &At<'a>| request.get("firstAvailable").items().map(|sub| sub.get("name").text()).collect();
        Self(devices.get("requests").items().map(|request| (request.get("name").text(), alternatives(&request))).collect())
    }

    fn has(&self, reference: &str) -> bool {
        match reference.split_once('/') {
            None => self.0.contains_key(reference),
            Some((request, sub)) => self.0.get(request).is_some_and(|subs| subs.contains(&sub)),
        }
    }

    /// A reference to a request or to one of its subrequests.
    pub(super) fn validate(&self, reference: &At<'_>, checks: &mut Checks) {
        let parts: Vec<&str> = reference.text().split('/').collect();
        if parts.len() > 2 {
            return checks.invalid(reference, NO_REQUEST);
        }
        for part in parts {
            for message in crate::format::dns_label(part) {
                checks.invalid_value(&reference.path, part, message);
            }
        }
        if !self.has(reference.text()) {
            checks.invalid(reference, NO_REQUEST);
        }
    }

    /// A set of references to requests.
    pub(super) fn validate_all(&self, references: &At<'_>, checks: &mut Checks) {
        set(references, LIST_LEN_MAX, "", checks, |reference, checks| self.validate(reference, checks));
    }
}
