//! How much of its capacities a device gives to a request (upstream's `DRAConsumableCapacity`). A device that allows several allocations
//! gives a share of each of its capacities: the amount that the request names, rounded up as the capacity's policy says, its default
//! amount, or all of it. Another device has what the request names or has it not.
//!
//! Amounts are exact, in billionths.

use std::collections::BTreeMap;

use api_model::quantity;
use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, CapacityRequirements, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use sched_framework::capacity_full_name;

use super::allocator::Candidate;
use super::error::RequestError;

/// An amount of a capacity that a request names.
#[derive(Debug)]
pub(super) struct CapacityRequest<'a> {
    name: &'a str,
    amount: Amount,
}

/// A part of a capacity.
#[derive(Clone, Debug, PartialEq)]
struct Amount {
    nano: i128,
    quantity: Quantity,
}

/// What a request takes of a device: a share of each of its capacities, or nothing of a device that is allocated as a whole.
#[derive(Debug, Default)]
pub(super) struct Demand {
    pub shares: Vec<Share>,
}

/// A share of a capacity.
#[derive(Debug)]
pub(super) struct Share {
    /// The capacity's name as the device publishes it.
    pub capacity: String,
    pub quantity: Quantity,
    pub nano: i128,
    /// What claims leave of the capacity.
    pub left: i128,
}

impl Amount {
    fn new(quantity: &Quantity) -> Option<Self> {
        Some(Self { nano: nano(quantity)?, quantity: quantity.clone() })
    }
}

/// The amounts of the request.
///
/// # Errors
/// One is no quantity.
pub(super) fn requests(capacity: Option<&CapacityRequirements>) -> Result<Vec<CapacityRequest<'_>>, RequestError> {
    let all = capacity.and_then(|capacity| capacity.requests.as_ref()).into_iter().flatten();
    all.map(|(name, quantity)| {
        let amount = Amount::new(quantity).ok_or_else(|| RequestError::CapacityAmount(name.clone()))?;
        Ok(CapacityRequest { name, amount })
    })
    .collect()
}

/// What the request takes of the device; `None` when the device does not have as much, whatever else this search allocates.
///
/// # Errors
/// The request names a capacity twice, or an amount is negative: claims would get more than there is.
pub(super) fn demand(candidate: &Candidate, requests: &[CapacityRequest<'_>]) -> Result<Option<Demand>, RequestError> {
    if !candidate.is_shared && requests.is_empty() {
        return Ok(Some(Demand::default()));
    }
    let driver = &candidate.id.driver;
    let capacities = by_full_name(driver, candidate.device().and_then(|device| device.capacity.as_ref()));
    let mut requested: BTreeMap<String, &CapacityRequest<'_>> = BTreeMap::new();
    for request in requests {
        let full_name = capacity_full_name(driver, request.name);
        if !capacities.contains_key(&full_name) {
            return Ok(None);
        }
        if let Some(other) = requested.insert(full_name.clone(), request) {
            let names = (other.name.to_owned(), request.name.to_owned());
            return Err(RequestError::CapacityTwice { capacity: full_name, names: Box::new(names) });
        }
    }
    let mut amounts = Vec::new();
    for (full_name, (name, capacity)) in &capacities {
        let amount = amount(requested.get(full_name).copied(), capacity);
        if amount.as_ref().is_some_and(|amount| amount.nano < 0) {
            return Err(RequestError::NegativeCapacity { device: Box::new(candidate.id.clone()), capacity: full_name.clone() });
        }
        amounts.push((full_name, *name, *capacity, amount));
    }
    let share = |(full_name, name, capacity, amount): (&String, &str, &DeviceCapacity, Option<Amount>)| {
        let Amount { nano, quantity } = amount?;
        let consumed = candidate.in_use.as_ref().map_or(0, |in_use| in_use.consumed(full_name));
        let left = self::nano(&capacity.value)?.checked_sub(consumed)?;
        let fits = nano <= left && capacity.request_policy.as_ref().is_none_or(|policy| is_allowed(policy, nano) == Some(true));
        fits.then(|| Share { capacity: name.to_owned(), quantity, nano, left })
    };
    let shares: Option<Vec<Share>> = amounts.into_iter().map(share).collect();
    Ok(shares.map(|shares| Demand { shares: if candidate.is_shared { shares } else { Vec::new() } }))
}

/// The capacities with the names as they are published, by their full names. A name with the driver's domain goes before one without.
fn by_full_name<'d>(
    driver: &str,
    capacities: Option<&'d BTreeMap<String, DeviceCapacity>>,
) -> BTreeMap<String, (&'d str, &'d DeviceCapacity)> {
    let mut all = BTreeMap::new();
    for (name, capacity) in capacities.into_iter().flatten() {
        let full_name = capacity_full_name(driver, name);
        if *name == full_name || !all.contains_key(&full_name) {
            all.insert(full_name, (name.as_str(), capacity));
        }
    }
    all
}

