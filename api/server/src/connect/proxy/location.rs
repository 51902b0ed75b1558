//! The target of a proxy request: `[scheme:]name[:port]` of a Pod, a Service or a node. Pure, on stored objects.

use std::net::IpAddr;

use api_model::meta;
use api_model::view::View;
use serde_json::Value;

use crate::call::Call;
use crate::connect::target::Kubelet;
use api_upstream::backend::Address;
use api_upstream::proxyable::is_global_unicast;
use api_upstream::resolve;

use api_wire::status::{ApiError, ApiResult};

/// The protocol to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Plain,
    /// TLS with any certificate, as in upstream: the server cannot know the certificates of Pods.
    Tls,
}

/// One target that can answer the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// A port of a Pod or of a node.
    Port(Reach, Address),
    /// A node's own server: with the cluster's certificates on both sides.
    Kubelet(Kubelet),
}

impl Location {
    pub(super) fn address(&self) -> &Address {
        match self {
            Self::Port(_, address) | Self::Kubelet(Kubelet { address, .. }) => address,
        }
    }
}

/// The parts of a proxied object's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name<'a> {
    secure: bool,
    name: &'a str,
    /// Empty if the name has no port.
    port: &'a str,
}

impl<'a> Name<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match *parts.as_slice() {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => return None,
        };
        let secure = match scheme {
            "" | "http" => false,
            "https" => true,
            _ => return None,
        };
        (!name.is_empty()).then_some(Self { secure, name, port })
    }

    fn reach(self) -> Reach {
        if self.secure { Reach::Tls } else { Reach::Plain }
    }
}

/// All targets of a call; at least one.
pub(super) fn find(call: &Call) -> ApiResult<Vec<Location>> {
    let kind = call.served.kind.plural.as_str();
    let singular = kind.strip_suffix('s').unwrap_or(kind);
    let wanted = Name::parse(&call.name).ok_or_else(|| ApiError::bad_request(format!("invalid {singular} request {:?}", call.name)))?;
    let found = call.served.resource.get(call.namespace_key(), wanted.name);
    let object = found.ok_or_else(|| ApiError::not_found(&call.served.name, wanted.name))?.value();
    match kind {
        "pods" => of_pod(&object, wanted).map(|location| vec![location]),
        "nodes" => of_node(&object, wanted).map(|location| vec![location]),
        "services" => of_service(&object, &*call.core.cache, wanted),
        _ => Err(ApiError::no_such_resource()),
    }
}

fn of_pod(pod: &Value, wanted: Name<'_>) -> ApiResult<Location> {
    let ip = proxyable(pod.pointer("/status/podIP").and_then(Value::as_str).unwrap_or_default())?;
    let default = if wanted.secure { 443 } else { 80 };
    let port = match wanted.port {
        "" => first_port(pod).unwrap_or(default),
        text => number(text)?,
    };
    Ok(Location::Port(wanted.reach(), Address { host: ip.to_string(), port }))
}

/// The first port that any container declares.
fn first_port(pod: &Value) -> Option<u16> {
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    let mut ports = containers.iter().filter_map(|container| container.pointer("/ports/0/containerPort")?.as_u64());
    ports.next().and_then(|port| u16::try_from(port).ok())
}

fn number(text: &str) -> ApiResult<u16> {
    let unknown = || ApiError::unavailable(format!("error trying to reach service: dial tcp: lookup tcp/{text}: unknown port"));
    text.parse().ok().filter(|port| *port > 0).ok_or_else(unknown)
}

/// A user who may write an address into an object's status must not direct the server to its own machine.
fn proxyable(text: &str) -> ApiResult<IpAddr> {
    let refused = || ApiError::bad_request("address not allowed");
    text.parse().ok().filter(|ip| is_global_unicast(*ip)).ok_or_else(refused)
}

fn of_node(node: &Value, wanted: Name<'_>) -> ApiResult<Location> {
    let kubelet = Kubelet::of(node, wanted.name);
    if wanted.port.is_empty() || wanted.port == kubelet.address.port.to_string() {
        return Ok(Location::Kubelet(kubelet));
    }
    Ok(Location::Port(wanted.reach(), Address { host: kubelet.address.host, port: number(wanted.port)? }))
}

fn of_service(service: &Value, view: &dyn View, wanted: Name<'_>) -> ApiResult<Vec<Location>> {
    let port_name = port_name(service, wanted)?;
    let slices = view.endpoint_slices_of(wanted.name, meta::namespace(service));
    let ready = slices.iter().flat_map(|slice| resolve::ready(slice, port_name));
    let locations: Vec<_> = ready
        .filter_map(|(address, port)| {
            let host = proxyable(&address).ok()?.to_string();
            Some(Location::Port(wanted.reach(), Address { host, port }))
        })
        .collect();
    if locations.is_empty() {
        return Err(ApiError::unavailable(format!("no endpoints available for service {:?}", wanted.name)));
    }
    Ok(locations)
}

