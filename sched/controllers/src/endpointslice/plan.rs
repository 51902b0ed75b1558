//! From a Service and its Pods to slices: the endpoints that should exist, and the fewest writes with which the slices have
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::view::SERVICE_NAME;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::hints::{self, Mode};
use super::proportional::{self, Outcome, Part, Shares};
use crate::slices::{self, Action, MANAGED_BY, Ports};
use crate::{meta, pods, service};

/// This controller, as upstream names itself.
pub const MANAGER: &str = "endpointslice-controller.k8s.io";
/// Endpoints in one slice, upstream's `--max-endpoints-per-slice`.
const ENDPOINTS_MAX: usize = 100;

/// What is known of the Nodes.
pub struct Topology<'a> {
    /// The zone of a Node.
    pub zone: &'a dyn Fn(&str) -> Option<String>,
    /// The shares of the zones, for a Service whose endpoints are hinted in proportion to them.
    pub shares: &'a dyn Fn() -> Option<Shares>,
}

/// The writes that bring a Service's slices up to date.
#[derive(Default)]
pub struct Plan {
    /// The writes.
    pub actions: Vec<Action>,
    /// What became of hints in proportion to the zones, by address family.
    pub hints: Vec<(String, Outcome)>,
    /// Endpoints that are new.
    pub added: usize,
    /// Endpoints that are wanted no more.
    pub removed: usize,
    /// All endpoints.
    pub endpoints: usize,
    /// The fewest slices with room for them.
    pub slices_desired: usize,
}

/// Plans one pass. `slices` are the Service's present slices.
pub fn plan(service: &Service, pods: &[Arc<Pod>], topology: &Topology<'_>, slices: Vec<Arc<EndpointSlice>>) -> Plan {
    let mut plan = Plan::default();
    let families = families(service);
    let (mut mine, strange): (Vec<_>, Vec<_>) = slices.into_iter().partition(|slice| families.contains(&slice.address_type));
    plan.removed += strange.iter().map(|slice| slice.endpoints.iter().flatten().count()).sum::<usize>();
    plan.actions.extend(strange.into_iter().map(Action::Delete));
    for family in families {
        let (own, rest): (Vec<_>, Vec<_>) = mine.into_iter().partition(|slice| slice.address_type == family);
        mine = rest;
        let wanted = wanted(service, pods, &family, topology.zone);
        let mut packed = pack(hints::mode(service), wanted, own, &mut plan);
        if hints::mode(service) == Mode::Proportional {
            let outcome = proportional::assign((topology.shares)().as_ref(), &mut packed.parts());
            plan.hints.push((family.clone(), outcome));
        }
        plan.actions.extend(packed.actions(service, &family));
    }
    plan
}

/// The address families of a Service's endpoints.
pub fn families(service: &Service) -> Vec<String> {
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.clone()).unwrap_or_default();
    if families.is_empty() { vec!["IPv4".to_owned()] } else { families }
}

/// The endpoints that should exist, by their ports.
fn wanted(service: &Service, pods: &[Arc<Pod>], family: &str, zone: &dyn Fn(&str) -> Option<String>) -> BTreeMap<Ports, Vec<Endpoint>> {
    let mut wanted: BTreeMap<Ports, Vec<Endpoint>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| service::belongs(pod, true)) {
        let Some(address) = service::address_of_family(pod, family) else { continue };
        let ports = ports_of(service, pod);
        if ports.is_empty() && !(service::is_headless(service) && service::ports(service).is_empty()) {
            continue;
        }
        wanted.entry(ports).or_default().push(endpoint(service, pod, address, zone));
    }
    wanted
}

fn ports_of(service: &Service, pod: &Pod) -> Ports {
    let ports = service::ports(service).iter().filter_map(|port| {
        let number = service::target_port(port, pod)?;
        Some((port.name.clone().unwrap_or_default(), number, service::protocol(port).to_owned(), port.app_protocol.clone()))
    });
    let mut ports: Ports = ports.collect();
    ports.sort();
    ports
}

