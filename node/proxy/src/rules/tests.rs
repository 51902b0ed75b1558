//! Rules of Services of every sort, as nft gets them.

use serde_json::{Value, json};

use crate::fixtures::{End, activated, config, http, rules_of, service, slice, web};
use crate::script;

/// What is written for a Service with these endpoints.
fn written(spec: Value, endpoints: &[End<'_>]) -> String {
    let rules = rules_of(&service("web", spec), &[http("web", endpoints)]);
    script::change(&config(), &Default::default(), &rules).replace(" ip sk1-proxy ", " ")
}

fn with(mut spec: Value, more: Value) -> Value {
    let (Value::Object(spec_map), Value::Object(more)) = (&mut spec, more) else { panic!("objects") };
    spec_map.extend(more);
    spec
}

const TWO: &[End<'_>] = &[("10.244.1.2", "here", "ready"), ("10.244.2.2", "there", "ready")];

#[test]
fn a_cluster_address_leads_to_one_of_its_ready_endpoints() {
    insta::assert_snapshot!(written(web("10.96.0.1"), TWO));
}

#[test]
fn one_endpoint_needs_no_choice() {
    insta::assert_snapshot!(written(web("10.96.0.1"), &[("10.244.2.2", "there", "ready"), ("10.244.2.3", "there", "")]));
}

#[test]
fn no_endpoint_is_rejected() {
    let spec = with(web("10.96.0.1"), json!({"type": "NodePort", "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}));
    insta::assert_snapshot!(written(spec, &[("10.244.2.3", "there", "")]));
}

#[test]
fn terminating_endpoints_serve_while_there_is_no_other() {
    let ends = [("10.244.1.2", "here", "serving terminating"), ("10.244.1.3", "here", "terminating")];
    insta::assert_snapshot!(written(web("10.96.0.1"), &ends));
}

#[test]
fn clients_stay_with_their_endpoint() {
    let affinity = json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}});
    insta::assert_snapshot!(written(with(web("10.96.0.1"), affinity), TWO));
}

#[test]
fn node_ports_and_external_addresses_are_masqueraded() {
    let spec = json!({"type": "NodePort", "externalIPs": ["203.0.113.7"], "ports": [{"name": "http", "port": 80, "nodePort": 30080}]});
    insta::assert_snapshot!(written(with(web("10.96.0.1"), spec), TWO));
}

#[test]
fn the_local_policy_keeps_outside_traffic_on_the_node() {
    let spec = json!({
        "type": "NodePort", "externalTrafficPolicy": "Local", "ports": [{"name": "http", "port": 80, "nodePort": 30080}],
    });
    let spec = with(web("10.96.0.1"), spec);
    insta::assert_snapshot!(format!("here and there:\n{}\nonly there:\n{}", written(spec.clone(), TWO), written(spec, &TWO[1..])));
}

#[test]
fn the_internal_local_policy_keeps_cluster_traffic_on_the_node() {
    let spec = with(web("10.96.0.1"), json!({"internalTrafficPolicy": "Local"}));
    insta::assert_snapshot!(format!("here and there:\n{}\nonly there:\n{}", written(spec.clone(), TWO), written(spec, &TWO[1..])));
}

#[test]
fn load_balancers_accept_their_source_ranges() {
    let mut balanced = service(
        "web",
        with(web("10.96.0.1"), json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["198.51.100.0/24", " 203.0.113.0/24"]})),
    );
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.80"}, {"ip": "192.0.2.81", "ipMode": "Proxy"}, {"hostname": "lb"}]}});
    balanced.status = serde_json::from_value(status).expect("a status");
    let rules = rules_of(&balanced, &[http("web", TWO)]);
    insta::assert_snapshot!(script::change(&config(), &Default::default(), &rules).replace(" ip sk1-proxy ", " "));
}

