//! Environment variables for Services: `DB_SERVICE_HOST`, `DB_SERVICE_PORT` and the old
//! Docker link forms. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

/// The address of the API server's Service.
const MASTER_NAMESPACE: &str = "default";
/// The Services whose variables every container gets.
const MASTER: &str = "kubernetes";

/// The variables: of the API server's Service always, of the namespace's Services with `links`.
pub(crate) fn variables(services: &[Arc<Service>], namespace: &str, links: bool) -> BTreeMap<String, String> {
    let mut vars = BTreeMap::new();
    for service in services {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let home = service.metadata.namespace.as_deref().unwrap_or_default();
        let master = name == MASTER && home == MASTER_NAMESPACE;
        let linked = links && home == namespace;
        // A Service of the Pod's own namespace has precedence over the master's of the same name.
        if let Some(spec) = service.spec.as_ref().filter(|_| master || linked) {
            let own = of_service(name, spec);
            if home == namespace {
                vars.extend(own);
            } else {
                for (name, value) in own {
                    vars.entry(name).or_insert(value);
                }
            }
        }
    }
    vars
}

fn of_service(name: &str, spec: &ServiceSpec) -> Vec<(String, String)> {
    let address = spec.cluster_ip.as_deref().unwrap_or_default();
    let Some(first) = spec.ports.as_ref().and_then(|ports| ports.first()) else { return Vec::new() };
    if address.is_empty() || address == "None" {
        return Vec::new();
    }
    let prefix = upper(name);
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let mut vars = vec![(format!("{prefix}_SERVICE_HOST"), address.to_owned()), (format!("{prefix}_SERVICE_PORT"), first.port.to_string())];
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            vars.push((format!("{prefix}_SERVICE_PORT_{}", upper(name)), port.port.to_string()));
        }
        let protocol = port.protocol.as_deref().filter(|text| !text.is_empty()).unwrap_or("TCP");
        let (number, lower) = (port.port, protocol.to_lowercase());
        let url = format!("{lower}://{host}:{number}");
        if index == 0 {
            vars.push((format!("{prefix}_PORT"), url.clone()));
        }
        let link = format!("{prefix}_PORT_{number}_{}", protocol.to_uppercase());
        vars.push((link.clone(), url));
        vars.push((format!("{link}_PROTO"), lower));
        vars.push((format!("{link}_PORT"), number.to_string()));
        vars.push((format!("{link}_ADDR"), address.to_owned()));
    }
    vars
}

fn upper(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(namespace: &str, name: &str, ip: &str) -> Arc<Service> {
        let spec = json!({"clusterIP": ip, "ports": [{"name": "web-ui", "port": 80}, {"port": 53, "protocol": "UDP"}]});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec})).expect("a service"))
    }

    #[test]
    fn links_are_of_the_own_namespace_and_the_masters() {
        let services = [
            service("default", "kubernetes", "10.96.0.1"),
            service("ns", "my-db", "10.96.0.2"),
            service("ns", "headless", "None"),
            service("other", "far", "10.96.0.3"),
        ];
        let hosts = |links: bool| {
            let vars = variables(&services, "ns", links);
            vars.into_iter().filter(|(name, _)| name.ends_with("_HOST")).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(hosts(true), ["KUBERNETES_SERVICE_HOST=10.96.0.1", "MY_DB_SERVICE_HOST=10.96.0.2"]);
        assert_eq!(hosts(false), ["KUBERNETES_SERVICE_HOST=10.96.0.1"]);
        let vars = variables(&services, "ns", true);
        assert_eq!(vars.get("MY_DB_SERVICE_PORT_WEB_UI").map(String::as_str), Some("80"));
        assert_eq!(vars.get("MY_DB_PORT_53_UDP").map(String::as_str), Some("udp://10.96.0.2:53"));
        assert_eq!(vars.get("MY_DB_PORT").map(String::as_str), Some("tcp://10.96.0.2:80"));
    }
}
