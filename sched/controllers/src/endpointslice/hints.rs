//! Which endpoints a Service prefers near its clients, as hints on the endpoints.
//!
//! `spec.trafficDistribution` hints every ready endpoint at its own zone, and with `PreferSameNode` at its own Node too. The
//! annotation `service.kubernetes.io/topology-mode: Auto`, which comes first, shares the endpoints out to the zones
//! ([`proportional`](super::proportional)).

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, ForNode, ForZone};

use crate::meta;

/// The annotation that asks for hints in proportion to the zones, and its older name, which comes first.
const TOPOLOGY_MODE: [&str; 2] = ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

/// How the endpoints of a Service are hinted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not at all.
    Off,
    /// At their own zones.
    Zone,
    /// At their own Nodes and zones.
    Node,
    /// In proportion to the zones.
    Proportional,
}

/// The mode of a Service.
pub fn mode(service: &Service) -> Mode {
    let annotation = TOPOLOGY_MODE.iter().find_map(|key| meta::annotation(&service.metadata, key));
    if matches!(annotation, Some("Auto" | "auto")) {
        return Mode::Proportional;
    }
    match distribution(service) {
        Some("PreferClose" | "PreferSameZone") => Mode::Zone,
        Some("PreferSameNode") => Mode::Node,
        _ => Mode::Off,
    }
}

/// `spec.trafficDistribution`.
pub fn distribution(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.traffic_distribution.as_deref()
}

/// The hints at a zone.
pub fn at_zone(zone: &str) -> EndpointHints {
    EndpointHints { for_zones: Some(vec![ForZone { name: zone.to_owned() }]), for_nodes: None }
}

/// The hints of an endpoint that depend on nothing but itself; none for an endpoint that is not ready.
pub fn of(endpoint: &Endpoint, mode: Mode) -> Option<EndpointHints> {
    if !matches!(mode, Mode::Zone | Mode::Node) || !is_ready(endpoint) {
        return None;
    }
    let node = endpoint.node_name.as_ref().filter(|_| mode == Mode::Node);
    let for_zones = endpoint.zone.as_ref().map(|zone| vec![ForZone { name: zone.clone() }]);
    let for_nodes = node.map(|node| vec![ForNode { name: node.clone() }]);
    (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_zones, for_nodes })
}

/// Whether the endpoint is ready.
pub fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_annotation_comes_before_the_field() {
        let cases = [
            (json!({}), None, Mode::Off),
            (json!({}), Some("PreferClose"), Mode::Zone),
            (json!({}), Some("PreferSameZone"), Mode::Zone),
            (json!({}), Some("PreferSameNode"), Mode::Node),
            (json!({"service.kubernetes.io/topology-mode": "Auto"}), Some("PreferSameNode"), Mode::Proportional),
            (json!({"service.kubernetes.io/topology-mode": "auto"}), None, Mode::Proportional),
            (json!({"service.kubernetes.io/topology-mode": "Disabled"}), Some("PreferClose"), Mode::Zone),
            (
                json!({"service.kubernetes.io/topology-aware-hints": "Disabled", "service.kubernetes.io/topology-mode": "Auto"}),
                None,
                Mode::Off,
            ),
        ];
        for (annotations, distribution, expected) in cases {
            let service = json!({"metadata": {"annotations": annotations}, "spec": {"trafficDistribution": distribution}});
            let service: Service = serde_json::from_value(service.clone()).expect("a Service");
            assert_eq!(mode(&service), expected, "{annotations} {distribution:?}");
        }
    }

    #[test]
    fn ready_endpoints_are_hinted_at_what_is_known_of_them() {
        let endpoint = |ready: bool, node: Value, zone: Value| -> Endpoint {
            serde_json::from_value(json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "nodeName": node, "zone": zone}))
                .expect("an endpoint")
        };
        let cases = [
            (endpoint(true, json!("n"), json!("z")), Mode::Zone, json!({"forZones": [{"name": "z"}]})),
            (endpoint(true, json!("n"), json!("z")), Mode::Node, json!({"forZones": [{"name": "z"}], "forNodes": [{"name": "n"}]})),
            (endpoint(true, json!("n"), json!(null)), Mode::Node, json!({"forNodes": [{"name": "n"}]})),
            (endpoint(true, json!("n"), json!(null)), Mode::Zone, json!(null)),
            (endpoint(false, json!("n"), json!("z")), Mode::Node, json!(null)),
            (endpoint(true, json!("n"), json!("z")), Mode::Off, json!(null)),
        ];
        for (endpoint, mode, expected) in cases {
            assert_eq!(serde_json::to_value(of(&endpoint, mode)).expect("json"), expected, "{mode:?}");
        }
    }
}