/// The name of the Service's port. A port number is translated to its name.
fn port_name<'a>(service: &'a Value, wanted: Name<'a>) -> ApiResult<&'a str> {
    let Ok(number) = wanted.port.parse::<u64>() else { return Ok(wanted.port) };
    let found = u16::try_from(number).ok().and_then(|port| resolve::port_name(service, port));
    found.ok_or_else(|| ApiError::unavailable(format!("no service port {number} found for service {:?}", wanted.name)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use api_upstream::fixtures::FixedView;

    fn name(text: &str) -> Name<'_> {
        Name::parse(text).expect("a name")
    }

    fn described(location: ApiResult<Location>) -> String {
        match location {
            Ok(Location::Port(reach, address)) => format!("{reach:?} {}", address.authority()),
            Ok(Location::Kubelet(Kubelet { node, address })) => format!("kubelet of {node} {}", address.authority()),
            Err(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn names_have_schemes_and_ports() {
        assert_eq!(Name::parse("web"), Some(Name { secure: false, name: "web", port: "" }));
        assert_eq!(Name::parse("web:80"), Some(Name { secure: false, name: "web", port: "80" }));
        assert_eq!(Name::parse("https:web:tls"), Some(Name { secure: true, name: "web", port: "tls" }));
        assert_eq!(Name::parse("http:web:"), Some(Name { secure: false, name: "web", port: "" }));
        for bad in ["", ":80", "ftp:web:21", "a:b:c:d"] {
            assert_eq!(Name::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_request_goes_to_the_first_port_or_the_named_one() {
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "ports": [{"containerPort": 8080}]}]}, "status": {"podIP": "10.244.0.5"}});
        assert_eq!(described(of_pod(&pod, name("p"))), "Plain 10.244.0.5:8080");
        assert_eq!(described(of_pod(&pod, name("https:p:8443"))), "Tls 10.244.0.5:8443");
        assert!(described(of_pod(&pod, name("p:web"))).ends_with("lookup tcp/web: unknown port"));
        let bare = json!({"status": {"podIP": "fd00::5"}});
        assert_eq!(described(of_pod(&bare, name("p"))), "Plain [fd00::5]:80");
        for ip in ["", "127.0.0.1", "::1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::ffff:127.0.0.1", "fe80::1"] {
            let pod = json!({"status": {"podIP": ip}});
            assert_eq!(described(of_pod(&pod, name("p"))), "address not allowed", "{ip}");
        }
    }

    #[test]
    fn a_node_is_its_own_server_unless_another_port_is_named() {
        let node = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}});
        assert_eq!(described(of_node(&node, name("n"))), "kubelet of n 192.0.2.1:10250");
        assert_eq!(described(of_node(&node, name("https:n:10250"))), "kubelet of n 192.0.2.1:10250");
        assert_eq!(described(of_node(&node, name("n:9100"))), "Plain 192.0.2.1:9100");
    }

    #[test]
    fn a_service_is_any_of_its_ready_endpoints() {
        let service =
            json!({"metadata": {"namespace": "n"}, "spec": {"ports": [{"name": "web", "port": 80}, {"name": "tls", "port": 443}]}});
        let slice = |of: &str| {
            json!({
                "kind": "EndpointSlice",
                "metadata": {"namespace": "n", "labels": {"kubernetes.io/service-name": of}},
                "ports": [{"name": "web", "port": 8080}, {"name": "tls", "port": 8443}],
                "endpoints": [
                    {"addresses": ["10.244.0.5"], "conditions": {"ready": true}},
                    {"addresses": ["10.244.0.6"], "conditions": {"ready": false}},
                    {"addresses": ["10.244.1.7"]},
                ],
            })
        };
        let view = FixedView(vec![Arc::new(slice("s")), Arc::new(slice("other"))]);
        let find = |text: &str| of_service(&service, &view, name(text));
        let all = |text: &str| -> Vec<String> { find(text).expect("places").into_iter().map(|one| described(Ok(one))).collect() };
        assert_eq!(all("s:80"), ["Plain 10.244.0.5:8080", "Plain 10.244.1.7:8080"]);
        assert_eq!(all("https:s:tls"), ["Tls 10.244.0.5:8443", "Tls 10.244.1.7:8443"]);
        for (text, wanted) in [
            ("s", "no endpoints available for service \"s\""),
            ("s:81", "no service port 81 found for service \"s\""),
            ("s:65616", "no service port 65616 found for service \"s\""),
            ("t:web", "no endpoints available for service \"t\""),
        ] {
            assert_eq!(find(text).expect_err("nowhere").message(), wanted);
        }
    }
}
