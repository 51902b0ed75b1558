//! What the status of a budget says follows from its spec, and from Pods and workloads as they were lately. So it says so at all times,
//! also while nodes and parts fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Recent, is_present, scaled};
use crate::history::{Change, Check, View};
use crate::object::{controller, is_deleting, is_ready, is_selected, number, text};

/// Looks at the numbers in the status, by UID of the budget.
#[derive(Default)]
pub struct Numbers {
    /// The names of the healthy Pods.
    healthy: Recent<BTreeSet<String>>,
    /// The names of the Pods whose eviction is granted.
    disrupted: Recent<BTreeSet<String>>,
    /// The Pods that the budget selects.
    selected: Recent,
    /// The replicas of workloads, by UID of the workload.
    replicas: Recent,
    /// The workloads of which the budget selected Pods.
    workloads: BTreeMap<String, BTreeSet<String>>,
    /// 1 while the budget selects Pods of a workload, by both UIDs.
    owning: Recent,
    /// 1 while the workloads of all Pods are there.
    certain: Recent,
}

impl Check for Numbers {
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String> {
        let resource = change.key.resource.as_str();
        if let (Some(workload), "replicasets" | "deployments" | "statefulsets") = (&change.new, resource) {
            self.replicas.add(text(workload, "/metadata/uid"), number(workload, "/spec/replicas").unwrap_or(1), view.now);
        }
        if matches!(resource, "pods" | "replicasets" | "deployments" | "statefulsets" | "poddisruptionbudgets") {
            view.within("poddisruptionbudgets", &change.key.namespace).for_each(|budget| self.observe(view, budget));
        }
        match (&change.old, &change.new) {
            (Some(old), Some(budget)) if resource == "poddisruptionbudgets" && old["status"] != budget["status"] => {
                if evicts(old, budget) {
                    granted(old, budget)
                } else {
                    self.computed(view, budget)
                }
            }
            _ => Ok(()),
        }
        .map_err(|why| format!("{}: {why}", change.key))
    }
}

impl Numbers {
    fn observe(&mut self, view: &View, budget: &Value) {
        let (uid, namespace) = (text(budget, "/metadata/uid"), text(budget, "/metadata/namespace"));
        let selected: Vec<_> = view.within("pods", namespace).filter(|pod| is_selected(pod, &budget["spec"]["selector"])).collect();
        let healthy = selected.iter().filter(|pod| is_ready(pod) && !is_deleting(pod));
        self.healthy.add(uid, healthy.map(|pod| text(pod, "/metadata/name").to_owned()).collect(), view.now);
        let disrupted = budget["status"]["disruptedPods"].as_object().into_iter().flatten();
        self.disrupted.add(uid, disrupted.map(|(name, _)| name.clone()).collect(), view.now);
        self.selected.add(uid, count(selected.len()), view.now);
        let present = workloads(view, &selected);
        self.certain.add(uid, i64::from(present.is_some()), view.now);
        let (present, lately) = (present.unwrap_or_default(), self.workloads.entry(uid.to_owned()).or_default());
        for workload in &present {
            if lately.insert((*workload).to_owned()) {
                self.owning.add(&format!("{uid} {workload}"), 0, view.now);
            }
        }
        for workload in lately.iter() {
            self.owning.add(&format!("{uid} {workload}"), i64::from(present.contains(workload.as_str())), view.now);
        }
    }

    /// The least and the highest number of healthy Pods that the budget may count: the cache of budgets, which says whose eviction is
    /// granted, and that of Pods may be of different ages.
    fn healthy(&self, uid: &str, now: Duration) -> (i64, i64) {
        let disrupted: Vec<_> = self.disrupted.values(uid, now).collect();
        let staying = self
            .healthy
            .values(uid, now)
            .flat_map(|healthy| disrupted.iter().map(|disrupted| count(healthy.difference(disrupted).count())).collect::<Vec<_>>());
        let most = self.healthy.values(uid, now).map(|healthy| count(healthy.len())).max();
        (staying.min().unwrap_or(0), most.unwrap_or(0))
    }

