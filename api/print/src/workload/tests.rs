use serde_json::{Value, json};

use crate::tests::row;

fn workload(mut spec: Value, status: Value) -> Value {
    spec["template"] = json!({"spec": {"containers": [{"name": "web", "image": "w:1"}, {"name": "log", "image": "l:2"}], "nodeSelector": {"disk": "ssd"}}});
    spec["selector"] = json!({
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}, {"key": "old", "operator": "DoesNotExist"}],
    });
    json!({"spec": spec, "status": status})
}

#[test]
fn replicated_kinds_count_their_pods() {
    let counts = json!({"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2});
    let object = || workload(json!({"replicas": 3}), counts.clone());
    let selector = "app=web,!old,tier in (a,b)";
    assert_eq!(row("apps", "Deployment", object()), format!("x | 2/3 | 1 | 2 | 90m | web,log | w:1,l:2 | {selector}"));
    assert_eq!(row("apps", "ReplicaSet", object()), format!("x | 3 | 3 | 2 | 90m | web,log | w:1,l:2 | {selector}"));
    assert_eq!(row("apps", "StatefulSet", object()), "x | 2/3 | 90m | web,log | w:1,l:2");
    let mut controller = object();
    controller["spec"]["selector"] = json!({"b": "2", "a": "1"});
    assert_eq!(row("", "ReplicationController", controller), "x | 3 | 3 | 2 | 90m | web,log | w:1,l:2 | a=1,b=2");
    let scale = json!({"spec": {"replicas": 3}, "status": {"replicas": 1}});
    assert_eq!(row("autoscaling", "Scale", scale), "x | 3 | 1 | 90m");
}

#[test]
fn selectors_without_requirements_and_with_unknown_ones_differ() {
    let with = |selector: Value| json!({"spec": {"selector": selector}});
    let last = |kind: &str, object: Value| row("apps", kind, object).rsplit(" | ").next().map(str::to_owned);
    let unknown = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    assert_eq!(last("ReplicaSet", with(json!({}))).as_deref(), Some("<none>"));
    assert_eq!(last("ReplicaSet", with(unknown.clone())).as_deref(), Some("<error>"));
    assert_eq!(last("Deployment", with(json!({}))).as_deref(), Some(""));
    assert_eq!(last("Deployment", with(unknown)).as_deref(), Some("<invalid>"));
}

#[test]
fn daemon_sets_count_nodes() {
    let status = json!({"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2, "numberAvailable": 1});
    let wanted = "x | 5 | 4 | 3 | 2 | 1 | disk=ssd | 90m | web,log | w:1,l:2 | app=web,!old,tier in (a,b)";
    assert_eq!(row("apps", "DaemonSet", workload(json!({}), status)), wanted);
}

#[test]
fn revisions_name_their_controller() {
    let revision = |owner: Value| row("apps", "ControllerRevision", json!({"revision": 4, "metadata": {"ownerReferences": [owner]}}));
    let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": true});
    assert_eq!(revision(owner), "x | statefulset.apps/db | 4 | 90m");
    assert_eq!(revision(json!({"apiVersion": "v1", "kind": "Pod", "name": "p"})), "x | <none> | 4 | 90m");
}

#[test]
fn jobs_tell_their_state_and_how_long_they_took() {
    let job = |spec: Value, status: Value| row("batch", "Job", json!({"spec": spec, "status": status}));
    let condition = |kind: &str| json!([{"type": kind, "status": "True"}]);
    let times = json!({"startTime": "2024-01-02T11:00:00Z", "completionTime": "2024-01-02T11:02:03Z", "succeeded": 3, "conditions": condition("Complete")});
    assert_eq!(job(json!({"completions": 3}), times), "x | Complete | 3/3 | 2m3s | 90m |  |  | <none>");
    let started = json!({"startTime": "2024-01-02T11:59:30Z", "conditions": []});
    assert_eq!(job(json!({"completions": 3}), started), "x | Running | 0/3 | 30s | 90m |  |  | <none>");
    assert_eq!(job(json!({"parallelism": 4}), json!({"succeeded": 1})), "x | Running | 1/1 of 4 |  | 90m |  |  | <none>");
    assert_eq!(job(json!({"parallelism": 1}), json!({"conditions": condition("Failed")})), "x | Failed | 0/1 |  | 90m |  |  | <none>");
    assert_eq!(job(json!({}), json!({"conditions": condition("Suspended")})), "x | Suspended | 0/1 |  | 90m |  |  | <none>");
    let deleted = json!({"metadata": {"deletionTimestamp": "2024-01-02T11:59:00Z"}});
    assert_eq!(row("batch", "Job", deleted), "x | Terminating | 0/1 |  | 90m |  |  | <none>");
}

#[test]
fn cron_jobs_tell_when_they_ran() {
    let spec = json!({"schedule": "*/5 * * * *", "suspend": false, "jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}});
    let status = json!({"active": [{}, {}], "lastScheduleTime": "2024-01-02T11:55:00Z"});
    assert_eq!(
        row("batch", "CronJob", json!({"spec": spec, "status": status})),
        "x | */5 * * * * | <none> | False | 2 | 5m | 90m | c | i | <none>"
    );
    assert_eq!(
        row("batch", "CronJob", json!({"spec": {"timeZone": "Etc/UTC"}})),
        "x |  | Etc/UTC | <unset> | 0 | <none> | 90m |  |  | <none>"
    );
}

#[test]
fn autoscalers_show_two_metrics() {
    let autoscaler = |metrics: Value, current: Value| {
        let spec = json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 8, "metrics": metrics});
        row("autoscaling", "HorizontalPodAutoscaler", json!({"spec": spec, "status": {"currentReplicas": 3, "currentMetrics": current}}))
    };
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
    let cpu_now = json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12}}});
    let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "100m"}}});
    let external = json!({"type": "External", "external": {"target": {"averageValue": "10"}}});
    assert_eq!(autoscaler(json!([]), json!([])), "x | Deployment/web | <none> | 2 | 8 | 3 | 90m");
    assert_eq!(autoscaler(json!([cpu]), json!([cpu_now])), "x | Deployment/web | cpu: 12%/80% | 2 | 8 | 3 | 90m");
    let three = autoscaler(json!([external, pods, cpu]), json!([]));
    assert_eq!(three, "x | Deployment/web | <unknown>/10 (avg), <unknown>/100m + 1 more... | 2 | 8 | 3 | 90m");
    let old = json!({"spec": {"targetCPUUtilizationPercentage": 50}, "status": {"currentCPUUtilizationPercentage": 7}});
    assert_eq!(row("autoscaling", "HorizontalPodAutoscaler", old), "x | / | cpu: 7%/50% | <unset> | 0 | 0 | 90m");
}

#[test]
fn disruption_budgets_take_numbers_and_percentages() {
    let budget = json!({"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}});
    assert_eq!(row("policy", "PodDisruptionBudget", budget), "x | 50% | N/A | 1 | 90m");
    assert_eq!(row("policy", "PodDisruptionBudget", json!({"spec": {"maxUnavailable": 2}})), "x | N/A | 2 | 0 | 90m");
}