/// How much of the capacity the request consumes; `None` when an amount is no quantity or is too large to be counted.
fn amount(request: Option<&CapacityRequest<'_>>, capacity: &DeviceCapacity) -> Option<Amount> {
    let policy = capacity.request_policy.as_ref();
    match (request, policy) {
        (None, policy) => Amount::new(policy.and_then(|policy| policy.default.as_ref()).unwrap_or(&capacity.value)),
        (Some(request), None) => Some(request.amount.clone()),
        (Some(request), Some(policy)) => rounded_up(&request.amount, policy),
    }
}

/// The smallest amount of the policy that is not less.
fn rounded_up(amount: &Amount, policy: &CapacityRequestPolicy) -> Option<Amount> {
    let Some(range) = &policy.valid_range else {
        let values: Vec<Amount> = policy.valid_values.iter().flatten().map(Amount::new).collect::<Option<_>>()?;
        return Some(values.into_iter().find(|value| amount.nano <= value.nano).unwrap_or_else(|| amount.clone()));
    };
    let min = Amount::new(&range.min)?;
    if amount.nano < min.nano {
        return Some(min);
    }
    let Some(step) = &range.step else { return Some(amount.clone()) };
    let (size, more) = (positive(step)?, amount.nano.checked_sub(min.nano)?);
    let steps = more / size + i128::from(more % size != 0);
    let nano = size.checked_mul(steps)?.checked_add(min.nano)?;
    Some(Amount { nano, quantity: written_like(step, nano) })
}

/// Whether the policy has the amount; `None` when an amount of the policy is no quantity.
fn is_allowed(policy: &CapacityRequestPolicy, amount: i128) -> Option<bool> {
    if let Some(default) = &policy.default
        && nano(default)? == amount
    {
        return Some(true);
    }
    if let Some(range) = &policy.valid_range {
        let is_too_much = match &range.max {
            Some(max) => amount > nano(max)?,
            None => false,
        };
        let is_between_steps = match &range.step {
            Some(step) => amount.checked_sub(nano(&range.min)?)? % positive(step)? != 0,
            None => false,
        };
        return Some(!is_too_much && !is_between_steps);
    }
    let values: Vec<i128> = policy.valid_values.iter().flatten().map(nano).collect::<Option<_>>()?;
    Some(values.is_empty() || values.contains(&amount))
}

/// The amount in the writing of another quantity: with binary suffixes, decimal ones, or an exponent.
fn written_like(other: &Quantity, nano: i128) -> Quantity {
    let suffix = other.0.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
    Quantity(if suffix.ends_with('i') { quantity::binary_text(nano) } else { quantity::decimal_text(nano, suffix.len() > 1) })
}

fn nano(quantity: &Quantity) -> Option<i128> {
    quantity::nano(&quantity.0).ok()
}

fn positive(quantity: &Quantity) -> Option<i128> {
    nano(quantity).filter(|nano| *nano > 0)
}

#[cfg(test)]
mod tests;
