//! The priorities of Pods that the system needs. Pure.

use k8s_openapi::api::core::v1::Pod;

/// The lowest priority of Pods that the system needs: upstream's `SystemCriticalPriority`.
pub(crate) const CRITICAL_PRIORITY: i32 = 2_000_000_000;
/// The class of Pods without which a node does not work.
const NODE_CRITICAL: &str = "system-node-critical";

/// Whether a Pod is never evicted and always admitted because of its priority. Static Pods are so too, which callers check. Upstream
/// also spares mirror Pods by their annotation; every user can write it, so it counts for nothing here.
pub(crate) fn is_critical(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.priority).is_some_and(|priority| priority >= CRITICAL_PRIORITY)
}

/// Whether a Pod's node does not work without it.
pub(crate) fn is_node_critical(pod: &Pod) -> bool {
    is_critical(pod) && pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref()) == Some(NODE_CRITICAL)
}
