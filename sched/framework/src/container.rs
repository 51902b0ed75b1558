//! The containers of a Pod.

use k8s_openapi::api::core::v1::Container;

/// Whether an init container is a sidecar, which runs beside the containers.
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}
