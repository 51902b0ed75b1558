//! Whole rollouts on plain values: the plan changes the ReplicaSets, a stand-in for their controller changes the
//! counts, and each step checks the fences.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetStatus};
use serde_json::{Value, json};

use super::history;
use super::plan::{Action, Plan, Snapshot, plan, scaled_message};
use super::{fence, status};
use crate::meta;

mod tables;

struct World {
    deployment: Deployment,
    sets: BTreeMap<String, ReplicaSet>,
    now: Timestamp,
    events: Vec<String>,
    made: u32,
}

impl World {
    fn new(replicas: i32, strategy: Value) -> Self {
        let deployment = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 1},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "strategy": strategy,
                "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10, "template": template("v1")},
        }))
        .expect("a Deployment");
        let now = "2024-01-01T00:00:00Z".parse().expect("a time");
        Self { deployment, sets: BTreeMap::new(), now, events: Vec::new(), made: 0 }
    }

    fn change(&mut self, change: impl FnOnce(&mut Deployment)) {
        change(&mut self.deployment);
        self.deployment.metadata.generation = self.deployment.metadata.generation.map(|g| g + 1);
    }

    fn set_image(&mut self, image: &str) {
        self.change(|d| d.spec.template = serde_json::from_value(template(image)).expect("a template"));
    }

    fn plan(&self) -> Plan {
        let sets = self.sets.values().cloned().map(Arc::new).collect();
        let runs_pods = |set: &ReplicaSet| set.status.as_ref().is_some_and(|status| status.replicas > 0);
        plan(&Snapshot { deployment: &self.deployment, sets, runs_pods: &runs_pods, now: self.now })
    }

    /// One pass; returns whether it wrote anything.
    fn pass(&mut self) -> bool {
        let plan = self.plan();
        let wrote = !plan.actions.is_empty() || self.deployment.status.as_ref() != Some(&plan.status);
        for action in plan.actions {
            self.perform(action);
        }
        self.deployment.status = Some(plan.status);
        self.now = self.now.checked_add(SignedDuration::from_secs(1)).expect("in range");
        wrote
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Create(set) => {
                self.made += 1;
                let mut set = *set;
                set.metadata.uid = Some(format!("s{}", self.made));
                set.metadata.creation_timestamp = Some(meta::whole_seconds(self.now));
                self.events.push(scaled_message(&set, 0, fence::size(&set)));
                self.sets.insert(meta::name(&set.metadata).to_owned(), set);
            }
            Action::SetRevision(revision) => {
                self.deployment.metadata.annotations.get_or_insert_default().insert(history::REVISION.to_owned(), revision);
            }
            Action::Change { set, patch, scaled } => {
                let mut value = serde_json::to_value(&self.sets[meta::name(&set.metadata)]).expect("json");
                meta::overlay(&mut value, &patch);
                self.sets.insert(meta::name(&set.metadata).to_owned(), serde_json::from_value(value).expect("a ReplicaSet"));
                if let Some((from, to)) = scaled {
                    self.events.push(scaled_message(&set, from, to));
                }
            }
            Action::Delete(set) => {
                self.sets.remove(meta::name(&set.metadata));
            }
        }
    }

    /// Plays the ReplicaSet controller and the nodes: surplus Pods are deleted, missing ones are created, and at most
    /// `ready` of the unready ones become available.
    fn pods_move(&mut self, mut ready: i32) {
        for set in self.sets.values_mut() {
            let size = fence::size(set);
            let mut available = fence::available(set).min(size);
            let step = (size - available).min(ready);
            available += step;
            ready -= step;
            set.status = Some(ReplicaSetStatus {
                replicas: size,
                ready_replicas: Some(available),
                available_replicas: Some(available),
                ..ReplicaSetStatus::default()
            });
        }
    }

    fn check_fences(&self) {
        let total: i32 = self.sets.values().map(fence::size).sum();
        let most = fence::wanted(&self.deployment) + fence::max_surge(&self.deployment);
        assert!(total <= most, "{total} Pods asked for where {most} are allowed");
    }

    /// Repeats passes and changes of Pods until nothing changes; returns the number of rounds.
    fn settle(&mut self, ready_a_round: i32) -> usize {
        for round in 0..500 {
            let wrote = self.pass();
            self.check_fences();
            let before: Vec<_> = self.sets.values().cloned().collect();
            self.pods_move(ready_a_round);
            if !wrote && before.iter().eq(self.sets.values()) {
                return round;
            }
        }
        panic!("the rollout never ends: {:?}", self.events);
    }

    fn available(&self) -> i32 {
        self.sets.values().map(fence::available).sum()
    }

    fn sizes(&self) -> Vec<i32> {
        let mut sets: Vec<_> = self.sets.values().collect();
        sets.sort_by_key(|set| history::revision(&set.metadata));
        sets.iter().map(|set| fence::size(set)).collect()
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let status = self.deployment.status.as_ref().expect("a status");
        let condition = status.conditions.iter().flatten().find(|c| c.type_.as_deref() == Some(kind));
        condition.map(|c| (c.status.clone().unwrap_or_default(), c.reason.clone().unwrap_or_default())).unwrap_or_default()
    }
}

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

