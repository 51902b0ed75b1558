//! Security contexts of Pods and containers.

use std::collections::HashSet;
use std::sync::LazyLock;

use api_model::sysctl::{Namespace, dotted};
use regex::Regex;

use super::volume::descending_path;
use crate::at::At;
use crate::checks::Checks;

/// The highest user or group id.
const ID_MAX: i64 = u32::MAX as i64;
const SYSCTL_LEN_MAX: usize = 253;
const SYSCTL_FORMAT: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const PROFILE_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
/// The longest path: Linux' `PATH_MAX` less one.
const APPARMOR_LEN_MAX: usize = 4095;

#[expect(clippy::expect_used, reason = "the expression is a constant, compiled by a test")]
static SYSCTL: LazyLock<Regex> = LazyLock::new(|| Regex::new(SYSCTL_FORMAT).expect("a valid expression"));

/// Checks the Pod's `securityContext` and the fields of host namespaces.
pub fn validate_pod(spec: &At<'_>, checks: &mut Checks) {
    let context = spec.get("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&context.get(field), checks);
    }
    for group in context.get("supplementalGroups").items() {
        id(&group, checks);
    }
    let share = spec.get("shareProcessNamespace");
    if share.flag() && spec.get("hostPID").flag() {
        let path = context.path.child("shareProcessNamespace");
        checks.invalid_value(&path, true, "ShareProcessNamespace and HostPID cannot both be enabled");
    }
    sysctls(spec, &context.get("sysctls"), checks);
    checks.one_of_if_set(&context.get("fsGroupChangePolicy"), &["Always", "OnRootMismatch"]);
    seccomp(&context.get("seccompProfile"), checks);
    apparmor(&context.get("appArmorProfile"), checks);
    checks.one_of_if_set(&context.get("supplementalGroupsPolicy"), &["Merge", "Strict"]);
    checks.one_of_if_set(&context.get("seLinuxChangePolicy"), &["MountOption", "Recursive"]);
    if spec.get("hostUsers").value() == Some(&serde_json::Value::Bool(false)) {
        for (field, name) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
            if spec.get(field).flag() {
                checks.forbidden(&spec.get(name), "when `hostUsers` is false");
            }
        }
    }
}

/// Checks a container's `securityContext`.
pub fn validate_container(context: &At<'_>, host_users: bool, checks: &mut Checks) {
    if !context.exists() {
        return;
    }
    id(&context.get("runAsUser"), checks);
    id(&context.get("runAsGroup"), checks);
    let mount = context.get("procMount");
    checks.one_of_if_set(&mount, &["Default", "Unmasked"]);
    if host_users && mount.text() == "Unmasked" {
        checks.invalid(&mount, "`hostUsers` must be false to use `Unmasked`");
    }
    seccomp(&context.get("seccompProfile"), checks);
    if context.get("allowPrivilegeEscalation").value() == Some(&serde_json::Value::Bool(false)) {
        if context.get("privileged").flag() {
            checks.invalid(context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        if context.find("capabilities.add").texts().any(|capability| capability == "CAP_SYS_ADMIN") {
            checks.invalid(context, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    apparmor(&context.get("appArmorProfile"), checks);
}

fn id(at: &At<'_>, checks: &mut Checks) {
    if at.exists() {
        checks.in_range(at, 0, ID_MAX);
    }
}

fn sysctls(spec: &At<'_>, sysctls: &At<'_>, checks: &mut Checks) {
    let mut seen = HashSet::new();
    for sysctl in sysctls.items() {
        let at = sysctl.get("name");
        let name = at.text();
        if name.is_empty() {
            checks.required(&at, "");
        } else if name.len() > SYSCTL_LEN_MAX || !SYSCTL.is_match(name) {
            checks.invalid(&at, format!("must have at most {SYSCTL_LEN_MAX} characters and match regex {SYSCTL_FORMAT}"));
        } else if seen.contains(name) {
            checks.duplicate(&at);
        }
        let namespace = Namespace::of(&dotted(name));
        if spec.get("hostNetwork").flag() && namespace == Some(Namespace::Network) {
            checks.invalid(&at, "may not be specified when 'hostNetwork' is true");
        }
        if spec.get("hostIPC").flag() && namespace == Some(Namespace::Ipc) {
            checks.invalid(&at, "may not be specified when 'hostIPC' is true");
        }
        seen.insert(name);
    }
}

fn seccomp(profile: &At<'_>, checks: &mut Checks) {
    if !profile.exists() {
        return;
    }
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    if kind.text().is_empty() {
        checks.required(&kind, "type is required when seccompProfile is set");
    } else {
        checks.one_of(&kind, &PROFILE_TYPES);
    }
    match (kind.text(), local.exists()) {
        ("Localhost", false) => checks.required(&local, "must be set when seccomp type is Localhost"),
        ("Localhost", true) => descending_path(&local.path, local.text(), checks),
        (_, true) => checks.invalid_value(&local.path, profile.value_or_null(), "can only be set when seccomp type is Localhost"),
        (_, false) => {}
    }
}

fn apparmor(profile: &At<'_>, checks: &mut Checks) {
    if !profile.exists() {
        return;
    }
    let (kind, local) = (profile.get("type"), profile.get("localhostProfile"));
    match kind.text() {
        "" => checks.required(&kind, "type is required when appArmorProfile is set"),
        "Localhost" if local.text().trim().is_empty() && local.text().is_empty() => {
            checks.required(&local, "must be set when AppArmor type is Localhost");
        }
        "Localhost" => {
            if local.text().trim() != local.text() {
                checks.invalid(&local, "must not be padded with whitespace");
            }
            if local.text().len() > APPARMOR_LEN_MAX {
                checks.too_long(&local, APPARMOR_LEN_MAX);
            }
        }
        "RuntimeDefault" | "Unconfined" if local.exists() => checks.invalid(&local, "can only be set when AppArmor type is Localhost"),
        "RuntimeDefault" | "Unconfined" => {}
        _ => checks.not_supported(&kind, &PROFILE_TYPES),
    }
}
