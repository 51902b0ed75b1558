//! Whether the cluster is as its objects want it to be: what is still missing, as a list of reasons.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::history::View;
use crate::ledger::Ledger;
use crate::object::{
    condition, controller, is_active, is_deleting, is_impossible, is_ready, is_selected, is_terminal, number, pod_group, text,
};

/// What is still missing.
pub fn missing(view: &View, ledger: &Ledger) -> Vec<String> {
    let mut reasons = Vec::new();
    dependants(view, &mut reasons);
    nodes(view, &mut reasons);
    pods(view, ledger, &mut reasons);
    for (key, one) in view.all("deployments") {
        reasons.extend(deployment(view, one).map(|why| format!("{key}: {why}")));
        for set in view.controlled("replicasets", one) {
            let replicas = number(set, "/spec/replicas").unwrap_or(1);
            let why = status(set, &[("replicas", replicas), ("readyReplicas", replicas)]);
            reasons.extend(why.map(|why| format!("replicaset {}: {why}", text(set, "/metadata/name"))));
        }
    }
    for (key, set) in view.all("statefulsets") {
        let pods: Vec<_> = view.controlled("pods", set).collect();
        let replicas = number(set, "/spec/replicas").unwrap_or(1);
        let counts = [("replicas", replicas), ("readyReplicas", replicas), ("updatedReplicas", replicas), ("currentReplicas", replicas)];
        reasons.extend(status(set, &counts).into_iter().chain(running(set, &pods, replicas)).map(|why| format!("{key}: {why}")));
    }
    let nodes = i64::try_from(view.all("nodes").count()).unwrap_or(i64::MAX);
    for (key, set) in view.all("daemonsets") {
        let pods: Vec<_> = view.controlled("pods", set).collect();
        let counts = [("desiredNumberScheduled", nodes), ("updatedNumberScheduled", nodes), ("numberReady", nodes)];
        reasons.extend(status(set, &counts).into_iter().chain(running(set, &pods, nodes)).map(|why| format!("{key}: {why}")));
    }
    jobs(view, &mut reasons);
    gangs(view, &mut reasons);
    budgets(view, &mut reasons);
    reasons
}

/// What a Deployment still misses.
pub fn deployment(view: &View, deployment: &Value) -> Option<String> {
    let sets = view.controlled("replicasets", deployment);
    let pods: Vec<_> = sets.flat_map(|set| view.controlled("pods", set)).collect();
    let replicas = number(deployment, "/spec/replicas").unwrap_or(1);
    let counts = [("replicas", replicas), ("updatedReplicas", replicas), ("readyReplicas", replicas), ("availableReplicas", replicas)];
    status(deployment, &counts).or_else(|| running(deployment, &pods, replicas))
}

/// Every dependant of an owner that is gone is gone.
fn dependants(view: &View, reasons: &mut Vec<String>) {
    let uids: BTreeSet<&str> = view.objects().map(|(_, object)| text(object, "/metadata/uid")).collect();
    for (key, object) in view.objects() {
        let owners: Vec<&Value> = object["metadata"]["ownerReferences"].as_array().into_iter().flatten().collect();
        if !owners.is_empty() && owners.iter().all(|owner| !uids.contains(text(owner, "/uid"))) {
            reasons.push(format!("{key}: its owner is gone"));
        }
        if is_deleting(object) {
            reasons.push(format!("{key}: is being deleted"));
        }
    }
}

fn nodes(view: &View, reasons: &mut Vec<String>) {
    for (key, node) in view.all("nodes") {
        let is_ready = condition(node, "Ready").is_some_and(|ready| ready["status"] == "True");
        if !is_ready || node["spec"]["taints"].as_array().is_some_and(|taints| !taints.is_empty()) {
            reasons.push(format!("{key}: ready {is_ready}, taints {}", node["spec"]["taints"]));
        }
    }
}

/// Pods run exactly where the API server says so, and those of nobody too. Those of a gang that does not fit wait.
fn pods(view: &View, ledger: &Ledger, reasons: &mut Vec<String>) {
    let mut running = ledger.running();
    let waits = |pod: &Value| {
        let group = pod_group(pod).and_then(|name| view.get("podgroups", text(pod, "/metadata/namespace"), name));
        text(pod, "/spec/nodeName").is_empty() && group.is_some_and(|group| is_impossible(group))
    };
    for (key, pod) in view.all("pods").filter(|(_, pod)| !is_terminal(pod) && !waits(pod)) {
        let is_running = running.remove(text(pod, "/metadata/uid")).is_some_and(|running| running.node == text(pod, "/spec/nodeName"));
        if !is_running || (!is_ready(pod) && controller(pod).is_none_or(|owner| owner["kind"] != "Job")) {
            reasons.push(format!("{key}: running {is_running}, ready {}", is_ready(pod)));
        }
    }
    reasons.extend(running.into_values().map(|pod| format!("{} runs on {} and does not exist", pod.pod, pod.node)));
}

