//! ClusterTrustBundle: certificates of authorities that Pods may trust.

use api_model::message::Message;
use std::collections::BTreeMap;

use x509_parser::pem::Pem;

use super::Rules;
use super::certificate::signer;
use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// The rules of ClusterTrustBundles.
pub const RULES: Rules = Rules::new(|_| {}, validate_create, validate_update);

/// The longest bundle, in bytes.
const BUNDLE_BYTES_MAX: usize = 1024 * 1024;
/// The value of a bundle in messages.
const OMITTED: &str = "<value omitted>";

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    validate(object, checks);
    bundle(&object.find("spec.trustBundle"), checks);
}

fn validate(object: &At<'_>, checks: &mut Checks) {
    let by = object.find("spec.signerName");
    name(&object.find("metadata.name"), by.text(), checks);
    if !by.text().is_empty() {
        signer(&by, checks);
    }
}

/// The name of a signer's bundle starts with the signer's name, in which colons replace slashes, and a colon.
fn name(name: &At<'_>, signer: &str, checks: &mut Checks) {
    let text = name.text();
    if text.is_empty() {
        return;
    }
    let wrong = if signer.is_empty() {
        if text.contains(':') {
            vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()]
        } else {
            format::dns_subdomain(text)
        }
    } else {
        let prefix = format!("{}:", signer.replace('/', ":"));
        match text.strip_prefix(&prefix) {
            Some(rest) => format::dns_subdomain(rest),
            None => vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")],
        }
    };
    checks.format(name, wrong);
}

/// A bundle has at least one certificate of an authority, has each once, and has nothing else.
fn bundle(at: &At<'_>, checks: &mut Checks) {
    if at.text().len() > BUNDLE_BYTES_MAX {
        return checks.too_long(at, BUNDLE_BYTES_MAX);
    }
    let before = checks.count();
    let mut anchors: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (number, block) in Pem::iter_from_buffer(at.text().as_bytes()).enumerate() {
        // As in upstream's decoder, the first text that is not a block ends the bundle.
        let Ok(block) = block else { break };
        match anchor(&block) {
            Ok(()) => anchors.entry(block.contents).or_default().push(number),
            Err(problem) => checks.invalid_value(&at.path, OMITTED, format!("entry {number} {problem}")),
        }
    }
    if checks.count() > before {
        return;
    }
    if anchors.is_empty() {
        checks.invalid_value(&at.path, OMITTED, "at least one trust anchor must be provided");
    }
    for numbers in anchors.values().filter(|numbers| numbers.len() > 1) {
        let numbers = numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        checks.invalid_value(&at.path, OMITTED, format!("duplicate trust anchor (indices [{numbers}])"));
    }
}

fn anchor(block: &Pem) -> Result<(), Message> {
    if block.label != "CERTIFICATE" {
        return Err(format!("has bad block type: {}", block.label).into());
    }
    let certificate = block.parse_x509().map_err(|_| "does not parse as X.509".to_owned())?;
    match certificate.basic_constraints() {
        Ok(Some(constraints)) if constraints.value.ca => Ok(()),
        Ok(_) => Err("does not have the CA bit set".into()),
        Err(_) => Err("has invalid basic constraints".into()),
    }
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate(new, checks);
    if !new.find("spec.trustBundle").same(&old.find("spec.trustBundle")) {
        bundle(&new.find("spec.trustBundle"), checks);
    }
    checks.immutable(&new.find("spec.signerName"), &old.find("spec.signerName"));
}
