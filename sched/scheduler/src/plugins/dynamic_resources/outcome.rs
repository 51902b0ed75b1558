//! What is written to the status of a claim: its devices, the configurations that apply to them, and the nodes that can use them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, Device, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult, ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::allocator::{Candidate, Chosen};
use super::capacity::Demand;
use super::error::AllocationError;
use super::requests::{Request, claim_name};

/// The allocation of a claim. `chosen` are the devices in the order of the requests, `requests` the alternative of each request that was
/// chosen.
pub(super) fn allocation(
    claim: &ResourceClaim,
    requests: &[&Request<'_>],
    chosen: &[Chosen<'_>],
    node: &str,
) -> Result<AllocationResult, AllocationError> {
    let result = |Chosen { request, candidate, demand }: &Chosen<'_>| DeviceRequestAllocationResult {
        request: request.full_name.clone(),
        driver: candidate.id.driver.clone(),
        pool: candidate.id.pool.clone(),
        device: candidate.id.device.clone(),
        admin_access: request.admin_access.then_some(true),
        tolerations: (!request.tolerations.is_empty()).then(|| request.tolerations.to_vec()),
        share_id: candidate.is_shared.then(api_model::meta::new_uid),
        consumed_capacity: consumed_capacity(demand),
        binding_conditions: conditions(candidate, |device| &device.binding_conditions),
        binding_failure_conditions: conditions(candidate, |device| &device.binding_failure_conditions),
        ..DeviceRequestAllocationResult::default()
    };
    let config = configurations(claim, requests);
    let results = chosen.iter().map(result).collect();
    let candidates: Vec<&Candidate> = chosen.iter().map(|chosen| chosen.candidate).collect();
    Ok(AllocationResult {
        allocation_timestamp: None,
        devices: Some(DeviceAllocationResult { config: (!config.is_empty()).then_some(config), results: Some(results) }),
        node_selector: node_selector(claim, &candidates, node)?,
    })
}

fn conditions(candidate: &Candidate, of: fn(&Device) -> &Option<Vec<String>>) -> Option<Vec<String>> {
    candidate.device().and_then(|device| of(device).clone()).filter(|conditions| !conditions.is_empty())
}

fn consumed_capacity(demand: &Demand) -> Option<BTreeMap<String, Quantity>> {
    let shares = demand.shares.iter().map(|share| (share.capacity.clone(), share.quantity.clone()));
    (!demand.shares.is_empty()).then(|| shares.collect())
}

/// The configurations of the classes, each class once, then those of the claim. A configuration without requests applies to all.
fn configurations(claim: &ResourceClaim, requests: &[&Request<'_>]) -> Vec<DeviceAllocationConfiguration> {
    let mut all: Vec<DeviceAllocationConfiguration> = Vec::new();
    let mut of_classes: HashMap<&str, std::ops::Range<usize>> = HashMap::new();
    for request in requests {
        let class = request.class.metadata.name.as_deref().unwrap_or_default();
        if let Some(range) = of_classes.get(class) {
            for config in all.get_mut(range.clone()).into_iter().flatten() {
                config.requests.get_or_insert_default().push(request.full_name.clone());
            }
            continue;
        }
        let start = all.len();
        all.extend(request.class.spec.iter().flat_map(|spec| spec.config.iter().flatten()).map(|config| DeviceAllocationConfiguration {
            source: "FromClass".to_owned(),
            requests: Some(vec![request.full_name.clone()]),
            opaque: config.opaque.clone(),
        }));
        of_classes.insert(class, start..all.len());
    }
    let of_claim = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref()?.config.as_ref());
    for config in of_claim.into_iter().flatten() {
        let names = config.requests.as_deref().unwrap_or_default();
        let applies = |request: &&Request<'_>| names.iter().any(|name| *name == request.name || *name == request.full_name);
        if names.is_empty() || requests.iter().any(applies) {
            all.push(DeviceAllocationConfiguration {
                source: "FromClaim".to_owned(),
                requests: config.requests.clone(),
                opaque: config.opaque.clone(),
            });
        }
    }
    for config in &mut all {
        if config.requests.as_ref().is_some_and(|names| names.is_empty() || names.len() == requests.len()) {
            config.requests = None;
        }
    }
    all
}

/// The nodes that can use all of the devices; `None` for any node.
fn node_selector(claim: &ResourceClaim, chosen: &[&Candidate], node: &str) -> Result<Option<NodeSelector>, AllocationError> {
    let mut term = NodeSelectorTerm::default();
    for candidate in chosen {
        let (spec, device) = (&candidate.slice.spec, candidate.device());
        let by_device = spec.per_device_node_selection == Some(true);
        let (name, selector) = match device {
            Some(device) if by_device => (&device.node_name, &device.node_selector),
            _ => (&spec.node_name, &spec.node_selector),
        };
        if name.is_some() || device.is_some_and(|device| device.binds_to_node == Some(true)) {
            let of_node =
                NodeSelectorRequirement { key: "metadata.name".to_owned(), operator: "In".to_owned(), values: Some(vec![node.to_owned()]) };
            let term = NodeSelectorTerm { match_fields: Some(vec![of_node]), ..NodeSelectorTerm::default() };
            return Ok(Some(NodeSelector { node_selector_terms: vec![term] }));
        }
        match selector.as_ref().map(|selector| selector.node_selector_terms.as_slice()) {
            None | Some([]) => {}
            Some([one]) => {
                add(&mut term.match_fields, one.match_fields.as_deref());
                add(&mut term.match_expressions, one.match_expressions.as_deref());
            }
            Some(terms) => return Err(AllocationError::NodeSelector { claim: claim_name(claim), terms: terms.len() }),
        }
    }
    let is_empty = term.match_fields.is_none() && term.match_expressions.is_none();
    Ok((!is_empty).then(|| NodeSelector { node_selector_terms: vec![term] }))
}

/// Adds the requirements that are not there yet.
fn add(into: &mut Option<Vec<NodeSelectorRequirement>>, from: Option<&[NodeSelectorRequirement]>) {
    let values = |requirement: &NodeSelectorRequirement| requirement.values.iter().flatten().cloned().collect::<BTreeSet<_>>();
    for requirement in from.into_iter().flatten() {
        let is_same = |other: &NodeSelectorRequirement| {
            other.key == requirement.key && other.operator == requirement.operator && values(other) == values(requirement)
        };
        if !into.iter().flatten().any(is_same) {
            into.get_or_insert_default().push(requirement.clone());
        }
    }
}
