//! The endpoints of a Service. The server may run on a machine without the cluster's DNS and without routes to the
//! addresses of Services. So it reads EndpointSlices itself.

use api_clock::rand::seq::SliceRandom;
use api_model::kind::GroupResource;
use api_model::view::View;
use serde_json::Value;

use api_wire::json;

/// How many endpoints of a Service are tried before the Service counts as unreachable.
const TRIES_MAX: usize = 3;

/// Why a Service cannot be resolved. The messages are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The Service does not exist.
    #[error("service {0:?} not found")]
    NoService(String),
    /// The Service has no such port.
    #[error("no service port {port} found for service {service:?}")]
    NoPort {
        /// Name of the Service.
        service: String,
        /// The requested port.
        port: u16,
    },
    /// No endpoint of the Service is ready.
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
}

/// The hosts and ports to try, in this order. For a host of the form `name.namespace.svc` these are endpoints of the
/// Service. Any other host is returned unchanged.
///
/// # Errors
/// The Service does not exist, has no such port, or has no ready endpoints.
pub fn targets(view: &dyn View, host: &str, port: u16) -> Result<Vec<(String, u16)>, ResolveError> {
    let Some(service) = Service::named_by(host) else { return Ok(vec![(host.to_owned(), port)]) };
    let mut targets = service.endpoints(view, port)?;
    targets.shuffle(&mut api_clock::rng());
    targets.truncate(TRIES_MAX);
    Ok(targets)
}

/// All endpoints of a host that is a Service, sorted; `None` for any other host.
pub fn endpoints(view: &dyn View, host: &str, port: u16) -> Option<Vec<(String, u16)>> {
    // An empty list here: the connection attempt returns the error.
    let mut endpoints = Service::named_by(host)?.endpoints(view, port).unwrap_or_default();
    endpoints.sort();
    Some(endpoints)
}

/// A Service from a host of the form `name.namespace.svc`.
struct Service<'h> {
    name: &'h str,
    namespace: &'h str,
}

impl<'h> Service<'h> {
    fn named_by(host: &'h str) -> Option<Self> {
        let parts: Vec<&str> = host.split('.').collect();
        let [name, namespace, "svc"] = parts.as_slice() else { return None };
        Some(Self { name, namespace })
    }

    /// All ready endpoints of a port; at least one.
    ///
    /// # Errors
    /// The Service does not exist, has no such port, or has no ready endpoints.
    fn endpoints(&self, view: &dyn View, port: u16) -> Result<Vec<(String, u16)>, ResolveError> {
        let Self { name, namespace } = *self;
        let service = view.get(&GroupResource::new("", "services"), Some(namespace), name);
        let service = service.ok_or_else(|| ResolveError::NoService(name.to_owned()))?;
        if json::text(&service, &["spec", "type"]) == "ExternalName" {
            return Ok(vec![(json::text(&service, &["spec", "externalName"]).to_owned(), port)]);
        }
        let port_name = port_name(&service, port).ok_or_else(|| ResolveError::NoPort { service: name.to_owned(), port })?;
        let slices = view.endpoint_slices_of(name, namespace);
        let found: Vec<_> = slices.iter().flat_map(|slice| ready(slice, port_name)).collect();
        if found.is_empty() { Err(ResolveError::NoEndpoints(name.to_owned())) } else { Ok(found) }
    }
}

/// The name of a Service's port; `None` if the Service has no such port.
pub fn port_name(service: &Value, port: u16) -> Option<&str> {
    let ports = service.pointer("/spec/ports")?.as_array()?;
    let found = ports.iter().find(|candidate| candidate.get("port").and_then(Value::as_u64) == Some(port.into()))?;
    Some(json::text(found, &["name"]))
}

/// The ready endpoints of a slice, with the number of the port that has the given name.
pub fn ready(slice: &Value, port_name: &str) -> Vec<(String, u16)> {
    let list = |field: &str| slice.get(field).and_then(Value::as_array).into_iter().flatten();
    let port = list("ports").find(|port| json::text(port, &["name"]) == port_name);
    let Some(port) = port.and_then(|port| port.get("port")?.as_u64()).and_then(|port| u16::try_from(port).ok()) else {
        return Vec::new();
    };
    let is_ready = |endpoint: &&Value| endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false);
    let addresses = list("endpoints").filter(is_ready).filter_map(|endpoint| endpoint.get("addresses")?.get(0)?.as_str());
    addresses.map(|address| (address.to_owned(), port)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::fixtures::FixedView;

    fn view() -> FixedView {
        let metadata = |name: &str| json!({"name": name, "namespace": "n", "labels": {"kubernetes.io/service-name": "hook"}});
        let service = |name: &str, spec: Value| json!({"kind": "Service", "metadata": metadata(name), "spec": spec});
        let ports = json!([{"name": "https", "port": 443, "targetPort": 8443}, {"name": "idle", "port": 444}]);
        let slice = json!({"kind": "EndpointSlice", "metadata": metadata("hook-x"), "ports": [{"name": "https", "port": 8443}],
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}]});
        let objects = [
            service("hook", json!({"clusterIP": "10.96.0.7", "ports": ports})),
            service("away", json!({"type": "ExternalName", "externalName": "example.com"})),
            slice,
        ];
        FixedView(objects.into_iter().map(Arc::new).collect())
    }

    #[test]
    fn a_service_leads_to_its_ready_endpoints() {
        let target = |host: &str, port: u16| targets(&view(), host, port);
        let one = |host: &str, port: u16| Ok(vec![(host.to_owned(), port)]);
        assert_eq!(target("hook.n.svc", 443), one("10.0.0.1", 8443));
        assert_eq!(target("away.n.svc", 443), one("example.com", 443));
        assert_eq!(target("example.com", 8443), one("example.com", 8443));
        for (host, port, wanted) in [
            ("hook.m.svc", 443, "service \"hook\" not found"),
            ("hook.n.svc", 80, "no service port 80 found for service \"hook\""),
            ("hook.n.svc", 444, "no endpoints available for service \"hook\""),
        ] {
            assert_eq!(target(host, port).map_err(|error| error.to_string()), Err(wanted.to_owned()));
        }
    }
}
