//! Passes over plain values: the plan's writes change the Pods, a stand-in for the kubelet makes them ready.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::ControllerRevision;
use serde_json::json;

use super::*;
use crate::revisions::{self, REVISION_LABEL};
use crate::statefulset::identity;

struct World {
    set: StatefulSet,
    revisions: Revisions,
    pods: BTreeMap<String, Pod>,
    claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    made: u32,
}

fn revision(name: &str) -> Arc<ControllerRevision> {
    let mut revision = ControllerRevision::default();
    revision.metadata.name = Some(name.to_owned());
    Arc::new(revision)
}

fn template(image: &str) -> PodTemplateSpec {
    serde_json::from_value(json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": image}]}}))
        .expect("a template")
}

impl World {
    fn new(spec: Value) -> Self {
        let mut whole = json!({"replicas": 3, "serviceName": "dbs", "selector": {"matchLabels": {"app": "db"}}, "template": template("v1"),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}});
        meta::overlay(&mut whole, &spec);
        let set = json!({"metadata": {"name": "db", "namespace": "ns", "uid": "s", "generation": 1}, "spec": whole});
        let (current, update) = (revision("db-1"), revision("db-1"));
        let revisions = Revisions { current, current_template: template("v1"), update, collisions: 0 };
        let set = serde_json::from_value(set).expect("a StatefulSet");
        Self { set, revisions, pods: BTreeMap::new(), claims: BTreeMap::new(), made: 0 }
    }

    fn update_to(&mut self, name: &str, image: &str) {
        self.revisions.update = revision(name);
        self.set.spec.template = template(image);
    }

    fn plan(&self) -> Plan {
        let pods: Vec<_> = self.pods.values().cloned().map(Arc::new).collect();
        let claim = |name: &str| self.claims.get(name).cloned();
        let now = "2024-01-01T00:01:00Z".parse().expect("a time");
        plan(&Snapshot { set: &self.set, revisions: &self.revisions, pods: &pods, claim: &claim, now })
    }

    /// One pass; returns what it wrote.
    fn pass(&mut self) -> Vec<String> {
        let plan = self.plan();
        if plan.status.current_revision.as_deref() == Some(revisions::name(&self.revisions.update)) {
            self.revisions.current = Arc::clone(&self.revisions.update);
            self.revisions.current_template = self.set.spec.template.clone();
        }
        self.set.status = Some(plan.status);
        plan.phases.into_iter().flatten().map(|action| self.perform(action)).collect()
    }

    fn perform(&mut self, action: Action) -> String {
        match action {
            Action::Create { pod, claims } => {
                for claim in claims {
                    self.claims.insert(meta::name(&claim.metadata).to_owned(), Arc::new(claim));
                }
                self.made += 1;
                let mut pod = *pod;
                pod.metadata.uid = Some(format!("u{}", self.made));
                let name = meta::name(&pod.metadata).to_owned();
                assert!(!self.pods.contains_key(&name), "{name} exists");
                self.pods.insert(name.clone(), pod);
                self.run(&name, json!({"phase": "Pending"}));
                format!("create {name} {}", identity::revision(&self.pods[&name]))
            }
            Action::Claims { claims, .. } => {
                let names: Vec<_> = claims.iter().map(|claim| meta::name(&claim.metadata).to_owned()).collect();
                self.claims.extend(claims.into_iter().map(|claim| (meta::name(&claim.metadata).to_owned(), Arc::new(claim))));
                format!("claims {}", names.join(","))
            }
            Action::Change { pod, patch } => format!("change {} {patch}", meta::name(&pod.metadata)),
            Action::Own { claim, owners } => {
                let name = meta::name(&claim.metadata).to_owned();
                let written = owners.iter().map(|owner| format!("{} {}", owner.kind, owner.name)).collect::<Vec<_>>().join(",");
                let mut owned = PersistentVolumeClaim::clone(&claim);
                owned.metadata.owner_references = Some(owners);
                self.claims.insert(name.clone(), Arc::new(owned));
                format!("own {name} by [{written}]")
            }
            Action::Delete(pod) => {
                let name = meta::name(&pod.metadata).to_owned();
                self.end(&name);
                format!("delete {name}")
            }
            Action::ClaimDeleted { pod, claim } => format!("wait {pod} for {claim}"),
        }
    }

    fn run(&mut self, name: &str, status: Value) {
        self.pods.get_mut(name).expect("a Pod").status = Some(serde_json::from_value(status).expect("a status"));
    }

    fn ready(&mut self, name: &str) {
        let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:30Z"});
        self.run(name, json!({"phase": "Running", "conditions": [condition]}));
    }

    fn all_ready(&mut self) {
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            self.ready(&name);
        }
    }

    /// A deletion was requested; the node has not answered.
    fn end(&mut self, name: &str) {
        let at = "2024-01-01T00:00:40Z".parse().expect("a time");
        self.pods.get_mut(name).expect("a Pod").metadata.deletion_timestamp = Some(meta::whole_seconds(at));
    }

    fn is_ending(&self, name: &str) -> bool {
        meta::is_deleting(&self.pods[name].metadata)
    }

    /// The Pods that end are gone.
    fn gone(&mut self) {
        self.pods.retain(|_, pod| !meta::is_deleting(&pod.metadata));
    }

    /// Passes and ready Pods until nothing is written.
    fn settle(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..50 {
            let written = self.pass();
            if written.is_empty() {
                return all;
            }
            all.extend(written);
            self.gone();
            self.all_ready();
        }
        panic!("never settled: {all:?}");
    }
}

