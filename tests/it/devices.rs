//! kubectl with Pods that claim devices: the example of the documentation. The node has no agent: a Pod is placed when it is bound.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net, eventually};

const PAGE: &str = include_str!("../../docs/devices.md");

/// A cluster with the node `n1`.
fn cluster() -> Cluster {
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    kubectl.add_node("n1", &json!({"kubernetes.io/hostname": "n1"}), "8", "8Gi");
    cluster
}

/// The manifests of the documentation.
fn examples() -> impl Iterator<Item = &'static str> {
    PAGE.split("```yaml\n").skip(1).filter_map(|text| text.split("```").next())
}

/// The manifest of the documentation with that text.
#[track_caller]
fn example_with(text: &str) -> &'static str {
    examples().find(|example| example.contains(text)).expect("an example")
}

#[test]
fn pods_get_the_devices_that_they_claim() {
    let cluster = cluster();
    let kubectl = cluster.kubectl();
    let mut examples = examples();
    let (of_driver, of_user) = (examples.next().expect("the devices"), examples.next().expect("a Pod"));
    kubectl.apply(of_driver).ok();
    for name in ["train-1", "train-2"] {
        kubectl.apply(&of_user.replace("train-1", name)).ok();
        until_on(&kubectl, name, "n1");
    }
    let devices = |kubectl: &Kubectl<'_>| {
        let claims = kubectl.json("get resourceclaims");
        let device =
            |claim: &Value| claim.pointer("/status/allocation/devices/results/0/device").and_then(Value::as_str).map(str::to_owned);
        let mut devices: Vec<String> = claims["items"].as_array().expect("claims").iter().filter_map(device).collect();
        devices.sort();
        devices
    };
    assert_eq!(devices(&kubectl), ["gpu-0", "gpu-1"], "the large ones");

    kubectl.apply(&of_user.replace("train-1", "train-3")).ok();
    let sentence = "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are available: 1 \
                    Preemption is not helpful for scheduling.";
    eventually("the third Pod says why it waits", || {
        let events = kubectl.json("get events --field-selector reason=FailedScheduling,involvedObject.name=train-3");
        let says = |event: &Value| event["message"] == sentence;
        if events["items"].as_array().expect("events").iter().any(says) { Ok(()) } else { Err(events.to_string()) }
    });
    let table = kubectl.ok("get resourceclaims");
    assert_eq!((table.matches("allocated,reserved").count(), table.matches("pending").count()), (2, 1), "{table}");

    kubectl.ok("delete pod train-1 --force");
    until_on(&kubectl, "train-3", "n1");
    eventually("the claim of the Pod is gone", || {
        let table = kubectl.ok("get resourceclaims");
        if table.contains("train-1-gpu-") { Err(table) } else { Ok(()) }
    });
    assert_eq!(devices(&kubectl), ["gpu-0", "gpu-1"]);

    // A selector that does not compile never reaches the scheduler.
    let broken = of_user.replace("device.capacity", "gadget.capacity").replace("large-gpu", "broken");
    let refused = kubectl.apply(&broken).fails();
    assert!(refused.contains("undeclared reference to 'gadget'"), "{refused}");
}

/// A Pod that uses the claim of the same name.
fn using(claim: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": claim}, "spec": {
        "containers": [{"name": "main", "image": "samples/web", "resources": {"claims": [{"name": "device"}]}}],
        "resourceClaims": [{"name": "device", "resourceClaimName": claim}],
    }})
}

