//! The node and the path on it for a request.

use std::fmt::Write;

use api_model::kind::GroupResource;
use api_model::percent;
use api_model::view::View;
use serde_json::Value;

use crate::call::Call;
use api_upstream::backend::Address;
use api_wire::status::{ApiError, ApiResult};

/// The Pod's annotation with the container for clients that name none.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// Upstream's kubelet port, for nodes that report none.
const KUBELET_PORT: u16 = 10_250;

/// A node's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kubelet {
    /// The node's name, which its certificate must contain.
    pub(super) node: String,
    pub(super) address: Address,
}

impl Kubelet {
    /// The server of a node that reports an address.
    pub(crate) fn at_address(node: &Value, name: &str) -> Option<Self> {
        address(node).map(|_| Self::of(node, name))
    }

    /// The server of a node: at the node's address or, if it reports none, at its name.
    pub(super) fn of(node: &Value, name: &str) -> Self {
        let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0).unwrap_or(KUBELET_PORT);
        Self { node: name.to_owned(), address: Address { host: address(node).unwrap_or(name).to_owned(), port } }
    }

    /// Host and port.
    pub(crate) fn authority(&self) -> String {
        self.address.authority()
    }
}

/// A path on a node's server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kubelet: Kubelet,
    /// Path and query.
    pub(super) path: String,
}

impl Target {
    /// The target of the call; `None` if the Pod has no node yet.
    pub(super) fn of(call: &Call, pod: &Value) -> ApiResult<Option<Self>> {
        let path = match call.subresource.as_str() {
            "portforward" => port_forward(call),
            "log" => format!("/containerLogs/{}/{}/{}?{}", call.namespace, call.name, container(call, pod)?, log_query(call)?),
            sub => format!("/{sub}/{}/{}/{}?{}", call.namespace, call.name, container(call, pod)?, exec_query(call)),
        };
        let node_name = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
        if node_name.is_empty() {
            return Ok(None);
        }
        let nodes = GroupResource::new("", "nodes");
        let node = call.core.cache.get(&nodes, None, node_name).ok_or_else(|| ApiError::not_found(&nodes, node_name))?;
        Ok(Some(Self { kubelet: Kubelet::of(&node, node_name), path }))
    }
}

/// The node's address, in upstream's order of preference for a cluster with one network.
fn address(node: &Value) -> Option<&str> {
    let addresses = node.pointer("/status/addresses")?.as_array()?;
    ["InternalIP", "ExternalIP", "Hostname"].into_iter().find_map(|wanted| {
        let found = addresses.iter().find(|address| address.get("type").and_then(Value::as_str) == Some(wanted));
        found?.get("address")?.as_str()
    })
}

/// The named container, or the only one, or the one in the Pod's annotation.
fn container<'a>(call: &'a Call, pod: &'a Value) -> ApiResult<&'a str> {
    let names = |field: &str| -> Vec<&'a str> {
        let containers = pod.pointer(&format!("/spec/{field}")).and_then(Value::as_array);
        containers.into_iter().flatten().filter_map(|container| container.get("name")?.as_str()).collect()
    };
    let (main, init, ephemeral) = (names("containers"), names("initContainers"), names("ephemeralContainers"));
    if let Some(wanted) = call.query.filled("container") {
        let found = main.iter().chain(&init).chain(&ephemeral).find(|name| **name == wanted);
        return found.copied().ok_or_else(|| ApiError::bad_request(format!("container {wanted} is not valid for pod {}", call.name)));
    }
    if let [only] = main.as_slice() {
        return Ok(only);
    }
    let said = api_model::meta::annotation(pod, DEFAULT_CONTAINER);
    if let Some(found) = main.iter().find(|name| Some(**name) == said) {
        return Ok(found);
    }
    let mut message = format!("a container name must be specified for pod {}, choose one of: [{}]", call.name, main.join(" "));
    if !init.is_empty() {
        let _ = write!(message, " or one of the init containers: [{}]", init.join(" "));
    }
    Err(ApiError::bad_request(message))
}

fn push(query: &mut String, name: &str, value: &str) {
    if !query.is_empty() {
        query.push('&');
    }
    query.push_str(name);
    query.push('=');
    query.push_str(&percent::encode(value, percent::QUERY_VALUE));
}

/// The query for the node, which has other parameter names: `stdin` is `input`, and so on.
fn exec_query(call: &Call) -> String {
    let mut query = String::new();
    for (client, node) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if call.query.flag(client) {
            push(&mut query, node, "1");
        }
    }
    for argument in call.query.all("command") {
        push(&mut query, "command", argument);
    }
    query
}

fn port_forward(call: &Call) -> String {
    let mut query = String::new();
    for port in call.query.all("ports").flat_map(|ports| ports.split(',')) {
        push(&mut query, "port", port);
    }
    format!("/portForward/{}/{}?{query}", call.namespace, call.name)
}

fn log_query(call: &Call) -> ApiResult<String> {
    use api_model::field::{FieldError, Path};
    let mut query = String::new();
    let mut errors = Vec::new();
    for name in ["follow", "previous", "timestamps"] {
        if call.query.flag(name) {
            push(&mut query, name, "true");
        }
    }
    for (name, least) in [("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1)] {
        let Some(text) = call.query.filled(name) else { continue };
        match text.parse::<i64>() {
            Ok(number) if number >= least => push(&mut query, name, text),
            Ok(number) if least == 0 => errors.push(FieldError::invalid(&Path::new(name), number, "must be greater than or equal to 0")),
            Ok(number) => errors.push(FieldError::invalid(&Path::new(name), number, "must be greater than 0")),
            Err(_) => return Err(ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))),
        }
    }
    for name in ["sinceTime", "stream"] {
        if let Some(text) = call.query.filled(name) {
            push(&mut query, name, text);
        }
    }
    if call.query.filled("sinceSeconds").is_some() && call.query.filled("sinceTime").is_some() {
        errors.push(FieldError::forbidden(&Path::new(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    if errors.is_empty() { Ok(query) } else { Err(ApiError::invalid_kind("", "PodLogOptions", &call.name, &errors)) }
}