/// The counts of a status, and whether it is of this generation.
fn status(object: &Value, counts: &[(&str, i64)]) -> Option<String> {
    let status = &object["status"];
    if status["observedGeneration"] != object["metadata"]["generation"] {
        return Some("the status is of an older generation".to_owned());
    }
    let wrong = counts.iter().find(|(count, wanted)| status[*count].as_i64().unwrap_or(0) != *wanted);
    wrong.map(|(count, wanted)| format!("{count} is {}, not {wanted}", status[*count]))
}

/// Exactly these Pods of the newest template are ready.
fn running(owner: &Value, pods: &[&std::sync::Arc<Value>], wanted: i64) -> Option<String> {
    let version = &owner["spec"]["template"]["metadata"]["annotations"]["sim/version"];
    let active: Vec<_> = pods.iter().filter(|pod| is_active(pod)).collect();
    let is_new = |pod: &Value| pod["metadata"]["annotations"]["sim/version"] == *version || text(pod, "/metadata/name").starts_with("pod");
    let good = active.iter().filter(|pod| is_ready(pod) && is_new(pod)).count();
    let wanted = usize::try_from(wanted).unwrap_or(0);
    (active.len() != wanted || good != wanted).then(|| format!("{} Pods, {good} of them new and ready, not {wanted}", active.len()))
}

fn jobs(view: &View, reasons: &mut Vec<String>) {
    for (key, job) in view.all("jobs") {
        let is_finished =
            ["Complete", "Failed"].iter().any(|kind| condition(job, kind).is_some_and(|condition| condition["status"] == "True"));
        if !is_finished {
            reasons.push(format!("{key}: not finished, {}", job["status"]));
        }
        let finalizer = |pod: &&std::sync::Arc<Value>| pod["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        if let Some(pod) = view.controlled("pods", job).find(finalizer) {
            reasons.push(format!("{key}: {} still has finalizers", text(pod, "/metadata/name")));
        }
        if !job["metadata"]["ownerReferences"].is_array() && job["spec"]["ttlSecondsAfterFinished"].is_number() && is_finished {
            reasons.push(format!("{key}: its time to live is over"));
        }
    }
    for (key, cron_job) in view.all("cronjobs") {
        if cron_job["status"]["active"].as_array().is_some_and(|active| !active.is_empty()) {
            reasons.push(format!("{key}: lists Jobs that have ended: {}", cron_job["status"]["active"]));
        }
    }
}

/// Each gang that fits has as many Pods on nodes as it needs, and says so. Nothing creates Pods again that were preempted.
fn gangs(view: &View, reasons: &mut Vec<String>) {
    for (key, group) in view.all("podgroups").filter(|(_, group)| !is_impossible(group)) {
        let least = number(group, "/spec/schedulingPolicy/gang/minCount").and_then(|least| usize::try_from(least).ok()).unwrap_or(0);
        let bound = bound(view, &key.namespace, &key.name);
        let is_scheduled = condition(group, "PodGroupInitiallyScheduled").is_some_and(|condition| condition["status"] == "True");
        let pods = view.within("pods", &key.namespace).filter(|pod| pod_group(pod) == Some(&key.name) && is_active(pod)).count();
        let lacks_pods = pods < least && is_preempted(view, &key.namespace, &key.name);
        if (bound < least || !is_scheduled) && !lacks_pods {
            reasons.push(format!("{key}: {bound} Pods are bound, {least} are needed, scheduled {is_scheduled}"));
        }
    }
}

/// Whether a Pod of the gang was preempted.
fn is_preempted(view: &View, namespace: &str, name: &str) -> bool {
    let of_gang = |event: &Value| text(event, "/involvedObject/name").rsplit_once('-').is_some_and(|(gang, _)| gang == name);
    view.within("events", namespace).any(|event| event["reason"] == "Preempted" && of_gang(event))
}

/// The Pods of a gang that are bound and have not ended.
pub fn bound(view: &View, namespace: &str, name: &str) -> usize {
    let of_gang = |pod: &Value| pod_group(pod) == Some(name) && is_active(pod) && !text(pod, "/spec/nodeName").is_empty();
    view.within("pods", namespace).filter(|pod| of_gang(pod)).count()
}

fn budgets(view: &View, reasons: &mut Vec<String>) {
    for (key, budget) in view.all("poddisruptionbudgets") {
        let selected = view.within("pods", &key.namespace).filter(|pod| is_selected(pod, &budget["spec"]["selector"]) && is_active(pod));
        let healthy = i64::try_from(selected.filter(|pod| is_ready(pod)).count()).unwrap_or(i64::MAX);
        let desired = number(budget, "/status/desiredHealthy").unwrap_or(0);
        let counts = [("currentHealthy", healthy), ("disruptionsAllowed", (healthy - desired).max(0))];
        reasons.extend(status(budget, &counts).map(|why| format!("{key}: {why}")));
    }
}
