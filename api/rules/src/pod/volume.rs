//! Volumes of a Pod, and the sources of PersistentVolumes.

mod mounts;

use std::collections::{HashMap, HashSet};

use api_model::field::{FieldError, Path};

use super::{claim_spec, env, resources};
use crate::at::At;
use crate::checks::Checks;
use crate::format;
use crate::quantity;

pub use mounts::{validate_devices, validate_mounts};

/// Kinds of volumes, in the order of upstream's checks.
const KINDS: [&str; 31] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
    "local",
];
const FILE_MODE_MAX: i64 = 0o777;
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const HOST_PATH_TYPES: [&str; 8] = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Checks all volumes. Returns the valid ones by name.
pub fn validate_all<'a>(volumes: &At<'a>, pod_name: Option<&str>, checks: &mut Checks) -> HashMap<&'a str, At<'a>> {
    let mut good = HashMap::new();
    let pod_name = pod_name.filter(|name| !name.is_empty());
    let created: HashSet<String> = volumes
        .items()
        .filter(|volume| volume.has("ephemeral"))
        .filter_map(|volume| pod_name.map(|pod| format!("{pod}-{}", volume.get("name").text())))
        .collect();
    for volume in volumes.items() {
        let before = checks.count();
        source(&volume, pod_name, checks);
        let name = volume.get("name");
        if name.text().is_empty() {
            checks.required(&name, "");
        } else {
            checks.dns_label(&name);
        }
        if good.contains_key(name.text()) {
            checks.duplicate(&name);
        }
        if checks.count() == before {
            good.insert(name.text(), volume.clone());
        }
        let claim = volume.find("persistentVolumeClaim.claimName");
        if created.contains(claim.text()) {
            checks.invalid(&claim, "must not reference a PVC that gets created for an ephemeral volume");
        }
    }
    good
}

fn source(volume: &At<'_>, pod_name: Option<&str>, checks: &mut Checks) {
    let mut has_source = false;
    for kind in KINDS.iter().filter(|kind| **kind != "local" && volume.has(kind)) {
        let source = volume.get(kind);
        if has_source {
            checks.forbidden(&source, "may not specify more than 1 volume type");
            continue;
        }
        has_source = true;
        one_source(kind, &source, checks);
        if *kind == "ephemeral" {
            ephemeral(volume, &source, pod_name, checks);
        }
    }
    if !has_source {
        checks.required(volume, "must specify a volume type");
    }
}

/// Checks the sources of a PersistentVolume. Returns their number.
pub fn persistent_source(spec: &At<'_>, checks: &mut Checks) -> usize {
    let mut count = 0;
    for kind in KINDS.into_iter().filter(|kind| spec.has(kind)) {
        let source = spec.get(kind);
        count += 1;
        if count > 1 {
            checks.forbidden(&source, "may not specify more than 1 volume type");
            continue;
        }
        match kind {
            "local" => {
                let path = source.get("path");
                if path.text().is_empty() {
                    checks.required(&path, "");
                } else {
                    no_backsteps(&path.path, path.text(), checks);
                }
            }
            "csi" => {
                driver_name(&source.get("driver"), checks);
                required(&source, &["volumeHandle"], checks);
            }
            _ => one_source(kind, &source, checks),
        }
    }
    count
}

fn required(at: &At<'_>, fields: &[&str], checks: &mut Checks) {
    for field in fields {
        if at.get(field).is_zero() {
            checks.required(&at.get(field), "");
        }
    }
}