    /// The numbers of Pods that the budget may expect: the caches of Pods and of each kind of workload may be of different ages.
    fn expected(&self, budget: &Value, now: Duration) -> BTreeSet<i64> {
        let uid = text(budget, "/metadata/uid");
        if budget["spec"]["minAvailable"].is_i64() {
            return self.selected.values(uid, now).collect();
        }
        let mut sums = BTreeSet::from([0]);
        for workload in self.workloads.get(uid).into_iter().flatten() {
            let owning: BTreeSet<i64> = self.owning.values(&format!("{uid} {workload}"), now).collect();
            let mut replicas: BTreeSet<i64> =
                owning.contains(&1).then(|| self.replicas.values(workload, now)).into_iter().flatten().collect();
            replicas.extend(owning.get(&0));
            sums = sums.iter().flat_map(|sum| replicas.iter().map(move |replicas| sum + replicas)).collect();
        }
        sums
    }

    /// The status that the controller wrote.
    fn computed(&self, view: &View, budget: &Value) -> Result<(), String> {
        let status = |field: &str| number(budget, &format!("/status/{field}")).unwrap_or(0);
        let (current, desired) = (status("currentHealthy"), status("desiredHealthy"));
        let (expected, allowed) = (status("expectedPods"), status("disruptionsAllowed"));
        if allowed > (current - desired).max(0) {
            return Err(format!("{allowed} disruptions are allowed, with {current} healthy Pods and {desired} desired"));
        }
        let failed = budget["status"]["conditions"].as_array().into_iter().flatten().any(|condition| condition["reason"] == "SyncFailed");
        if failed || number(budget, "/status/observedGeneration") != number(budget, "/metadata/generation") {
            return Ok(());
        }
        if wanted(&budget["spec"], expected) != Some(desired) {
            return Err(format!("{desired} healthy Pods are desired of {expected}, which is not {}", budget["spec"]));
        }
        if !is_present(view, "controllers") {
            return Ok(());
        }
        let uid = text(budget, "/metadata/uid");
        let (least, most) = self.healthy(uid, view.now);
        if !(least..=most).contains(&current) {
            return Err(format!("{current} Pods are said to be healthy: there were {least} to {most} lately"));
        }
        let lately = self.expected(budget, view.now);
        if self.certain.min(uid, view.now) == 1 && !lately.contains(&expected) {
            return Err(format!("{expected} Pods are expected: there were {lately:?} lately"));
        }
        Ok(())
    }
}

/// Whether the change grants an eviction.
fn evicts(old: &Value, new: &Value) -> bool {
    let before = &old["status"]["disruptedPods"];
    new["status"]["disruptedPods"].as_object().is_some_and(|granted| granted.keys().any(|pod| before.get(pod).is_none()))
}

/// An eviction takes one of the disruptions that the status allows.
fn granted(old: &Value, new: &Value) -> Result<(), String> {
    let allowed = |budget: &Value| number(budget, "/status/disruptionsAllowed").unwrap_or(0);
    let (before, now) = (allowed(old), allowed(new));
    if before < 1 || now != before - 1 {
        return Err(format!("an eviction leaves {now} of {before} disruptions"));
    }
    if number(old, "/status/observedGeneration") != number(old, "/metadata/generation") {
        return Err("an eviction uses the status of an older spec".to_owned());
    }
    Ok(())
}

/// How many of the expected Pods the spec wants healthy.
fn wanted(spec: &Value, expected: i64) -> Option<i64> {
    match (&spec["minAvailable"], &spec["maxUnavailable"]) {
        (Value::Null, Value::Null) => Some(0),
        (Value::Null, most) => Some((expected - scaled(most, expected, true)?).max(0)),
        (least, _) => scaled(least, expected, true),
    }
}

/// The UIDs of the Pods' workloads; `None` while one is missing.
fn workloads<'v>(view: &'v View, pods: &[&Arc<Value>]) -> Option<BTreeSet<&'v str>> {
    let workload = |pod: &&Arc<Value>| {
        let owner = owner(view, pod)?;
        let is_middle = owner["kind"] == "ReplicaSet" && controller(owner).is_some();
        Some(text(if is_middle { self::owner(view, owner)? } else { owner }, "/metadata/uid"))
    };
    pods.iter().map(workload).collect()
}

fn owner<'v>(view: &'v View, object: &Value) -> Option<&'v Value> {
    let reference = controller(object)?;
    let resource = format!("{}s", text(reference, "/kind").to_lowercase());
    let owner = view.get(&resource, text(object, "/metadata/namespace"), text(reference, "/name"))?;
    (text(owner, "/metadata/uid") == text(reference, "/uid")).then_some(&**owner)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
