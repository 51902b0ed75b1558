//! VolumeAttachment: a request to attach a volume to a node, and its progress.

use super::Rules;
use super::storage::driver_name;
use crate::at::At;
use crate::checks::{Checks, IMMUTABLE};
use crate::format;

/// The rules of VolumeAttachments.
pub const RULES: Rules = Rules::new(|_| {}, validate_create, validate_update);

const METADATA_BYTES_MAX: usize = 256 * 1024;
const MESSAGE_LEN_MAX: usize = 1024;

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    validate(object, checks);
    // These checks are newer than the kind, so they apply only to new objects.
    let attacher = object.find("spec.attacher");
    if !attacher.text().is_empty() {
        driver_name(&attacher, checks);
    }
    let volume = object.find("spec.source.persistentVolumeName");
    if !volume.text().is_empty() {
        checks.dns_subdomain(&volume);
    }
}

fn validate(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    if spec.get("attacher").text().is_empty() {
        checks.required(&spec.get("attacher"), "");
    }
    source(&spec.get("source"), checks);
    checks.format(&spec.get("nodeName"), format::dns_subdomain(spec.get("nodeName").text()));
    status(&object.get("status"), checks);
}

fn source(source: &At<'_>, checks: &mut Checks) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let name = source.get("persistentVolumeName");
    match (source.get("inlineVolumeSpec").exists(), name.exists()) {
        (false, false) => checks.required(source, ONE),
        (true, true) => checks.forbidden(source, ONE),
        (false, true) if name.text().is_empty() => checks.required(&name, "must specify non empty persistentVolumeName"),
        (false, true) => {}
        (true, false) => inline(&source.get("inlineVolumeSpec"), checks),
    }
}

/// Only volumes of CSI drivers can be attached without a PersistentVolume.
fn inline(spec: &At<'_>, checks: &mut Checks) {
    if spec.get("claimRef").exists() {
        checks.forbidden(&spec.get("claimRef"), "may not be specified in the context of inline volumes");
    }
    if !spec.get("csi").exists() {
        checks.required(&spec.get("csi"), "");
    }
}

fn status(status: &At<'_>, checks: &mut Checks) {
    let metadata = status.get("attachmentMetadata");
    let bytes: usize = metadata.entries().map(|(key, value)| key.len() + value.text().len()).sum();
    if bytes > METADATA_BYTES_MAX {
        checks.too_long(&metadata, METADATA_BYTES_MAX);
    }
    for field in ["attachError", "detachError"] {
        let error = status.get(field);
        if error.get("message").text().len() > MESSAGE_LEN_MAX {
            checks.too_long(&error.get("message"), METADATA_BYTES_MAX);
        }
        if error.get("errorCode").int() < 0 {
            checks.invalid(&error.get("errorCode"), format!("must be between 0 and {}, inclusive", i32::MAX));
        }
    }
}

fn validate_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate(new, checks);
    if !new.get("spec").same(&old.get("spec")) {
        checks.invalid(&new.get("spec"), IMMUTABLE);
    }
}
