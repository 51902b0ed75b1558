//! kubectl with Pods that claim devices: the example of the documentation. The node has no agent: a Pod is placed when it is bound.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net, eventually};

const PAGE: &str = include_str!("../../docs/devices.md");

#[test]
fn pods_get_the_devices_that_they_claim() {
    let cluster = cluster();
    let kubectl = cluster.kubectl();
    let of_user = example(1);
    two_pods_train(&kubectl);

    kubectl.apply(&of_user.replace("train-1", "train-3")).ok();
    until_nothing_fits(&kubectl, "train-3");
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

#[test]
fn pods_leave_devices_with_the_taint_of_a_rule() {
    let cluster = cluster();
    let kubectl = cluster.kubectl();
    two_pods_train(&kubectl);
    let claims = kubectl.json("get resourceclaims");
    let with_device = |claim: &&Value| claim.pointer("/status/allocation/devices/results/0/device") == Some(&json!("gpu-0"));
    let claim = claims["items"].as_array().expect("claims").iter().find(with_device).expect("a claim");
    let tainted = claim.pointer("/status/reservedFor/0/name").and_then(Value::as_str).expect("a Pod").to_owned();
    let untainted = if tainted == "train-1" { "train-2" } else { "train-1" };

    // Without an effect first: the Pod stays.
    kubectl.apply(&example(2).replace("NoExecute", "None")).ok();
    let message = || kubectl.ok("get devicetaintrule n1-gpu-0 -o jsonpath={.status.conditions[0].message}");
    until_says(
        "what would happen",
        message,
        "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace",
    );
    assert_eq!(kubectl.field(&format!("pod/{tainted}"), "/metadata/deletionTimestamp"), Value::Null);

    kubectl.apply(&example(2)).ok();
    eventually("the Pod leaves", || {
        let pod = kubectl.json(&format!("get pod {tainted}"));
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let reason =
            conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").map(|condition| condition["reason"].clone());
        let leaves = pod.pointer("/metadata/deletionTimestamp").is_some() && reason == Some(json!("DeletionByDeviceTaintManager"));
        if leaves { Ok(()) } else { Err(pod.to_string()) }
    });
    until_says("that it is done", message, "1 pod evicted since starting the controller.");
    let reason = kubectl.field("devicetaintrule/n1-gpu-0", "/status/conditions/0/reason");
    assert_eq!(reason, "Completed");
    let events = kubectl.ok(&format!("get events --field-selector reason=DeviceTaintManagerEviction,involvedObject.name={tainted}"));
    assert!(events.contains("Marking for deletion"), "{events}");
    assert_eq!(kubectl.field(&format!("pod/{untainted}"), "/metadata/deletionTimestamp"), Value::Null);

    // A new Pod does not get the device before the rule is gone.
    kubectl.ok(&format!("delete pod {tainted} --force"));
    kubectl.apply(&example(1).replace("train-1", "train-3")).ok();
    until_nothing_fits(&kubectl, "train-3");
    kubectl.ok("delete devicetaintrule n1-gpu-0");
    until_on(&kubectl, "train-3", "n1");
}

/// A node without an agent, and the devices of the documentation.
fn cluster() -> Cluster {
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    kubectl.add_node("n1", &json!({"kubernetes.io/hostname": "n1"}), "8", "8Gi");
    kubectl.apply(&example(0)).ok();
    cluster
}

/// An example of the documentation: the devices, a Pod, a rule.
fn example(number: usize) -> String {
    let mut examples = PAGE.split("```yaml\n").skip(1).filter_map(|text| text.split("```").next());
    examples.nth(number).expect("an example").to_owned()
}

/// The two Pods get the large devices.
fn two_pods_train(kubectl: &Kubectl<'_>) {
    for name in ["train-1", "train-2"] {
        kubectl.apply(&example(1).replace("train-1", name)).ok();
        until_on(kubectl, name, "n1");
    }
    assert_eq!(devices(kubectl), ["gpu-0", "gpu-1"], "the large ones");
}

/// The devices that are allocated.
fn devices(kubectl: &Kubectl<'_>) -> Vec<String> {
    let claims = kubectl.json("get resourceclaims");
    let device = |claim: &Value| claim.pointer("/status/allocation/devices/results/0/device").and_then(Value::as_str).map(str::to_owned);
    let mut devices: Vec<String> = claims["items"].as_array().expect("claims").iter().filter_map(device).collect();
    devices.sort();
    devices
}

#[track_caller]
fn until_nothing_fits(kubectl: &Kubectl<'_>, pod: &str) {
    let sentence = "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are available: 1 \
                    Preemption is not helpful for scheduling.";
    eventually(&format!("the Pod {pod} says why it waits"), || {
        let events = kubectl.json(&format!("get events --field-selector reason=FailedScheduling,involvedObject.name={pod}"));
        let says = |event: &Value| event["message"] == sentence;
        if events["items"].as_array().expect("events").iter().any(says) { Ok(()) } else { Err(events.to_string()) }
    });
}

#[track_caller]
fn until_says(what: &str, text: impl Fn() -> String, wanted: &str) {
    eventually(&format!("the rule says {what}"), || {
        let text = text();
        if text.starts_with(wanted) { Ok(()) } else { Err(text) }
    });
}

#[track_caller]
fn until_on(kubectl: &Kubectl<'_>, name: &str, node: &str) {
    eventually(&format!("the Pod {name} has its node"), || {
        let on = kubectl.field(&format!("pod/{name}"), "/spec/nodeName");
        if on == node { Ok(()) } else { Err(on.to_string()) }
    });
}
