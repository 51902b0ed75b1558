//! kubectl with Pods that claim devices: the example of the documentation. The node has no agent: a Pod is placed when it is bound.

use serde_json::{Value, json};
use tests::kubectl::condition;
use tests::{Cluster, Kubectl, Net, eventually};

const PAGE: &str = include_str!("../../docs/devices.md");

#[test]
fn pods_get_the_devices_that_they_claim() {
    let cluster = cluster();
    let kubectl = cluster.kubectl();
    let of_user = example("kind: ResourceClaimTemplate");
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

    // The claims of the two Pods are all that the quota allows.
    let quota = PAGE.lines().find_map(|line| line.strip_prefix("# kubectl create quota")).expect("the example of the guide");
    kubectl.ok(&format!("create quota{quota}"));
    kubectl.until("quota/devices", "/status/used/gpu.deviceclass.resource.k8s.io~1devices", "2");
    let requests = json!([{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]);
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "third"}, "spec": {"devices": {"requests": requests}}});
    let refused = kubectl.apply(&claim.to_string()).fails();
    let wanted = "exceeded quota: devices, requested: gpu.deviceclass.resource.k8s.io/devices=1, \
                  used: gpu.deviceclass.resource.k8s.io/devices=2, limited: gpu.deviceclass.resource.k8s.io/devices=2";
    assert!(refused.contains(wanted), "{refused}");
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
    kubectl.apply(&rule_example().replace("NoExecute", "None")).ok();
    let message = || kubectl.ok("get devicetaintrule n1-gpu-0 -o jsonpath={.status.conditions[0].message}");
    until_says(
        "what would happen",
        message,
        "1 published device selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace",
    );
    assert_eq!(kubectl.field(&format!("pod/{tainted}"), "/metadata/deletionTimestamp"), Value::Null);

    kubectl.apply(&rule_example()).ok();
    eventually("the Pod leaves", || {
        let pod = kubectl.json(&format!("get pod {tainted}"));
        let reason = &condition(&pod, "DisruptionTarget")["reason"];
        let leaves = pod.pointer("/metadata/deletionTimestamp").is_some() && reason == "DeletionByDeviceTaintManager";
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
    kubectl.apply(&example("kind: ResourceClaimTemplate").replace("train-1", "train-3")).ok();
    until_nothing_fits(&kubectl, "train-3");
    kubectl.ok("delete devicetaintrule n1-gpu-0");
    until_on(&kubectl, "train-3", "n1");
}

#[test]
fn devices_back_extended_resources() {
    let cluster = cluster();
    let kubectl = cluster.kubectl();
    let of_user = example("small-gpu");
    kubectl.apply(&of_user).ok();
    until_on(&kubectl, "infer-1", "n1");
    assert_eq!(devices(&kubectl), ["gpu-2"], "the small one");
    let status = kubectl.field("pod/infer-1", "/status/extendedResourceClaimStatus");
    let name = status["resourceClaimName"].as_str().expect("a claim").to_owned();
    assert!(name.starts_with("infer-1-extended-resources-"), "{name}");
    let mapping = json!({"containerName": "infer", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"});
    assert_eq!(status["requestMappings"], json!([mapping]));
    let claim = kubectl.json(&format!("get resourceclaim {name}"));
    assert_eq!(claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"], "true");
    assert_eq!(claim["status"]["reservedFor"][0]["name"], "infer-1");

    // The next Pod asks for the resource by the name of the class, and waits for the device.
    let implicit = of_user.replace("example.com/gpu: 1", "deviceclass.resource.kubernetes.io/small-gpu: 1").replace("infer-1", "infer-2");
    kubectl.apply(&implicit).ok();
    until_nothing_fits(&kubectl, "infer-2");
    kubectl.ok("delete pod infer-1 --force");
    until_on(&kubectl, "infer-2", "n1");
    eventually("the claim went with its Pod", || {
        let names = kubectl.ok("get resourceclaims -o name");
        if names.contains(&name) || names.lines().count() != 1 { Err(names) } else { Ok(()) }
    });
    assert_eq!(devices(&kubectl), ["gpu-2"]);

    // A Pod that waits because no class backs its resource is tried when there is one.
    let other = of_user.replace("example.com/gpu", "example.com/large").replace("infer-1", "infer-3").replace("small-gpu", "large-gpu");
    let (class, pod) = other.split_once("---\n").expect("a class and a Pod");
    kubectl.apply(pod).ok();
    eventually("no node has the resource", || {
        let events = kubectl.ok("get events --field-selector reason=FailedScheduling,involvedObject.name=infer-3");
        if events.contains("Insufficient example.com/large") { Ok(()) } else { Err(events) }
    });
    kubectl.apply(&class.replace("T4", "A100")).ok();
    until_on(&kubectl, "infer-3", "n1");
    // A Pod that ended has no devices.
    kubectl.ok("patch pod infer-3 --subresource=status -p {\"status\":{\"phase\":\"Succeeded\"}}");
    eventually("the devices are free", || {
        let devices = devices(&kubectl);
        if devices == ["gpu-2"] { Ok(()) } else { Err(devices.join(" ")) }
    });
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
    let manifest = example("allowMultipleAllocations");
    kubectl.apply(&manifest).ok();
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
    kubectl.apply(&example("bindingConditions")).ok();
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

/// A node without an agent, and the devices of the documentation.
fn cluster() -> Cluster {
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    kubectl.add_node("n1", &json!({"kubernetes.io/hostname": "n1"}), "8", "8Gi");
    kubectl.apply(&example("{name: n1-gpu}")).ok();
    cluster
}

fn rule_example() -> String {
    example("kind: DeviceTaintRule")
}

/// The example of the documentation with that text.
#[track_caller]
fn example(text: &str) -> String {
    let mut examples = PAGE.split("```yaml\n").skip(1).filter_map(|text| text.split("```").next());
    examples.find(|example| example.contains(text)).expect("an example").to_owned()
}

/// The two Pods get the large devices.
fn two_pods_train(kubectl: &Kubectl<'_>) {
    for name in ["train-1", "train-2"] {
        kubectl.apply(&example("kind: ResourceClaimTemplate").replace("train-1", name)).ok();
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
