//! From a Service and its Pods to its Endpoints object.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::{meta, pods, service};

/// The label that names the managing controller.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
/// The annotation of objects in which not all addresses fit.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The highest number of addresses in one object, upstream's.
const ADDRESSES_MAX: usize = 1000;

/// A write.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// All is right.
    Nothing,
    /// Make the object.
    Create(Box<Endpoints>),
    /// Change it by a JSON merge patch.
    Change(Value),
}

/// Whether this controller made the object: then it is deleted when its Service is gone.
pub fn is_ours(endpoints: &Endpoints) -> bool {
    meta::label(&endpoints.metadata, MANAGED_BY) == Some(MANAGER)
}

/// The write that brings the Endpoints of a Service up to date.
pub fn plan(service: &Service, pods: &[Arc<Pod>], current: Option<&Endpoints>) -> Action {
    let (subsets, truncated) = subsets(service, pods);
    let labels = labels(service);
    let Some(current) = current else {
        let annotations = truncated.then(|| BTreeMap::from([(OVER_CAPACITY.to_owned(), "truncated".to_owned())]));
        let (name, namespace) = (service.metadata.name.clone(), service.metadata.namespace.clone());
        let metadata = ObjectMeta { name, namespace, labels: Some(labels), annotations, ..ObjectMeta::default() };
        return Action::Create(Box::new(Endpoints { metadata, subsets: Some(subsets) }));
    };
    let mut patch = meta::merge_patch(&json!({"metadata": {"labels": current.metadata.labels}}), &json!({"metadata": {"labels": labels}}));
    let over = meta::annotation(&current.metadata, OVER_CAPACITY);
    if over.is_some() != truncated {
        meta::overlay(&mut patch, &json!({"metadata": {"annotations": {OVER_CAPACITY: truncated.then_some("truncated")}}}));
    }
    if !meta::semantically_equal(&current.subsets, &Some(subsets.clone())) {
        meta::overlay(&mut patch, &json!({"subsets": subsets}));
    }
    if patch.as_object().is_some_and(serde_json::Map::is_empty) { Action::Nothing } else { Action::Change(patch) }
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels.remove(service::HEADLESS_LABEL);
    if service::is_headless(service) {
        labels.insert(service::HEADLESS_LABEL.to_owned(), String::new());
    }
    labels
}

type Ports = Vec<(String, i32, String, Option<String>)>;

/// The addresses by their ports, and whether some had to be left out; ready addresses come first.
fn subsets(service: &Service, pods: &[Arc<Pod>]) -> (Vec<EndpointSubset>, bool) {
    let publish = service::publishes_not_ready(service);
    let family = service.spec.as_ref().and_then(|spec| spec.ip_families.as_ref()?.first().cloned()).unwrap_or_else(|| "IPv4".to_owned());
    let mut listed: Vec<(bool, Ports, EndpointAddress)> = Vec::new();
    for pod in pods.iter().filter(|pod| service::belongs(pod, publish)) {
        let Some(ip) = service::address_of_family(pod, &family) else { continue };
        let ports = ports_of(service, pod);
        if ports.is_empty() && !(service::is_headless(service) && service::ports(service).is_empty()) {
            continue;
        }
        let address = EndpointAddress {
            ip: ip.to_owned(),
            hostname: service::hostname(pod, service),
            node_name: pods::node_name(pod).map(str::to_owned),
            target_ref: Some(service::target(pod)),
        };
        listed.push((!(publish || pods::is_ready(pod)), ports, address));
    }
    listed.sort_by(|a, b| (a.0, &a.2.ip).cmp(&(b.0, &b.2.ip)));
    let truncated = listed.len() > ADDRESSES_MAX;
    listed.truncate(ADDRESSES_MAX);
    let mut grouped: BTreeMap<Ports, EndpointSubset> = BTreeMap::new();
    for (not_ready, ports, address) in listed {
        let subset = grouped.entry(ports).or_default();
        let side = if not_ready { &mut subset.not_ready_addresses } else { &mut subset.addresses };
        side.get_or_insert_default().push(address);
    }
    let with_ports = |(ports, mut subset): (Ports, EndpointSubset)| {
        subset.ports = (!ports.is_empty()).then(|| ports.into_iter().map(port_value).collect());
        subset
    };
    (grouped.into_iter().map(with_ports).collect(), truncated)
}

