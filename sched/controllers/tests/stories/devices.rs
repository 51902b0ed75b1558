//! Pods leave devices with taints.

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Cluster, from, until};

/// A Pod on a node, and its claim with the device of the same name, as the scheduler leaves them.
async fn pod_with_device(cluster: &Cluster, name: &str, tolerations: Value) {
    let claim =
        json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}});
    cluster.api::<ResourceClaim>().create(&PostParams::default(), &from(claim)).await.expect("a claim");
    let claims = json!([{"name": "gpu", "resourceClaimName": name}]);
    let spec = json!({"nodeName": "n1", "containers": [{"name": "c", "image": "none"}], "resourceClaims": claims});
    let pod = json!({"metadata": {"name": name, "finalizers": ["example.com/stays"]}, "spec": spec});
    let pod = cluster.api::<Pod>().create(&PostParams::default(), &from(pod)).await.expect("a Pod");
    let result = json!({"request": "r", "driver": "d.example.com", "pool": "n1", "device": name, "tolerations": tolerations});
    let reserved = json!([{"resource": "pods", "name": name, "uid": pod.metadata.uid}]);
    let status = Patch::Merge(json!({"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}}));
    cluster.api::<ResourceClaim>().patch_status(name, &PatchParams::default(), &status).await.expect("allocated");
}

fn condition(rule: &DeviceTaintRule) -> Option<&Condition> {
    rule.status.iter().flat_map(|status| status.conditions.iter().flatten()).find(|condition| condition.type_ == "EvictionInProgress")
}

async fn until_rule_says(cluster: &Cluster, status: &str, reason: &str, message: &str) {
    let wanted = (status, reason, message);
    until(message, cluster.all::<DeviceTaintRule>(), |all| {
        let condition = all.get("broken").and_then(condition);
        condition.is_some_and(|condition| (condition.status.as_str(), condition.reason.as_str(), condition.message.as_str()) == wanted)
    })
    .await;
}

fn is_evicted(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let reasons: Vec<_> = conditions.filter(|condition| condition.type_ == "DisruptionTarget").collect();
    let [condition] = reasons.as_slice() else { return false };
    assert_eq!(condition.reason.as_deref(), Some("DeletionByDeviceTaintManager"));
    assert_eq!(condition.message.as_deref(), Some("Device Taint manager: deleting due to NoExecute taint"));
    pod.metadata.deletion_timestamp.is_some()
}

async fn until_event(cluster: &Cluster, pod: &str, message: &str) {
    until(message, cluster.api::<Event>(), |all| {
        let says =
            |event: &Event| event.reason.as_deref() == Some("DeviceTaintManagerEviction") && event.message.as_deref() == Some(message);
        all.values().any(|event| says(event) && event.involved_object.name.as_deref() == Some(pod))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_leave_tainted_devices_unless_their_claims_tolerate_it() {
    let cluster = Cluster::start(|_| {}).await;
    let _alive = cluster.node("n1").await;
    let toleration =
        |seconds: Value| json!([{"key": "example.com/broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    pod_with_device(&cluster, "leaves", json!([])).await;
    pod_with_device(&cluster, "waits", toleration(json!(3_600))).await;
    pod_with_device(&cluster, "stays", toleration(Value::Null)).await;
    let rules = cluster.all::<DeviceTaintRule>();
    let spec = json!({"deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "example.com/broken", "effect": "None"}});
    let rule = from::<DeviceTaintRule>(json!({"metadata": {"name": "broken"}, "spec": spec}));
    let dry = "0 published devices selected. 3 allocated devices selected. 2 pods would be evicted in 1 namespace if the effect was \
               NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.";
    // A rule counts once. One that was there before the cache had all claims is made again.
    for attempt in 1.. {
        let created = rules.create(&PostParams::default(), &rule).await.expect("a rule");
        assert!(created.spec.taint.time_added.is_some(), "the server says when");
        let all = until("a condition", rules.clone(), |all| all.get("broken").and_then(condition).is_some()).await;
        let condition = condition(&all["broken"]).expect("a condition");
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "NoEffect"));
        if condition.message == dry {
            break;
        }
        assert!(attempt < 100, "{}", condition.message);
        rules.delete("broken", &DeleteParams::default()).await.expect("deleted");
    }
    assert!(!cluster.api::<Pod>().list(&Default::default()).await.expect("Pods").iter().any(is_evicted));

    let effect = Patch::Merge(json!({"spec": {"taint": {"effect": "NoExecute"}}}));
    rules.patch("broken", &PatchParams::default(), &effect).await.expect("with an effect");
    let all = until("the Pod leaves", cluster.api::<Pod>(), |all| all.get("leaves").is_some_and(is_evicted)).await;
    assert!(!is_evicted(&all["waits"]) && !is_evicted(&all["stays"]));
    until_event(&cluster, "leaves", "Marking for deletion").await;
    let message = "1 pod needs to be evicted in 1 namespace. 1 pod evicted since starting the controller.";
    until_rule_says(&cluster, "True", "PodsPendingEviction", message).await;

    rules.delete("broken", &DeleteParams::default()).await.expect("deleted");
    until_event(&cluster, "waits", "Cancelling deletion").await;

    // The taint of the driver is older than the toleration is long.
    let taint = |time: Value| json!([{"key": "example.com/broken", "effect": "NoExecute", "timeAdded": time}]);
    let devices =
        json!([{"name": "waits", "taints": taint(json!("2020-01-01T00:00:00Z"))}, {"name": "stays", "taints": taint(Value::Null)}]);
    let pool = json!({"name": "n1", "generation": 1, "resourceSliceCount": 1});
    let slice =
        json!({"metadata": {"name": "n1"}, "spec": {"driver": "d.example.com", "nodeName": "n1", "pool": pool, "devices": devices}});
    let slice = cluster.all::<ResourceSlice>().create(&PostParams::default(), &from(slice)).await.expect("a slice");
    let taints = slice.spec.devices.iter().flatten().flat_map(|device| device.taints.iter().flatten());
    assert!(taints.map(|taint| taint.time_added.as_ref()).all(|time| time.is_some()), "the server says when");
    let all = until("the Pod leaves", cluster.api::<Pod>(), |all| all.get("waits").is_some_and(is_evicted)).await;
    assert!(!is_evicted(&all["stays"]));
    cluster.stop().await;
}
