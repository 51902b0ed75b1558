use serde_json::json;

use crate::tests::samples;

#[test]
fn services_and_their_endpoints_have_their_families() {
    let service = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.7", "externalTrafficPolicy": "Local", "externalIPs": ["198.51.100.1"]},
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}, {"hostname": "web.example.com"}]}},
    });
    let slice = json!({
        "metadata": {"name": "web-abc", "namespace": "shop"},
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}, {}],
        "endpoints": [{
            "addresses": ["10.244.0.9", "10.244.0.10"],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "hostname": "h", "nodeName": "one", "zone": "z",
            "targetRef": {"kind": "Pod", "name": "web-1", "namespace": "shop"},
            "hints": {"forZones": [{"name": "z"}]},
        }],
    });
    let endpoints = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "subsets": [{
            "addresses": [{"ip": "10.244.0.9"}],
            "notReadyAddresses": [{"ip": "10.244.0.10"}],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        }],
    });
    insta::assert_snapshot!(
        [samples("", "services", &service), samples("discovery.k8s.io", "endpointslices", &slice), samples("", "endpoints", &endpoints)]
            .concat()
    );
}

#[test]
fn ingresses_and_network_policies_have_their_families() {
    let bucket = json!({"apiGroup": "example.com", "kind": "Bucket", "name": "b"});
    let ingress = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "tls": [{"hosts": ["a.example.com"], "secretName": "cert"}],
            "rules": [{"host": "a.example.com", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}},
                {"path": "/named", "pathType": "Exact", "backend": {"service": {"name": "web", "port": {"name": "http"}}}},
                {"path": "/files", "pathType": "Prefix", "backend": {"resource": bucket}},
                {"path": "/nothing", "pathType": "Prefix", "backend": {}},
            ]}}],
        },
    });
    let policy = json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": {"ingress": [{}, {}]}});
    insta::assert_snapshot!(
        [samples("networking.k8s.io", "ingresses", &ingress), samples("networking.k8s.io", "networkpolicies", &policy)].concat()
    );
}
