use serde_json::json;

use crate::tests::{samples, text};

#[test]
fn an_autoscaler_has_its_families() {
    let autoscaler = json!({
        "metadata": {"name": "web", "namespace": "shop", "generation": 2, "creationTimestamp": "2026-10-14T03:00:00Z"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 10,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
                {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "100"}}},
                {"type": "Strange"},
            ],
        },
        "status": {
            "currentReplicas": 3,
            "desiredReplicas": 4,
            "currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 95, "averageValue": "190m"}}},
            ],
            "conditions": [{"type": "AbleToScale", "status": "True"}],
        },
    });
    insta::assert_snapshot!(text("autoscaling", "horizontalpodautoscalers", &autoscaler));
}

#[test]
fn budgets_quotas_ranges_and_leases_have_their_families() {
    let metadata = json!({"name": "x", "namespace": "shop"});
    let budget = json!({
        "metadata": metadata,
        "status": {"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": 1, "expectedPods": 3, "observedGeneration": 1},
    });
    let quota = json!({
        "metadata": metadata,
        "status": {"hard": {"requests.cpu": "2", "count/jobs.batch": "5"}, "used": {"requests.cpu": "250m"}},
    });
    let range = json!({
        "metadata": metadata,
        "spec": {"limits": [{
            "type": "Container",
            "min": {"cpu": "10m"}, "max": {"memory": "1Gi"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"},
            "maxLimitRequestRatio": {"cpu": "10"},
        }]},
    });
    let lease = json!({
        "metadata": {"name": "one", "namespace": "kube-node-lease", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "one", "uid": "u"},
        ]},
        "spec": {"holderIdentity": "one", "renewTime": "2026-10-14T03:00:00.123456Z"},
    });
    let free = json!({"metadata": metadata});
    insta::assert_snapshot!(
        [
            samples("policy", "poddisruptionbudgets", &budget),
            samples("", "resourcequotas", &quota),
            samples("", "limitranges", &range),
            samples("coordination.k8s.io", "leases", &lease),
            samples("coordination.k8s.io", "leases", &free),
        ]
        .concat()
    );
}
