//! From Endpoints to slices: one slice for all subsets with the same ports and for each address family, and the fewest writes
//! with which the slices are so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api_client::informer::LAST_APPLIED;
use api_model::view::SERVICE_NAME;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::meta;
use crate::slices::{self, Action, MANAGED_BY, Ports};

/// This controller, as upstream names itself in the label of its slices.
pub const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// Addresses of one subset that are mirrored, upstream's `--mirroring-max-endpoints-per-subset`; also the endpoints of one slice.
const ADDRESSES_MAX: usize = 1000;
/// Excludes Endpoints by the value `true`.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Excludes Endpoints that serve as a lock.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// An annotation that slices have for themselves.
const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const NAME_LEN_MAX: usize = 253;

/// The writes, and the events for what cannot be mirrored.
#[derive(Debug, PartialEq)]
pub struct Mirror {
    /// The writes.
    pub actions: Vec<Action>,
    /// Reason and message of each event.
    pub warnings: Vec<(&'static str, String)>,
}

/// Slices that differ in these cannot be one slice: address family and ports.
type Key = (&'static str, Ports);
/// An endpoint's address, hostname and target: endpoints that are equal in these are one.
type Identity = (String, Option<String>, Option<String>);

/// The wanted endpoints of a key, with their ports in the order of the subset.
#[derive(Default)]
struct Wanted {
    ports: Vec<EndpointPort>,
    endpoints: BTreeMap<Identity, Endpoint>,
}

/// Whether the Endpoints do not exclude themselves.
pub fn is_mirrored(endpoints: &Endpoints) -> bool {
    meta::label(&endpoints.metadata, SKIP_MIRROR) != Some("true") && meta::annotation(&endpoints.metadata, LEADER).is_none()
}

/// Whether the Service's endpoints are those of Pods.
pub fn has_selector(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| !selector.is_empty())
}

/// The writes that bring the slices up to date. `current` are the slices of the Endpoints.
pub fn plan(endpoints: &Endpoints, current: Vec<Arc<EndpointSlice>>) -> Mirror {
    let (wanted, warnings) = wanted(endpoints);
    let mut by_key: BTreeMap<(String, Ports), Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in current {
        let ports = slices::ports_key(slice.ports.as_deref().unwrap_or_default());
        by_key.entry((slice.address_type.clone(), ports)).or_default().push(slice);
    }
    let (mut actions, mut missing) = (Vec::new(), Vec::new());
    let mut surplus = Vec::new();
    for ((family, ports), wanted) in wanted {
        let new = slice(endpoints, family, wanted);
        let mut present = by_key.remove(&(family.to_owned(), ports)).unwrap_or_default().into_iter();
        match present.next() {
            Some(present) => actions.extend(change(present, &new)),
            None => missing.push(new),
        }
        surplus.extend(present);
    }
    surplus.extend(by_key.into_values().flatten());
    for new in missing {
        // A slice that would be deleted becomes the new one.
        match surplus.iter().position(|slice| slice.address_type == new.address_type) {
            Some(index) => actions.extend(change(surplus.swap_remove(index), &new)),
            None if meta::is_deleting(&endpoints.metadata) => {}
            None => actions.push(Action::Create(Box::new(new))),
        }
    }
    actions.extend(surplus.into_iter().map(Action::Delete));
    Mirror { actions, warnings }
}

fn wanted(endpoints: &Endpoints) -> (BTreeMap<Key, Wanted>, Vec<(&'static str, String)>) {
    let mut wanted: BTreeMap<Key, Wanted> = BTreeMap::new();
    let (mut invalid, mut skipped) = (0_usize, 0_usize);
    for subset in endpoints.subsets.iter().flatten() {
        let ports = ports(subset);
        let key = slices::ports_key(&ports);
        let mut added = 0_usize;
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let all = ready.chain(subset.not_ready_addresses.iter().flatten().map(|address| (address, false)));
        for (address, ready) in all {
            if added >= ADDRESSES_MAX {
                skipped += 1;
                continue;
            }
            let Some(ip) = parse_ip(&address.ip) else {
                invalid += 1;
                continue;
            };
            added += 1;
            let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
            let entry = wanted.entry((family, key.clone())).or_default();
            entry.ports.clone_from(&ports);
            let endpoint = endpoint(address, ip, ready);
            entry.endpoints.insert(identity(&endpoint), endpoint);
        }
    }
    let mut warnings = Vec::new();
    if invalid > 0 {
        warnings.push(("InvalidIPAddress", format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices")));
    }
    if skipped > 0 {
        let all = skipped + invalid;
        let message = format!(
            "A max of {ADDRESSES_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. {all} addresses were skipped"
        );
        warnings.push(("TooManyAddressesToMirror", message));
    }
    (wanted, warnings)
}

/// Reads an address as Go's older versions did: zeros may lead the numbers of an IPv4 address.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let without_zeros = |part: &str| if part.bytes().all(|byte| byte == b'0') { "0" } else { part.trim_start_matches('0') }.to_owned();
    let parsed = text.parse().or_else(|_| text.split('.').map(without_zeros).collect::<Vec<_>>().join(".").parse());
    parsed.ok().map(|ip: IpAddr| ip.to_canonical()).filter(|_| !text.contains(".."))
}

fn ports(subset: &EndpointSubset) -> Vec<EndpointPort> {
    let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    });
    ports.collect()
}

fn endpoint(address: &EndpointAddress, ip: IpAddr, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn identity(endpoint: &Endpoint) -> Identity {
    let target = endpoint.target_ref.as_ref().and_then(|target| target.name.clone());
    (endpoint.addresses.first().cloned().unwrap_or_default(), endpoint.hostname.clone(), target)
}

fn slice(endpoints: &Endpoints, family: &str, wanted: Wanted) -> EndpointSlice {
    let from = &endpoints.metadata;
    let name = meta::name(from);
    let mut labels = from.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = from.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| key != LAST_CHANGE && key != LAST_APPLIED);
    let dash = if name.len() < NAME_LEN_MAX { "-" } else { "" };
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}{dash}")),
            namespace: from.namespace.clone(),
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: Some(vec![meta::controller_reference(endpoints)]),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        endpoints: Some(wanted.endpoints.into_values().take(ADDRESSES_MAX).collect()),
        ports: Some(wanted.ports),
    }
}

