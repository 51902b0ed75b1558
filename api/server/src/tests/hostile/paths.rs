//! Paths and queries that try to reach other resources.

use super::*;

async fn status(cluster: &Cluster, method: Method, path: &str) -> (u16, String) {
    let answer = quickly(cluster.request(method, path, "application/json", Body::empty())).await;
    let (code, message) = answer.refusal();
    (code, message.to_owned())
}

#[tokio::test]
async fn paths_lead_nowhere_but_where_they_say() {
    let cluster = cluster().await;
    cluster.config_map("c", json!({})).await;
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    cluster.post(secrets, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})).await.ok();
    for (path, wanted) in [
        ("/api/v1/namespaces/default/configmaps/../../kube-system/secrets/s", 404),
        ("/api/v1/namespaces/default/configmaps/..%2f..%2fkube-system%2fsecrets%2fs", 404),
        ("/api/v1/namespaces/default%2f..%2fkube-system/secrets/s", 404),
        ("/api/v1/namespaces/../namespaces/kube-system/secrets/s", 404),
        ("/api/v1/namespaces/%2e%2e/secrets", 404),
        ("/api/v1/namespaces/kube-system%00/secrets/s", 404),
        ("/api/v1/namespaces/kube-system/secrets/s%00", 404),
        ("/api/v1/namespaces/kube-system/secrets/s%ff", 404),
        ("/api/v1/namespaces/kube-system/secrets/%c0%ae%c0%ae", 404),
        ("/api/v1/namespaces/kube-system//secrets/s", 404),
        ("/api//v1/namespaces/kube-system/secrets/s", 404),
        ("/api/v1/namespaces/kube-system/secrets/s/..", 404),
        ("/api/v1/namespaces/kube-system/secrets/s%", 404),
        ("/apis/../api/v1/namespaces/kube-system/secrets/s", 404),
        ("/openapi/v3/../../api/v1/namespaces/kube-system/secrets/s", 404),
        ("/api/v1/namespaces/kube-system/secret%73/s", 200),
    ] {
        let (code, message) = status(&cluster, Method::GET, path).await;
        assert_eq!(code, wanted, "{path}: {message}");
    }
    for (name, why) in [("..", "may not be '..'"), (".", "may not be '.'"), ("a%25b", "may not contain '%'")] {
        let decoded = name.replace("%25", "%");
        let wanted = (400, format!("Name parameter invalid: {decoded:?}: {why}"));
        for method in [Method::GET, Method::DELETE] {
            assert_eq!(status(&cluster, method, &format!("{CONFIG_MAPS}/{name}")).await, wanted);
        }
    }
}

#[tokio::test]
async fn a_broken_query_selects_nothing_and_deletes_nothing() {
    let cluster = cluster().await;
    cluster.config_map("c", json!({"a": "b"})).await;
    for query in [
        "labelSelector=a%3D%ff",
        "labelSelector=%zz",
        "labelSelector=a%3Db%",
        "fieldSelector=%ff",
        "fieldSelector=metadata.name%3Dc%5C",
        "labelSelector=a%3Db%00",
        "labelSelector=a%20in%20(b",
        "limit=x",
        "timeoutSeconds=99999999999999999999",
    ] {
        let path = format!("{CONFIG_MAPS}?{query}");
        for method in [Method::GET, Method::DELETE] {
            let (code, message) = status(&cluster, method.clone(), &path).await;
            assert_eq!(code, 400, "{method} {query}: {message}");
        }
    }
    let listed = cluster.get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3D%ff")).await.ok();
    assert_eq!(super::names(&listed).len(), 0);
    assert_eq!(super::names(&cluster.get(CONFIG_MAPS).await.ok()), ["c"]);
}

#[tokio::test]
async fn long_queries_are_bounded() {
    let cluster = cluster().await;
    cluster.config_map("c", json!({})).await;
    let many = |part: &str, count: usize| vec![part; count].join(",");
    let cases = [
        (format!("labelSelector={}", many("a", 10_001)), 400),
        (format!("fieldSelector={}", many("a%3D", 10_001)), 400),
        (format!("labelSelector=a%20in%20({})", many("b", 20_000)), 200),
        (format!("labelSelector={}a{}", "(".repeat(20_000), ")".repeat(20_000)), 400),
        (format!("fieldSelector={}", "%5C".repeat(20_000)), 400),
        (format!("continue={}", "A".repeat(50_000)), 400),
        (format!("resourceVersion={}", "9".repeat(50_000)), 422),
        (format!("fieldSelector={}%3D", "a.".repeat(20_000)), 400),
        (vec!["dryRun=All"; 5_000].join("&"), 200),
    ];
    for (query, wanted) in cases {
        let (code, message) = status(&cluster, Method::GET, &format!("{CONFIG_MAPS}?{query}")).await;
        let start = query.get(..60).unwrap_or_default();
        assert_eq!(code, wanted, "{start}: {}", message.get(..200).unwrap_or(&message));
        assert!(message.len() < 256 * 1_024, "{start}: {}", message.len());
    }
}
