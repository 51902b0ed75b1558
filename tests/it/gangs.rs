//! kubectl with gangs of Pods. The nodes have no agent: a Pod is placed when it is bound.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net, eventually};

#[test]
fn the_pods_of_a_gang_are_bound_together() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    kubectl.add_node("n1", &json!({}), "2", "8Gi");
    a_gang_waits_for_room_for_all_of_it(&kubectl);
    another_node_is_room_enough(&kubectl);
    one_of_two_gangs_has_the_room(&kubectl);
    groups_are_checked_and_explained(&kubectl);
    a_gang_is_completed_after_a_kill(&mut cluster);
    let kubectl = cluster.kubectl();
    nothing_is_preempted_for_a_gang_that_does_not_fit(&kubectl);
    a_more_important_gang_preempts_pods(&kubectl);
}

fn group(name: &str, min_count: usize) -> String {
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": min_count}}});
    json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}).to_string()
}

/// A Pod of the group that requests a core.
fn pod(group: &str, name: &str) -> String {
    let container = json!({"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}});
    let spec = json!({"containers": [container], "schedulingGroup": {"podGroupName": group}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"group": group}}, "spec": spec}).to_string()
}

/// The names of the group's Pods that are bound.
fn bound(kubectl: &Kubectl<'_>, group: &str) -> Vec<String> {
    let pods = kubectl.json(&format!("get pods -l group={group}"));
    let is_bound = |pod: &&Value| pod["spec"]["nodeName"].is_string();
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    pods.iter().filter(is_bound).filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

fn until_bound(kubectl: &Kubectl<'_>, group: &str, count: usize) {
    eventually(&format!("{count} Pods of {group} are bound"), || {
        let bound = bound(kubectl, group);
        if bound.len() == count { Ok(()) } else { Err(format!("{bound:?}")) }
    });
}

fn a_gang_waits_for_room_for_all_of_it(kubectl: &Kubectl<'_>) {
    kubectl.apply(&group("trio", 3)).ok();
    for name in ["t1", "t2"] {
        kubectl.apply(&pod("trio", name)).ok();
    }
    kubectl.until_counted("scheduler_pending_pods{queue=\"gated\"} 2");
    kubectl.apply(&pod("trio", "t3")).ok();
    kubectl.until_counted("scheduler_pending_pods{queue=\"gated\"} 0");
    let message = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining, pod group preemption: No preemption victims found for \
        incoming preemptor";
    kubectl.until("pod/t1", "/status/conditions/0/message", message);
    kubectl.until("pod/t3", "/status/conditions/0/message", "0/1 nodes are available: 1 Insufficient cpu.");
    kubectl.until("podgroup/trio", "/status/conditions/0/reason", "Unschedulable");
    eventually("an event says why", || {
        let events = kubectl.ok("events --for=pod/t1");
        if events.contains("FailedScheduling") && events.contains(message) { Ok(()) } else { Err(events) }
    });
    assert_eq!(bound(kubectl, "trio"), [""; 0], "none of them");
}

fn another_node_is_room_enough(kubectl: &Kubectl<'_>) {
    kubectl.add_node("n2", &json!({}), "2", "8Gi");
    until_bound(kubectl, "trio", 3);
    kubectl.until("podgroup/trio", "/status/conditions/0/status", "True");
    let described = kubectl.ok("describe podgroup trio");
    assert!(described.contains("Min Count:  3") && described.contains("PodGroupInitiallyScheduled"), "{described}");
}

/// Four cores, of which one gang of three leaves one.
fn one_of_two_gangs_has_the_room(kubectl: &Kubectl<'_>) {
    kubectl.ok("delete pod t1 t2 t3 --force --grace-period=0");
    for name in ["left", "right"] {
        kubectl.apply(&group(name, 3)).ok();
    }
    for number in 0..3 {
        for name in ["left", "right"] {
            kubectl.apply(&pod(name, &format!("{name}-{number}"))).ok();
        }
    }
    eventually("one gang is bound, and the other one waits", || {
        let counts = (bound(kubectl, "left").len(), bound(kubectl, "right").len());
        let conditions =
            [kubectl.field("podgroup/left", "/status/conditions/0/status"), kubectl.field("podgroup/right", "/status/conditions/0/status")];
        let is_settled = conditions.iter().all(Value::is_string) && conditions[0] != conditions[1];
        if matches!(counts, (3, 0) | (0, 3)) && is_settled { Ok(()) } else { Err(format!("{counts:?} {conditions:?}")) }
    });
    let (first, second) = if bound(kubectl, "left").is_empty() { ("right", "left") } else { ("left", "right") };
    kubectl.ok(&format!("delete pod -l group={first} --force --grace-period=0"));
    until_bound(kubectl, second, 3);
}

fn groups_are_checked_and_explained(kubectl: &Kubectl<'_>) {
    let explained = kubectl.ok("explain podgroup.spec.schedulingPolicy.gang.minCount");
    assert!(explained.contains("minimum number of pods"), "{explained}");
    let refused = kubectl.apply(&group("none", 0)).fails();
    assert!(refused.contains("spec.schedulingPolicy.gang.minCount: Required value"), "{refused}");
    let mut changed: Value = serde_json::from_str(&pod("left", "left-0")).expect("a Pod");
    changed["spec"]["schedulingGroup"]["podGroupName"] = json!("other");
    changed["metadata"]["name"] = json!(bound(kubectl, "left").first().or(bound(kubectl, "right").first()).expect("a Pod"));
    let refused = kubectl.apply(&changed.to_string()).fails();
    assert!(refused.contains("pod updates may not change fields other than"), "{refused}");
}

/// The room of a Pod of the gang, which is bound alone after the kill.
fn a_gang_is_completed_after_a_kill(cluster: &mut Cluster) {
    let kubectl = cluster.kubectl();
    let group = if bound(&kubectl, "left").is_empty() { "right" } else { "left" };
    kubectl.ok(&format!("delete pod {} --force --grace-period=0", bound(&kubectl, group)[0]));
    cluster.kill();
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.until_usable("default");
    kubectl.apply(&pod(group, "replacement")).ok();
    kubectl.until("pod/replacement", "/status/phase", "Pending");
    until_bound(&kubectl, group, 3);
}

/// The object with the priority class that goes before all others here.
fn urgent(object: &str) -> String {
    let mut object: Value = serde_json::from_str(object).expect("an object");
    object["spec"]["priorityClassName"] = json!("urgent");
    object.to_string()
}

/// The names of all Pods that are being deleted.
fn ending(kubectl: &Kubectl<'_>) -> Vec<String> {
    let pods = kubectl.json("get pods");
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    let is_ending = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_string();
    pods.iter().filter(is_ending).filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

/// Five cores are wanted of four, of which less important Pods have three.
fn nothing_is_preempted_for_a_gang_that_does_not_fit(kubectl: &Kubectl<'_>) {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000});
    kubectl.apply(&class.to_string()).ok();
    kubectl.apply(&urgent(&group("vast", 5))).ok();
    for number in 0..5 {
        kubectl.apply(&urgent(&pod("vast", &format!("vast-{number}")))).ok();
    }
    let message = "minCount (5) cannot be satisfied: 1 scheduled, 3 remaining, pod group preemption: minCount (5) cannot be satisfied: 4 \
        scheduled, 0 remaining";
    kubectl.until("podgroup/vast", "/status/conditions/0/message", message);
    assert_eq!(ending(kubectl), [""; 0]);
    kubectl.ok("delete pod -l group=vast --force --grace-period=0");
    kubectl.ok("delete podgroup vast");
}

/// Three cores are wanted, and one is free.
fn a_more_important_gang_preempts_pods(kubectl: &Kubectl<'_>) {
    kubectl.apply(&urgent(&group("crew", 3))).ok();
    for number in 0..3 {
        kubectl.apply(&urgent(&pod("crew", &format!("crew-{number}")))).ok();
    }
    eventually("two Pods are preempted, and the gang is nominated", || {
        let nominated = (0..3).filter(|number| kubectl.field(&format!("pod/crew-{number}"), "/status/nominatedNodeName").is_string());
        let (ending, nominated) = (ending(kubectl), nominated.count());
        if ending.len() == 2 && nominated == 3 { Ok(()) } else { Err(format!("{ending:?}, {nominated} nominated")) }
    });
    let victims = ending(kubectl);
    let uid = kubectl.field("podgroup/crew", "/metadata/uid");
    let reason = format!("Preempted by podgroup {} on node cluster", uid.as_str().unwrap_or_default());
    eventually("an event says for whom", || {
        let events = kubectl.ok(&format!("events --for=pod/{}", victims[0]));
        if events.contains(&reason) { Ok(()) } else { Err(events) }
    });
    kubectl.ok(&format!("delete pod {} --force --grace-period=0", victims[0]));
    let waiting = "pod group preemption: ongoing preemption on nominated nodes";
    eventually("the gang waits for the other one", || {
        let message = kubectl.field("podgroup/crew", "/status/conditions/0/message");
        if message.as_str().is_some_and(|message| message.contains(waiting)) { Ok(()) } else { Err(message.to_string()) }
    });
    assert_eq!((ending(kubectl), bound(kubectl, "crew").len()), (victims[1..].to_vec(), 0), "and for nothing else");
    kubectl.ok(&format!("delete pod {} --force --grace-period=0", victims[1]));
    until_bound(kubectl, "crew", 3);
    assert_eq!(ending(kubectl), [""; 0], "the Pod that does not stand in the way stays");
    for sample in [
        "scheduler_preemption_evaluation_duration_seconds_count{preemptor=\"podgroup\",result=\"Success\"} 1",
        "scheduler_workload_preemption_victims_sum 2",
        "scheduler_preemption_workload_disruptions_sum{preemptor=\"podgroup\"} 2",
        "scheduler_preemption_pdb_violations_total{preemptor=\"podgroup\"} 0",
        "scheduler_preemption_execution_duration_seconds_count{preemptor=\"podgroup\",result=\"success\"} 1",
    ] {
        kubectl.until_counted(sample);
    }
}
