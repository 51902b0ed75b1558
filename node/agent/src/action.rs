//! What probes and lifecycle hooks do: a command in the container, or an HTTP, TCP or gRPC request from the node to the Pod's
//! address. One file an action.

mod error;
pub(crate) mod exec;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod tcp;

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use runtimes_contract::ContentKind;

pub(crate) use error::{ActionError, HttpError};

use crate::node::Node;
use crate::record::RunningInstance;

/// The container that an action is for.
pub(crate) struct Target<'a> {
    pub(crate) node: &'a Node,
    pub(crate) container: &'a Container,
    pub(crate) alive: &'a RunningInstance,
    pub(crate) ip: IpAddr,
}

impl Target<'_> {
    /// The token with which a runtime's own server knows the node's probes; the server of a Linux container is not the
    /// runtime's.
    pub(crate) fn token(&self) -> Option<String> {
        let runtime = self.node.parts.by_handler(&self.alive.handler)?;
        (runtime.runs() == ContentKind::Wasm).then(|| self.node.probe_token(&self.alive.id))
    }
}

/// A port by number, or by the name in the container's ports.
pub(crate) fn port(container: &Container, port: &IntOrString) -> Result<u16, ActionError> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port);
            named.or_else(|| name.parse().ok())
        }
    };
    let found = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
    found.ok_or_else(|| match port {
        IntOrString::Int(number) => ActionError::PortNumber(*number),
        IntOrString::String(name) => ActionError::PortName(name.clone()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_go_by_number_or_name() {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "ports": [{"name": "web", "containerPort": 8080}]})).expect("a container");
        for (given, wanted) in [
            (IntOrString::Int(80), Ok(80)),
            (IntOrString::String("web".to_owned()), Ok(8080)),
            (IntOrString::String("81".to_owned()), Ok(81)),
            (IntOrString::String("x".to_owned()), Err("couldn't find port: x".to_owned())),
            (IntOrString::Int(0), Err("invalid port number: 0".to_owned())),
        ] {
            assert_eq!(port(&container, &given).map_err(|error| error.to_string()), wanted);
        }
    }
}
