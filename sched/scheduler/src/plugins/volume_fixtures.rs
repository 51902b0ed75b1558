//! Claims, volumes and Pods that use them, for the tables of tests.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use sched_framework::{CycleState, FilterPlugin, PodInfo, Snapshot, Status};
use serde_json::{Value, json};

use super::fixtures::{merge, pod};

/// A Pod with these claims.
pub(crate) fn claiming(name: &str, claims: &[&str]) -> PodInfo {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    pod(name, json!({"volumes": claims.iter().map(volume).collect::<Vec<_>>()}))
}

/// A claim of one GiB without a class and a volume; `more` is merged over it.
pub(crate) fn claim(name: &str, more: Value) -> PersistentVolumeClaim {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let metadata = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1"});
    let mut object = json!({"metadata": metadata, "spec": spec});
    merge(&mut object, more);
    serde_json::from_value(object).expect("a claim")
}

/// A claim that is bound to the volume.
pub(crate) fn bound(name: &str, volume: &str) -> PersistentVolumeClaim {
    let metadata = json!({"annotations": {"pv.kubernetes.io/bind-completed": "yes"}});
    claim(name, json!({"metadata": metadata, "spec": {"volumeName": volume}}))
}

/// A free volume of one GiB without a class; `more` is merged over it.
pub(crate) fn volume(name: &str, more: Value) -> PersistentVolume {
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
    let mut object = json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": spec, "status": {"phase": "Available"}});
    merge(&mut object, more);
    serde_json::from_value(object).expect("a volume")
}

/// The affinity of a volume that is on this node.
pub(crate) fn on_node(node: &str) -> Value {
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
    json!({"required": {"nodeSelectorTerms": [term]}})
}

/// Stores claims and volumes in the snapshot.
pub(crate) fn store(all: &mut Snapshot, claims: Vec<PersistentVolumeClaim>, volumes: Vec<PersistentVolume>) {
    for claim in claims {
        let key = format!("default/{}", claim.metadata.name.clone().expect("a name"));
        Arc::make_mut(&mut all.volumes).set_claim(&key, Some(Arc::new(claim)));
    }
    for volume in volumes {
        let name = volume.metadata.name.clone().expect("a name");
        Arc::make_mut(&mut all.volumes).set_volume(&name, Some(Arc::new(volume)));
    }
}

/// The reasons of a status; empty for `Success`.
pub(crate) fn text(status: &Status) -> String {
    match status {
        Status::Success => String::new(),
        Status::Unschedulable(reasons) | Status::UnschedulableAndUnresolvable(reasons) => reasons.join(", "),
    }
}

/// The reasons for each node, or those that rule out all of them; empty where the Pod fits.
pub(crate) fn reasons(plugin: &dyn FilterPlugin, pod: &PodInfo, all: &Snapshot) -> Vec<String> {
    let mut state = CycleState::default();
    match plugin.pre_filter(&mut state, pod, all) {
        Status::Success => {}
        status => return vec![text(&status)],
    }
    let of_nodes: Vec<String> = all.nodes.iter().map(|node| text(&plugin.filter(&state, pod, node))).collect();
    assert!(plugin.may_reject(&state, pod) || of_nodes.iter().all(String::is_empty), "a plugin that is skipped rejects nothing");
    of_nodes
}