#[test]
fn pods_start_one_after_the_other() {
    let mut world = World::new(json!({}));
    assert_eq!(world.pass(), ["create db-0 db-1"]);
    assert_eq!(world.pass(), [""; 0], "db-0 is not ready");
    world.ready("db-0");
    assert_eq!(world.pass(), ["create db-1 db-1"]);
    world.ready("db-1");
    assert_eq!(world.pass(), ["create db-2 db-1"]);
    world.ready("db-2");
    assert_eq!(world.pass(), [""; 0]);
    let status = world.set.status.clone().expect("a status");
    assert_eq!((status.replicas, status.ready_replicas, status.available_replicas), (3, Some(3), Some(3)));
    assert_eq!((status.current_replicas, status.updated_replicas), (Some(3), Some(3)));
}

#[test]
fn parallel_pods_start_and_stop_at_once() {
    let mut world = World::new(json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 5}}));
    assert_eq!(world.pass(), ["create db-5 db-1", "create db-6 db-1", "create db-7 db-1"]);
    world.set.spec.replicas = Some(1);
    assert_eq!(world.pass(), ["delete db-7", "delete db-6"]);
}

#[test]
fn a_pod_has_its_identity() {
    let mut world = World::new(json!({"volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"own": "1"}}, "spec": {}}]}));
    world.set.spec.template.spec.as_mut().expect("a spec").volumes =
        Some(serde_json::from_value(json!([{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}])).expect("volumes"));
    world.pass();
    let pod = &world.pods["db-0"];
    let labels = json!(pod.metadata.labels);
    assert_eq!(
        labels,
        json!({"app": "db", "statefulset.kubernetes.io/pod-name": "db-0", "apps.kubernetes.io/pod-index": "0", REVISION_LABEL: "db-1"})
    );
    let spec = pod.spec.clone().expect("a spec");
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("db-0"), Some("dbs")));
    assert_eq!(
        json!(spec.volumes),
        json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}, {"name": "tmp", "emptyDir": {}}])
    );
    let claim = &world.claims["data-db-0"];
    assert_eq!(json!(claim.metadata.labels), json!({"app": "db", "own": "1"}));
    assert!(claim.metadata.owner_references.is_none());
}

#[test]
fn a_name_has_one_pod_at_most() {
    for policy in ["OrderedReady", "Parallel"] {
        let mut world = World::new(json!({"podManagementPolicy": policy}));
        world.settle();
        world.end("db-1");
        assert_eq!(world.pass(), [""; 0], "{policy}: its node may still run it");
        world.gone();
        assert_eq!(world.pass(), ["create db-1 db-1"], "{policy}");
        world.ready("db-1");
        world.run("db-0", json!({"phase": "Failed"}));
        assert_eq!(world.pass(), ["delete db-0"], "{policy}");
        assert_eq!(world.pass(), [""; 0], "{policy}: it is not gone yet");
        world.gone();
        assert_eq!(world.pass(), ["create db-0 db-1"], "{policy}");
    }
}

