//! Pods with claims for devices, with a real API server.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::extender::{Extender, Reply};
use crate::support::{Cluster, from, in_time};

/// A class, two nodes with one device each, and claims of these names.
async fn cluster(claims: &[&str]) -> Cluster {
    with_extenders(claims, json!([])).await
}

async fn with_extenders(claims: &[&str], extenders: Value) -> Cluster {
    let cluster = Cluster::start(&["n1", "n2"], extenders).await;
    for node in ["n1", "n2"] {
        offer(&cluster, &format!("{node}-gpu"), json!({"nodeName": node}), json!({})).await;
    }
    demand(&cluster, claims).await;
    cluster
}

/// Creates the slice of a pool of its name with the device `gpu-0`.
async fn offer(cluster: &Cluster, name: &str, nodes: Value, device: Value) {
    let pool = json!({"name": name.strip_suffix("-gpu").unwrap_or(name), "generation": 1, "resourceSliceCount": 1});
    let mut spec = json!({"driver": "gpu.example.com", "pool": pool, "devices": [{"name": "gpu-0"}]});
    spec.as_object_mut().expect("a map").extend(nodes.as_object().expect("a map").clone());
    spec["devices"][0].as_object_mut().expect("a map").extend(device.as_object().expect("a map").clone());
    let slices: Api<ResourceSlice> = Api::all(cluster.client.clone());
    slices.create(&PostParams::default(), &from(json!({"metadata": {"name": name}, "spec": spec}))).await.expect("a slice");
}

/// Creates a class and claims of these names for one device of it.
async fn demand(cluster: &Cluster, claims: &[&str]) {
    let classes: Api<DeviceClass> = Api::all(cluster.client.clone());
    let class =
        json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}});
    classes.create(&PostParams::default(), &from(class)).await.expect("a class");
    for name in claims {
        let requests = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]);
        let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}});
        cluster.api::<ResourceClaim>().create(&PostParams::default(), &from(claim)).await.expect("a claim");
    }
}

fn using(claim: &str) -> Value {
    json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]})
}

async fn claim(cluster: &Cluster, name: &str) -> ResourceClaim {
    cluster.api::<ResourceClaim>().get(name).await.expect("a claim")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_get_the_devices_that_there_are() {
    let cluster = cluster(&["a", "b", "c"]).await;
    for name in ["a", "b"] {
        cluster.pod(name, using(name)).await;
    }
    let mut nodes = vec![cluster.node_of("a").await, cluster.node_of("b").await];
    let allocated = claim(&cluster, "a").await;
    let status = allocated.status.clone().unwrap_or_default();
    assert_eq!(allocated.finalizers(), ["resource.kubernetes.io/delete-protection"]);
    assert_eq!(status.reserved_for.iter().flatten().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["a"]);
    let result = &status.allocation.as_ref().and_then(|all| all.devices.as_ref()?.results.as_ref()).expect("devices")[0];
    assert_eq!((result.request.as_str(), &result.pool, result.device.as_str()), ("gpu", &nodes[0], "gpu-0"));
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2"]);

    cluster.pod("c", using("c")).await;
    let message = cluster.until_unscheduled("c", "Unschedulable", "cannot allocate all claims").await;
    assert_eq!(
        message,
        "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: 0/2 nodes are available: 2 Preemption \
         is not helpful for scheduling."
    );
    // As the controller does when the Pod has ended.
    let free = Patch::Merge(json!({"status": {"allocation": null, "reservedFor": null}}));
    cluster.api::<ResourceClaim>().patch_status("a", &PatchParams::default(), &free).await.expect("deallocated");
    let node = cluster.node_of("c").await;
    assert_eq!(node, result.pool);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_allocation_of_a_scheduler_that_was_killed_is_used() {
    let cluster = cluster(&["a", "b"]).await;
    cluster.pod("first", json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "missing"}]})).await;
    cluster.until_unscheduled("first", "Unschedulable", r#"could not find ResourceClaim "default/missing""#).await;
    // The state between PreBind and the binding: the claim is allocated, and its Pod has no node.
    let of_node = |node: &str, uid: &str| {
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        let result = json!({"request": "gpu", "driver": "gpu.example.com", "pool": node, "device": "gpu-0"});
        json!({"status": {
            "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}],
        }})
    };
    let claims = cluster.api::<ResourceClaim>();
    claims.patch_status("a", &PatchParams::default(), &Patch::Merge(of_node("n2", "u"))).await.expect("allocated");
    cluster.pod("p", using("a")).await;
    assert_eq!(cluster.node_of("p").await, "n2");
    let consumers = claim(&cluster, "a").await.status.and_then(|status| status.reserved_for).unwrap_or_default();
    assert_eq!(consumers.len(), 2, "the Pod shares the claim");

    // An allocation that nobody can use is removed.
    claims.patch_status("b", &PatchParams::default(), &Patch::Merge(of_node("gone", "v"))).await.expect("allocated");
    claims.patch_status("b", &PatchParams::default(), &Patch::Merge(json!({"status": {"reservedFor": null}}))).await.expect("unreserved");
    cluster.pod("q", using("b")).await;
    assert_eq!(cluster.node_of("q").await, "n1");
    let allocated = |claim: Option<&ResourceClaim>| claim.is_some_and(|claim| claim.finalizers().len() == 1);
    in_time("allocated", await_condition(claims.clone(), "b", allocated)).await.expect("a watch");
    claims.delete("b", &DeleteParams::default()).await.expect("deleted");
    assert!(claim(&cluster, "b").await.metadata.deletion_timestamp.is_some(), "the finalizer protects it");
    cluster.stop().await;
}

