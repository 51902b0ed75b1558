//! A small cluster for this crate's tests, written as its users write it.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::objects;
use crate::zone::Zone;

pub(crate) fn service(name: &str, spec: Value) -> Service {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})).expect("a Service")
}

/// A slice `<service>-1`; endpoints are address, hostname (may be empty) and readiness.
pub(crate) fn slice(service: &str, ports: Value, endpoints: &[(&str, &str, bool)]) -> EndpointSlice {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(ip, hostname, ready)| {
            let mut endpoint = json!({"addresses": [ip], "conditions": {"ready": ready}});
            if !hostname.is_empty() {
                endpoint["hostname"] = json!(hostname);
            }
            endpoint
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": format!("{service}-1"), "namespace": "default", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    }))
    .expect("an EndpointSlice")
}

pub(crate) fn add(zone: &mut Zone, service: &Service, slices: &[EndpointSlice]) {
    let key = |name: &Option<String>| ("default".to_owned(), name.clone().unwrap_or_default());
    zone.set_service(&key(&service.metadata.name), objects::Service::parse(service));
    for slice in slices {
        zone.set_slice(&key(&slice.metadata.name), objects::Slice::parse(slice));
    }
}

/// Names of every sort.
pub(crate) fn zone() -> Zone {
    let own = "10.96.0.10".parse().expect("an address");
    let ranges = ["10.96.0.0/12", "10.244.0.0/16"].map(|range| range.parse().expect("a range"));
    let mut zone = Zone::new("cluster.local", ranges.into(), vec![own]).expect("a domain");
    zone.set_namespace("default", true);
    let http = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
    let web = json!({
        "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
        "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}],
    });
    add(&mut zone, &service("web", web), &[slice("web", http.clone(), &[("10.244.0.5", "", true), ("10.244.0.6", "", false)])]);
    let database = json!({"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]});
    let sql = json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]);
    let ends = [("10.244.0.7", "db-0", true), ("10.244.1.7", "db-1", true), ("10.244.1.8", "db-2", false), ("10.244.1.9", "", true)];
    add(&mut zone, &service("db", database.clone()), &[slice("db", sql.clone(), &ends)]);
    let mut eager = database;
    eager["publishNotReadyAddresses"] = json!(true);
    add(&mut zone, &service("eager", eager), &[slice("eager", sql, &[("10.244.1.10", "eager-0", false)])]);
    add(&mut zone, &service("empty", json!({"clusterIP": "None"})), &[]);
    let dual = json!({"clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.2", "fd00::2"], "ports": [{"port": 80}]});
    add(&mut zone, &service("dual", dual), &[]);
    for (name, target) in [
        ("inside", "web.default.svc.cluster.local"),
        ("outside", "example.org"),
        ("astray", "gone.default.svc.cluster.local."),
        ("literal", "192.0.2.7"),
        ("round", "round.default.svc.cluster.local"),
    ] {
        add(&mut zone, &service(name, json!({"type": "ExternalName", "externalName": target})), &[]);
    }
    zone.complete = true;
    zone
}
