//! Warnings about fields that are stored although nothing acts on them.

use super::*;

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";

fn warnings(answer: &Answer) -> Vec<String> {
    let all = answer.headers.get_all("warning").iter();
    all.map(|warning| warning.to_str().expect("text").trim_start_matches("299 - ").trim_matches('"').to_owned()).collect()
}

fn with_affinity(name: &str) -> Value {
    let mut body = pod(name);
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}});
    body["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    body
}

const AFFINITY: &str = "skiff: spec.affinity.podAntiAffinity is stored but nothing acts on it yet";

#[tokio::test]
async fn whoever_writes_a_field_that_nobody_acts_on_is_told() {
    let cluster = cluster().await;
    cluster.service_account().await;
    let dry = cluster.post(&format!("{PODS}?dryRun=All"), with_affinity("p")).await;
    assert_eq!(warnings(&dry), [AFFINITY], "{dry:?}");
    let made = cluster.post(PODS, with_affinity("p")).await;
    assert_eq!(warnings(&made), [AFFINITY]);
    made.ok();
    let labelled = cluster.patch(&format!("{PODS}/p"), "merge", json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(warnings(&labelled), [""; 0], "the field was there before");
    let plain = cluster.post(PODS, pod("q")).await;
    assert_eq!(warnings(&plain), [""; 0], "what the server fills in is no promise of its writer's");

    let template = json!({"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"},
        "spec": {"serviceName": "s", "selector": {"matchLabels": {"app": "s"}}, "template": template}});
    let made = cluster.post(SETS, set).await;
    assert_eq!(warnings(&made), ["skiff: StatefulSets are stored but no controller acts on them yet"]);
    let scaled = cluster.patch(&format!("{SETS}/s"), "merge", json!({"spec": {"replicas": 2}})).await;
    assert_eq!(warnings(&scaled).len(), 1);
    let status = cluster.patch(&format!("{SETS}/s/status"), "merge", json!({"status": {"replicas": 2}})).await;
    assert_eq!(warnings(&status), [""; 0]);
}

#[tokio::test]
async fn the_clusters_own_parts_are_not_told() {
    let cluster = cluster().await;
    cluster.service_account().await;
    let request = |name: &str| {
        let request = Request::builder().method(Method::POST).uri(PODS).header(header::CONTENT_TYPE, "application/json");
        request.body(Body::from(with_affinity(name).to_string())).expect("a request")
    };
    for (name, user, wanted) in [
        ("p", "system:kube-controller-manager", vec![]),
        ("q", "system:serviceaccount:kube-system:replicaset-controller", vec![]),
        ("r", "system:serviceaccount:kube-system:default", vec![AFFINITY]),
        ("s", "system:serviceaccount:default:replicaset-controller", vec![AFFINITY]),
    ] {
        let made = json_of(send(&cluster.user(user, &["system:masters"]), request(name)).await).await;
        assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
        assert_eq!(warnings(&made), wanted, "{user}");
    }
}
