//! How containers mount volumes.

use std::collections::HashSet;

use api_model::field::FieldError;

use super::{descending_path, required};
use crate::at::At;
use crate::checks::Checks;
use crate::pod::Context;

/// Checks `volumeMounts` of a container.
pub fn validate_mounts(container: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let (mounts, devices) = (container.get("volumeMounts"), container.get("volumeDevices"));
    let mut paths = HashSet::new();
    for mount in mounts.items() {
        let (name, path) = (mount.get("name"), mount.get("mountPath"));
        required(&mount, &["name"], checks);
        let volume = context.volumes.get(name.text());
        if volume.is_none() {
            checks.push(FieldError::not_found(&name.path, name.text()));
        }
        required(&mount, &["mountPath"], checks);
        if !paths.insert(path.text()) {
            checks.invalid(&path, "must be unique");
        }
        if devices.items().any(|device| device.get("name").text() == name.text()) {
            checks.invalid(&name, "must not already exist in volumeDevices");
        }
        if devices.items().any(|device| device.get("devicePath").text() == path.text()) {
            checks.invalid(&path, "must not already exist as a path in volumeDevices");
        }
        sub_path(&mounts, &mount, checks);
        propagation(container, &mounts, &mount, checks);
    }
}

fn sub_path(mounts: &At<'_>, mount: &At<'_>, checks: &mut Checks) {
    let (plain, expression) = (mount.get("subPath"), mount.get("subPathExpr"));
    if !plain.text().is_empty() {
        descending_path(&mounts.path.child("subPath"), plain.text(), checks);
    }
    if !expression.text().is_empty() {
        if !plain.text().is_empty() {
            checks.invalid(&expression, "subPathExpr and subPath are mutually exclusive");
        }
        descending_path(&mounts.path.child("subPathExpr"), expression.text(), checks);
    }
}

fn propagation(container: &At<'_>, mounts: &At<'_>, mount: &At<'_>, checks: &mut Checks) {
    let own = mount.get("mountPropagation");
    let at = At::new(own.value(), mounts.path.child("mountPropagation"));
    checks.one_of_if_set(&at, &["Bidirectional", "HostToContainer", "None"]);
    if own.text() == "Bidirectional" && !container.find("securityContext.privileged").flag() {
        checks.forbidden(&at, "Bidirectional mount propagation is available only to privileged containers");
    }
    let recursive = At::new(mount.get("recursiveReadOnly").value(), mounts.path.child("recursiveReadOnly"));
    match recursive.text() {
        "Enabled" | "IfPossible" => {
            if !mount.get("readOnly").flag() {
                checks.forbidden(&recursive, "may only be specified when readOnly is true");
            }
            if own.exists() && own.text() != "None" {
                checks.forbidden(&recursive, "may only be specified when mountPropagation is None or not specified");
            }
        }
        _ => checks.one_of_if_set(&recursive, &["Disabled", "Enabled", "IfPossible"]),
    }
}

/// Checks `volumeDevices` of a container.
pub fn validate_devices(container: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let mounts = container.get("volumeMounts");
    let devices = container.get("volumeDevices");
    if !context.host_users && devices.len() > 0 {
        checks.forbidden(&devices, "when `hostUsers` is false");
    }
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for device in devices.items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        required(&device, &["name"], checks);
        if !names.insert(name.text()) {
            checks.invalid(&name, "must be unique");
        }
        match context.volumes.get(name.text()) {
            None => checks.push(FieldError::not_found(&name.path, name.text())),
            Some(volume) if volume.get("persistentVolumeClaim").exists() || volume.get("ephemeral").exists() => {}
            Some(_) => checks.invalid(&name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"),
        }
        required(&device, &["devicePath"], checks);
        if !paths.insert(path.text()) {
            checks.invalid(&path, "must be unique");
        }
        if path.text().split('/').any(|part| part == "..") {
            checks.invalid(&path, "can not contain backsteps ('..')");
        }
        if mounts.items().any(|mount| mount.get("name").text() == name.text()) {
            checks.invalid(&name, "must not already exist in volumeMounts");
        }
        if mounts.items().any(|mount| mount.get("mountPath").text() == path.text()) {
            checks.invalid(&path, "must not already exist as a path in volumeMounts");
        }
    }
}
