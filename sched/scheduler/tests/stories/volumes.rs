//! Pods with claims, from the Pod to its binding, with a scheduler and an API server in one process. The tests play the part of the volume
//! controller and of provisioners.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;

use crate::support::{Cluster, from, in_time};

/// Creates a class whose claims wait for their first consumer.
async fn class(cluster: &Cluster, name: &str, provisioner: &str) {
    let class = from(json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}));
    Api::<StorageClass>::all(cluster.client.clone()).create(&PostParams::default(), &class).await.expect("a class");
}

async fn claim(cluster: &Cluster, name: &str, class: &str) {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}});
    let claim = from(json!({"metadata": {"name": name}, "spec": spec}));
    cluster.api::<PersistentVolumeClaim>().create(&PostParams::default(), &claim).await.expect("a claim");
}

fn volumes(cluster: &Cluster) -> Api<PersistentVolume> {
    Api::all(cluster.client.clone())
}

/// Creates a free volume on the node.
async fn local(cluster: &Cluster, name: &str, class: &str, node: &str) {
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": class, "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    });
    let volume = from(json!({"metadata": {"name": name}, "spec": spec}));
    volumes(cluster).create(&PostParams::default(), &volume).await.expect("a volume");
    let status = Patch::Merge(json!({"status": {"phase": "Available"}}));
    volumes(cluster).patch_status(name, &PatchParams::default(), &status).await.expect("its status");
}

/// Completes a binding, as the volume controller does.
async fn complete(cluster: &Cluster, claim: &str, volume: &str) {
    let annotations = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let bound = Patch::Merge(json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume}}));
    cluster.api::<PersistentVolumeClaim>().patch(claim, &PatchParams::default(), &bound).await.expect("a claim");
}

async fn claiming(cluster: &Cluster, name: &str, claim: &str) {
    cluster.pod(name, json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]})).await;
}

/// Waits until the volume is bound to a claim. Returns the name of the claim.
async fn claim_of(cluster: &Cluster, volume: &str) -> String {
    let name = |volume: &PersistentVolume| volume.spec.as_ref()?.claim_ref.as_ref()?.name.clone();
    let condition = |volume: Option<&PersistentVolume>| volume.and_then(name).is_some();
    let volume = in_time("a claim", await_condition(volumes(cluster), volume, condition)).await.expect("a watch").expect("a volume");
    name(&volume).unwrap_or_default()
}

/// Waits until the Pod is nominated to that node, or to none.
async fn until_nominated(cluster: &Cluster, name: &str, node: Option<&str>) {
    let nominated = |pod: &Pod| pod.status.as_ref().and_then(|status| status.nominated_node_name.clone()).filter(|node| !node.is_empty());
    let condition = |pod: Option<&Pod>| pod.is_some_and(|pod| nominated(pod).as_deref() == node);
    in_time("the nomination", await_condition(cluster.api::<Pod>(), name, condition)).await.expect("a watch");
}

/// Waits until the claim has another selected node than before, and returns it.
async fn selected_node(cluster: &Cluster, claim: &str) -> String {
    let node = |claim: &PersistentVolumeClaim| claim.metadata.annotations.as_ref()?.get("volume.kubernetes.io/selected-node").cloned();
    let condition = |claim: Option<&PersistentVolumeClaim>| claim.and_then(node).is_some();
    let claim = in_time("a selected node", await_condition(cluster.api(), claim, condition)).await.expect("a watch").expect("a claim");
    node(&claim).unwrap_or_default()
}

#[tokio::test]
async fn a_pod_goes_where_its_bound_volume_is_and_waits_for_its_claim() {
    let cluster = Cluster::start(&["a", "b", "c"], json!([])).await;
    claiming(&cluster, "p", "data").await;
    let message = cluster.until_unscheduled("p", "Unschedulable", "not found").await;
    let preemption = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
    assert_eq!(message, format!("0/3 nodes are available: persistentvolumeclaim \"data\" not found. {preemption}"));
    claim(&cluster, "data", "").await;
    cluster.until_unscheduled("p", "Unschedulable", "pod has unbound immediate PersistentVolumeClaims").await;
    local(&cluster, "disk", "", "b").await;
    complete(&cluster, "data", "disk").await;
    assert_eq!(cluster.node_of("p").await, "b");
    cluster.stop().await;
}

