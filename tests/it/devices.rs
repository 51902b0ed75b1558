//! kubectl with Pods that claim devices: the example of the documentation. The node has no agent: a Pod is placed when it is bound.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net, eventually};

const PAGE: &str = include_str!("../../docs/devices.md");

#[test]
fn pods_get_the_devices_that_they_claim() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    kubectl.add_node("n1", &json!({"kubernetes.io/hostname": "n1"}), "8", "8Gi");
    let mut examples = PAGE.split("```yaml\n").skip(1).filter_map(|text| text.split("```").next());
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

#[track_caller]
fn until_on(kubectl: &Kubectl<'_>, name: &str, node: &str) {
    eventually(&format!("the Pod {name} has its node"), || {
        let on = kubectl.field(&format!("pod/{name}"), "/spec/nodeName");
        if on == node { Ok(()) } else { Err(on.to_string()) }
    });
}
