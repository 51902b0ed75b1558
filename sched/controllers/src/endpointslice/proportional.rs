//! Hints in proportion to the zones: each zone gets as many endpoints as its share of the cluster's CPUs, and most of them are
//! its own. Upstream's `topologycache`.
//!
//! Slices that do not change keep their hints while no zone gets too few endpoints by them. Hints are given up, with an event,
//! when a Node has no zone, when there are fewer endpoints than zones, or when a zone would be overloaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::Endpoint;

use super::hints;
use crate::{meta, nodes};

/// By how much a zone's endpoints may have more than their share of the load, upstream's `overloadThreshold`.
const OVERLOAD_MAX: f64 = 0.2;
/// Nodes whose CPUs do not count.
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Each zone's share of the CPUs of ready Nodes.
pub type Shares = BTreeMap<String, f64>;
/// The number of endpoints that are hinted at each zone.
pub type Hinted = BTreeMap<String, usize>;

/// The endpoints of one slice.
pub struct Part<'a> {
    /// The endpoints, with the hints they had.
    pub endpoints: &'a mut [Endpoint],
    /// Whether the slice is written anyway; set when its hints change.
    pub changed: &'a mut bool,
}

/// What became of the hints of one address family.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The endpoints are hinted.
    Hinted(Hinted),
    /// None is, for this reason.
    GivenUp(String),
}

/// How many endpoints a zone may have at most, and should have.
struct Allocation {
    at_most: usize,
    desired: f64,
}

/// The shares of the zones; `None` unless every ready Node has a zone and CPUs, and there are two zones.
pub fn shares(nodes: &[Arc<Node>]) -> Option<Shares> {
    let mut cpus: BTreeMap<String, i128> = BTreeMap::new();
    for node in nodes {
        let is_excluded = CONTROL_PLANE.iter().any(|label| meta::label(&node.metadata, label).is_some());
        if is_excluded || nodes::condition(node, "Ready").is_none_or(|ready| ready.status != "True") {
            continue;
        }
        let zone = meta::label(&node.metadata, super::ZONE).filter(|zone| !zone.is_empty())?;
        let allocatable = node.status.as_ref()?.allocatable.as_ref()?.get("cpu")?;
        let milli = api_model::quantity::milli(&allocatable.0).ok().filter(|milli| *milli > 0)?;
        *cpus.entry(zone.to_owned()).or_default() += milli;
    }
    let total: i128 = cpus.values().sum();
    let share = |milli: i128| milli as f64 / total as f64;
    (cpus.len() >= 2).then(|| cpus.into_iter().map(|(zone, milli)| (zone, share(milli))).collect())
}