#[test]
fn a_new_deployment_gets_its_replica_set_and_completes() {
    let mut world = World::new(3, rolling(json!("25%"), json!("25%")));
    world.pass();
    let set = world.sets.values().next().expect("made").clone();
    let hash = meta::label(&set.metadata, history::POD_TEMPLATE_HASH).expect("hashed").to_owned();
    assert_eq!(meta::name(&set.metadata), format!("web-{hash}"));
    assert_eq!(world.events, [format!("Scaled up replica set web-{hash} from 0 to 3")]);
    assert_eq!(world.condition("Progressing"), ("True".to_owned(), "NewReplicaSetCreated".to_owned()));
    world.settle(1);
    assert_eq!(world.condition("Progressing"), ("True".to_owned(), "NewReplicaSetAvailable".to_owned()));
    assert_eq!(world.condition("Available"), ("True".to_owned(), "MinimumReplicasAvailable".to_owned()));
    assert!(status::is_complete(&world.deployment, world.deployment.status.as_ref().expect("a status")));
    let annotation = meta::annotation(&world.deployment.metadata, history::REVISION);
    assert_eq!(annotation, Some("1"));
}

#[test]
fn rolling_updates_stay_within_their_fences() {
    for (replicas, surge, unavailable) in [
        (3, json!("25%"), json!("25%")),
        (10, json!(3), json!(0)),
        (10, json!(0), json!(2)),
        (1, json!(0), json!(0)),
        (7, json!("50%"), json!("50%")),
    ] {
        for ready_a_round in [1, 3, 100] {
            let mut world = World::new(replicas, rolling(surge.clone(), unavailable.clone()));
            world.settle(100);
            world.set_image("v2");
            let least = replicas - fence::max_unavailable(&world.deployment);
            for _ in 0..200 {
                world.pass();
                world.check_fences();
                world.pods_move(ready_a_round);
                assert!(world.available() >= least, "{} of at least {least} available", world.available());
            }
            assert_eq!(world.sizes(), [0, replicas], "{surge} {unavailable}");
            assert_eq!(world.condition("Progressing").1, "NewReplicaSetAvailable");
        }
    }
}

#[test]
fn recreate_makes_new_pods_only_when_the_old_are_gone() {
    let mut world = World::new(3, json!({"type": "Recreate"}));
    world.settle(100);
    world.set_image("v2");
    world.pass();
    assert_eq!(world.sizes(), [0], "the old set shrinks first");
    world.pass();
    assert_eq!(world.sizes(), [0], "its Pods still run");
    world.pods_move(0);
    world.settle(100);
    assert_eq!(world.sizes(), [0, 3]);
}

#[test]
fn a_rollout_that_becomes_a_recreation_and_is_scaled_ends() {
    let mut world = World::new(4, rolling(json!(1), json!(1)));
    world.settle(100);
    world.set_image("v2");
    world.pass();
    world.pods_move(0);
    assert_eq!(world.sizes(), [4, 1]);
    world.change(|d| {
        d.spec.strategy = serde_json::from_value(json!({"type": "Recreate"})).expect("a strategy");
        d.spec.replicas = Some(2);
    });
    world.pass();
    assert_eq!(world.sizes(), [0, 1], "the old set shrinks");
    world.pass();
    assert_eq!(world.sizes(), [0, 1], "its Pods still run");
    world.pods_move(100);
    while world.pass() {
        world.pods_move(100);
    }
    assert_eq!((world.sizes(), world.available()), (vec![0, 2], 2));
    assert_eq!(world.condition("Progressing").1, "NewReplicaSetAvailable");
}

