//! ResourceQuota: limits the total usage of a namespace's objects.
//!
//! The usage is the sum over the stored objects. A check stores nothing, so the usage cannot drift, and a check is a
//! pure function of a view and of [`Sums`]. The caller provides the sums; the server updates them when objects are
//! written or deleted. Two concurrent requests could both pass with the same sums. So the server calls [`check`] under
//! the lock that orders its writes, after everything else that may reject the request, as upstream does.
//! writes, after everything else that may reject the request, as upstream does.

mod scope;
mod sum;
mod usage;

use api_model::message::Message;
use std::collections::{BTreeMap, BTreeSet};

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::view::View;
use serde_json::{Map, Value};

pub use scope::Scopes;
pub use sum::{Counted, Sum, Sums};
pub use usage::looks_into;

use crate::amount::{self, Amounts};
use crate::denied::Denied;
use crate::json;
use crate::pods;
use crate::request::{Operation, Request};

/// A quota on one of these resources requires a value in each container.
const SAID_BY_CONTAINERS: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// Upstream's name of the plugin.
pub const NAME: &str = "ResourceQuota";

/// Checks the quotas of the namespace. The view has the quotas, the sums have the usage. To avoid races, the caller
/// holds the lock that orders writes and passes the state just before the write.
pub fn check(request: &Request<'_>, view: &dyn View, sums: &dyn Sums) -> Result<(), Denied> {
    let Some(object) = request.object().filter(|_| concerns(request)) else { return Ok(()) };
    let resource = request.kind.group_resource();
    let delta = growth(&resource, object, request.old);
    for quota in view.list(&GroupResource::new("", "resourcequotas"), Some(request.namespace)) {
        if !Scopes::from_quota(&quota).matches(&resource, object) {
            continue;
        }
        let hard = amount::list(quota.pointer("/spec/hard"));
        if resource == pods::resource() {
            check_said(&quota, &hard, pods::spec(object)).map_err(|message| Denied::forbidden(request, message))?;
        }
        check_one(&quota, &hard, &delta, sums).map_err(|message| Denied::forbidden(request, message))?;
    }
    Ok(())
}

/// The current usage of a quota: `status.used`.
pub fn used(quota: &Value, sums: &dyn Sums) -> Map<String, Value> {
    let hard = amount::list(quota.pointer("/spec/hard"));
    let names: BTreeSet<&str> = hard.keys().map(String::as_str).collect();
    let used = used_of(quota, &names, sums);
    hard.keys().map(|name| (name.clone(), amount::text(name, used.get(name).copied().unwrap_or_default(), None).into())).collect()
}

/// The resources whose objects a quota counts.
pub fn sources(quota: &Value) -> BTreeSet<GroupResource> {
    let hard = quota.pointer("/spec/hard").and_then(Value::as_object);
    hard.into_iter().flatten().filter_map(|(name, _)| usage::source(name)).collect()
}

/// Whether quotas apply to a request.
pub fn concerns(request: &Request<'_>) -> bool {
    if request.namespace.is_empty() {
        return false;
    }
    match request.operation {
        Operation::Create => request.subresource.is_empty(),
        Operation::Update => request.is("", "services") || request.is("", "persistentvolumeclaims") || request.is_sub("", "pods", "resize"),
        Operation::Delete | Operation::Connect => false,
    }
}

/// The increase of the usage. Resources that decrease are left out.
fn growth(resource: &GroupResource, new: &Value, old: Option<&Value>) -> Amounts {
    let before = old.map(|old| usage::amounts(resource, old)).unwrap_or_default();
    let mut delta = usage::amounts(resource, new);
    for (name, amount) in &mut delta {
        *amount = amount.saturating_sub(before.get(name).copied().unwrap_or_default());
    }
    delta.retain(|_, amount| *amount > 0);
    delta
}

fn check_one(quota: &Value, hard: &Amounts, delta: &Amounts, sums: &dyn Sums) -> Result<(), Message> {
    let names: BTreeSet<&str> = hard.keys().map(String::as_str).filter(|name| delta.contains_key(*name)).collect();
    if names.is_empty() {
        return Ok(());
    }
    let used = used_of(quota, &names, sums);
    let now = |name: &str| used.get(name).copied().unwrap_or_default();
    let exceeded: Vec<&str> = names.into_iter().filter(|name| now(name).saturating_add(at(delta, name)) > at(hard, name)).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let list = |of: &dyn Fn(&str) -> String| exceeded.iter().map(|name| format!("{name}={}", of(name))).collect::<Vec<_>>().join(",");
    let limited = |name: &str| {
        let value = quota.pointer("/spec/hard").and_then(|h| h.get(name)).cloned().unwrap_or_default();
        amount::canonical(name, &value)
    };
    Err(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        meta::name(quota),
        list(&|name| amount::text(name, at(delta, name), None)),
        list(&|name| amount::text(name, now(name), None)),
        list(&limited),
    )
    .into())
}

fn at(amounts: &Amounts, name: &str) -> i128 {
    amounts.get(name).copied().unwrap_or_default()
}

/// The usage of a quota's stored objects, for some resource names.
fn used_of(quota: &Value, names: &BTreeSet<&str>, sums: &dyn Sums) -> Amounts {
    let sources: BTreeSet<GroupResource> = names.iter().filter_map(|name| usage::source(name)).collect();
    let (namespace, scopes) = (meta::namespace(quota), Scopes::from_quota(quota));
    let mut used = Amounts::new();
    for resource in sources.iter().filter(|resource| scopes.may_match(resource)) {
        amount::add(&mut used, sums.sum(resource, namespace, &scopes).amounts());
    }
    used.retain(|name, _| names.contains(name.as_str()));
    used
}

/// Checks that each container has a value for each counted resource.
fn check_said(quota: &Value, hard: &Amounts, spec: &Value) -> Result<(), Message> {
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let whole = usage::named(amount::list(spec.pointer("/resources/requests")), amount::list(spec.pointer("/resources/limits")));
    for field in ["containers", "initContainers"] {
        for container in json::list(spec, field) {
            let said = usage::named(pods::of_container(container, "requests"), pods::of_container(container, "limits"));
            for name in
                SAID_BY_CONTAINERS.into_iter().filter(|n| hard.contains_key(*n) && !said.contains_key(*n) && !whole.contains_key(*n))
            {
                missing.entry(name).or_default().insert(json::text(container, "name"));
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let parts: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(",")))
        .collect();
    Err(format!("failed quota: {}: must specify {}", meta::name(quota), parts.join("; ")).into())
}

#[cfg(test)]
mod tests;