/// A claim whose Pod was not bound must not keep its devices on the node of that Pod: other Pods share it, and no claim is deallocated that
/// is reserved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_not_bound_is_removed_from_its_claim() {
    let refusing = Extender::start(|_, _| Reply::Json(json!({"Error": "not here"}))).await;
    let extenders = json!([{"urlPrefix": refusing.url(), "bindVerb": "bind", "httpTimeout": "20s"}]);
    let cluster = with_extenders(&["shared"], extenders).await;
    let claims = cluster.api::<ResourceClaim>();
    let consumers = |claim: Option<&ResourceClaim>| {
        let status = claim.and_then(|claim| claim.status.clone()).filter(|status| status.allocation.is_some());
        status.map(|status| status.reserved_for.iter().flatten().map(|pod| pod.name.clone()).collect::<Vec<_>>())
    };
    // As another scheduler does it.
    let reserve = |name: &str| Patch::Strategic(json!({"status": {"reservedFor": [{"resource": "pods", "name": name, "uid": name}]}}));
    for name in ["p", "q"] {
        cluster.pod(name, using("shared")).await;
        cluster.until_unscheduled(name, "SchedulerError", "not here").await;
        let is_free = |claim: Option<&ResourceClaim>| consumers(claim).is_some_and(|consumers| consumers.is_empty());
        in_time("no consumers", await_condition(claims.clone(), "shared", is_free)).await.expect("a watch");
    }
    claims.patch_status("shared", &PatchParams::default(), &reserve("other")).await.expect("reserved");
    let calls = refusing.requests("bind").len();
    refusing.until_called(calls + 2).await;
    let is_of_other = |claim: Option<&ResourceClaim>| consumers(claim).is_some_and(|consumers| consumers == ["other"]);
    in_time("the other consumer stays", await_condition(claims.clone(), "shared", is_of_other)).await.expect("a watch");
    cluster.stop().await;
}

