use super::*;

fn newer_autoscaler() -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a", "namespace": "n"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 1, "maxReplicas": 4,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}},
                {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                {"type": "Pods", "pods": {"metric": {"name": "qps", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "AverageValue", "averageValue": "10"}}},
                {"type": "Object", "object": {"describedObject": {"kind": "Ingress", "name": "i"}, "metric": {"name": "hits"}, "target": {"type": "Value", "value": "5"}}},
                {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "3"}}},
                {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 50}}},
            ],
            "behavior": {"scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}},
        },
        "status": {
            "currentReplicas": 2, "desiredReplicas": 3,
            "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12, "averageValue": "3m"}}}],
            "conditions": [{"type": "AbleToScale", "status": "True"}],
        },
    })
}

#[test]
fn nothing_is_lost_on_the_way_through_the_older_version() {
    let mut older = newer_autoscaler();
    from_stored(&mut older);
    assert_eq!(older["apiVersion"], "autoscaling/v1");
    assert_eq!(older["spec"]["targetCPUUtilizationPercentage"], 70);
    assert_eq!(older["status"]["currentCPUUtilizationPercentage"], 12);
    assert!(older["spec"].get("metrics").is_none() && older["spec"].get("behavior").is_none(), "{older}");
    let note = older["metadata"]["annotations"][METRICS].as_str().expect("a note");
    assert!(note.contains(r#""targetAverageValue":"1Gi""#) && note.contains(r#""metricName":"qps""#), "{note}");
    to_stored(&mut older);
    assert_eq!(older, newer_autoscaler());
}

#[test]
fn a_percentage_is_a_metric_of_its_own() {
    let mut stored =
        json!({"spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}, "status": {"currentCPUUtilizationPercentage": 7}});
    to_stored(&mut stored);
    assert_eq!(
        stored["spec"]["metrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}])
    );
    assert_eq!(stored["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"], 7);
    let mut none = json!({"spec": {"maxReplicas": 3}});
    to_stored(&mut none);
    assert_eq!(none, json!({"apiVersion": "autoscaling/v2", "spec": {"maxReplicas": 3}}));
}

#[test]
fn notes_that_make_no_sense_are_dropped() {
    for note in ["", "nonsense", "5", "[5]", r#"[{"type": 7}]"#, r#"[{"type": "Pods", "pods": {"metricName": {}}}]"#] {
        let mut stored = json!({"metadata": {"annotations": {METRICS: note, "other": "stays"}}, "spec": {"maxReplicas": 3}});
        to_stored(&mut stored);
        assert_eq!(stored["spec"], json!({"maxReplicas": 3}), "{note}");
        assert_eq!(stored["metadata"]["annotations"], json!({"other": "stays"}), "{note}");
    }
}