#[test]
fn transports_differ_and_udp_flows_are_stored() {
    let spec = json!({
        "clusterIP": "10.96.0.53",
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}],
    });
    let ends = &[("10.244.1.2", "here", "ready")];
    let slices = [
        slice("names", json!({"name": "dns", "port": 5353, "protocol": "UDP"}), ends),
        slice("names", json!({"name": "dns-tcp", "port": 5354}), ends),
    ];
    let rules = rules_of(&service("names", spec), &slices);
    insta::assert_snapshot!(script::change(&config(), &Default::default(), &rules).replace(" ip sk1-proxy ", " "));
    assert_eq!(format!("{:?}", rules.flows), "{Front { ip: Some(10.96.0.53), port: 53 }: {10.244.1.2:5353}}");
}

#[test]
fn what_has_no_address_of_its_own_has_no_rules() {
    let none = [
        json!({"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}),
        json!({"type": "ExternalName", "externalName": "example.org"}),
        web("10.96.0.10"),
        web("fd00::1"),
        json!({"ports": [{"name": "http", "port": 80}]}),
    ];
    for spec in none {
        assert_eq!(written(spec.clone(), TWO), "", "{spec}");
    }
    let mut foreign = service("web", web("10.96.0.1"));
    foreign.metadata.labels = Some([("service.kubernetes.io/service-proxy-name".to_owned(), "other".to_owned())].into());
    assert_eq!(rules_of(&foreign, &[http("web", TWO)]), Default::default());
}

#[test]
fn connections_wait_while_there_is_no_ready_endpoint() {
    let ports = json!([{"name": "http", "port": 80, "nodePort": 30080}, {"name": "udp", "port": 80, "protocol": "UDP"}]);
    let spec = with(web("10.96.0.1"), json!({"type": "NodePort", "externalIPs": ["203.0.113.7"], "ports": ports}));
    let terminating = [("10.244.1.2", "here", "serving terminating")];
    let rules = rules_of(&activated("web", spec), &[http("web", &terminating)]);
    insta::assert_snapshot!(script::change(&config(), &Default::default(), &rules).replace(" ip sk1-proxy ", " "));
    let activations: Vec<String> = rules.activations.iter().map(|(front, activation)| format!("{front:?} {activation:?}")).collect();
    let service = r#"Activation { service: ("default", "web"), endpoints: [] }"#;
    let fronts = ["Front { ip: None, port: 30080 }", "Front { ip: Some(10.96.0.1), port: 80 }"];
    assert_eq!(activations, fronts.map(|front| format!("{front} {service}")));
}

#[test]
fn connections_that_scale_a_service_are_counted() {
    // The last endpoint has no address of a Pod: the rules lead to it, the activator does not.
    let ends = [TWO[0], TWO[1], ("198.51.100.7", "there", "ready")];
    let rules = rules_of(&activated("web", web("10.96.0.1")), &[http("web", &ends)]);
    insta::assert_snapshot!(script::change(&config(), &Default::default(), &rules).replace(" ip sk1-proxy ", " "));
    let endpoints: Vec<_> = rules.activations.values().flat_map(|activation| &activation.endpoints).map(ToString::to_string).collect();
    assert_eq!(endpoints, ["10.244.1.2:8080", "10.244.2.2:8080"]);
    let policy = json!({"externalTrafficPolicy": "Local", "type": "NodePort", "ports": [{"name": "http", "port": 80, "nodePort": 30080}]});
    let rules = rules_of(&activated("web", with(web("10.96.0.1"), policy)), &[http("web", TWO)]);
    assert!(rules.chains.values().all(|lines| lines.iter().filter(|line| line.starts_with("counter")).count() <= 1), "{rules:?}");
    let local = rules.chains.iter().find(|(name, _)| name.starts_with("external-")).expect("a chain of the node port");
    assert!(local.1.iter().any(|line| line.starts_with("counter name connections-")), "{rules:?}");
}

#[test]
fn nothing_waits_without_an_activator() {
    let config = crate::Config { activator: None, ..config() };
    let parsed = crate::service::Service::parse(&activated("web", web("10.96.0.1")), &config).expect("a Service");
    let key = ("default".to_owned(), "web".to_owned());
    let rules = super::rules(&key, &parsed, &[], &config, &Default::default()).own;
    assert!(rules.activations.is_empty() && rules.counters.is_empty(), "{rules:?}");
    assert_eq!(rules.elements.values().filter(|verdict| *verdict == "goto refuse").count(), 1);
}
