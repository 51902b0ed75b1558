//! Device taint eviction (KEP-5055): Pods leave if a device that is allocated to them has a `NoExecute` taint which their claim does not
//! tolerate, or tolerates only for a time. The taint is in the ResourceSlice of the device, or of a DeviceTaintRule.
//!
//! Watches Pods, ResourceClaims, ResourceSlices and DeviceTaintRules. Deletes Pods after it has set the condition `DisruptionTarget`, and
//! writes the condition `EvictionInProgress` of DeviceTaintRules. It writes no taints.

mod condition;
mod plan;
mod users;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api_client::informer::{BY_POOL, Change, Informer, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use parking_lot::Mutex;
use serde_json::json;

use crate::context::ControllerContext;
use crate::eviction::{Evictions, Step, Wording};
use crate::failure::{Failure, gone_is_fine};
use crate::resourceclaim::{cached_claims, has_claims, is_reserved_for, special_claim};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, metrics, pods, writes};
use condition::Tally;
use plan::{Eviction, NO_EXECUTE, RuleId};
use users::DeviceUsers;

static WORDING: Wording = Wording {
    event: "DeviceTaintManagerEviction",
    marking: |_| "Marking for deletion".to_owned(),
    cancelling: |_| "Cancelling deletion".to_owned(),
    reason: "DeletionByDeviceTaintManager",
    message: "Device Taint manager: deleting due to NoExecute taint",
    deletions: &metrics::DEVICE_TAINT_DELETIONS,
    lateness: &metrics::DEVICE_TAINT_DELETION_DURATION,
};

/// The controller.
pub struct DeviceTaintEviction {
    client: kube::Client,
    evictions: Evictions,
    queue: Arc<WorkQueue<Key>>,
    pods: Informer<Pod>,
    claims: Informer<ResourceClaim>,
    slices: Informer<ResourceSlice>,
    rules: Informer<DeviceTaintRule>,
    users: Arc<DeviceUsers>,
    progress: Mutex<Progress>,
}

/// What the conditions of rules depend on beside the cache.
#[derive(Default)]
struct Progress {
    /// The rules because of which a Pod leaves, until it has left.
    pending: HashMap<ObjectKey, BTreeSet<RuleId>>,
    /// The Pods that were evicted because of a rule, by its name: the rule's UID, and their number.
    evicted: HashMap<String, (String, u64)>,
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A Pod that may have to leave.
    Pod(ObjectKey),
    /// The condition of the rule of that name.
    Rule(String),
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new(DeviceTaintEviction::NAME));
    let claims = context.informer::<ResourceClaim>();
    let users = Arc::new(DeviceUsers::new(claims.clone()));
    let of_claims = Arc::clone(&users);
    context.feed_from(&claims, &queue, move |change| of_claims.observe(change).into_iter().map(Key::Pod).collect());
    let slices = context.informer::<ResourceSlice>();
    let (of_slices, cache) = (Arc::clone(&users), slices.clone());
    context.feed_from(&slices, &queue, move |change| slice_changed(&of_slices, &cache, change));
    let of_rules = Arc::clone(&users);
    let rules = context.feed(&queue, move |change: &Change<DeviceTaintRule>| rule_changed(&of_rules, change));
    let pods = context.feed(&queue, |change: &Change<Pod>| {
        let statuses = |pod: &Pod| pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone());
        let state = |pod: &Arc<Pod>| {
            let special = special_claim(pod).map(str::to_owned);
            (pods::node_name(pod).map(str::to_owned), statuses(pod), special, meta::uid(&pod.metadata).to_owned())
        };
        if !change.both().any(|pod| has_claims(pod)) || change.old.as_ref().map(state) == change.new.as_ref().map(state) {
            return Vec::new();
        }
        change.latest().map(|pod| Key::Pod(ObjectKey::from(&pod.metadata))).into_iter().collect()
    });
    let evictions = Evictions::new(context.client(), context.recorder(DeviceTaintEviction::NAME), &WORDING);
    let controller = DeviceTaintEviction {
        client: context.client(),
        evictions,
        queue: Arc::clone(&queue),
        pods,
        claims,
        slices,
        rules,
        users,
        progress: Mutex::default(),
    };
    context.run(Arc::new(controller), queue);
}

/// The Pods with devices of the pool, if the taints of the pool may have changed: also a slice without taints may be a newer generation
/// than one with taints.
fn slice_changed(users: &DeviceUsers, cache: &Informer<ResourceSlice>, change: &Change<ResourceSlice>) -> Vec<Key> {
    let Some(slice) = change.latest() else { return Vec::new() };
    let state = |slice: &ResourceSlice| {
        let taints = plan::evicting(slice).into_iter().map(|(device, taint)| (device.to_owned(), taint.clone()));
        (slice.spec.pool.generation, taints.collect::<Vec<_>>())
    };
    if change.old.as_deref().map(state) == change.new.as_deref().map(state) {
        return Vec::new();
    }
    let (driver, pool) = (&slice.spec.driver, &slice.spec.pool.name);
    let pods = users.of_pool(&(driver.clone(), pool.clone()));
    let siblings = || cache.indexed(BY_POOL, pool).into_iter().filter(move |sibling| sibling.spec.driver == *driver);
    if pods.is_empty() || !change.both().cloned().chain(siblings()).any(|slice| !plan::evicting(&slice).is_empty()) {
        return Vec::new();
    }
    pods.into_iter().map(Key::Pod).collect()
}

