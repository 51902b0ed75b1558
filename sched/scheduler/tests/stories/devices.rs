//! Pods with claims for devices, with a real API server.

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
    let classes: Api<DeviceClass> = Api::all(cluster.client.clone());
    let class =
        json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}});
    classes.create(&PostParams::default(), &from(class)).await.expect("a class");
    let slices: Api<ResourceSlice> = Api::all(cluster.client.clone());
    for node in ["n1", "n2"] {
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        let spec = json!({"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]});
        let slice = json!({"metadata": {"name": format!("{node}-gpu")}, "spec": spec});
        slices.create(&PostParams::default(), &from(slice)).await.expect("a slice");
    }
    for name in claims {
        let requests = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]);
        let claim = json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}});
        cluster.api::<ResourceClaim>().create(&PostParams::default(), &from(claim)).await.expect("a claim");
    }
    cluster
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