/// The merge patch with which `slice` is as `new`, if it is not already. The order of endpoints makes no difference.
fn change(slice: Arc<EndpointSlice>, new: &EndpointSlice) -> Option<Action> {
    let metadata = |slice: &EndpointSlice| json!({"labels": slice.metadata.labels, "annotations": slice.metadata.annotations});
    let differing = meta::merge_patch(&metadata(&slice), &metadata(new));
    let mut patch = json!({});
    if differing.as_object().is_some_and(|differing| !differing.is_empty()) {
        meta::overlay(&mut patch, &json!({"metadata": differing}));
    }
    let ordered = |slice: &EndpointSlice| slice.endpoints.iter().flatten().map(|endpoint| (identity(endpoint), endpoint.clone())).collect();
    let (old_endpoints, new_endpoints): (BTreeMap<_, _>, BTreeMap<_, _>) = (ordered(&slice), ordered(new));
    let is_same = old_endpoints.len() == slice.endpoints.iter().flatten().count()
        && old_endpoints.keys().collect::<BTreeSet<_>>() == new_endpoints.keys().collect()
        && old_endpoints.iter().all(|(identity, old)| new_endpoints.get(identity).is_some_and(|new| meta::semantically_equal(old, new)));
    if !is_same {
        meta::overlay(&mut patch, &json!({"endpoints": new.endpoints}));
    }
    let key = |slice: &EndpointSlice| slices::ports_key(slice.ports.as_deref().unwrap_or_default());
    if key(&slice) != key(new) {
        meta::overlay(&mut patch, &json!({"ports": new.ports}));
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(Action::Change { slice, patch })
}

#[cfg(test)]
mod tests;