/// The condition of a rule comes before the Pods with its devices.
fn rule_changed(users: &DeviceUsers, change: &Change<DeviceTaintRule>) -> Vec<Key> {
    let state = |rule: &DeviceTaintRule| (meta::uid(&rule.metadata).to_owned(), rule.spec.clone());
    let Some(rule) = change.latest() else { return Vec::new() };
    if change.old.as_deref().map(state) == change.new.as_deref().map(state) {
        return Vec::new();
    }
    let condition = Key::Rule(meta::name(&rule.metadata).to_owned());
    let evicting = change.both().filter(|rule| rule.spec.taint.effect == NO_EXECUTE);
    let pods: BTreeSet<ObjectKey> = evicting.flat_map(|rule| users.of_rule(rule).0).collect();
    std::iter::once(condition).chain(pods.into_iter().map(Key::Pod)).collect()
}

impl Controller for DeviceTaintEviction {
    const NAME: &'static str = "device-taint-eviction-controller";
    const WORKERS: usize = 8;
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        match key {
            Key::Pod(key) => self.sync_pod(key).await,
            Key::Rule(name) => self.sync_rule(name).await,
        }
    }
}

impl DeviceTaintEviction {
    async fn sync_pod(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(pod) = self.pods.get(key).filter(|pod| !meta::is_deleting(&pod.metadata)) else {
            self.evictions.forget(key);
            self.set_pending(key, None);
            return Ok(Next::OnChange);
        };
        let now = api_clock::now();
        let mut rules = self.rules.list();
        rules.retain(|rule| rule.spec.taint.effect == NO_EXECUTE);
        let eviction = self.eviction(&pod, &rules, self.evictions.first_observed(key, now));
        self.set_pending(key, eviction.as_ref());
        let step = self.evictions.carry_out(key, &pod, plan::verdict(eviction.as_ref()), now).await?;
        if step == Step::Evicted {
            self.count_evicted(key, eviction);
        }
        Ok(step.next())
    }

    /// Why and when the Pod leaves, if these rules are all that there are.
    fn eviction(&self, pod: &Pod, rules: &[Arc<DeviceTaintRule>], first_observed: Timestamp) -> Option<Eviction> {
        // The claims of a Pod that has no node are not in use yet.
        pods::node_name(pod)?;
        let mut claims = cached_claims(pod, &self.claims);
        claims.retain(|claim| is_reserved_for(claim, pod));
        plan::of_claims(&claims, |device| plan::of_device(device, &self.slices.indexed(BY_POOL, &device.pool), rules, first_observed))
    }

    /// Notes the rules because of which the Pod leaves. The conditions of these rules, and of those because of which it does not leave any
    /// more, may change; more Pods may follow, so they wait.
    fn set_pending(&self, key: &ObjectKey, eviction: Option<&Eviction>) {
        let rules = eviction.map(|eviction| eviction.rules.clone()).unwrap_or_default();
        let mut progress = self.progress.lock();
        let before = progress.pending.remove(key).unwrap_or_default();
        for rule in before.union(&rules) {
            self.queue.add_after(Key::Rule(rule.name.clone()), condition::PERIOD);
        }
        if !rules.is_empty() {
            progress.pending.insert(key.clone(), rules);
        }
    }

    fn count_evicted(&self, key: &ObjectKey, eviction: Option<Eviction>) {
        self.set_pending(key, None);
        let mut progress = self.progress.lock();
        for rule in eviction.into_iter().flat_map(|eviction| eviction.rules) {
            // A rule that is gone has no condition.
            if self.rules.get(&ObjectKey::new("", &rule.name)).is_none_or(|present| RuleId::of(&present) != rule) {
                continue;
            }
            let count = progress.evicted.entry(rule.name).or_default();
            let before = if count.0 == rule.uid { count.1 } else { 0 };
            *count = (rule.uid, before + 1);
        }
    }

    async fn sync_rule(&self, name: &str) -> Result<Next, Failure> {
        let Some(rule) = self.rules.get(&ObjectKey::new("", name)) else {
            self.progress.lock().evicted.remove(name);
            return Ok(Next::OnChange);
        };
        let now = api_clock::now();
        if let Some(time) = condition::stays_for(&rule, now) {
            return Ok(Next::After(time));
        }
        if let Some(condition) = condition::wanted(&rule, &self.tally(&rule, now), now) {
            let status = json!({"conditions": [condition]});
            gone_is_fine(writes::apply_status(&self.client, rule.as_ref(), Self::NAME, status).await)?;
        }
        Ok(Next::OnChange)
    }

    fn tally(&self, rule: &Arc<DeviceTaintRule>, now: Timestamp) -> Tally {
        let id = RuleId::of(rule);
        let evicted = self.progress.lock().evicted.get(&id.name).filter(|(uid, _)| *uid == id.uid).map_or(0, |(_, count)| *count);
        let is_simulated = rule.spec.taint.effect == "None";
        if !is_simulated && rule.spec.taint.effect != NO_EXECUTE {
            return Tally { evicted, ..Tally::default() };
        }
        // The rule alone, with its effect or with the one that it does not have yet.
        let mut evicting = DeviceTaintRule::clone(rule);
        evicting.spec.taint.effect = NO_EXECUTE.to_owned();
        let (users, allocated) = self.users.of_rule(rule);
        let rules = [Arc::new(evicting)];
        let leaves = |key: &&ObjectKey| {
            let pod = self.pods.get(key).filter(|pod| !meta::is_deleting(&pod.metadata));
            pod.and_then(|pod| self.eviction(&pod, &rules, now)).is_some_and(|eviction| eviction.rules.contains(&id))
        };
        let leaving: Vec<&ObjectKey> = users.iter().filter(leaves).collect();
        let namespaces: BTreeSet<&str> = leaving.iter().map(|key| key.namespace.as_str()).collect();
        let published = if is_simulated { plan::published(rule, &self.slices.list()) } else { 0 };
        Tally { pods: leaving.len(), namespaces: namespaces.len(), published, allocated, evicted }
    }
}

#[cfg(test)]
mod tests;
