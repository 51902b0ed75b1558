//! CertificateSigningRequest. The server writes name and groups of the requesting user into the spec,
//! because it has authenticated the user.

use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::{format, strategy};

/// The rules of CertificateSigningRequests.
pub const RULES: Rules = Rules { prepare_update, ..Rules::new(|_| {}, validate_create, validate_update) };

const EXPIRATION_SECONDS_MIN: i64 = 600;
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// The spec never changes. `approval` changes only conditions; `status` does not change the conditions of approval.
fn prepare_update(sub: Option<&str>, new: &mut Value, old: &Value) {
    strategy::keep(new, old, "spec");
    let read_conditions = |object: &Value| object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_verdict = |condition: &Value| matches!(condition.get("type").and_then(Value::as_str), Some("Approved" | "Denied"));
    match sub {
        None => strategy::keep(new, old, "status"),
        Some("approval") => {
            let conditions = read_conditions(new);
            strategy::keep(new, old, "status");
            set_conditions(new, conditions);
        }
        Some("status") => {
            let mut conditions: Vec<Value> = read_conditions(old).into_iter().filter(is_verdict).collect();
            conditions.extend(read_conditions(new).into_iter().filter(|condition| !is_verdict(condition)));
            set_conditions(new, conditions);
        }
        Some(_) => {}
    }
}

fn set_conditions(object: &mut Value, conditions: Vec<Value>) {
    if let Some(status) = object.as_object_mut().map(|fields| fields.entry("status").or_insert_with(|| json!({})))
        && let Some(status) = status.as_object_mut()
    {
        if conditions.is_empty() {
            status.remove("conditions");
        } else {
            status.insert("conditions".to_owned(), conditions.into());
        }
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    let request = spec.get("request");
    if let Err(problem) = pem(request.text()) {
        checks.invalid(&request, problem);
    }
    let usages = spec.get("usages");
    if usages.len() == 0 {
        checks.required(&usages, "usages is required");
    }
    let mut seen = HashSet::new();
    for usage in usages.items() {
        if !USAGES.contains(&usage.text()) {
            checks.not_supported(&usage, &USAGES);
        }
        if !seen.insert(usage.text()) {
            checks.duplicate(&usage);
        }
    }
    signer(&spec.get("signerName"), checks);
    let expiration = spec.get("expirationSeconds");
    if expiration.exists() && expiration.int() < EXPIRATION_SECONDS_MIN {
        checks.invalid(&expiration, "may not specify a duration less than 600 seconds (10 minutes)");
    }
    conditions(&object.find("status.conditions"), checks);
}

/// The request must be PEM. The signer, not this check, verifies the signature.
fn pem(request: &str) -> Result<(), &'static str> {
    const WRONG: &str = "PEM block type must be CERTIFICATE REQUEST";
    let bytes = STANDARD.decode(request).map_err(|_| WRONG)?;
    let text = String::from_utf8(bytes).map_err(|_| WRONG)?;
    let body = text
        .split_once("-----BEGIN CERTIFICATE REQUEST-----")
        .and_then(|(_, rest)| rest.split_once("-----END CERTIFICATE REQUEST-----"))
        .map(|(body, _)| body.split_whitespace().collect::<String>());
    match body.map(|body| STANDARD.decode(body)) {
        Some(Ok(der)) if !der.is_empty() => Ok(()),
        _ => Err(WRONG),
    }
}

/// `domain/path`; the domain must be fully qualified.
pub(super) fn signer(name: &At<'_>, checks: &mut Checks) {
    if name.text().is_empty() {
        return checks.required(name, "");
    }
    let Some((domain, path)) = name.text().split_once('/').filter(|(_, path)| !path.contains('/')) else {
        return checks.invalid(name, "must be a fully qualified domain and path of the form 'example.com/signer-name'");
    };
    for message in format::dns_subdomain(domain) {
        checks.invalid_value(&name.path, domain, format!("validating label \"{domain}\": {message}"));
    }
    if domain.split('.').count() < 2 {
        checks.invalid_value(&name.path, domain, "should be a domain with at least two segments separated by dots");
    }
    for message in format::dns_subdomain(path) {
        checks.invalid_value(&name.path, path, format!("validating label \"{path}\": {message}"));
    }
}

fn conditions(conditions: &At<'_>, checks: &mut Checks) {
    let mut seen = HashSet::new();
    for condition in conditions.items() {
        let (kind, status) = (condition.get("type"), condition.get("status"));
        if kind.text().is_empty() {
            checks.required(&kind, "");
        }
        match status.text() {
            "" => checks.required(&status, ""),
            "True" => {}
            _ if matches!(kind.text(), "Approved" | "Denied" | "Failed") => checks.not_supported(&status, &["True"]),
            "False" | "Unknown" => {}
            _ => checks.not_supported(&status, &["True", "False", "Unknown"]),
        }
        if !seen.insert(kind.text()) {
            checks.duplicate(&kind);
        }
        let other = if kind.text() == "Approved" { "Denied" } else { "Approved" };
        if matches!(kind.text(), "Approved" | "Denied") && seen.contains(other) {
            checks.invalid(&kind, "Approved and Denied conditions are mutually exclusive");
        }
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_create(new, checks);
    let (certificate, before) = (new.find("status.certificate"), old.find("status.certificate"));
    if sub != Some("status") && !certificate.same(&before) {
        checks.forbidden(&certificate, "updates may not set certificate content");
    } else if !before.text().is_empty() && certificate.text() != before.text() {
        checks.forbidden(&certificate, "updates may not modify existing certificate content");
    }
    for verdict in ["Approved", "Denied", "Failed"] {
        let has = |object: &At<'_>| object.find("status.conditions").items().any(|condition| condition.get("type").text() == verdict);
        if has(old) && !has(new) {
            checks.forbidden(&new.find("status.conditions"), format!("updates may not remove a condition of type \"{verdict}\""));
        }
    }
}
