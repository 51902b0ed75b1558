//! The Services `kubernetes` and `kube-dns`, and the endpoints of the former.

use std::net::SocketAddr;

use api_model::view::SERVICE_NAME;
use serde_json::{Value, json};

use crate::config::Config;
use crate::services::nth_address;

/// Index of the `kubernetes` Service's address in the range.
const KUBERNETES: u32 = 1;
/// Index of the cluster DNS address in the range.
const DNS: u32 = 10;

/// Both Services.
pub(super) fn services(config: &Config) -> Vec<Value> {
    let address = |number| nth_address(config.service_cluster_ip_range, number).to_string();
    vec![
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {
                "type": "ClusterIP", "sessionAffinity": "None", "clusterIP": address(KUBERNETES),
                "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": config.advertise_address.port()}],
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "kube-dns", "namespace": "kube-system",
                "labels": {"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"},
            },
            "spec": {
                "type": "ClusterIP", "clusterIP": address(DNS), "selector": {"k8s-app": "kube-dns"},
                "ports": [
                    {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": 53},
                    {"name": "dns-tcp", "protocol": "TCP", "port": 53, "targetPort": 53},
                ],
            },
        }),
    ]
}

/// The endpoints of the `kubernetes` Service: servers on one port. A loopback address does not reach the server from a
/// Pod and is not a valid endpoint, so it is not published. Without another address, nothing is published.
pub(super) fn endpoints(servers: &[SocketAddr]) -> Vec<Value> {
    let servers: Vec<_> = servers.iter().filter(|server| !server.ip().is_loopback() && !server.ip().is_unspecified()).collect();
    let Some(first) = servers.first() else { return Vec::new() };
    let family = if first.is_ipv4() { "IPv4" } else { "IPv6" };
    let port = json!({"name": "https", "port": first.port(), "protocol": "TCP"});
    let addresses = servers.iter().map(|server| json!({"ip": server.ip().to_string()})).collect::<Vec<_>>();
    let endpoints = servers.iter().map(|server| json!({"addresses": [server.ip().to_string()], "conditions": {"ready": true}}));
    vec![
        json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": addresses, "ports": [port]}],
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": {(SERVICE_NAME): "kubernetes"}},
            "addressType": family,
            "endpoints": endpoints.collect::<Vec<_>>(),
            "ports": [port],
        }),
    ]
}
