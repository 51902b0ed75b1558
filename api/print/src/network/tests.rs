use serde_json::{Value, json};

use crate::tests::row;

#[test]
fn services_tell_how_they_are_reached() {
    let cases = [
        (
            json!({"type": "ClusterIP", "clusterIPs": ["10.96.0.1"], "ports": [{"port": 443, "protocol": "TCP"}], "selector": {"app": "web", "a": "1"}}),
            "x | ClusterIP | 10.96.0.1 | <none> | 443/TCP | 90m | a=1,app=web",
        ),
        (
            json!({"type": "NodePort", "clusterIPs": ["10.96.0.2"], "externalIPs": ["1.2.3.4"],
                "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}),
            "x | NodePort | 10.96.0.2 | 1.2.3.4 | 80:30080/TCP,53/UDP | 90m | <none>",
        ),
        (json!({"type": "ClusterIP", "clusterIPs": ["None"]}), "x | ClusterIP | None | <none> | <none> | 90m | <none>"),
        (json!({"type": "LoadBalancer"}), "x | LoadBalancer | <none> | <pending> | <none> | 90m | <none>"),
        (
            json!({"type": "ExternalName", "externalName": "db.example.com"}),
            "x | ExternalName | <none> | db.example.com | <none> | 90m | <none>",
        ),
    ];
    for (spec, wanted) in cases {
        assert_eq!(row("", "Service", json!({"spec": spec})), wanted);
    }
    let balanced = json!({
        "spec": {"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]},
        "status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}, {"ip": "5.6.7.8"}]}},
    });
    assert_eq!(row("", "Service", balanced), "x | LoadBalancer | <none> | 5.6.7.8,lb.example.com,9.9.9.9 | <none> | 90m | <none>");
}

#[test]
fn endpoints_show_three_addresses() {
    let ports = json!([{"port": 80}, {"port": 443}]);
    let two = json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]);
    let endpoints = |subsets: Value| row("", "Endpoints", json!({"subsets": subsets}));
    assert_eq!(endpoints(json!([])), "x | <none> | 90m");
    assert_eq!(endpoints(json!([{"addresses": two, "ports": [{"port": 80}]}])), "x | 10.0.0.1:80,[fd00::1]:80 | 90m");
    assert_eq!(endpoints(json!([{"addresses": two, "ports": ports}])), "x | 10.0.0.1:80,[fd00::1]:80,10.0.0.1:443 + 1 more... | 90m");
    assert_eq!(endpoints(json!([{"addresses": two}])), "x | 10.0.0.1,fd00::1 | 90m");
    assert_eq!(endpoints(json!([{"notReadyAddresses": two, "ports": ports}])), "x |  | 90m");
}

#[test]
fn endpoint_slices_show_three_ports_and_addresses() {
    let slice = json!({
        "addressType": "IPv4",
        "ports": [{"port": 80}, {"name": "any"}, {}, {"port": 1}],
        "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}],
    });
    assert_eq!(row("discovery.k8s.io", "EndpointSlice", slice), "x | IPv4 | 80,any,* + 1 more... | 10.0.0.1,10.0.0.2 | 90m");
    assert_eq!(row("discovery.k8s.io", "EndpointSlice", json!({})), "x |  | <unset> | <unset> | 90m");
}

#[test]
fn ingresses_show_three_hosts() {
    let rules = |hosts: &[&str]| -> Value { hosts.iter().map(|host| json!({"host": host})).collect() };
    let ingress = |spec: Value| row("networking.k8s.io", "Ingress", json!({"spec": spec}));
    assert_eq!(
        ingress(json!({"ingressClassName": "nginx", "rules": rules(&["a", "b"]), "tls": [{}]})),
        "x | nginx | a,b |  | 80, 443 | 90m"
    );
    assert_eq!(ingress(json!({"rules": rules(&["a", "b", "c", "d", "e"])})), "x | <none> | a,b,c + 2 more... |  | 80 | 90m");
    assert_eq!(ingress(json!({"rules": rules(&[""])})), "x | <none> | * |  | 80 | 90m");
    let class = json!({"spec": {"controller": "example.com/c", "parameters": {"apiGroup": "example.com", "kind": "Params", "name": "p"}}});
    assert_eq!(row("networking.k8s.io", "IngressClass", class), "x | example.com/c | Params.example.com/p | 90m");
    assert_eq!(row("networking.k8s.io", "IngressClass", json!({})), "x |  | <none> | 90m");
}

#[test]
fn policies_and_addresses() {
    let policy = json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}});
    assert_eq!(row("networking.k8s.io", "NetworkPolicy", policy), "x | a=b | 90m");
    let ranges = json!({"spec": {"cidrs": ["10.96.0.0/12", "fd00::/108"]}});
    assert_eq!(row("networking.k8s.io", "ServiceCIDR", ranges), "x | 10.96.0.0/12,fd00::/108 | 90m");
    let address = |parent: Value| row("networking.k8s.io", "IPAddress", json!({"spec": {"parentRef": parent}}));
    assert_eq!(address(json!({"resource": "services", "namespace": "default", "name": "web"})), "x | services/default/web | 90m");
    assert_eq!(address(json!({"group": "gw.example.com", "resource": "gateways", "name": "g"})), "x | gateways.gw.example.com/g | 90m");
}