#[test]
fn scaling_down_starts_at_the_last_ordinal_and_waits() {
    let mut world = World::new(json!({}));
    world.settle();
    world.set.spec.replicas = Some(1);
    assert_eq!(world.pass(), ["delete db-2"]);
    assert_eq!(world.pass(), [""; 0], "db-2 is still there");
    world.gone();
    world.run("db-0", json!({"phase": "Running"}));
    assert_eq!(world.pass(), [""; 0], "db-0 is not ready");
    world.ready("db-0");
    assert_eq!(world.pass(), ["delete db-1"]);
}

#[test]
fn of_two_surplus_pods_the_broken_one_may_not_wait_for_itself() {
    let mut world = World::new(json!({}));
    world.settle();
    world.set.spec.replicas = Some(1);
    world.run("db-2", json!({"phase": "Running"}));
    assert_eq!(world.pass(), ["delete db-2"]);
    let mut world = World::new(json!({}));
    world.settle();
    world.set.spec.replicas = Some(1);
    world.run("db-2", json!({"phase": "Running"}));
    world.run("db-1", json!({"phase": "Running"}));
    assert_eq!(world.pass(), [""; 0], "upstream waits for the first unavailable Pod");
}

#[test]
fn an_update_replaces_from_the_last_ordinal() {
    let mut world = World::new(json!({}));
    world.settle();
    world.update_to("db-2", "v2");
    assert_eq!(world.settle(), ["delete db-2", "create db-2 db-2", "delete db-1", "create db-1 db-2", "delete db-0", "create db-0 db-2"]);
    let status = world.set.status.clone().expect("a status");
    assert_eq!(status.current_revision.as_deref(), Some("db-2"));
    assert_eq!((status.current_replicas, status.updated_replicas), (Some(3), Some(3)));
}

#[test]
fn a_partition_protects_lower_ordinals_also_when_they_are_made_again() {
    let mut world = World::new(json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}}));
    world.settle();
    world.update_to("db-2", "v2");
    assert_eq!(world.settle(), ["delete db-2", "create db-2 db-2"]);
    world.end("db-0");
    world.gone();
    assert_eq!(world.settle(), ["create db-0 db-1"]);
    assert_eq!(world.pods["db-0"].spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref()), Some("v1"));
    let status = world.set.status.clone().expect("a status");
    assert_eq!((status.current_revision.as_deref(), status.update_revision.as_deref()), (Some("db-1"), Some("db-2")));
    assert_eq!((status.current_replicas, status.updated_replicas), (Some(2), Some(1)));
}

#[test]
fn on_delete_waits_for_the_user() {
    let mut world = World::new(json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}));
    world.settle();
    world.update_to("db-2", "v2");
    assert_eq!(world.settle(), [""; 0]);
    world.end("db-1");
    world.gone();
    assert_eq!(world.settle(), ["create db-1 db-2"]);
}

#[test]
fn more_pods_may_be_unavailable() {
    let spec = json!({"replicas": 5, "podManagementPolicy": "Parallel", "updateStrategy": {"rollingUpdate": {"maxUnavailable": "40%"}}});
    let mut world = World::new(spec);
    world.settle();
    world.update_to("db-2", "v2");
    assert_eq!(world.pass(), ["delete db-4", "delete db-3"]);
    assert_eq!(world.pass(), [""; 0], "two are unavailable");
    world.gone();
    assert_eq!(world.pass(), ["create db-3 db-2", "create db-4 db-2"]);
    world.ready("db-4");
    assert_eq!(world.pass(), ["delete db-2"]);
    world.run("db-0", json!({"phase": "Running"}));
    assert_eq!(world.pass(), ["delete db-0"], "it is unavailable already");
    assert!(!world.is_ending("db-1"));
}

