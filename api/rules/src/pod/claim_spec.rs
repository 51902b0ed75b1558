//! The spec of a PersistentVolumeClaim, which the template of an ephemeral volume contains too.

use crate::at::At;
use crate::checks::Checks;
use crate::pod::resources;
use crate::{format, quantity};

/// Access modes of a claim or volume.
pub const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
/// Volume modes: a device or a file system.
pub const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Checks the spec of a claim.
pub fn validate(spec: &At<'_>, checks: &mut Checks) {
    access_modes(&spec.get("accessModes"), "at least 1 access mode is required", checks);
    checks.label_selector(&spec.get("selector"));
    let request = spec.find("resources.requests.storage");
    // Upstream's path does not contain `requests`.
    let at = At::new(request.value(), spec.get("resources").path.key("storage"));
    if !at.exists() {
        checks.required(&at, "");
    } else if quantity::parse(at.text()).is_ok_and(|parsed| parsed.nano() <= 0) {
        checks.invalid(&at, "must be greater than zero");
    } else {
        resources::validate_quantity("storage", &at, checks);
    }
    for class in ["storageClassName", "volumeAttributesClassName"] {
        if !spec.get(class).text().is_empty() {
            checks.dns_subdomain(&spec.get(class));
        }
    }
    checks.one_of_if_set(&spec.get("volumeMode"), &VOLUME_MODES);
    for source in ["dataSource", "dataSourceRef"] {
        data_source(&spec.get(source), checks);
    }
}

fn data_source(source: &At<'_>, checks: &mut Checks) {
    if !source.exists() {
        return;
    }
    for field in ["name", "kind"] {
        if source.get(field).text().is_empty() {
            checks.required(&source.get(field), "");
        }
    }
    let group = source.get("apiGroup");
    if group.text().is_empty() && source.get("kind").text() != "PersistentVolumeClaim" {
        let kind = source.get("kind").text();
        checks.invalid_value(&source.path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    if !group.text().is_empty() {
        checks.format(&group, format::dns_subdomain(group.text()));
    }
}

/// There must be at least one access mode, all must be known, and `ReadWriteOncePod` must be the only one.
pub fn access_modes(modes: &At<'_>, missing: &str, checks: &mut Checks) {
    if modes.len() == 0 {
        checks.required(modes, missing);
    }
    for mode in modes.items().filter(|mode| !ACCESS_MODES.contains(&mode.text())) {
        checks.not_supported(&At::new(mode.value(), modes.path.clone()), &ACCESS_MODES);
    }
    let single = modes.texts().any(|mode| mode == "ReadWriteOncePod");
    if single && modes.texts().any(|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode)) {
        checks.forbidden(modes, "may not use ReadWriteOncePod with other access modes");
    }
}