#[test]
fn claims_share_the_capacity_of_a_device() {
    let cluster = cluster();
    let kubectl = cluster.kubectl();
    let manifest = example_with("allowMultipleAllocations");
    kubectl.apply(manifest).ok();
    let of_claim = manifest.split("---\n").find(|document| document.contains("kind: ResourceClaim")).expect("a claim");
    let (default, rest) = of_claim.split_once("          capacity:").expect("an amount");
    assert!(rest.contains("6200M"), "{of_claim}");
    kubectl.apply(&default.replace("bulk", "small")).ok();
    kubectl.apply(&of_claim.replace("bulk", "third").replace("6200M", "3G")).ok();
    for name in ["bulk", "small"] {
        kubectl.apply(&using(name).to_string()).ok();
        until_on(&kubectl, name, "n1");
    }
    let share = |name: &str| {
        let claim = kubectl.json(&format!("get resourceclaim {name}"));
        claim.pointer("/status/allocation/devices/results/0").cloned().unwrap_or_default()
    };
    let (bulk, small) = (share("bulk"), share("small"));
    assert_eq!((&bulk["device"], &small["device"]), (&json!("nic-0"), &json!("nic-0")));
    assert_eq!((&bulk["consumedCapacity"]["bandwidth"], &small["consumedCapacity"]["bandwidth"]), (&json!("6500M"), &json!("1G")));
    assert!(bulk["shareID"].is_string() && small["shareID"].is_string() && bulk["shareID"] != small["shareID"], "{bulk} {small}");

    // 2.5 of 10 are left.
    kubectl.apply(&using("third").to_string()).ok();
    eventually("the third Pod says why it waits", || {
        let events = kubectl.json("get events --field-selector reason=FailedScheduling,involvedObject.name=third");
        let says = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains("cannot allocate all claims"));
        if events["items"].as_array().expect("events").iter().any(says) { Ok(()) } else { Err(events.to_string()) }
    });
    assert_eq!(share("third"), Value::Null);
    kubectl.ok("delete pod bulk --force");
    until_on(&kubectl, "third", "n1");
    assert_eq!(share("third")["consumedCapacity"], json!({"bandwidth": "3G"}));
    assert_eq!((share("bulk"), share("small")), (Value::Null, small), "the share is freed, the other one stays");
}

#[test]
fn a_pod_waits_for_the_device_that_is_attached_to_its_node() {
    let mut cluster = cluster();
    let kubectl = cluster.kubectl();
    kubectl.apply(example_with("bindingConditions")).ok();
    kubectl.apply(&using("fpga").to_string()).ok();
    let pending = "get events --field-selector reason=BindingConditionsPending,involvedObject.name=fpga";
    eventually("the Pod says that it waits", || {
        let events = kubectl.json(pending);
        let says = |event: &Value| event["message"] == "waiting for binding conditions for device on node n1";
        if events["items"].as_array().expect("events").iter().any(says) { Ok(()) } else { Err(events.to_string()) }
    });
    let claim = kubectl.json("get resourceclaim fpga");
    let allocation = &claim["status"]["allocation"];
    assert!(allocation["allocationTimestamp"].is_string(), "{claim}");
    assert_eq!(allocation.pointer("/nodeSelector/nodeSelectorTerms/0/matchFields/0/values"), Some(&json!(["n1"])), "{claim}");

    // The attachment fails: the claim is deallocated, and the Pod is tried again.
    report(&kubectl, "AttachFailed");
    eventually("the failure is said, and its report is gone", || {
        let events = kubectl.json("get events --field-selector reason=FailedScheduling,involvedObject.name=fpga");
        let says = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains("device binding failed: claim=fpga"));
        let claim = kubectl.json("get resourceclaim fpga");
        let is_anew = claim["status"]["allocation"].is_object() && claim["status"]["devices"].is_null();
        let is_said = events["items"].as_array().expect("events").iter().any(says);
        if is_said && is_anew { Ok(()) } else { Err(format!("{events} {claim}")) }
    });
    assert_eq!(kubectl.field("pod/fpga", "/spec/nodeName"), Value::Null);

    cluster.kill();
    cluster.start();
    let kubectl = cluster.kubectl();
    report(&kubectl, "Attached");
    until_on(&kubectl, "fpga", "n1");
}

/// Reports a condition of the device, as its driver does.
fn report(kubectl: &Kubectl<'_>, condition: &str) {
    let since = "2026-11-27T00:00:00Z";
    let condition = json!({"type": condition, "status": "True", "reason": "Reported", "message": "", "lastTransitionTime": since});
    let device = json!({"driver": "fabric.example.com", "pool": "fabric", "device": "fpga-0", "conditions": [condition]});
    let patch = json!({"status": {"devices": [device]}}).to_string();
    kubectl.run(&["patch", "resourceclaim", "fpga", "--subresource=status", "--type=merge", "-p", &patch]).ok();
}

#[track_caller]
fn until_on(kubectl: &Kubectl<'_>, name: &str, node: &str) {
    eventually(&format!("the Pod {name} has its node"), || {
        let on = kubectl.field(&format!("pod/{name}"), "/spec/nodeName");
        if on == node { Ok(()) } else { Err(on.to_string()) }
    });
}
