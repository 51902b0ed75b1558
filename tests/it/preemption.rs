//! kubectl with Pods that others make room for. The nodes have no agent: the story ends Pods in the agent's place.

use serde_json::{Value, json};
use tests::kubectl::condition;
use tests::{Cluster, Kubectl, Net, eventually};

#[test]
fn important_pods_take_the_room_of_others() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server", "--controllers=*,-node-lifecycle-controller"]);
    cluster.start();
    a_full_cluster(&cluster.kubectl());
    who_may_not_preempt_waits(&cluster.kubectl());
    the_cheapest_pod_leaves(&cluster.kubectl());
    cluster.kill();
    cluster.start();
    the_room_stays_with_the_nominated_pod(&cluster.kubectl());
}

/// Two nodes, each full with one Pod. A budget protects the less important one of the two.
fn a_full_cluster(kubectl: &Kubectl<'_>) {
    kubectl.until_usable("default");
    for (name, value, policy) in [("low", 1, ""), ("middle", 50, ""), ("high", 1000, ""), ("polite", 1000, "Never")] {
        let mut class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value});
        if !policy.is_empty() {
            class["preemptionPolicy"] = policy.into();
        }
        kubectl.apply(&class.to_string()).ok();
    }
    let budget = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}});
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guarded"}, "spec": budget});
    kubectl.apply(&budget.to_string()).ok();
    for (node, app, class) in [("n1", "guarded", "low"), ("n2", "worker", "middle")] {
        kubectl.add_node(node, &json!({}), "2", "8Gi");
        kubectl.apply(&pod(app, class)).ok();
        kubectl.until(&format!("pod/{app}"), "/spec/nodeName", node);
    }
}

/// A Pod that fills a node.
fn pod(name: &str, class: &str) -> String {
    let container = json!({"name": "c", "image": "none", "resources": {"requests": {"cpu": "2"}}});
    let spec = json!({"priorityClassName": class, "containers": [container]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}).to_string()
}

fn who_may_not_preempt_waits(kubectl: &Kubectl<'_>) {
    kubectl.apply(&pod("polite", "polite")).ok();
    let message = "0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.";
    kubectl.until("pod/polite", "/status/conditions/0/message", message);
    kubectl.apply(&pod("unimportant", "low")).ok();
    let message = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found for \
                   incoming pod.";
    kubectl.until("pod/unimportant", "/status/conditions/0/message", message);
    kubectl.until_counted("scheduler_pending_pods{queue=\"unschedulable\"} 2");
    let ruled_out = "scheduler_unschedulable_pods{plugin=\"NodeResourcesFit\",profile=\"default-scheduler\"}";
    kubectl.until_counted(&format!("{ruled_out} 2"));
    kubectl.ok("delete pod polite unimportant");
    kubectl.until_counted(&format!("{ruled_out} 0"));
}

fn the_cheapest_pod_leaves(kubectl: &Kubectl<'_>) {
    kubectl.apply(&pod("urgent", "high")).ok();
    kubectl.until("pod/urgent", "/status/nominatedNodeName", "n2");
    eventually("the victim leaves, and says why", || {
        let victim = kubectl.json("get pod worker");
        let target = condition(&victim, "DisruptionTarget");
        let reported = (&target["reason"], &target["message"]);
        let wanted = (&json!("PreemptionByScheduler"), &json!("default-scheduler: preempting to accommodate a higher priority pod"));
        if victim["metadata"]["deletionTimestamp"].is_string() && reported == wanted { Ok(()) } else { Err(victim.to_string()) }
    });
    let preempted = format!("Preempted by pod {} on node n2", kubectl.uid("urgent"));
    eventually("an event tells about the victim", || {
        let events = kubectl.ok("events --for=pod/worker");
        if events.contains(&preempted) { Ok(()) } else { Err(events) }
    });
    let columns = kubectl.ok("get pod urgent -o wide");
    assert!(columns.contains("NOMINATED NODE") && columns.contains(" n2 "), "{columns}");
    for sample in [
        "scheduler_preemption_victims_sum 1",
        "scheduler_preemption_victims_count 1",
        "scheduler_preemption_pdb_violations_total{preemptor=\"pod\"} 0",
        "scheduler_preemption_evaluation_duration_seconds_count{preemptor=\"pod\",result=\"Success\"} 1",
        "scheduler_preemption_execution_duration_seconds_count{preemptor=\"pod\",result=\"success\"} 1",
    ] {
        kubectl.until_counted(sample);
    }
}

/// The victim is still leaving when another scheduler begins.
fn the_room_stays_with_the_nominated_pod(kubectl: &Kubectl<'_>) {
    kubectl.until_usable("default");
    kubectl.apply(&pod("latecomer", "low")).ok();
    kubectl.until("pod/latecomer", "/status/conditions/0/type", "PodScheduled");
    kubectl.ok("delete pod worker --force --grace-period=0");
    kubectl.until("pod/urgent", "/spec/nodeName", "n2");
    assert_eq!(kubectl.field("pod/urgent", "/status/nominatedNodeName"), Value::Null);
    assert_eq!(kubectl.field("pod/guarded", "/metadata/deletionTimestamp"), Value::Null, "the budget holds");
    assert_eq!(kubectl.field("pod/latecomer", "/spec/nodeName"), Value::Null);
}
