//! Rules of Services of every sort, as nft gets them.

use serde_json::{Value, json};

use crate::fixtures::{End, config, http, rules_of, service, slice, web};
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