#[test]
fn a_set_of_the_wanted_size_that_notes_another_one_is_corrected() {
    let mut world = World::new(3, rolling(json!(1), json!(0)));
    world.settle(100);
    world.change(|d| d.spec.replicas = Some(5));
    world.sets.values_mut().for_each(|set| set.spec.replicas = Some(5));
    world.set_image("v2");
    world.settle(100);
    assert_eq!(world.sizes(), [0, 5]);
}

#[test]
fn a_roll_back_makes_the_old_set_the_newest_revision() {
    let mut world = World::new(2, rolling(json!(1), json!(0)));
    world.settle(100);
    world.set_image("v2");
    world.settle(100);
    world.set_image("v1");
    world.settle(100);
    assert_eq!(world.sets.len(), 2, "no third set");
    let newest = world.sets.values().find(|set| fence::size(set) == 2).expect("rolled back");
    assert_eq!(history::revision(&newest.metadata), 3);
    assert_eq!(meta::annotation(&newest.metadata, "deployment.kubernetes.io/revision-history"), Some("1"));
    assert_eq!(meta::annotation(&world.deployment.metadata, history::REVISION), Some("3"));
}

#[test]
fn a_change_in_mid_rollout_starts_a_third_set_and_drops_the_unready_second() {
    let mut world = World::new(4, rolling(json!(1), json!(1)));
    world.settle(100);
    world.set_image("v2");
    world.pass();
    world.pods_move(0);
    world.pass();
    world.pods_move(0);
    world.set_image("v3");
    world.settle(1);
    assert_eq!(world.sizes(), [0, 0, 4]);
}

#[test]
fn scaling_a_paused_rollout_keeps_proportions() {
    let mut world = World::new(10, rolling(json!(3), json!(2)));
    world.settle(100);
    world.set_image("v2");
    for _ in 0..3 {
        world.pass();
        world.pods_move(0);
    }
    let before = world.sizes();
    assert_eq!(before, [8, 5], "upstream's example");
    world.change(|d| {
        d.spec.paused = Some(true);
        d.spec.replicas = Some(15);
    });
    world.pass();
    assert_eq!(world.sizes(), [11, 7], "15 and 3 surge, as 8 to 5");
    assert_eq!(world.condition("Progressing").1, "DeploymentPaused");
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let mut world = World::new(2, rolling(json!(1), json!(0)));
    world.settle(100);
    world.change(|d| d.spec.paused = Some(true));
    world.set_image("v2");
    world.settle(100);
    assert_eq!(world.sets.len(), 1);
    world.change(|d| d.spec.replicas = Some(5));
    world.settle(100);
    assert_eq!(world.sizes(), [5]);
    world.change(|d| d.spec.paused = None);
    world.pass();
    assert_eq!(world.condition("Progressing").1, "NewReplicaSetCreated");
    world.settle(100);
    assert_eq!(world.sizes(), [0, 5]);
}

#[test]
fn resuming_starts_the_deadline_anew() {
    let mut world = World::new(2, rolling(json!(1), json!(0)));
    world.pass();
    world.change(|d| d.spec.paused = Some(true));
    world.pass();
    world.now = world.now.checked_add(SignedDuration::from_hours(1)).expect("in range");
    world.change(|d| d.spec.paused = None);
    world.pass();
    assert_eq!(world.condition("Progressing").1, "DeploymentResumed");
    world.pass();
    assert_ne!(world.condition("Progressing").1, "ProgressDeadlineExceeded");
}

