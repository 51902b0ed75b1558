//! Which Services' rules follow from which events.

use kube::Resource;

use super::*;
use crate::fixtures::{config, http, service, web};

fn verdicts(state: &mut State) -> Vec<String> {
    state
        .rules()
        .elements
        .into_iter()
        .filter(|(_, verdict)| !verdict.is_empty())
        .map(|((_, key), verdict)| format!("{key} {}", verdict.split('-').next().unwrap_or_default()))
        .collect()
}

fn key(object: &impl Resource) -> Key {
    (object.meta().namespace.clone().unwrap_or_default(), object.meta().name.clone().unwrap_or_default())
}

impl State {
    fn add_service(&mut self, service: &core::Service) {
        self.set_service(key(service), Some(service));
    }

    fn add_slice(&mut self, slice: &discovery::EndpointSlice) {
        self.set_slice(key(slice), Some(slice));
    }
}

#[test]
fn rules_follow_services_and_slices_in_any_order() {
    let mut state = State::new(config());
    let ready: &[_] = &[("10.244.1.2", "here", "ready")];
    state.add_slice(&http("web", ready));
    assert_eq!(verdicts(&mut state), [] as [&str; 0]);

    state.add_service(&service("web", web("10.96.0.1")));
    assert_eq!(verdicts(&mut state), ["10.96.0.1 . tcp . 80 goto service"]);
    assert!(!state.is_dirty());
    state.add_service(&service("web", web("10.96.0.1")));
    assert!(!state.is_dirty(), "nothing that matters changed");

    state.add_slice(&http("web", &[]));
    assert_eq!(verdicts(&mut state), ["10.96.0.1 . tcp . 80 goto refuse"]);
    state.add_slice(&http("web", ready));
    assert_eq!(verdicts(&mut state), ["10.96.0.1 . tcp . 80 goto service"]);

    // The same slice, of another Service from now on.
    let mut moved = http("api", ready);
    moved.metadata.name = Some("web-abcde".to_owned());
    state.add_slice(&moved);
    state.add_service(&service("api", web("10.96.0.2")));
    assert_eq!(verdicts(&mut state), ["10.96.0.2 . tcp . 80 goto service", "10.96.0.1 . tcp . 80 goto refuse"]);

    state.set_service(key(&service("web", web("10.96.0.1"))), None);
    assert_eq!(verdicts(&mut state), ["10.96.0.2 . tcp . 80 goto service"]);
    state.set_slice(key(&moved), None);
    assert_eq!(verdicts(&mut state), ["10.96.0.2 . tcp . 80 goto refuse"]);
    state.set_service(key(&service("api", web("10.96.0.2"))), None);
    assert_eq!(verdicts(&mut state), [] as [&str; 0]);
}

/// A Service made that many seconds after others, that wants an external address.
fn claiming(name: &str, ip: &str, age: u32) -> k8s_openapi::api::core::v1::Service {
    let mut spec = web(ip);
    spec["externalIPs"] = serde_json::json!(["203.0.113.7"]);
    let mut service = serde_json::to_value(service(name, spec)).expect("a value");
    service["metadata"]["creationTimestamp"] = format!("2026-01-01T00:00:{age:02}Z").into();
    service["metadata"]["uid"] = format!("uid-of-{name}").into();
    serde_json::from_value(service).expect("a Service")
}

#[test]
fn the_oldest_service_keeps_an_address_whatever_its_name_and_whether_it_has_endpoints() {
    let mut state = State::new(config());
    // The name of the younger one sorts first, and it alone has endpoints.
    state.add_service(&claiming("b", "10.96.0.2", 1));
    state.add_service(&claiming("a", "10.96.0.1", 2));
    state.add_slice(&http("a", &[("10.244.1.2", "here", "ready")]));
    let claimed = |state: &mut State| -> Vec<String> {
        let rules = state.rules();
        rules.elements.iter().filter(|((_, key), _)| key.starts_with("203.0.113.7")).map(|((of, _), to)| format!("{of:?} {to}")).collect()
    };
    assert_eq!(claimed(&mut state), ["Refused goto refuse"]);
    state.add_slice(&http("b", &[("10.244.1.3", "here", "ready")]));
    assert!(matches!(claimed(&mut state).as_slice(), [one] if one.starts_with("External goto external-") && one.contains("default/b/")));
    // Both cluster addresses work all the while, and the address goes over with its owner.
    assert_eq!(verdicts(&mut state).iter().filter(|line| line.starts_with("10.96.0.")).count(), 2);
    state.set_service(key(&claiming("b", "10.96.0.2", 1)), None);
    assert!(matches!(claimed(&mut state).as_slice(), [one] if one.contains("default/a/")));
}

#[test]
fn addresses_of_the_machine_are_not_served_and_reported_once() {
    let mut state = State::new(config());
    let mut spec = web("10.96.0.1");
    spec["externalIPs"] = serde_json::json!(["192.0.2.1", "10.96.0.10"]);
    state.add_service(&service("web", spec));
    state.add_slice(&http("web", &[("10.244.1.2", "here", "ready")]));
    assert!(state.asks_machine());
    let node: std::net::Ipv4Addr = "192.0.2.1".parse().expect("an address");
    let listening =
        |port| Machine { addresses: [node].into(), listening: [(crate::Protocol::Tcp, std::net::SocketAddrV4::new(node, port))].into() };
    state.set_machine(listening(80));
    let refusals = |state: &mut State| -> Vec<String> { state.take_refused().iter().map(|(_, _, refusal)| refusal.to_string()).collect() };
    assert_eq!(verdicts(&mut state), ["10.96.0.1 . tcp . 80 goto service"]);
    assert_eq!(
        refusals(&mut state),
        [
            "External address 10.96.0.10 is not served: it lies in the range of Service addresses 10.96.0.0/12",
            "External address 192.0.2.1 is not served: a program of the node listens on port 80/tcp there",
        ]
    );
    // Another program ends, and this one's port is free.
    state.set_machine(listening(81));
    assert_eq!(verdicts(&mut state), ["10.96.0.1 . tcp . 80 goto service", "192.0.2.1 . tcp . 80 goto external"]);
    assert_eq!(refusals(&mut state), [] as [&str; 0]);
    state.set_machine(listening(81));
    assert!(!state.is_dirty());
}
