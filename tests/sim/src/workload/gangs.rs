//! Gangs: a PodGroup with its Pods, which belong to it. Some can never be placed, because one of their Pods fits on no node. Those of the
//! priority class `low` give way to other Pods. All choices have a stream of their own.

use std::time::Duration;

use api_clock::rand::Rng as _;
use serde_json::{Value, json};

use super::{NAMESPACES, Workload, objects};
use crate::entropy;
use crate::history::View;
use crate::object::{IMPOSSIBLE, is_impossible, number, text, thousandths};
use crate::settled::bound;

/// More than any machine has.
const GIANT_CPU: &str = "1000";
/// The priority class of gangs that give way.
pub const LOW: &str = "low";
/// The longest time until one of two gangs has its room, without faults.
const PLACED_MAX: Duration = Duration::from_secs(120);
/// After so long, nobody waits any more who could be placed.
const QUIET: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A PodGroup.
pub fn group(name: &str, least: usize, class: Option<&str>) -> Value {
    let mut spec = json!({"schedulingPolicy": {"gang": {"minCount": least}}});
    if let Some(class) = class {
        spec["priorityClassName"] = json!(class);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

/// A change of a gang.
pub fn change(present: &Value, number: u32) -> Value {
    match is_impossible(present) {
        true => json!({"metadata": {"annotations": {"sim/touched": number.to_string()}}}),
        false => json!({"spec": {"schedulingPolicy": {"gang": {"minCount": number}}}}),
    }
}

impl Workload {
    pub(super) async fn create_gang(&mut self, namespace: &str, name: &str) {
        let (pods, is_impossible, is_low) =
            (self.gang_rng.random_range(2..=5_usize), self.gang_rng.random_bool(0.3), self.gang_rng.random_bool(0.5));
        let least = if is_impossible { pods } else { self.gang_rng.random_range(1..=pods) };
        let mut object = group(name, least, is_low.then_some(LOW));
        if is_impossible {
            object["metadata"]["annotations"] = json!({IMPOSSIBLE: "true"});
        } else if self.gang_rng.random_bool(0.5) {
            object["spec"]["disruptionMode"] = json!({"all": {}});
        }
        let giant = is_impossible.then(|| self.gang_rng.random_range(0..pods));
        let cpu = format!("{}m", self.gang_rng.random_range(1..=10) * 50);
        self.create("podgroups", namespace, &object).await;
        for number in 0..pods {
            let cpu = if giant == Some(number) { GIANT_CPU } else { &cpu };
            self.create_gang_pod(namespace, name, &format!("{name}-{number}"), cpu).await;
        }
    }

    async fn create_gang_pod(&mut self, namespace: &str, group: &str, name: &str, cpu: &str) {
        let Ok(owner) = self.admin.get("podgroups", namespace, group).await else { return };
        let mut pod = objects::template(group, 1, &mut self.gang_rng);
        let reference = json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": group,
            "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["ownerReferences"] = json!([reference]);
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        if let Some(class) = owner["spec"].get("priorityClassName") {
            pod["spec"]["priorityClassName"] = class.clone();
        }
        self.create("pods", namespace, &pod).await;
    }

    /// Nobody replaces the Pods of a gang. So that it can be placed, it gets as many as it needs, and two that nodes may still lose.
    pub(super) async fn settle_gang(&mut self, namespace: &str, name: &str) {
        let Ok(group) = self.admin.get("podgroups", namespace, name).await else { return };
        if is_impossible(&group) {
            return;
        }
        for number in 0..number(&group, "/spec/schedulingPolicy/gang/minCount").unwrap_or(0) + 2 {
            self.create_gang_pod(namespace, name, &format!("{name}-s{number}"), "50m").await;
        }
    }

    /// Two gangs compete for the room of all machines, of which each needs more than a half: one has it, the other one has nothing of it.
    pub async fn compete(&mut self) {
        let namespace = NAMESPACES[1];
        // All machines have registered by then.
        tokio::time::sleep(QUIET).await;
        let room = |view: &View, cpu: i64| -> i64 {
            view.all("nodes").map(|(_, node)| thousandths(text(node, "/status/allocatable/cpu")) / cpu).sum()
        };
        let of_cpu = |cpu: i64| (cpu, self.cluster.history.read(|view| room(view, cpu)));
        let Some((cpu, room)) = [1000, 500, 250].into_iter().map(of_cpu).find(|(_, room)| *room >= 4) else { return };
        let least = usize::try_from(room / 2 + 1).unwrap_or(1);
        let names = [1, 2].map(|number| format!("app{}", self.names + number));
        self.names += 2;
        for name in &names {
            self.create("podgroups", namespace, &group(name, least, None)).await;
        }
        for number in 0..least {
            for name in &names {
                self.create_gang_pod(namespace, name, &format!("{name}-{number}"), &format!("{cpu}m")).await;
            }
        }
        let counts = |view: &View| names.clone().map(|name| bound(view, namespace, &name));
        let end = entropy::elapsed() + PLACED_MAX;
        while self.cluster.history.read(|view| counts(view).iter().all(|count| *count < least)) {
            if entropy::elapsed() >= end {
                return self.cluster.history.violate(format!("no gang of {least} Pods of {cpu}m is placed where {room} have room"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        tokio::time::sleep(QUIET).await;
        let counts = self.cluster.history.read(counts);
        if counts.iter().any(|count| *count > 0 && *count < least) {
            self.cluster.history.violate(format!("of two gangs of {least} Pods {counts:?} are bound where {room} have room"));
        }
        for name in &names {
            self.apps.insert(name.clone(), ("podgroups", namespace));
            self.delete(name).await;
        }
        tokio::time::sleep(QUIET).await;
    }
}