/// Hints the endpoints of one address family.
pub fn assign(shares: Option<&Shares>, parts: &mut [Part<'_>]) -> Outcome {
    let outcome = try_to(shares, parts);
    if matches!(outcome, Outcome::GivenUp(_)) {
        for part in parts {
            for endpoint in part.endpoints.iter_mut() {
                *part.changed |= endpoint.hints.take().is_some();
            }
        }
    }
    outcome
}

fn try_to(shares: Option<&Shares>, parts: &mut [Part<'_>]) -> Outcome {
    let ready = parts.iter().flat_map(|part| part.endpoints.iter()).filter(|endpoint| hints::is_ready(endpoint)).count();
    let allocations = match allocations(shares, ready) {
        Ok(allocations) => allocations,
        Err(why) => return Outcome::GivenUp(why),
    };
    let mut hinted = Hinted::new();
    for part in parts.iter_mut().filter(|part| !*part.changed) {
        match present(part.endpoints, &hinted, &allocations) {
            Some(present) => present.into_iter().for_each(|(zone, count)| *hinted.entry(zone).or_default() += count),
            None => *part.changed = true,
        }
    }
    for endpoint in parts.iter_mut().filter(|part| *part.changed).flat_map(|part| part.endpoints.iter_mut()) {
        if !hints::is_ready(endpoint) {
            endpoint.hints = None;
            continue;
        }
        let Some(zone) = endpoint.zone.clone().filter(|zone| !zone.is_empty()) else {
            return Outcome::GivenUp("One or more endpoints do not have a zone specified".to_owned());
        };
        endpoint.hints = Some(hints::at_zone(&zone));
        *hinted.entry(zone).or_default() += 1;
    }
    let (giving, receiving) = moves(&allocations, &hinted);
    redistribute(parts, giving, receiving, &mut hinted);
    Outcome::Hinted(hinted)
}

fn float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

/// The fewest endpoints with which a zone of that share is not overloaded.
fn least(share: f64, endpoints: usize) -> usize {
    let least = (share * float(endpoints) * (1.0 / (1.0 + OVERLOAD_MAX))).ceil();
    (0..=endpoints).find(|count| float(*count) >= least).unwrap_or(endpoints)
}

fn allocations(shares: Option<&Shares>, endpoints: usize) -> Result<BTreeMap<String, Allocation>, String> {
    let Some(shares) = shares else {
        return Err("Insufficient Node information: allocatable CPU or zone not specified on one or more nodes".to_owned());
    };
    let counts = format!("({endpoints} endpoints, {} zones)", shares.len());
    if shares.len() > endpoints {
        return Err(format!("Insufficient number of endpoints {counts}"));
    }
    let sum: usize = shares.values().map(|share| least(*share, endpoints)).sum();
    let Some(spare) = endpoints.checked_sub(sum) else {
        let problem = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";
        return Err(format!("{problem} {counts}"));
    };
    let allocation = |share: f64| {
        let least = least(share, endpoints);
        Allocation { at_most: least + spare, desired: (share * float(endpoints)).max(float(least)) }
    };
    Ok(shares.iter().map(|(zone, share)| (zone.clone(), allocation(*share))).collect())
}

/// The hints of a slice that does not change; `None` when it must.
fn present(endpoints: &[Endpoint], hinted: &Hinted, allocations: &BTreeMap<String, Allocation>) -> Option<Hinted> {
    let mut counts = Hinted::new();
    for endpoint in endpoints.iter().filter(|endpoint| hints::is_ready(endpoint)) {
        let zones = endpoint.hints.as_ref()?.for_zones.as_ref().filter(|zones| !zones.is_empty())?;
        for zone in zones {
            allocations.get(&zone.name)?;
            *counts.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = |(zone, count): (&String, &usize)| {
        let already = hinted.get(zone).copied().unwrap_or(0);
        allocations.get(zone).is_some_and(|allocation| already + count <= allocation.at_most)
    };
    counts.iter().all(fits).then_some(counts)
}

/// How many endpoints each zone gives to others, and how many each gets.
fn moves(allocations: &BTreeMap<String, Allocation>, hinted: &Hinted) -> (Hinted, Hinted) {
    let (mut surplus, mut missing): (BTreeMap<&str, f64>, BTreeMap<&str, f64>) = (BTreeMap::new(), BTreeMap::new());
    for (zone, allocation) in allocations {
        let more = float(hinted.get(zone).copied().unwrap_or(0)) - allocation.desired;
        if more > 0.0 {
            surplus.insert(zone, more);
        } else if more < 0.0 {
            missing.insert(zone, -more);
        }
    }
    let (mut giving, mut receiving) = (Hinted::new(), Hinted::new());
    while let (Some((from, gives)), Some((to, gets))) = (most(&surplus), most(&missing)) {
        if (gives < 1.0 && gets < 1.0) || gives < 0.5 || gets < 0.5 {
            break;
        }
        surplus.insert(from, gives - 1.0);
        missing.insert(to, gets - 1.0);
        *giving.entry(from.to_owned()).or_default() += 1;
        *receiving.entry(to.to_owned()).or_default() += 1;
    }
    (giving, receiving)
}

/// The zone with the greatest number; of equal ones, the first.
fn most<'a>(zones: &BTreeMap<&'a str, f64>) -> Option<(&'a str, f64)> {
    zones.iter().map(|(zone, count)| (*zone, *count)).reduce(|most, other| if other.1 > most.1 { other } else { most })
}

/// Hints endpoints of changed slices at zones that have too few.
fn redistribute(parts: &mut [Part<'_>], mut giving: Hinted, mut receiving: Hinted, hinted: &mut Hinted) {
    for endpoint in parts.iter_mut().filter(|part| *part.changed).flat_map(|part| part.endpoints.iter_mut()) {
        let Some(own) = endpoint.zone.clone().filter(|_| hints::is_ready(endpoint)) else { continue };
        let Some(gives) = giving.get_mut(&own).filter(|gives| **gives > 0) else { continue };
        let Some((to, gets)) = receiving.iter_mut().find(|(_, gets)| **gets > 0) else { return };
        *gives -= 1;
        *gets -= 1;
        endpoint.hints = Some(hints::at_zone(to));
        *hinted.entry(to.clone()).or_default() += 1;
        hinted.entry(own).and_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Whether a zone has too few endpoints by now.
pub fn is_overloaded(hinted: &Hinted, shares: Option<&Shares>) -> bool {
    if hinted.is_empty() {
        return false;
    }
    let Some(shares) = shares else { return true };
    let total: usize = hinted.values().sum();
    shares.iter().any(|(zone, share)| hinted.get(zone).is_none_or(|count| *count < least(*share, total)))
}

#[cfg(test)]
mod tests;