fn endpoint(service: &Service, pod: &Pod, address: &str, zone: &dyn Fn(&str) -> Option<String>) -> Endpoint {
    let serving = pods::is_ready(pod);
    let terminating = meta::is_deleting(&pod.metadata);
    let node = pods::node_name(pod);
    let endpoint = Endpoint {
        addresses: vec![address.to_owned()],
        conditions: Some(EndpointConditions {
            ready: Some(service::publishes_not_ready(service) || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: service::hostname(pod, service),
        node_name: node.map(str::to_owned),
        target_ref: Some(service::target(pod)),
        zone: node.and_then(zone),
        ..Endpoint::default()
    };
    Endpoint { hints: hints::of(&endpoint, hints::mode(service)), ..endpoint }
}

fn ports_value(ports: &Ports) -> Vec<EndpointPort> {
    let port = |(name, number, protocol, app_protocol): &(String, i32, String, Option<String>)| EndpointPort {
        name: Some(name.clone()),
        port: Some(*number),
        protocol: Some(protocol.clone()),
        app_protocol: app_protocol.clone(),
    };
    ports.iter().map(port).collect()
}

fn identity(endpoint: &Endpoint) -> Option<(&str, &[String])> {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_deref())?;
    Some((uid, endpoint.addresses.as_slice()))
}

/// The slices of one address family as they are to be.
#[derive(Default)]
struct Packed {
    delete: Vec<Arc<EndpointSlice>>,
    present: Vec<Filled>,
    new: Vec<New>,
}

/// An existing slice and the endpoints that it is to have.
struct Filled {
    slice: Arc<EndpointSlice>,
    endpoints: Vec<Endpoint>,
    changed: bool,
}

/// A slice to make.
struct New {
    ports: Ports,
    endpoints: Vec<Endpoint>,
    /// Always set.
    changed: bool,
}

impl Packed {
    fn parts(&mut self) -> Vec<Part<'_>> {
        let present = self.present.iter_mut().map(|slot| Part { endpoints: &mut slot.endpoints, changed: &mut slot.changed });
        present.chain(self.new.iter_mut().map(|new| Part { endpoints: &mut new.endpoints, changed: &mut new.changed })).collect()
    }

    fn actions(self, service: &Service, family: &str) -> Vec<Action> {
        let mut actions: Vec<Action> = self.delete.into_iter().map(Action::Delete).collect();
        for slot in self.present {
            if let Some(patch) = difference(service, &slot) {
                actions.push(Action::Change { slice: slot.slice, patch });
            }
        }
        actions.extend(self.new.into_iter().map(|new| Action::Create(Box::new(slice(service, family, &new.ports, new.endpoints)))));
        actions
    }
}

/// Fills the slices of one address family with exactly the `wanted` endpoints. A Service without endpoints has one empty slice,
/// so that consumers know that the controller has processed it.
fn pack(mode: Mode, wanted: BTreeMap<Ports, Vec<Endpoint>>, slices: Vec<Arc<EndpointSlice>>, plan: &mut Plan) -> Packed {
    let wanted = if wanted.is_empty() { BTreeMap::from([(Ports::new(), Vec::new())]) } else { wanted };
    let mut by_ports: BTreeMap<Ports, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in slices {
        by_ports.entry(slices::ports_key(slice.ports.as_deref().unwrap_or_default())).or_default().push(slice);
    }
    let mut packed = Packed::default();
    for (ports, endpoints) in wanted {
        plan.endpoints += endpoints.len();
        plan.slices_desired += endpoints.len().div_ceil(ENDPOINTS_MAX).max(1);
        let own = by_ports.remove(&ports).unwrap_or_default();
        pack_ports(mode, &ports, endpoints, own, &mut packed, plan);
    }
    let unused: Vec<_> = by_ports.into_values().flatten().collect();
    plan.removed += unused.iter().map(|slice| slice.endpoints.iter().flatten().count()).sum::<usize>();
    packed.delete.extend(unused);
    packed
}

fn pack_ports(mode: Mode, ports: &Ports, wanted: Vec<Endpoint>, slices: Vec<Arc<EndpointSlice>>, packed: &mut Packed, plan: &mut Plan) {
    let placeholder = wanted.is_empty();
    let mut left = wanted;
    let before: usize = slices.iter().map(|slice| slice.endpoints.iter().flatten().count()).sum();
    let mut filled: Vec<Filled> = slices.into_iter().map(|slice| keep(mode, slice, &mut left)).collect();
    plan.added += left.len();
    plan.removed += before - filled.iter().map(|slot| slot.endpoints.len()).sum::<usize>();
    // Slices that change anyway are filled first, then the fullest.
    filled.sort_by_key(|f| (!f.changed, std::cmp::Reverse(f.endpoints.len()), f.slice.metadata.name.clone()));
    let mut left = left.into_iter();
    for slot in &mut filled {
        let room = ENDPOINTS_MAX.saturating_sub(slot.endpoints.len());
        let before = slot.endpoints.len();
        slot.endpoints.extend(left.by_ref().take(room));
        slot.changed |= slot.endpoints.len() != before;
    }
    let mut has_empty = !placeholder;
    for slot in filled {
        if slot.endpoints.is_empty() && std::mem::replace(&mut has_empty, true) {
            packed.delete.push(slot.slice);
        } else {
            packed.present.push(slot);
        }
    }
    let rest: Vec<Endpoint> = left.collect();
    let empty: &[Endpoint] = &[];
    let more = rest.chunks(ENDPOINTS_MAX).chain((!has_empty).then_some(empty));
    packed.new.extend(more.map(|chunk| New { ports: ports.clone(), endpoints: chunk.to_vec(), changed: true }));
}

/// Takes the endpoints that the slice has already out of `left`, in their newest form.
fn keep(mode: Mode, slice: Arc<EndpointSlice>, left: &mut Vec<Endpoint>) -> Filled {
    let mut endpoints = Vec::new();
    let mut changed = false;
    for current in slice.endpoints.iter().flatten() {
        match left.iter().position(|wanted| identity(wanted) == identity(current)) {
            Some(at) => {
                let mut wanted = left.swap_remove(at);
                if mode == Mode::Proportional {
                    // These hints depend on the other endpoints.
                    wanted.hints.clone_from(&current.hints);
                }
                changed |= !meta::semantically_equal(&wanted, current);
                endpoints.push(wanted);
            }
            None => changed = true,
        }
    }
    Filled { slice, endpoints, changed }
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), meta::name(&service.metadata).to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels.remove(service::HEADLESS_LABEL);
    if service::is_headless(service) {
        labels.insert(service::HEADLESS_LABEL.to_owned(), String::new());
    }
    labels
}

/// The merge patch for a slice whose endpoints or labels differ.
fn difference(service: &Service, slot: &Filled) -> Option<Value> {
    let mut patch =
        meta::merge_patch(&json!({"metadata": {"labels": slot.slice.metadata.labels}}), &json!({"metadata": {"labels": labels(service)}}));
    if slot.changed {
        meta::overlay(&mut patch, &json!({"endpoints": slot.endpoints}));
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

fn slice(service: &Service, family: &str, ports: &Ports, endpoints: Vec<Endpoint>) -> EndpointSlice {
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", meta::name(&service.metadata))),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels(service)),
            owner_references: Some(vec![meta::controller_reference(service)]),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        endpoints: Some(endpoints),
        ports: Some(ports_value(ports)),
    }
}

#[cfg(test)]
mod tests;
