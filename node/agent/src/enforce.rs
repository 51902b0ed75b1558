//! Rejects Pods with security settings that this node cannot enforce. A Pod that runs without the protection that it requested
//! is worse than a Pod that does not run. Pure; reasons and words are the kubelet's where it has them.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, SELinuxOptions, VolumeMount};

use crate::admit::Rejection;
use crate::app_armor;
use crate::container::{self, ConfigError};
use crate::sysctls::AllowedSysctls;

/// Whether the machine's kernel confines by SELinux.
pub(crate) fn has_selinux() -> bool {
    Path::new("/sys/fs/selinux/enforce").exists()
}

/// The security modules of a machine's kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecurityModules {
    /// Whether profiles are enforced.
    pub(crate) app_armor: bool,
    /// Whether the machine has SELinux: a machine without it ignores labels, as container runtimes do.
    pub(crate) selinux: bool,
}

/// Why the Pod is rejected, if it is. `sysctls` are those that this node allows beside the safe ones.
pub(crate) fn rejection(pod: &Pod, modules: SecurityModules, sysctls: &AllowedSysctls) -> Option<Rejection> {
    let spec = pod.spec.as_ref()?;
    let forbidden = || rejected("SysctlForbidden", format!("forbidden sysctl: {}", sysctls.fault(spec)?));
    let app_armor = || rejected("AppArmor", format!("Cannot enforce AppArmor: {}", app_armor::fault(pod, spec, modules.app_armor)?));
    foreign_system(spec).or_else(forbidden).or_else(app_armor).or_else(|| selinux_labels(spec, modules.selinux))
}

fn rejected(reason: &str, message: String) -> Option<Rejection> {
    Some(Rejection { reason: reason.to_owned(), message })
}

fn foreign_system(spec: &PodSpec) -> Option<Rejection> {
    spec.os.as_ref().filter(|os| os.name != "linux")?;
    rejected("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS".to_owned())
}

const NO_SELINUX: &str = "Cannot enforce SELinux: this node does not support SELinux labels";

fn selinux_labels(spec: &PodSpec, selinux: bool) -> Option<Rejection> {
    let of_pod = spec.security_context.as_ref().and_then(|context| context.se_linux_options.as_ref());
    let wanted = selinux && (is_label(of_pod) || container::all(spec).any(|(_, container)| wants_label(container)));
    wanted.then(|| rejected("SELinux", NO_SELINUX.to_owned()))?
}

fn wants_label(container: &Container) -> bool {
    is_label(container.security_context.as_ref().and_then(|context| context.se_linux_options.as_ref()))
}

fn is_label(options: Option<&SELinuxOptions>) -> bool {
    options.is_some_and(|options| *options != SELinuxOptions::default())
}

/// Rejects a container that was added to a Pod after its admission, with settings for which a Pod is rejected. Its AppArmor profile is
/// checked like that of any container.
pub(crate) fn check_added(container: &Container, selinux: bool) -> Result<(), ConfigError> {
    if selinux && wants_label(container) {
        return Err(ConfigError(NO_SELINUX.to_owned()));
    }
    Ok(())
}

/// Why no Pod with a user namespace can use the runtime of a handler, or for a Pod without a RuntimeClass any runtime; the kubelet's words.
/// `without` has the reasons of runtimes that have none, `runtimes` is the number of all.
pub(crate) fn user_namespace_fault(handler: Option<&str>, without: &BTreeMap<&'static str, String>, runtimes: usize) -> Option<String> {
    match handler {
        Some(handler) => without.get(handler).map(|why| {
            format!("can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support user namespaces: {why}")
        }),
        None if without.len() < runtimes => None,
        None => {
            let why = without.values().next().map(|why| format!(": {why}")).unwrap_or_default();
            Some(format!("can't set `spec.hostUsers: false`, runtime does not support user namespaces{why}"))
        }
    }
}