#[tokio::test]
async fn a_claim_gets_a_free_volume_of_the_node_before_its_pod_is_bound() {
    let cluster = Cluster::start(&["a", "b", "c"], json!([])).await;
    class(&cluster, "local", "kubernetes.io/no-provisioner").await;
    claim(&cluster, "data", "local").await;
    claim(&cluster, "more", "local").await;
    claiming(&cluster, "p", "data").await;
    cluster.until_unscheduled("p", "Unschedulable", "3 node(s) didn't find available persistent volumes to bind").await;
    local(&cluster, "disk", "local", "c").await;
    assert_eq!(claim_of(&cluster, "disk").await, "data");
    // The only volume is reserved for the other claim.
    claiming(&cluster, "q", "more").await;
    cluster.until_unscheduled("q", "Unschedulable", "3 node(s) didn't find available persistent volumes to bind").await;
    let pod = cluster.api::<Pod>().get("p").await.expect("a Pod");
    assert_eq!(pod.spec.and_then(|spec| spec.node_name), None, "its claim is not bound yet");
    until_nominated(&cluster, "p", Some("c")).await;
    until_nominated(&cluster, "q", None).await;
    complete(&cluster, "data", "disk").await;
    assert_eq!(cluster.node_of("p").await, "c");
    until_nominated(&cluster, "p", None).await;
    let disk = volumes(&cluster).get("disk").await.expect("a volume");
    let annotations = disk.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations.get("pv.kubernetes.io/bound-by-controller").map(String::as_str), Some("yes"));
    let reference = disk.spec.and_then(|spec| spec.claim_ref).expect("a reference");
    let data = cluster.api::<PersistentVolumeClaim>().get("data").await.expect("a claim");
    assert_eq!((reference.kind.as_deref(), reference.uid), (Some("PersistentVolumeClaim"), data.metadata.uid));
    cluster.stop().await;
}

#[tokio::test]
async fn a_provisioner_that_cannot_serve_the_node_sends_the_pod_back() {
    let cluster = Cluster::start(&["a"], json!([])).await;
    class(&cluster, "made", "example.com/maker").await;
    claim(&cluster, "data", "made").await;
    claiming(&cluster, "p", "data").await;
    assert_eq!(selected_node(&cluster, "data").await, "a");
    until_nominated(&cluster, "p", Some("a")).await;
    let removed = Patch::Merge(json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}}));
    cluster.api::<PersistentVolumeClaim>().patch("data", &PatchParams::default(), &removed).await.expect("a claim");
    let message = cluster.until_unscheduled("p", "SchedulerError", "provisioning failed").await;
    assert_eq!(message, "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \"data\"");
    assert_eq!(selected_node(&cluster, "data").await, "a", "it is tried again");
    local(&cluster, "made-for-a", "made", "a").await;
    complete(&cluster, "data", "made-for-a").await;
    assert_eq!(cluster.node_of("p").await, "a");
    cluster.stop().await;
}

/// Between the choice of a volume and its binding, somebody else takes it.
#[tokio::test]
async fn a_volume_that_another_claim_takes_meanwhile_is_not_waited_for() {
    let cluster = Cluster::start(&["a", "b"], json!([])).await;
    class(&cluster, "local", "kubernetes.io/no-provisioner").await;
    claim(&cluster, "data", "local").await;
    local(&cluster, "disk", "local", "a").await;
    claiming(&cluster, "p", "data").await;
    assert_eq!(claim_of(&cluster, "disk").await, "data");
    let reset = Patch::Merge(json!({"spec": {"claimRef": null}}));
    volumes(&cluster).patch("disk", &PatchParams::default(), &reset).await.expect("a volume");
    cluster.until_unscheduled("p", "SchedulerError", "ClaimRef got reset for pv \"disk\"").await;
    local(&cluster, "other", "local", "b").await;
    let taken = Patch::Merge(json!({"spec": {"claimRef": {"namespace": "default", "name": "someone"}}}));
    volumes(&cluster).patch("disk", &PatchParams::default(), &taken).await.expect("a volume");
    assert_eq!(claim_of(&cluster, "other").await, "data");
    complete(&cluster, "data", "other").await;
    assert_eq!(cluster.node_of("p").await, "b");
    cluster.stop().await;
}

