//! Translates a container of a Pod into a runtime's container spec. Everything is pure except the files of `/etc` that are
//! written for the Pod; `worker::effect` calls the functions in order.

pub(crate) mod command;
pub(crate) mod env;
mod env_file;
pub(crate) mod ephemeral;
pub(crate) mod files;
mod inside;
pub(crate) mod probes;
pub(crate) mod processes;
pub(crate) mod pull;
pub(crate) mod resolv;
pub(crate) mod resources;
pub(crate) mod runtime_choice;
pub(crate) mod security;
pub(crate) mod service_env;
pub(crate) mod spec;
mod user_id;
pub(crate) mod wasm_settings;

pub(crate) use user_id::FIRST as FIRST_ID_OF_WASM;

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

/// The role of a container in its Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: started in order, ended last.
    Sidecar,
    /// One of `spec.containers`.
    Main,
    /// One of `spec.ephemeralContainers`: added while the Pod runs, in no order, and never started again.
    Ephemeral,
}

impl Role {
    /// The path that events name, as upstream.
    fn field_path(self, name: &str) -> String {
        match self {
            Self::Init | Self::Sidecar => format!("spec.initContainers{{{name}}}"),
            Self::Main => format!("spec.containers{{{name}}}"),
            Self::Ephemeral => format!("spec.ephemeralContainers{{{name}}}"),
        }
    }
}

/// Whether a Pod has a user namespace of its own.
pub(crate) fn has_user_namespace(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_users) == Some(false)
}

/// Every container that a Pod was created with, with its role: init containers and sidecars in order, then the others.
pub(crate) fn all(spec: &PodSpec) -> impl Iterator<Item = (Role, &Container)> {
    let early = spec.init_containers.iter().flatten().map(|container| {
        let sidecar = container.restart_policy.as_deref() == Some("Always");
        (if sidecar { Role::Sidecar } else { Role::Init }, container)
    });
    early.chain(spec.containers.iter().map(|container| (Role::Main, container)))
}

/// A container that a Pod was created with, by name.
pub(crate) fn find<'a>(pod: &'a Pod, name: &str) -> Option<(Role, &'a Container)> {
    all(pod.spec.as_ref()?).find(|(_, container)| container.name == name)
}

/// A container of a Pod by name, ephemeral ones included.
pub(crate) fn find_any<'a>(pod: &'a Pod, name: &str) -> Option<(Role, Cow<'a, Container>)> {
    if let Some((role, container)) = find(pod, name) {
        return Some((role, Cow::Borrowed(container)));
    }
    let added = ephemeral::list(pod).find(|container| container.name == name)?;
    Some((Role::Ephemeral, Cow::Owned(ephemeral::as_container(added))))
}

/// The path that events name for a container of any kind, as upstream.
pub(crate) fn field_path(pod: &Pod, name: &str) -> Option<String> {
    find_any(pod, name).map(|(role, _)| role.field_path(name))
}

/// A container that cannot be configured: `CreateContainerConfigError` with this message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(pub(crate) String);