/// Rejects mounts whose options this node cannot enforce. `recursive_read_only`: whether it can make what is mounted below a volume
/// read-only.
pub(crate) fn check_mounts(container: &Container, recursive_read_only: bool) -> Result<(), ConfigError> {
    let refused = |mount: &VolumeMount| {
        if mount.recursive_read_only.as_deref() == Some("Enabled") && !recursive_read_only {
            let name = &mount.name;
            return Some(format!("volume {name:?} requested recursive read-only mode, but it is not supported by the runtime"));
        }
        let options = mount.bind_mount_options.as_deref().unwrap_or_default();
        (!options.is_empty()).then(|| format!("the mount at {} has bindMountOptions, which this node does not support", mount.mount_path))
    };
    match container.volume_mounts.iter().flatten().find_map(refused) {
        Some(why) => Err(ConfigError(why)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value, container: Value, annotations: Value) -> Pod {
        let mut whole = json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": [{"name": "c"}]}});
        for (key, value) in spec.as_object().expect("an object") {
            whole["spec"][key] = value.clone();
        }
        for (key, value) in container.as_object().expect("an object") {
            whole["spec"]["containers"][0][key] = value.clone();
        }
        serde_json::from_value(whole).expect("a pod")
    }

    fn verdict(pod: &Pod, selinux: bool) -> String {
        verdict_with(pod, SecurityModules { app_armor: false, selinux })
    }

    fn verdict_with(pod: &Pod, modules: SecurityModules) -> String {
        rejection(pod, modules, &AllowedSysctls::default())
            .map_or_else(String::new, |rejection| format!("{}: {}", rejection.reason, rejection.message))
    }

    #[test]
    fn fences_that_the_node_does_not_have_are_rejected() {
        let sysctl = |name: &str| json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
        let with = |mut spec: Value, key: &str| {
            spec[key] = json!(true);
            spec
        };
        let armor = |kind: &str| json!({"securityContext": {"appArmorProfile": {"type": kind}}});
        let annotation = |profile: &str| json!({"container.apparmor.security.beta.kubernetes.io/c": profile});
        let no_armor = "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host";
        let none = || json!({});
        for (spec, container, annotations, wanted) in [
            (none(), none(), none(), ""),
            (sysctl("net.ipv4.tcp_syncookies"), none(), none(), ""),
            (sysctl("net/ipv4/tcp_syncookies"), none(), none(), ""),
            (sysctl("kernel.msgmax"), none(), none(), "SysctlForbidden: forbidden sysctl: \"kernel.msgmax\" not allowlisted"),
            (
                with(sysctl("net.ipv4.tcp_syncookies"), "hostNetwork"),
                none(),
                none(),
                "SysctlForbidden: forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled",
            ),
            (with(sysctl("kernel.shm_rmid_forced"), "hostNetwork"), none(), none(), ""),
            (
                with(sysctl("kernel.shm_rmid_forced"), "hostIPC"),
                none(),
                none(),
                "SysctlForbidden: forbidden sysctl: \"kernel.shm_rmid_forced\" not allowed with host IPC enabled",
            ),
            (armor("RuntimeDefault"), none(), none(), no_armor),
            (armor("Unconfined"), none(), none(), ""),
            (none(), armor("Localhost"), none(), no_armor),
            (none(), armor("Unconfined"), none(), ""),
            // As upstream, also a profile that no container uses.
            (armor("RuntimeDefault"), armor("Unconfined"), none(), no_armor),
            (none(), none(), annotation("runtime/default"), no_armor),
            (none(), none(), annotation("unconfined"), ""),
            (
                json!({"os": {"name": "windows"}}),
                none(),
                none(),
                "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
            ),
            (json!({"os": {"name": "linux"}}), none(), none(), ""),
        ] {
            assert_eq!(
                verdict(&pod(spec.clone(), container.clone(), annotations.clone()), true),
                wanted,
                "{spec} {container} {annotations}"
            );
        }
    }

    #[test]
    fn profiles_are_admitted_where_the_kernel_enforces_them() {
        let modules = SecurityModules { app_armor: true, selinux: false };
        let none = || json!({});
        let local = |name: &str| json!({"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": name}}});
        let empty = "AppArmor: Cannot enforce AppArmor: invalid empty AppArmor profile name";
        for (spec, container, annotation, wanted) in [
            (none(), local("own"), none(), ""),
            (local("own"), none(), none(), ""),
            (none(), local(" "), none(), empty),
            (local(" "), local("own"), none(), ""),
            (none(), none(), json!({"container.apparmor.security.beta.kubernetes.io/c": "localhost/"}), empty),
            (none(), none(), json!({"container.apparmor.security.beta.kubernetes.io/c": "localhost/own"}), ""),
        ] {
            let pod = pod(spec.clone(), container.clone(), annotation.clone());
            assert_eq!(verdict_with(&pod, modules), wanted, "{spec} {container} {annotation}");
        }
    }

    #[test]
    fn selinux_labels_count_where_the_machine_has_selinux() {
        let labelled = pod(json!({}), json!({"securityContext": {"seLinuxOptions": {"type": "svirt_lxc_net_t"}}}), json!({}));
        assert_eq!(verdict(&labelled, false), "");
        assert_eq!(verdict(&labelled, true), "SELinux: Cannot enforce SELinux: this node does not support SELinux labels");
        let empty = pod(json!({"securityContext": {"seLinuxOptions": {}}}), json!({}), json!({}));
        assert_eq!(verdict(&empty, true), "");
    }

    #[test]
    fn a_runtime_without_user_namespaces_is_named() {
        let without: BTreeMap<_, _> = [("runc", "Linux 6.3 is needed".to_owned())].into();
        assert_eq!(user_namespace_fault(Some("wasmtime"), &without, 2), None);
        assert_eq!(user_namespace_fault(None, &without, 2), None, "the image decides");
        let fault =
            "can't set `spec.hostUsers: false`, RuntimeClass handler \"runc\" does not support user namespaces: Linux 6.3 is needed";
        assert_eq!(user_namespace_fault(Some("runc"), &without, 2).as_deref(), Some(fault));
        let fault = "can't set `spec.hostUsers: false`, runtime does not support user namespaces: Linux 6.3 is needed";
        assert_eq!(user_namespace_fault(None, &without, 1).as_deref(), Some(fault));
    }

    #[test]
    fn mounts_are_as_specified_or_absent() {
        let mount = |more: Value, recursive: bool| {
            let mut mount = json!({"name": "v", "mountPath": "/v", "readOnly": true});
            for (key, value) in more.as_object().expect("an object") {
                mount[key] = value.clone();
            }
            let pod = pod(json!({}), json!({"volumeMounts": [mount]}), json!({}));
            check_mounts(&pod.spec.expect("a spec").containers[0], recursive).map_err(|error| error.0)
        };
        assert_eq!(mount(json!({}), false), Ok(()));
        assert_eq!(mount(json!({"recursiveReadOnly": "IfPossible"}), false), Ok(()));
        assert_eq!(mount(json!({"recursiveReadOnly": "Enabled"}), true), Ok(()));
        let refused = "volume \"v\" requested recursive read-only mode, but it is not supported by the runtime";
        assert_eq!(mount(json!({"recursiveReadOnly": "Enabled"}), false), Err(refused.to_owned()));
        let refused = "the mount at /v has bindMountOptions, which this node does not support";
        assert_eq!(mount(json!({"bindMountOptions": ["noexec"]}), true), Err(refused.to_owned()));
    }
}
