use serde_json::{Value, json};

use crate::tests::row;

/// READY, STATUS and RESTARTS of a Pod.
fn summary(pod: Value) -> String {
    row("", "Pod", pod).split(" | ").skip(1).take(3).collect::<Vec<_>>().join(" | ")
}

fn pod(containers: &[Value], status: Value) -> Value {
    let spec: Vec<Value> = (0..containers.len()).map(|i| json!({"name": format!("c{i}")})).collect();
    let mut status = status;
    status["containerStatuses"] = containers.into();
    json!({"spec": {"containers": spec}, "status": status})
}

fn running(ready: bool) -> Value {
    json!({"ready": ready, "restartCount": 0, "state": {"running": {"startedAt": "2024-01-02T11:00:00Z"}}})
}

fn waiting(reason: &str) -> Value {
    json!({"ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}})
}

fn terminated(fields: Value) -> Value {
    json!({"ready": false, "restartCount": 0, "state": {"terminated": fields}})
}

#[test]
fn status_sums_up_the_containers() {
    let phase = |phase: &str| json!({"phase": phase});
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let cases = [
        (pod(&[], phase("Pending")), "0/0 | Pending | 0"),
        (pod(&[running(true)], phase("Running")), "1/1 | Running | 0"),
        (pod(&[running(true), running(false)], phase("Running")), "1/2 | Running | 0"),
        (pod(&[waiting("ContainerCreating")], phase("Pending")), "0/1 | ContainerCreating | 0"),
        (pod(&[waiting("CrashLoopBackOff")], phase("Running")), "0/1 | CrashLoopBackOff | 0"),
        (pod(&[waiting("ErrImagePull"), waiting("ImagePullBackOff")], phase("Pending")), "0/2 | ErrImagePull | 0"),
        (pod(&[terminated(json!({"exitCode": 0, "reason": "Completed"}))], phase("Succeeded")), "0/1 | Completed | 0"),
        (pod(&[terminated(json!({"exitCode": 1, "reason": "Error"}))], phase("Failed")), "0/1 | Error | 0"),
        (pod(&[terminated(json!({"exitCode": 3}))], phase("Failed")), "0/1 | ExitCode:3 | 0"),
        (pod(&[terminated(json!({"exitCode": 137, "signal": 9}))], phase("Failed")), "0/1 | Signal:9 | 0"),
        (pod(&[terminated(json!({"exitCode": 0, "reason": "Completed"})), running(true)], ready), "1/2 | Running | 0"),
        (pod(&[terminated(json!({"exitCode": 0, "reason": "Completed"})), running(true)], phase("Running")), "1/2 | NotReady | 0"),
        (pod(&[], json!({"phase": "Failed", "reason": "Evicted"})), "0/0 | Evicted | 0"),
        (
            pod(&[], json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]})),
            "0/0 | SchedulingGated | 0",
        ),
    ];
    for (pod, wanted) in cases {
        assert_eq!(summary(pod.clone()), wanted, "{pod}");
    }
}

#[test]
fn a_deleted_pod_is_terminating_until_it_has_ended() {
    let deleted = |status: Value| {
        let mut pod = pod(&[running(true)], status);
        pod["metadata"] = json!({"deletionTimestamp": "2024-01-02T11:59:00Z"});
        summary(pod)
    };
    assert_eq!(deleted(json!({"phase": "Running"})), "1/1 | Terminating | 0");
    assert_eq!(deleted(json!({"phase": "Succeeded"})), "1/1 | Succeeded | 0");
    assert_eq!(deleted(json!({"phase": "Running", "reason": "NodeLost"})), "1/1 | Unknown | 0");
}

#[test]
fn restarts_tell_when_the_last_was() {
    let mut first = running(true);
    first["restartCount"] = 2.into();
    first["lastState"] = json!({"terminated": {"finishedAt": "2024-01-02T11:55:00Z"}});
    let mut second = running(true);
    second["restartCount"] = 1.into();
    second["lastState"] = json!({"terminated": {"finishedAt": "2024-01-02T11:20:00Z"}});
    assert_eq!(summary(pod(&[first, second], json!({"phase": "Running"}))), "2/2 | Running | 3 (5m ago)");
}

fn with_init(specs: Value, statuses: Value, containers: &[Value]) -> Value {
    let mut pod = pod(containers, json!({"phase": "Pending", "initContainerStatuses": statuses}));
    pod["spec"]["initContainers"] = specs;
    pod
}

#[test]
fn init_containers_come_first() {
    let specs = json!([{"name": "a"}, {"name": "b"}]);
    let done = json!({"name": "a", "restartCount": 1, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    let cases = [
        (json!([{"name": "a", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}]), "0/1 | Init:0/2 | 0"),
        (json!([done, {"name": "b", "restartCount": 0, "state": {"running": {}}}]), "0/1 | Init:1/2 | 1"),
        (
            json!([{"name": "a", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]),
            "0/1 | Init:CrashLoopBackOff | 4",
        ),
        (json!([{"name": "a", "restartCount": 0, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]), "0/1 | Init:Error | 0"),
        (json!([{"name": "a", "restartCount": 0, "state": {"terminated": {"exitCode": 1}}}]), "0/1 | Init:ExitCode:1 | 0"),
        (json!([{"name": "a", "restartCount": 0, "state": {"terminated": {"exitCode": 1, "signal": 15}}}]), "0/1 | Init:Signal:15 | 0"),
    ];
    for (statuses, wanted) in cases {
        assert_eq!(summary(with_init(specs.clone(), statuses.clone(), &[waiting("PodInitializing")])), wanted, "{statuses}");
    }
    let both = json!([done, {"name": "b", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}]);
    assert_eq!(summary(with_init(specs, both, &[running(true)])), "1/1 | Pending | 0");
}

#[test]
fn init_containers_that_keep_running_count_as_containers() {
    let specs = json!([{"name": "proxy", "restartPolicy": "Always"}, {"name": "b"}]);
    let proxy = json!({"name": "proxy", "restartCount": 2, "ready": true, "started": true, "state": {"running": {}}});
    let done = json!({"name": "b", "restartCount": 5, "state": {"terminated": {"exitCode": 0}}});
    let half =
        with_init(specs.clone(), json!([proxy, {"name": "b", "restartCount": 5, "state": {"running": {}}}]), &[waiting("PodInitializing")]);
    assert_eq!(summary(half), "1/2 | Init:1/2 | 7");
    assert_eq!(summary(with_init(specs, json!([proxy, done]), &[running(true)])), "2/2 | Pending | 2");
}

#[test]
fn wide_columns_tell_where_the_pod_is() {
    let pod = json!({
        "spec": {"containers": [{"name": "c"}], "nodeName": "n1", "readinessGates": [{"conditionType": "a/b"}, {"conditionType": "c"}]},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": "10.244.0.5"}],
            "nominatedNodeName": "n2",
            "conditions": [{"type": "a/b", "status": "True"}, {"type": "c", "status": "False"}],
        },
    });
    assert_eq!(row("", "Pod", pod), "x | 0/1 | Running | 0 | 90m | 10.244.0.5 | n1 | n2 | 1/2");
    assert_eq!(row("", "Pod", json!({})), "x | 0/0 |  | 0 | 90m | <none> | <none> | <none> | <none>");
}

#[test]
fn pod_templates_show_what_they_hold() {
    let template = json!({"template": {
        "metadata": {"labels": {"b": "2", "a": "1"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j"}]},
    }});
    assert_eq!(row("", "PodTemplate", template), "x | c,d | i:1,j | a=1,b=2");
}