fn one_source(kind: &str, source: &At<'_>, checks: &mut Checks) {
    match kind {
        "emptyDir" => {
            let limit = source.get("sizeLimit");
            if quantity::parse(limit.text()).is_ok_and(|limit| limit.nano() < 0) {
                checks.forbidden(&limit, "SizeLimit field must be a valid resource quantity");
            }
        }
        "hostPath" => host_path(source, checks),
        "secret" => keys(source, "secretName", checks),
        "configMap" => keys(source, "name", checks),
        "downwardAPI" => {
            mode(&source.get("defaultMode"), checks);
            for file in source.get("items").items() {
                downward_file(&At::new(file.value(), source.path.clone()), checks);
            }
        }
        "projected" => projected(source, checks),
        "persistentVolumeClaim" => required(source, &["claimName"], checks),
        "nfs" => {
            required(source, &["server", "path"], checks);
            let path = source.get("path");
            if !path.text().starts_with('/') {
                checks.invalid_value(&path.path, path.text(), "must be an absolute path");
            }
        }
        "csi" => driver_name(&source.get("driver"), checks),
        "image" => {
            required(source, &["reference"], checks);
            checks.one_of(&source.get("pullPolicy"), &["Always", "IfNotPresent", "Never"]);
        }
        "gitRepo" => {
            required(source, &["repository"], checks);
            let directory = source.get("directory");
            descending_path(&directory.path, directory.text(), checks);
        }
        "iscsi" => required(source, &["targetPortal", "iqn"], checks),
        "gcePersistentDisk" => required(source, &["pdName"], checks),
        "awsElasticBlockStore" | "cinder" => required(source, &["volumeID"], checks),
        "glusterfs" => required(source, &["endpoints", "path"], checks),
        "rbd" => required(source, &["monitors", "image"], checks),
        "cephfs" => required(source, &["monitors"], checks),
        "azureFile" => required(source, &["secretName", "shareName"], checks),
        "azureDisk" => required(source, &["diskName", "diskURI"], checks),
        "flexVolume" => required(source, &["driver"], checks),
        "vsphereVolume" => required(source, &["volumePath"], checks),
        "photonPersistentDisk" => required(source, &["pdID"], checks),
        "portworxVolume" => required(source, &["volumeID"], checks),
        "scaleIO" => required(source, &["gateway", "system", "volumeName"], checks),
        _ => {}
    }
}

fn host_path(source: &At<'_>, checks: &mut Checks) {
    let (path, kind) = (source.get("path"), source.get("type"));
    if path.text().is_empty() {
        return checks.required(&path, "");
    }
    no_backsteps(&path.path, path.text(), checks);
    if kind.exists() && !HOST_PATH_TYPES.contains(&kind.text()) {
        checks.not_supported(&kind, &HOST_PATH_TYPES);
    }
}

fn driver_name(driver: &At<'_>, checks: &mut Checks) {
    if driver.text().is_empty() {
        return checks.required(driver, "");
    }
    if driver.text().len() > 63 {
        checks.too_long(driver, 63);
    }
    for message in format::dns_subdomain(&driver.text().to_lowercase()) {
        checks.invalid(driver, message);
    }
}

fn ephemeral(volume: &At<'_>, source: &At<'_>, pod_name: Option<&str>, checks: &mut Checks) {
    let template = source.get("volumeClaimTemplate");
    if !template.exists() {
        checks.required(&template, "");
    } else {
        crate::meta::template(&template.get("metadata"), checks);
        claim_spec::validate(&template.get("spec"), checks);
    }
    let name = volume.get("name");
    if let Some(pod) = pod_name.filter(|_| !name.text().is_empty()) {
        let claim = format!("{pod}-{}", name.text());
        for message in format::dns_subdomain(&claim) {
            checks.invalid(&name, format!("PVC name \"{claim}\": {message}"));
        }
    }
}

fn mode(mode: &At<'_>, checks: &mut Checks) {
    if mode.exists() && !(0..=FILE_MODE_MAX).contains(&mode.int()) {
        checks.invalid(mode, FILE_MODE);
    }
}

/// Checks a volume of a Secret or ConfigMap.
fn keys(source: &At<'_>, name: &str, checks: &mut Checks) {
    required(source, &[name], checks);
    mode(&source.get("defaultMode"), checks);
    for item in source.get("items").items() {
        key_to_path(&item, checks);
    }
}

