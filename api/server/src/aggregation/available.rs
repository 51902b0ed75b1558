//! Whether an aggregated server is available: first the checks of its Service (pure, on stored objects), then the
//! server's answer. Reasons and messages are upstream's.

use api_model::kind::GroupResource;
use api_model::view::View;
use serde_json::Value;

use super::Remote;
use crate::condition::{self, Condition};
use api_upstream::resolve::{port_name, ready};
use api_wire::json;

const AVAILABLE: &str = "Available";

/// Whether the APIService has the condition `Available`.
pub(super) fn is_available(object: &Value) -> bool {
    condition::is_true(object, AVAILABLE)
}

/// The condition of a server that passed all checks.
pub(super) fn passed() -> Condition {
    Condition::new(AVAILABLE, true, "Passed", "all checks passed")
}

/// The condition of a server whose discovery failed.
pub(super) fn failed_discovery(url: &str, why: &str) -> Condition {
    Condition::new(AVAILABLE, false, "FailedDiscoveryCheck", format!("failing or missing response from {url}: {why}"))
}

/// Why no request can be sent to the server; None if one can be sent.
pub(super) fn obstacle(remote: &Remote, view: &dyn View) -> Option<Condition> {
    let Remote { namespace, service: name, port, .. } = remote;
    let not = |reason, message: String| Some(Condition::new(AVAILABLE, false, reason, message));
    let Some(service) = view.get(&GroupResource::new("", "services"), Some(namespace), name) else {
        return not("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"));
    };
    if !matches!(json::text(&service, &["spec", "type"]), "" | "ClusterIP") {
        return None;
    }
    let Some(port_name) = port_name(&service, *port) else {
        return not("ServicePortError", format!("service/{name} in {namespace:?} is not listening on port {port}"));
    };
    let slices = view.endpoint_slices_of(name, namespace);
    if slices.is_empty() {
        return not("EndpointsNotFound", format!("cannot find endpointslices for service/{name} in {namespace:?}"));
    }
    if slices.iter().all(|slice| ready(slice, port_name).is_empty()) {
        let message = format!("endpoints for service/{name} in {namespace:?} have no addresses with port name {port_name:?}");
        return not("MissingEndpoints", message);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use api_upstream::fixtures::FixedView;

    #[test]
    fn each_obstacle_has_upstreams_reason() {
        let object = json!({"metadata": {"name": "v1.x.y"}, "spec": {"group": "x.y", "version": "v1", "service": {"namespace": "n", "name": "s", "port": 443}}});
        let remote = Remote::of(&object).expect("remote");
        let service = |port: u16| json!({"kind": "Service", "metadata": {"name": "s", "namespace": "n"}, "spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": port}]}});
        let slice = |port: &str, ready: bool| {
            json!({"kind": "EndpointSlice", "metadata": {"name": "s-1", "namespace": "n", "labels": {"kubernetes.io/service-name": "s"}},
                "ports": [{"name": port, "port": 1}], "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]})
        };
        let away = json!({"kind": "Service", "metadata": {"name": "s", "namespace": "n"}, "spec": {"type": "ExternalName", "externalName": "example.com"}});
        let cases = [
            (vec![], "ServiceNotFound: service/s in \"n\" is not present"),
            (vec![service(80)], "ServicePortError: service/s in \"n\" is not listening on port 443"),
            (vec![service(443)], "EndpointsNotFound: cannot find endpointslices for service/s in \"n\""),
            (
                vec![service(443), slice("other", true)],
                "MissingEndpoints: endpoints for service/s in \"n\" have no addresses with port name \"https\"",
            ),
            (
                vec![service(443), slice("https", false)],
                "MissingEndpoints: endpoints for service/s in \"n\" have no addresses with port name \"https\"",
            ),
            (vec![service(443), slice("https", true)], ""),
            (vec![away], ""),
        ];
        for (objects, wanted) in cases {
            let view = FixedView(objects.into_iter().map(Arc::new).collect());
            let found = obstacle(&remote, &view).map(|condition| format!("{}: {}", condition.reason, condition.message));
            assert_eq!(found.unwrap_or_default(), wanted);
        }
    }
}