#[test]
fn a_rollout_without_progress_exceeds_its_deadline() {
    let mut world = World::new(2, rolling(json!(1), json!(0)));
    world.settle(100);
    world.set_image("broken");
    for _ in 0..5 {
        world.pass();
        world.pods_move(0);
    }
    assert_eq!(world.condition("Progressing").1, "ReplicaSetUpdated");
    let again = world.plan().look_again.expect("timed");
    assert!(again.as_secs() > 590 && again.as_secs() <= 601, "{again:?}");
    world.now = world.now.checked_add(SignedDuration::from_secs(601)).expect("in range");
    world.pass();
    assert_eq!(world.condition("Progressing"), ("False".to_owned(), "ProgressDeadlineExceeded".to_owned()));
    assert_eq!(world.plan().look_again, None);
    assert!(world.available() >= 2, "the old Pods stay");
}

#[test]
fn pods_that_a_shrunk_set_is_about_to_delete_do_not_count() {
    let mut world = World::new(5, rolling(json!(5), json!(2)));
    world.settle(100);
    world.set_image("next");
    while world.pass() {}
    world.pods_move(1);
    while world.pass() {}
    // One more new Pod becomes available before the ReplicaSet controller has looked at the old set.
    let old = world.sets.values().find(|set| set.metadata.uid.as_deref() == Some("s1")).expect("the old set").clone();
    world.pods_move(1);
    world.sets.insert(meta::name(&old.metadata).to_owned(), old);
    while world.pass() {}
    let stays: i32 = world.sets.values().map(|set| fence::available(set).min(fence::size(set))).sum();
    assert!(stays >= 3, "{stays} Pods stay available");
}

#[test]
fn history_keeps_no_more_than_its_limit() {
    let mut world = World::new(1, rolling(json!(1), json!(0)));
    world.deployment.spec.revision_history_limit = Some(2);
    for version in 1..=6 {
        world.set_image(&format!("v{version}"));
        world.settle(100);
    }
    assert_eq!(world.sizes(), [0, 0, 1]);
    let revisions: Vec<i64> = world.sets.values().map(|set| history::revision(&set.metadata)).collect();
    assert!(revisions.contains(&6) && revisions.contains(&5) && revisions.contains(&4), "{revisions:?}");
}

#[test]
fn settled_deployments_cost_nothing() {
    let mut world = World::new(3, rolling(json!(1), json!(0)));
    world.settle(100);
    let plan = world.plan();
    assert_eq!(plan.actions, []);
    assert_eq!(Some(&plan.status), world.deployment.status.as_ref());
    assert_eq!(plan.look_again, None);
}

#[test]
fn scaling_to_nothing_and_back_works() {
    let mut world = World::new(3, rolling(json!("25%"), json!("25%")));
    world.settle(100);
    world.change(|d| d.spec.replicas = Some(0));
    world.settle(100);
    assert_eq!(world.sizes(), [0]);
    assert_eq!(world.condition("Available").0, "True");
    world.change(|d| d.spec.replicas = Some(2));
    world.settle(100);
    assert_eq!(world.sizes(), [2]);
}

#[test]
fn the_hash_depends_on_the_content_and_the_collisions_alone() {
    let template = serde_json::from_value(template("v1")).expect("a template");
    let hash = history::template_hash(&template, None);
    assert_eq!(hash, "f969b6c57", "stable over builds and machines");
    assert_ne!(hash, history::template_hash(&template, Some(1)));
    assert!(hash.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte)));
}

/// Any user may create a ReplicaSet that names this Deployment as its controller.
#[test]
fn sizes_beyond_all_numbers_do_not_wrap() {
    for (wanted, sizes) in [(i32::MAX, [i32::MAX, i32::MAX]), (0, [i32::MAX, i32::MAX]), (1, [i32::MAX, 1])] {
        let mut world = World::new(1, json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": i32::MAX, "maxUnavailable": 0}}));
        world.pass();
        world.set_image("v2");
        world.pass();
        for (set, size) in world.sets.values_mut().zip(sizes) {
            set.spec.replicas = Some(size);
            set.status = Some(ReplicaSetStatus { replicas: size, available_replicas: Some(size), ..ReplicaSetStatus::default() });
        }
        world.change(|deployment| deployment.spec.replicas = Some(wanted));
        for paused in [false, true] {
            world.change(|deployment| deployment.spec.paused = Some(paused));
            let plan = world.plan();
            assert!(plan.status.replicas.is_none_or(|replicas| replicas > 0), "{wanted} {sizes:?}: {:?}", plan.status);
        }
    }
}