/// A device for any node, which must be attached to it.
async fn offer_attachable(cluster: &Cluster) {
    let device = json!({"bindsToNode": true, "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]});
    offer(cluster, "fabric", json!({"allNodes": true}), device).await;
}

/// Reports this condition of the device of the claim.
async fn report(cluster: &Cluster, name: &str, condition: &str) {
    let since = "2026-01-01T00:00:00Z";
    let condition =
        json!({"type": condition, "status": "True", "reason": "Reported", "message": "by the driver", "lastTransitionTime": since});
    let device = json!({"driver": "gpu.example.com", "pool": "fabric", "device": "gpu-0", "conditions": [condition]});
    let patch = Patch::Merge(json!({"status": {"devices": [device]}}));
    cluster.api::<ResourceClaim>().patch_status(name, &PatchParams::default(), &patch).await.expect("reported");
}

/// Waits until the claim is reserved for a Pod.
async fn until_reserved(cluster: &Cluster, name: &str) {
    let is_reserved = |claim: Option<&ResourceClaim>| {
        let status = claim.and_then(|claim| claim.status.as_ref());
        status.is_some_and(|status| status.reserved_for.as_ref().is_some_and(|pods| !pods.is_empty()))
    };
    in_time("reserved", await_condition(cluster.api::<ResourceClaim>(), name, is_reserved)).await.expect("a watch");
}

/// The wait holds up nobody else, and another scheduler goes on with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_bound_when_its_device_is_attached() {
    let cluster = Cluster::start(&["n1", "n2"], json!([])).await;
    demand(&cluster, &["a"]).await;
    offer_attachable(&cluster).await;
    cluster.pod("p", using("a")).await;
    until_reserved(&cluster, "a").await;
    let allocation = claim(&cluster, "a").await.status.and_then(|status| status.allocation).expect("an allocation");
    assert!(allocation.allocation_timestamp.is_some(), "{allocation:?}");
    let terms = allocation.node_selector.expect("a node").node_selector_terms;
    let node = terms[0].match_fields.as_ref().and_then(|fields| fields[0].values.clone()).expect("a node").remove(0);
    cluster.pod("other", json!({})).await;
    cluster.node_of("other").await;
    let pod = cluster.until("p", |pod| pod.status.as_ref().is_some_and(|status| status.nominated_node_name.is_some())).await;
    assert_eq!(pod.spec.and_then(|spec| spec.node_name), None, "the device is not attached");
    assert_eq!(
        cluster.events("p", "BindingConditionsPending").await,
        [format!("waiting for binding conditions for device on node {node}")]
    );

    let cluster = cluster.with_another_scheduler(json!([])).await;
    cluster.pod("last", json!({})).await;
    cluster.node_of("last").await;
    let pod = cluster.api::<k8s_openapi::api::core::v1::Pod>().get("p").await.expect("a Pod");
    assert_eq!(pod.spec.and_then(|spec| spec.node_name), None, "the device is still not attached");
    report(&cluster, "a", "Attached").await;
    assert_eq!(cluster.node_of("p").await, node);
    cluster.stop().await;
}

/// Whether the Pod names a claim for its extended resources, and which.
fn special_of(pod: Option<&Pod>) -> Option<String> {
    Some(pod?.status.as_ref()?.extended_resource_claim_status.as_ref()?.resource_claim_name.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_a_killed_scheduler_created_for_extended_resources_is_replaced() {
    let cluster = cluster(&[]).await;
    let requests = json!({"deviceclass.resource.kubernetes.io/gpu": "1"});
    let spec = |gate: bool| {
        let gates = if gate { json!([{"name": "example.com/wait"}]) } else { json!(null) };
        json!({"containers": [{"name": "c", "image": "none", "resources": {"limits": requests}}], "schedulingGates": gates})
    };
    cluster.pod("p", spec(true)).await;
    let uid = cluster.api::<Pod>().get("p").await.expect("the Pod").metadata.uid;
    // The state in the middle of PreBind: the claim has a device, and nothing names it.
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
    let metadata = json!({
        "name": "p-extended-resources-old", "ownerReferences": [owner], "finalizers": ["resource.kubernetes.io/delete-protection"],
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
    });
    let wanted = json!([{"name": "container-0-request-0", "exactly": {"deviceClassName": "gpu"}}]);
    let claims = cluster.api::<ResourceClaim>();
    let claim = json!({"metadata": metadata, "spec": {"devices": {"requests": wanted}}});
    claims.create(&PostParams::default(), &from(claim)).await.expect("a claim");
    let result = json!({"request": "container-0-request-0", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"});
    let status = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    claims.patch_status("p-extended-resources-old", &PatchParams::default(), &Patch::Merge(status)).await.expect("allocated");
    let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    cluster.api::<Pod>().patch("p", &PatchParams::default(), &open).await.expect("no gate");
    cluster.node_of("p").await;
    let pod = cluster.api::<Pod>().get("p").await.expect("the Pod");
    let name = special_of(Some(&pod)).expect("a claim");
    let all: Vec<String> = claims.list(&Default::default()).await.expect("claims").iter().map(ResourceExt::name_any).collect();
    assert_eq!(all, [name], "the old claim is gone");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_gets_another_device_when_one_fails() {
    let cluster = Cluster::start(&["n1", "n2"], json!([])).await;
    demand(&cluster, &["a"]).await;
    offer_attachable(&cluster).await;
    cluster.pod("p", using("a")).await;
    until_reserved(&cluster, "a").await;
    report(&cluster, "a", "Broken").await;
    let message = cluster.until_unscheduled("p", "SchedulerError", "device binding failed").await;
    assert_eq!(
        message,
        r#"running PreBind plugin "DynamicResources": device binding failed: claim=a, reason=Reported, message="by the driver""#
    );
    offer(&cluster, "n2-gpu", json!({"nodeName": "n2"}), json!({})).await;
    assert_eq!(cluster.node_of("p").await, "n2");
    let status = claim(&cluster, "a").await.status.expect("a status");
    assert_eq!(status.devices, None, "what was reported of the other device is gone");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_gets_another_device_when_one_is_not_attached_in_time() {
    let args = json!({"name": "DynamicResources", "args": {"bindingTimeout": "1s"}});
    let cluster = Cluster::configured(&["n1", "n2"], json!({"profiles": [{"pluginConfig": [args]}]})).await;
    demand(&cluster, &["a"]).await;
    offer_attachable(&cluster).await;
    cluster.pod("p", using("a")).await;
    let message = cluster.until_unscheduled("p", "SchedulerError", "device binding timeout").await;
    assert!(message.starts_with(r#"running PreBind plugin "DynamicResources": device binding timeout"#), "{message}");
    offer(&cluster, "n2-gpu", json!({"nodeName": "n2"}), json!({})).await;
    assert_eq!(cluster.node_of("p").await, "n2");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_not_bound_leaves_no_claim_for_its_extended_resources() {
    let refusing = Extender::start(|_, _| Reply::Json(json!({"Error": "not here"}))).await;
    let extenders = json!([{"urlPrefix": refusing.url(), "bindVerb": "bind", "httpTimeout": "20s"}]);
    let cluster = with_extenders(&[], extenders).await;
    let requests = json!({"deviceclass.resource.kubernetes.io/gpu": "1"});
    let containers = json!([{"name": "c", "image": "none", "resources": {"limits": requests}}]);
    cluster.pod("p", json!({"containers": containers})).await;
    cluster.until_unscheduled("p", "SchedulerError", "not here").await;
    // Each attempt creates a claim and deletes it.
    refusing.until_called(refusing.requests("bind").len() + 2).await;
    let pods = cluster.api::<Pod>();
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    let is_clear = |claims: &[ResourceClaim]| claims.is_empty();
    let claims = cluster.api::<ResourceClaim>();
    in_time("no claims", async {
        while !is_clear(&claims.list(&Default::default()).await.expect("claims").items) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    cluster.stop().await;
}
