//! The promises that are checked at each committed write.
//!
//! Controllers decide from caches that lag behind, and a new leader does not know the last writes of the one before. So most
//! checks allow every value that an object had within [`LAG_MAX`], and look away around an interruption of the part.

mod budget_status;
mod budgets;
mod cronjobs;
mod daemonsets;
mod deployments;
mod gangs;
mod jobs;
mod pods;
mod quotas;
mod rollouts;
mod statefulsets;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::history::{Change, Check, View};
use crate::object::{is_active, is_deleting, text};

/// The longest time until every cache shows a write: a watch that ends just then begins again within a few seconds.
pub const LAG_MAX: Duration = Duration::from_secs(20);
/// How long after an interruption of a part its last writes may be unknown to the next leader.
const HANDOVER: Duration = Duration::from_secs(30);

/// How long nodes must have worked: Pods are not ready for a while after that.
const NODES_STEADY: Duration = Duration::from_secs(60);

/// All checks.
pub fn all() -> Vec<Box<dyn Check>> {
    vec![
        Box::new(pods::Bindings),
        Box::new(gangs::Bindings::default()),
        Box::new(deployments::Surge::default()),
        Box::new(deployments::Creations::default()),
        Box::new(deployments::Availability::default()),
        Box::new(rollouts::Shrinking::default()),
        Box::new(rollouts::Recreation::default()),
        Box::new(statefulsets::Order::default()),
        Box::new(daemonsets::Rollout::default()),
        Box::new(jobs::Counts::default()),
        Box::new(jobs::Creations::default()),
        Box::new(cronjobs::Runs::default()),
        Box::new(budgets::Evictions::default()),
        Box::new(budget_status::Numbers::default()),
        Box::new(quotas::Pods),
    ]
}

/// The values that something of objects had lately, by UID.
struct Recent<V = i64>(BTreeMap<String, Vec<(Duration, V)>>);

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V: Clone + PartialEq> Recent<V> {
    /// Adds the present value.
    fn add(&mut self, uid: &str, value: V, now: Duration) {
        let values = self.0.entry(uid.to_owned()).or_default();
        if values.last().is_none_or(|(_, last)| *last != value) {
            values.push((now, value));
        }
    }

    /// The values that held at some time within [`LAG_MAX`].
    fn values(&self, uid: &str, now: Duration) -> impl Iterator<Item = V> {
        let all = self.0.get(uid).map(Vec::as_slice).unwrap_or_default();
        let first = all.iter().rposition(|(since, _)| now.saturating_sub(*since) > LAG_MAX).unwrap_or(0);
        all.iter().skip(first).map(|(_, value)| value.clone())
    }

    /// Whether the value has not changed for that long.
    fn is_steady(&self, uid: &str, now: Duration) -> bool {
        self.values(uid, now).count() <= 1
    }
}

impl Recent {
    fn max(&self, uid: &str, now: Duration) -> i64 {
        self.values(uid, now).max().unwrap_or(0)
    }

    fn min(&self, uid: &str, now: Duration) -> i64 {
        self.values(uid, now).min().unwrap_or(0)
    }
}

/// A Pod of a controller's that was created by this change, with its owner.
fn created_pod<'v>(view: &'v View, change: &'v Change, owners: &str, kind: &str) -> Option<(&'v Value, &'v Value)> {
    let (None, Some(pod), "pods") = (&change.old, &change.new, change.key.resource.as_str()) else { return None };
    Some((&**pod, owner(view, pod, owners, kind)?))
}

/// A Pod of a controller's whose deletion was requested by this change, and not by a user, with its owner.
fn deleted_pod<'v>(view: &'v View, change: &'v Change, owners: &str, kind: &str) -> Option<(&'v Value, &'v Value)> {
    let (Some(old), "pods") = (&change.old, change.key.resource.as_str()) else { return None };
    let is_new = is_active(old) && change.new.as_ref().is_none_or(|new| is_deleting(new));
    let by_user = view.incidents.is_deleted_by_user(&change.key.namespace, &change.key.name, view.now);
    let owner = owner(view, old, owners, kind)?;
    (is_new && !by_user && !is_deleting(owner)).then_some((&**old, owner))
}

/// The object that controls a Pod, if it is of this kind and exists.
fn owner<'v>(view: &'v View, pod: &Value, resource: &str, kind: &str) -> Option<&'v Value> {
    let reference = crate::object::controller(pod).filter(|owner| owner["kind"] == kind)?;
    let owner = view.get(resource, text(pod, "/metadata/namespace"), text(reference, "/name"))?;
    (text(owner, "/metadata/uid") == text(reference, "/uid")).then_some(&**owner)
}

/// The answers to creations of Pods in a namespace that were lost lately: their controller creates such a Pod once more, as
/// upstream does.
fn lost_creations(view: &View, namespace: &str) -> i64 {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    i64::try_from(view.incidents.lost_creations(&path, LAG_MAX, view.now)).unwrap_or(i64::MAX)
}

/// Whether the controllers worked without an interruption.
fn are_controllers_steady(view: &View) -> bool {
    view.incidents.is_steady("controllers", HANDOVER, view.now)
}

/// Whether the caches of a part are no older than [`LAG_MAX`]. A check that allows for every state within that time may look at the first
/// write of a new leader too: a process that starts reads everything anew, and one that waits follows the watches meanwhile.
fn is_present(view: &View, part: &str) -> bool {
    view.incidents.is_present(part, HANDOVER, view.now)
}

/// The number of objects.
fn count<T>(objects: impl Iterator<Item = T>) -> i64 {
    i64::try_from(objects.count()).unwrap_or(i64::MAX)
}

/// A number, or a percentage of `total` rounded up or down.
fn scaled(value: &Value, total: i64, is_up: bool) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    Some(if is_up { (percent * total + 99) / 100 } else { percent * total / 100 })
}
