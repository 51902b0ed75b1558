//! Services, their endpoints, and the kinds that route traffic to them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::printer::{AGE, NAME, Printer, SELECTOR, text as column};
use crate::read::{age, at, list, map, name, number, plain, some_of, text, text_or, texts};
use crate::selector;

/// Most hosts, addresses or ports in a cell; the cell shows the number of the others.
const PRINTED_MAX: usize = 3;

pub(crate) const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "Service",
        columns: &[
            NAME,
            column("Type", "How the Service is reached."),
            column("Cluster-IP", "Its address inside the cluster."),
            column("External-IP", "Its addresses outside the cluster."),
            column("Port(s)", "Its ports, each with its node port if it has one."),
            AGE,
            SELECTOR,
        ],
        cells: service,
    },
    Printer {
        group: "",
        kind: "Endpoints",
        columns: &[NAME, column("Endpoints", "Addresses and ports that stand behind the Service."), AGE],
        cells: |object, now| vec![name(object), endpoints(object).into(), age(object, now)],
    },
    Printer {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        columns: &[
            NAME,
            column("AddressType", "Kind of the addresses."),
            column("Ports", "Ports of every endpoint."),
            column("Endpoints", "Addresses of the endpoints."),
            AGE,
        ],
        cells: endpoint_slice,
    },
    Printer {
        group: "networking.k8s.io",
        kind: "Ingress",
        columns: &[
            NAME,
            column("Class", "The name of the IngressClass resource that should be used for additional configuration"),
            column("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
            column("Address", "Address is a list containing ingress points for the load-balancer"),
            column("Ports", "Ports of TLS configurations that open"),
            AGE,
        ],
        cells: ingress,
    },
    Printer {
        group: "networking.k8s.io",
        kind: "IngressClass",
        columns: &[
            NAME,
            column("Controller", "Controller that is responsible for handling this class"),
            column("Parameters", "A reference to a resource with additional parameters"),
            AGE,
        ],
        cells: ingress_class,
    },
    Printer {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        columns: &[NAME, column("Pod-Selector", "Labels of the Pods that the policy binds."), AGE],
        cells: |object, now| vec![name(object), selector::label_selector(at(object, "spec.podSelector")).into(), age(object, now)],
    },
    Printer {
        group: "networking.k8s.io",
        kind: "ServiceCIDR",
        columns: &[NAME, column("CIDRs", "Ranges that Services get their addresses from."), AGE],
        cells: |object, now| vec![name(object), texts(object, "spec.cidrs").join(",").into(), age(object, now)],
    },
    Printer {
        group: "networking.k8s.io",
        kind: "IPAddress",
        columns: &[NAME, column("ParentRef", "The object that has the address."), AGE],
        cells: ip_address,
    },
];

fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let cluster_ip = texts(object, "spec.clusterIPs").first().copied().unwrap_or("<none>");
    let ports: Vec<String> = list(object, "spec.ports").iter().map(service_port).collect();
    vec![
        name(object),
        text(object, "spec.type").into(),
        cluster_ip.into(),
        external_ip(object).into(),
        if ports.is_empty() { "<none>".into() } else { ports.join(",").into() },
        age(object, now),
        selector::labels(map(object, "spec.selector")).into(),
    ]
}

fn service_port(port: &Value) -> String {
    let (number_, protocol) = (number(port, "port"), text(port, "protocol"));
    match number(port, "nodePort") {
        node_port @ 1.. => format!("{number_}:{node_port}/{protocol}"),
        _ => format!("{number_}/{protocol}"),
    }
}

fn external_ip(object: &Value) -> String {
    let external = texts(object, "spec.externalIPs");
    match text(object, "spec.type") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let given = load_balancer(object);
            let all: Vec<&str> = given.iter().map(String::as_str).chain(external).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => text(object, "spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The address of each entry of a load balancer, or else its host name.
fn load_balancer(object: &Value) -> BTreeSet<String> {
    let points = list(object, "status.loadBalancer.ingress").iter();
    let address = |point: &Value| match (text(point, "ip"), text(point, "hostname")) {
        ("", "") => None,
        ("", hostname) => Some(hostname.to_owned()),
        (ip, _) => Some(ip.to_owned()),
    };
    points.filter_map(address).collect()
}

fn endpoints(object: &Value) -> String {
    let subsets = list(object, "subsets");
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || list(subset, "addresses").iter().map(|address| text(address, "ip"));
        let ports = list(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            all.extend(addresses().map(|ip| host_port(ip, number(port, "port"))));
        }
    }
    some_of(&all, PRINTED_MAX, ",")
}

fn host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let port = |port: &Value| match at(port, "port") {
        Some(number) => plain(Some(number), "*"),
        None => at(port, "name").and_then(Value::as_str).unwrap_or("*").to_owned(),
    };
    let ports: Vec<String> = list(object, "ports").iter().map(port).collect();
    let addresses: Vec<String> =
        list(object, "endpoints").iter().flat_map(|endpoint| texts(endpoint, "addresses")).map(str::to_owned).collect();
    let listed = |items: &[String]| match some_of(items, PRINTED_MAX, ",") {
        text if text.is_empty() => "<unset>".to_owned(),
        text => text,
    };
    vec![name(object), text(object, "addressType").into(), listed(&ports).into(), listed(&addresses).into(), age(object, now)]
}

fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    let tls = !list(object, "spec.tls").is_empty();
    vec![
        name(object),
        text_or(object, "spec.ingressClassName", "<none>"),
        hosts(list(object, "spec.rules")).into(),
        load_balancer(object).into_iter().collect::<Vec<_>>().join(",").into(),
        if tls { "80, 443" } else { "80" }.into(),
        age(object, now),
    ]
}

/// The hosts of the first rules. As upstream, the number of the others counts all rules, with and without a host.
fn hosts(rules: &[Value]) -> String {
    let (mut hosts, mut more) = (Vec::new(), false);
    for rule in rules {
        more |= hosts.len() == PRINTED_MAX;
        match text(rule, "host") {
            "" => {}
            host if !more => hosts.push(host),
            _ => {}
        }
    }
    match (hosts.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, true) => format!("{} + {} more...", hosts.join(","), rules.len() - PRINTED_MAX),
        (false, false) => hosts.join(","),
    }
}

fn ingress_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = at(object, "spec.parameters").map_or_else(
        || "<none>".to_owned(),
        |parameters| {
            let group = at(parameters, "apiGroup").and_then(Value::as_str).map_or(String::new(), |group| format!(".{group}"));
            format!("{}{group}/{}", text(parameters, "kind"), text(parameters, "name"))
        },
    );
    vec![name(object), text(object, "spec.controller").into(), parameters.into(), age(object, now)]
}

fn ip_address(object: &Value, now: Timestamp) -> Vec<Value> {
    let parent = at(object, "spec.parentRef").map_or_else(
        || "<none>".to_owned(),
        |parent| {
            let dotted = |group: &str| if group.is_empty() { String::new() } else { format!(".{group}") };
            let namespace = match text(parent, "namespace") {
                "" => String::new(),
                namespace => format!("/{namespace}"),
            };
            let resource = format!("{}{}", text(parent, "resource"), dotted(text(parent, "group"))).to_lowercase();
            format!("{resource}{namespace}/{}", text(parent, "name"))
        },
    );
    vec![name(object), parent.into(), age(object, now)]
}

#[cfg(test)]
mod tests;
