//! PodCertificateRequest: a kubelet asks a signer for a certificate for one of its Pods.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer as _;

use super::Rules;
use super::certificate::signer;
use crate::at::At;
use crate::checks::{Checks, IMMUTABLE};
use crate::edit::{self, fill_absent};
use crate::{conditions, format};

/// The rules of PodCertificateRequests.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);

/// The default of the longest lifetime of the certificate.
const EXPIRATION_SECONDS: i64 = 86_400;
const EXPIRATION_SECONDS_MIN: i64 = 3_600;
const EXPIRATION_SECONDS_MAX: i64 = 7_862_400;
/// The least time between `beginRefreshAt` and either end of the validity.
const REFRESH_SECONDS_MIN: i64 = 600;
const VERDICTS: [&str; 3] = ["Denied", "Failed", "Issued"];
/// Fields of the request about the Pod: names, then uids.
const NAMES: [&str; 3] = ["nodeName", "podName", "serviceAccountName"];
const UIDS: [&str; 3] = ["nodeUID", "podUID", "serviceAccountUID"];

fn default(object: &mut Value) {
    if let Some(spec) = edit::spec(object) {
        fill_absent(spec, "maxExpirationSeconds", EXPIRATION_SECONDS);
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    signer(&spec.get("signerName"), checks);
    for field in NAMES {
        checks.format(&spec.get(field), format::dns_subdomain(spec.get(field).text()));
    }
    for field in UIDS {
        if spec.get(field).text().is_empty() {
            checks.required(&spec.get(field), "");
        }
    }
    let life = spec.get("maxExpirationSeconds");
    if !life.exists() {
        checks.required(&life, "must be set");
    } else if !(EXPIRATION_SECONDS_MIN..=EXPIRATION_SECONDS_MAX).contains(&life.int()) {
        checks.invalid(&life, format!("must be in the range [{EXPIRATION_SECONDS_MIN}, {EXPIRATION_SECONDS_MAX}]"));
    }
    for (key, _) in spec.get("unverifiedUserAnnotations").entries() {
        let path = spec.get("unverifiedUserAnnotations").path;
        for message in format::qualified_name(key) {
            checks.invalid_value(&path, key, message);
        }
        if !key.contains('/') {
            checks.invalid_value(&path, key, "must be prefixed by a domain");
        }
    }
    request(&spec.get("stubPKCS10Request"), checks);
}

fn request(at: &At<'_>, checks: &mut Checks) {
    let der = STANDARD.decode(at.text()).unwrap_or_default();
    let whole = X509CertificationRequest::from_der(&der).is_ok_and(|(rest, _)| rest.is_empty());
    if !whole {
        checks.invalid_value(&at.path, at.text(), "must be a valid DER-serialized PKCS#10 certificate signing request");
    }
}

/// The spec never changes. The status has at most one verdict, and a verdict never changes.
fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    checks.immutable(&new.get("spec"), &old.get("spec"));
    if sub != Some("status") {
        return;
    }
    let (conditions, before) = (new.find("status.conditions"), old.find("status.conditions"));
    conditions::validate(&conditions, checks);
    let verdicts = |conditions: &At<'_>| -> Vec<String> {
        conditions.items().map(|c| c.get("type").text().to_owned()).filter(|kind| VERDICTS.contains(&kind.as_str())).collect()
    };
    for condition in conditions.items() {
        let kind = condition.get("type");
        if !VERDICTS.contains(&kind.text()) {
            checks.not_supported(&kind, &VERDICTS);
        } else if condition.get("status").text() != "True" {
            checks.not_supported(&condition.get("status"), &["True"]);
        }
    }
    if verdicts(&conditions).len() > 1 {
        checks.invalid(&conditions, "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"");
    }
    if !verdicts(&before).is_empty() && !new.get("status").same(&old.get("status")) {
        return checks.invalid(&new.get("status"), IMMUTABLE);
    }
    certificate(&new.get("status"), &new.get("spec"), verdicts(&conditions).iter().any(|kind| kind == "Issued"), checks);
}

/// A certificate chain needs its times and the verdict `Issued`; without a chain, these must be absent.
fn certificate(status: &At<'_>, spec: &At<'_>, issued: bool, checks: &mut Checks) {
    let chain = status.get("certificateChain");
    if chain.text().is_empty() {
        if issued {
            checks.required(&chain, "must be set when the request is issued");
        }
        for field in ["notBefore", "beginRefreshAt", "notAfter"] {
            if status.get(field).exists() {
                checks.forbidden(&status.get(field), "must not be set unless the request is issued");
            }
        }
        return;
    }
    if !issued {
        checks.forbidden(&chain, "must not be set unless the request is issued");
    }
    let blocks: Vec<_> = Pem::iter_from_buffer(chain.text().as_bytes()).collect();
    if blocks.is_empty() {
        return checks.invalid(&chain, "issued certificate chain must contain at least one certificate");
    }
    let Some(leaf) = leaf(&blocks) else {
        return checks.invalid(&chain, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks");
    };
    times(status, spec, leaf, checks);
}

/// The validity of the first certificate, in Unix seconds; `None` if a block is not a certificate.
fn leaf(blocks: &[Result<Pem, x509_parser::error::PEMError>]) -> Option<(i64, i64)> {
    let mut first = None;
    for block in blocks {
        let certificate = block.as_ref().ok().filter(|block| block.label == "CERTIFICATE")?.parse_x509().ok()?;
        let validity = certificate.validity();
        first = first.or(Some((validity.not_before.timestamp(), validity.not_after.timestamp())));
    }
    first
}

fn times(status: &At<'_>, spec: &At<'_>, (starts, ends): (i64, i64), checks: &mut Checks) {
    let second = |at: &At<'_>| at.text().parse::<Timestamp>().ok().map(Timestamp::as_second);
    for (field, encoded, words) in [("notBefore", starts, "NotBefore"), ("notAfter", ends, "NotAfter")] {
        match second(&status.get(field)) {
            None => return checks.required(&status.get(field), "must be present and consistent with the issued certificate"),
            Some(time) if time != encoded => {
                return checks.invalid(&status.get(field), format!("must be set to the {words} time encoded in the leaf certificate"));
            }
            Some(_) => {}
        }
    }
    let (life, most) = (ends - starts, spec.get("maxExpirationSeconds").int());
    if life < EXPIRATION_SECONDS_MIN {
        return checks.invalid_value(&status.get("certificateChain").path, life, "leaf certificate lifetime must be >= 1 hour");
    }
    if life > most {
        let detail = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})");
        return checks.invalid_value(&status.get("certificateChain").path, life, detail);
    }
    let refresh = status.get("beginRefreshAt");
    match second(&refresh) {
        None => checks.required(&refresh, "must be present and at least 10 minutes before the certificate expires"),
        Some(time) if time < starts + REFRESH_SECONDS_MIN => {
            checks.invalid(&refresh, "must be at least 10 minutes after status.notBefore");
        }
        Some(time) if time > ends - REFRESH_SECONDS_MIN => {
            checks.invalid(&refresh, "must be at least 10 minutes before status.notAfter");
        }
        Some(_) => {}
    }
}