fn ports_of(service: &Service, pod: &Pod) -> Ports {
    let port = |port: &k8s_openapi::api::core::v1::ServicePort| {
        let number = service::target_port(port, pod)?;
        Some((port.name.clone().unwrap_or_default(), number, service::protocol(port).to_owned(), port.app_protocol.clone()))
    };
    let mut ports: Ports = service::ports(service).iter().filter_map(port).collect();
    ports.sort();
    ports
}

fn port_value((name, port, protocol, app_protocol): (String, i32, String, Option<String>)) -> EndpointPort {
    EndpointPort { name: (!name.is_empty()).then_some(name), port, protocol: Some(protocol), app_protocol }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(extra: Value) -> Service {
        let mut spec = json!({"clusterIP": "10.96.0.5", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]});
        for (key, value) in extra.as_object().expect("an object") {
            spec[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "ns"}, "spec": spec})).expect("a Service")
    }

    fn pod(name: &str, ip: &str, ready: bool) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        let status = json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": ready}]});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"containers": [], "nodeName": "n"}, "status": status})).expect("a Pod"))
    }

    #[test]
    fn endpoints_made_by_hand_are_left_alone() {
        let Action::Create(made) = plan(&service(json!({})), &[], None) else { panic!("none made") };
        assert!(is_ours(&made));
        let by_hand: Endpoints = serde_json::from_value(json!({"metadata": {"name": "x", "labels": {"app": "x"}}})).expect("Endpoints");
        assert!(!is_ours(&by_hand));
    }

    #[test]
    fn ready_and_unready_addresses_are_separate() {
        let pods = [pod("b", "10.0.0.2", true), pod("a", "10.0.0.1", false)];
        let Action::Create(made) = plan(&service(json!({})), &pods, None) else { panic!("none made") };
        insta::assert_json_snapshot!(made, @r#"
        {
          "apiVersion": "v1",
          "kind": "Endpoints",
          "metadata": {
            "labels": {
              "endpoints.kubernetes.io/managed-by": "endpoint-controller"
            },
            "name": "web",
            "namespace": "ns"
          },
          "subsets": [
            {
              "addresses": [
                {
                  "ip": "10.0.0.2",
                  "nodeName": "n",
                  "targetRef": {
                    "kind": "Pod",
                    "name": "b",
                    "namespace": "ns",
                    "uid": "b"
                  }
                }
              ],
              "notReadyAddresses": [
                {
                  "ip": "10.0.0.1",
                  "nodeName": "n",
                  "targetRef": {
                    "kind": "Pod",
                    "name": "a",
                    "namespace": "ns",
                    "uid": "a"
                  }
                }
              ],
              "ports": [
                {
                  "port": 8080,
                  "protocol": "TCP"
                }
              ]
            }
          ]
        }
        "#);
        assert_eq!(plan(&service(json!({})), &pods, Some(&made)), Action::Nothing);
        let Action::Change(patch) = plan(&service(json!({})), &pods[..1], Some(&made)) else { panic!("no change") };
        assert!(patch.get("subsets").is_some() && patch.get("metadata").is_none());
    }

    #[test]
    fn a_thousand_addresses_and_no_more() {
        let pods: Vec<_> = (0..1100).map(|n| pod(&n.to_string(), &format!("10.0.{}.{}", n / 250, n % 250), n % 2 == 0)).collect();
        let Action::Create(made) = plan(&service(json!({})), &pods, None) else { panic!("none made") };
        let subset = made.subsets.as_ref().and_then(|subsets| subsets.first()).expect("one");
        assert_eq!((subset.addresses.as_ref().map(Vec::len), subset.not_ready_addresses.as_ref().map(Vec::len)), (Some(550), Some(450)));
        assert_eq!(meta::annotation(&made.metadata, OVER_CAPACITY), Some("truncated"));
    }

    #[test]
    fn not_ready_addresses_can_be_published() {
        let Action::Create(made) = plan(&service(json!({"publishNotReadyAddresses": true})), &[pod("a", "10.0.0.1", false)], None) else {
            panic!("none made")
        };
        assert!(made.subsets.iter().flatten().all(|subset| subset.not_ready_addresses.is_none()));
    }
}
