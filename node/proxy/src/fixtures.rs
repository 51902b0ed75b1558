//! Services and EndpointSlices for this crate's tests, written as their users write them.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use api_client::demand::ACTIVATED_BY;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::Config;
use crate::machine::Machine;
use crate::rules::{RuleSet, ServiceRules, rules};
use crate::service;

pub(crate) fn config() -> Config {
    Config {
        prefix: "sk1".to_owned(),
        node_name: "here".to_owned(),
        node_ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        cluster_cidr: "10.244.0.0/16".parse().expect("a range"),
        service_cidr: "10.96.0.0/12".parse().expect("a range"),
        reserved_ports: vec![10250],
        exclude: vec![Ipv4Addr::new(10, 96, 0, 10)],
        min_sync_period: Config::MIN_SYNC_PERIOD,
        activator: Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 40_000)),
    }
}

/// A Service `default/<name>` with this spec.
pub(crate) fn service(name: &str, spec: Value) -> Service {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})).expect("a Service")
}

/// A Service whose connections wait for endpoints.
pub(crate) fn activated(name: &str, spec: Value) -> Service {
    let mut service = service(name, spec);
    service.metadata.annotations = Some([(ACTIVATED_BY.to_owned(), "web".to_owned())].into());
    service
}

/// The spec of a Service on TCP port 80 at an address.
pub(crate) fn web(ip: &str) -> Value {
    json!({"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ports": [{"name": "http", "port": 80}]})
}

/// An endpoint: address, node, and words of its conditions (`ready`, `serving`, `terminating`).
pub(crate) type End<'a> = (&'a str, &'a str, &'a str);

/// A slice of a Service with one port.
pub(crate) fn slice(service: &str, port: Value, endpoints: &[End<'_>]) -> EndpointSlice {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(ip, node, words)| {
            let has = |word: &str| words.split(' ').any(|w| w == word);
            let conditions = json!({"ready": has("ready"), "serving": has("serving") || has("ready"), "terminating": has("terminating")});
            json!({"addresses": [ip], "nodeName": node, "conditions": conditions})
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": format!("{service}-abcde"), "namespace": "default", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [port],
        "endpoints": endpoints,
    }))
    .expect("an EndpointSlice")
}

pub(crate) fn http(service: &str, endpoints: &[End<'_>]) -> EndpointSlice {
    slice(service, json!({"name": "http", "port": 8080, "protocol": "TCP"}), endpoints)
}

/// The rules of one Service with its slices, on a machine without addresses and listeners of its own.
pub(crate) fn rules_of(service: &Service, slices: &[EndpointSlice]) -> RuleSet {
    let rules = rules_on(&Machine::default(), service, slices);
    let mut all = rules.own;
    all.merge(&rules.external);
    all
}

/// The rules of one Service with its slices, on a machine.
pub(crate) fn rules_on(machine: &Machine, service: &Service, slices: &[EndpointSlice]) -> ServiceRules {
    let config = config();
    let Some(parsed) = service::Service::parse(service, &config) else { return ServiceRules::default() };
    let slices: Vec<_> = slices.iter().filter_map(|slice| service::Slice::parse(slice, &config)).collect();
    let key = ("default".to_owned(), service.metadata.name.clone().unwrap_or_default());
    rules(&key, &parsed, &slices.iter().collect::<Vec<_>>(), &config, machine)
}
