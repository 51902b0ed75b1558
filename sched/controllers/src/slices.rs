//! What both controllers of EndpointSlices share: how they mark their slices, and how they write them.

use std::net::IpAddr;
use std::sync::Arc;

use api_client::informer::{Informer, ObjectKey};
use api_model::view::SERVICE_NAME;
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use kube::api::DeleteParams;
use serde_json::Value;

use crate::failure::Failure;
use crate::{meta, writes};

/// The label that names the managing controller.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// Whether a slice has the addresses of the API servers.
pub fn is_of_servers(slice: &EndpointSlice) -> bool {
    meta::namespace(&slice.metadata) == "default" && meta::label(&slice.metadata, SERVICE_NAME) == Some("kubernetes")
}

/// The addresses of a slice.
pub fn addresses(slice: &EndpointSlice) -> Vec<IpAddr> {
    let endpoints = slice.endpoints.iter().flatten();
    endpoints.flat_map(|endpoint| &endpoint.addresses).filter_map(|address| address.parse().ok()).collect()
}

/// A write.
#[derive(Debug, PartialEq)]
pub enum Action {
    /// Make a slice.
    Create(Box<EndpointSlice>),
    /// Change a slice by a JSON merge patch.
    Change {
        /// The slice.
        slice: Arc<EndpointSlice>,
        /// How.
        patch: Value,
    },
    /// Delete a slice that is needed no more.
    Delete(Arc<EndpointSlice>),
}

/// Ports as a key: endpoints with the same ports share slices.
pub type Ports = Vec<(String, i32, String, Option<String>)>;

/// The ports of a slice as a key.
pub fn ports_key(ports: &[EndpointPort]) -> Ports {
    let key = |port: &EndpointPort| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        (port.name.clone().unwrap_or_default(), port.port.unwrap_or(0), protocol, port.app_protocol.clone())
    };
    let mut ports: Ports = ports.iter().map(key).collect();
    ports.sort();
    ports
}

/// The Service whose slice this is, if `manager` manages the slice.
pub fn service_of(slice: &EndpointSlice, manager: &str) -> Option<ObjectKey> {
    let is_managed = meta::label(&slice.metadata, MANAGED_BY) == Some(manager);
    let name = meta::label(&slice.metadata, SERVICE_NAME).filter(|_| is_managed)?;
    Some(ObjectKey::new(meta::namespace(&slice.metadata), name))
}

/// Performs the writes. Returns when the cache has the new slices: their names are random, and a pass over a cache without them
/// would create them again.
pub async fn apply(client: &kube::Client, slices: &Informer<EndpointSlice>, actions: Vec<Action>) -> Result<(), Failure> {
    let (mut result, mut newest) = (Ok(()), None);
    for action in actions {
        let written = match action {
            Action::Create(slice) => writes::create(client, slice.as_ref()).await.map(Some),
            Action::Change { slice, patch } => writes::patch(client, slice.as_ref(), patch).await.map(Some),
            Action::Delete(slice) => writes::delete(client, slice.as_ref(), DeleteParams::default()).await.map(|()| None),
        };
        // The other actions follow all the same: the conflict of one slice must not leave other slices stale.
        match written {
            Ok(written) => newest = written.or(newest),
            Err(failure) if failure.is_namespace_terminating() => {}
            Err(failure) => result = result.and(Err(failure)),
        }
    }
    match newest {
        Some(newest) => result.and(writes::delivered(slices, &newest).await),
        None => result,
    }
}
