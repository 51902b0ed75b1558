//! Warnings about fields that are stored although nothing acts on them, and who gets the warnings of a kind.

use super::*;

const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
const SERVICE_CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";

fn warnings(answer: &Answer) -> Vec<String> {
    let all = answer.headers.get_all("warning").iter();
    all.map(|warning| warning.to_str().expect("text").trim_start_matches("299 - ").trim_matches('"').to_owned()).collect()
}

fn with_an_unused_field(name: &str) -> Value {
    let mut body = pod(name);
    body["spec"]["securityContext"] = json!({"seLinuxChangePolicy": "Recursive"});
    body
}

const UNUSED_FIELD: &str = "skiff: spec.securityContext.seLinuxChangePolicy is stored but nothing acts on it yet";

#[tokio::test]
async fn writers_of_fields_without_effect_get_a_warning() {
    let cluster = cluster().await;
    cluster.service_account().await;
    let dry = cluster.post(&format!("{PODS}?dryRun=All"), with_an_unused_field("p")).await;
    assert_eq!(warnings(&dry), [UNUSED_FIELD], "{dry:?}");
    let made = cluster.post(PODS, with_an_unused_field("p")).await;
    assert_eq!(warnings(&made), [UNUSED_FIELD]);
    made.ok();
    let labelled = cluster.patch(&format!("{PODS}/p"), "merge", json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(warnings(&labelled), [""; 0], "the field was there before");
    let plain = cluster.post(PODS, pod("q")).await;
    assert_eq!(warnings(&plain), [""; 0], "what the server fills in is no promise of its writer's");

    let policy =
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"}, "spec": {"podSelector": {}}});
    let made = cluster.post(POLICIES, policy).await;
    assert_eq!(warnings(&made), ["skiff: NetworkPolicies are stored but nothing enforces them yet"]);
    let change = json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}});
    let changed = cluster.patch(&format!("{POLICIES}/n"), "merge", change).await;
    assert_eq!(warnings(&changed).len(), 1);
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "s"}, "spec": {"cidrs": ["10.97.0.0/24"]}});
    assert_eq!(warnings(&cluster.post(SERVICE_CIDRS, range).await).len(), 1);
    let condition = json!({"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = cluster.patch(&format!("{SERVICE_CIDRS}/s/status"), "merge", json!({"status": {"conditions": [condition]}})).await;
    assert_eq!(warnings(&status), [""; 0]);
    status.ok();
}

#[tokio::test]
async fn the_clusters_own_parts_get_no_warning() {
    let cluster = cluster().await;
    cluster.service_account().await;
    let request = |name: &str| {
        let request = Request::builder().method(Method::POST).uri(PODS).header(header::CONTENT_TYPE, "application/json");
        request.body(Body::from(with_an_unused_field(name).to_string())).expect("a request")
    };
    for (name, user, wanted) in [
        ("p", "system:kube-controller-manager", vec![]),
        ("q", "system:serviceaccount:kube-system:replicaset-controller", vec![]),
        ("r", "system:serviceaccount:kube-system:default", vec![UNUSED_FIELD]),
        ("s", "system:serviceaccount:default:replicaset-controller", vec![UNUSED_FIELD]),
    ] {
        let made = json_of(send(&cluster.user(user, &["system:masters"]), request(name)).await).await;
        assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
        assert_eq!(warnings(&made), wanted, "{user}");
    }
}

#[tokio::test]
async fn a_status_is_written_without_warnings_about_the_spec() {
    let cluster = cluster().await;
    cluster.service_account().await;
    let mut body = pod("p");
    body["spec"]["nodeSelector"] = json!({"beta.kubernetes.io/os": "linux"});
    let made = warnings(&cluster.post(PODS, body).await);
    assert!(made.len() == 1 && made[0].starts_with("spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14"), "{made:?}");
    let labelled = cluster.patch(&format!("{PODS}/p"), "merge", json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(warnings(&labelled).len(), 1, "{labelled:?}");
    let status = cluster.patch(&format!("{PODS}/p/status"), "merge", json!({"status": {"message": "m"}})).await;
    assert_eq!((warnings(&status), &status.body["status"]["message"]), (Vec::new(), &json!("m")));
}