#[test]
fn a_rollout_that_is_stuck_in_parallel_is_repaired() {
    let mut world = World::new(json!({"podManagementPolicy": "Parallel"}));
    world.settle();
    world.run("db-2", json!({"phase": "Running"}));
    world.update_to("db-2", "v2");
    assert_eq!(world.pass(), ["delete db-2"], "the old Pod is broken");
    world.gone();
    assert_eq!(world.pass(), ["create db-2 db-2"]);
    assert_eq!(world.pass(), [""; 0], "the new Pod is not ready");
    world.ready("db-2");
    assert_eq!(world.pass(), ["delete db-1"]);
}

#[test]
fn a_ready_pod_is_waited_for_until_it_is_available() {
    let mut world = World::new(json!({"minReadySeconds": 40}));
    world.pass();
    world.ready("db-0");
    let plan = world.plan();
    assert!(plan.phases.iter().all(Vec::is_empty));
    assert_eq!(plan.look_again, Some(Duration::from_secs(10)), "ready since 30 of 40 seconds");
    assert_eq!((plan.status.ready_replicas, plan.status.available_replicas), (Some(1), Some(0)));
}

fn with_claims(policy: Value) -> World {
    World::new(json!({"replicas": 2, "persistentVolumeClaimRetentionPolicy": policy,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}))
}

#[test]
fn claims_are_owned_as_the_policy_says() {
    let mut retained = with_claims(json!({"whenDeleted": "Retain", "whenScaled": "Retain"}));
    assert_eq!(retained.settle(), ["create db-0 db-1", "create db-1 db-1"]);
    let mut deleted = with_claims(json!({"whenDeleted": "Delete", "whenScaled": "Retain"}));
    let owned = ["create db-0 db-1", "own data-db-0 by [StatefulSet db]", "create db-1 db-1", "own data-db-1 by [StatefulSet db]"];
    assert_eq!(deleted.settle(), owned);
    deleted.set.spec.replicas = Some(1);
    assert_eq!(deleted.pass(), ["delete db-1"]);
    let mut scaled = with_claims(json!({"whenDeleted": "Delete", "whenScaled": "Delete"}));
    scaled.settle();
    scaled.set.spec.replicas = Some(1);
    assert_eq!(scaled.pass(), ["own data-db-1 by [Pod db-1]", "delete db-1"]);
    scaled.gone();
    scaled.set.spec.replicas = Some(2);
    assert_eq!(scaled.pass(), [""; 0], "the claim of the former db-1 is about to be deleted");
    scaled.claims.remove("data-db-1");
    assert_eq!(scaled.pass(), ["create db-1 db-1"]);
}

#[test]
fn a_claim_that_is_being_deleted_is_waited_for() {
    let mut world = with_claims(json!({}));
    world.pass();
    let mut claim = PersistentVolumeClaim::clone(&world.claims["data-db-0"]);
    claim.metadata.deletion_timestamp = Some(meta::whole_seconds(Timestamp::UNIX_EPOCH));
    world.claims.insert("data-db-0".to_owned(), Arc::new(claim));
    world.end("db-0");
    world.gone();
    assert_eq!(world.pass(), ["wait db-0 for data-db-0"]);
    world.claims.clear();
    world.pass();
    world.claims.clear();
    assert_eq!(world.pass(), ["claims data-db-0"], "a pending Pod gets its claim again");
}

#[test]
fn a_set_that_is_being_deleted_writes_nothing_but_its_status() {
    let mut world = World::new(json!({}));
    world.pass();
    world.ready("db-0");
    world.set.metadata.deletion_timestamp = Some(meta::whole_seconds(Timestamp::UNIX_EPOCH));
    assert_eq!(world.pass(), [""; 0]);
    assert_eq!(world.set.status.as_ref().and_then(|status| status.ready_replicas), Some(1));
}

#[test]
fn an_adopted_pod_gets_its_labels() {
    let mut world = World::new(json!({"replicas": 1}));
    world.settle();
    world.pods.get_mut("db-0").expect("a Pod").metadata.labels.as_mut().expect("labels").remove(identity::POD_NAME);
    let labels = r#"{"metadata":{"labels":{"apps.kubernetes.io/pod-index":"0","statefulset.kubernetes.io/pod-name":"db-0"}}}"#;
    assert_eq!(world.pass(), [format!("change db-0 {labels}")]);
}