#[tokio::test]
async fn a_pod_that_is_deleted_while_it_waits_leaves_its_claim_to_others() {
    let cluster = Cluster::start(&["a"], json!([])).await;
    class(&cluster, "local", "kubernetes.io/no-provisioner").await;
    claim(&cluster, "data", "local").await;
    local(&cluster, "disk", "local", "a").await;
    claiming(&cluster, "p", "data").await;
    assert_eq!(claim_of(&cluster, "disk").await, "data");
    cluster.api::<Pod>().delete("p", &DeleteParams::default().grace_period(0)).await.expect("a Pod");
    claiming(&cluster, "q", "data").await;
    complete(&cluster, "data", "disk").await;
    assert_eq!(cluster.node_of("q").await, "a");
    cluster.stop().await;
}

/// The scheduler that is killed between the write of PreBind and the binding is another one after that: it begins anew.
#[tokio::test]
async fn another_scheduler_completes_what_one_began() {
    let cluster = Cluster::start(&["a", "b"], json!([])).await;
    class(&cluster, "made", "example.com/maker").await;
    claim(&cluster, "data", "made").await;
    claiming(&cluster, "p", "data").await;
    let node = selected_node(&cluster, "data").await;
    let cluster = cluster.with_another_scheduler(json!([])).await;
    local(&cluster, "disk", "made", &node).await;
    complete(&cluster, "data", "disk").await;
    assert_eq!(cluster.node_of("p").await, node);
    cluster.stop().await;
}

#[tokio::test]
async fn the_wait_for_volumes_ends() {
    let args = json!({"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 1}});
    let cluster = Cluster::configured(&["a"], json!({"profiles": [{"pluginConfig": [args]}]})).await;
    class(&cluster, "made", "example.com/maker").await;
    claim(&cluster, "data", "made").await;
    claiming(&cluster, "p", "data").await;
    let message = cluster.until_unscheduled("p", "SchedulerError", "deadline").await;
    assert_eq!(message, "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded");
    until_nominated(&cluster, "p", None).await;
    cluster.stop().await;
}

/// A claim with ReadWriteOncePod has one Pod: a more important Pod takes it from the other one.
#[tokio::test]
async fn a_more_important_pod_takes_the_claim_of_one_pod() {
    let cluster = Cluster::start(&["a"], json!([])).await;
    let spec = json!({"accessModes": ["ReadWriteOncePod"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}});
    let one = from(json!({"metadata": {"name": "data"}, "spec": spec}));
    cluster.api::<PersistentVolumeClaim>().create(&PostParams::default(), &one).await.expect("a claim");
    local(&cluster, "disk", "", "a").await;
    complete(&cluster, "data", "disk").await;
    claiming(&cluster, "first", "data").await;
    assert_eq!(cluster.node_of("first").await, "a");
    claiming(&cluster, "second", "data").await;
    let conflict = "1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
    cluster.until_unscheduled("second", "Unschedulable", conflict).await;
    let urgent = json!({"priorityClassName": "high", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000});
    let classes: Api<PriorityClass> = Api::all(cluster.client.clone());
    classes.create(&PostParams::default(), &from(class)).await.expect("a class");
    cluster.pod("urgent", urgent).await;
    let is_deleting = |pod: Option<&Pod>| pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
    in_time("the victim", await_condition(cluster.api::<Pod>(), "first", is_deleting)).await.expect("a watch");
    cluster.stop().await;
}