fn key_to_path(item: &At<'_>, checks: &mut Checks) {
    required(item, &["key", "path"], checks);
    not_reserved_path(&item.get("path").path, item.get("path").text(), checks);
    mode(&item.get("mode"), checks);
}

fn downward_file(file: &At<'_>, checks: &mut Checks) {
    required(file, &["path"], checks);
    not_reserved_path(&file.get("path").path, file.get("path").text(), checks);
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    match (field.exists(), resource.exists()) {
        (true, both) => {
            env::field_ref(&field, true, checks);
            if both {
                checks.invalid_value(&file.path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
        }
        (false, true) => resources::validate_field_ref(&resource, true, checks),
        (false, false) => checks.required(file, "one of fieldRef and resourceFieldRef is required"),
    }
    mode(&file.get("mode"), checks);
}

fn projected(projection: &At<'_>, checks: &mut Checks) {
    mode(&projection.get("defaultMode"), checks);
    let mut paths = HashSet::new();
    for source in projection.get("sources").items() {
        let mut count = 0;
        for kind in ["secret", "configMap"] {
            let part = source.get(kind);
            if !part.exists() {
                continue;
            }
            count += 1;
            required(&part, &["name"], checks);
            for item in part.get("items").items() {
                key_to_path(&item, checks);
                taken(&mut paths, item.get("path").text(), part.get("name").text(), projection, checks);
            }
        }
        let downward = source.get("downwardAPI");
        if downward.exists() {
            count += 1;
            for file in downward.get("items").items() {
                downward_file(&At::new(file.value(), downward.path.clone()), checks);
                let path = file.get("path").text();
                taken(&mut paths, path, path, projection, checks);
            }
        }
        let token = source.get("serviceAccountToken");
        if token.exists() {
            count += 1;
            service_account_token(projection, &token, checks);
        }
        let bundle = source.get("clusterTrustBundle");
        if bundle.exists() {
            count += 1;
            required(&bundle, &["path"], checks);
            not_reserved_path(&bundle.get("path").path, bundle.get("path").text(), checks);
        }
        if count > 1 {
            checks.forbidden(&source, "may not specify more than 1 volume type per source");
        }
    }
}

fn taken<'a>(paths: &mut HashSet<&'a str>, path: &'a str, value: &str, projection: &At<'_>, checks: &mut Checks) {
    if !path.is_empty() && !paths.insert(path) {
        checks.invalid_value(&projection.path, value, "conflicting duplicate paths");
    }
}

fn service_account_token(projection: &At<'_>, token: &At<'_>, checks: &mut Checks) {
    let seconds = token.get("expirationSeconds");
    if seconds.int() < 10 * 60 {
        checks.invalid(&seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds.int() > 1 << 32 {
        checks.invalid(&seconds, "may not specify a duration larger than 2^32 seconds");
    }
    let path = projection.path.child("path");
    if token.get("path").text().is_empty() {
        checks.push(FieldError::required(&path, ""));
    } else {
        not_reserved_path(&path, token.get("path").text(), checks);
    }
}

/// A relative path without `..`.
pub fn descending_path(path: &Path, target: &str, checks: &mut Checks) {
    if target.starts_with('/') {
        checks.invalid_value(path, target, "must be a relative path");
    }
    no_backsteps(path, target, checks);
}

fn no_backsteps(path: &Path, target: &str, checks: &mut Checks) {
    if target.split('/').any(|part| part == "..") {
        checks.invalid_value(path, target, "must not contain '..'");
    }
}

/// A relative path that does not start with `..`; the kubelet reserves such names.
pub fn not_reserved_path(path: &Path, target: &str, checks: &mut Checks) {
    descending_path(path, target, checks);
    if target.starts_with("..") && !target.starts_with("../") {
        checks.invalid_value(path, target, "must not start with '..'");
    }
}
