//! Bodies that are too large or too complex.

use super::*;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MIB: usize = 1 << 20;

/// A YAML bomb: nine references to the level below, on a dozen levels.
fn laughs() -> String {
    let mut bomb = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![below; 9].join(", ")));
    }
    bomb
}

#[tokio::test]
async fn a_body_over_the_limit_is_rejected_by_its_size() {
    let cluster = cluster().await;
    let long = config_map("c", json!({"x": "x".repeat(3 * MIB)})).to_string();
    for (method, path, media) in [
        (Method::POST, CONFIG_MAPS.to_owned(), "application/json"),
        (Method::PUT, format!("{CONFIG_MAPS}/c"), "application/json"),
        (Method::PATCH, format!("{CONFIG_MAPS}/c"), "application/merge-patch+json"),
        (Method::PATCH, format!("{CONFIG_MAPS}/c?fieldManager=m"), "application/apply-patch+yaml"),
        (Method::DELETE, format!("{CONFIG_MAPS}/c"), "application/json"),
    ] {
        let answer = quickly(cluster.request(method, &path, media, long.clone())).await;
        assert_eq!(answer.refusal(), (413, "Request entity too large: limit is 3145728"), "{path}");
        assert_eq!(answer.body["reason"], "RequestEntityTooLarge");
    }
}

/// A body without a length is not read beyond the limit.
#[tokio::test]
async fn a_body_without_end_is_read_to_the_limit() {
    let cluster = cluster().await;
    let read = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&read);
    let endless = futures::stream::repeat_with(move || {
        counted.fetch_add(MIB, std::sync::atomic::Ordering::Relaxed);
        Ok::<_, std::io::Error>(bytes::Bytes::from(vec![b' '; MIB]))
    });
    let answer = quickly(cluster.request(Method::POST, CONFIG_MAPS, "application/json", Body::from_stream(endless))).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(read.load(std::sync::atomic::Ordering::Relaxed) <= 5 * MIB, "{read:?}");
}

#[tokio::test]
async fn depth_and_aliases_are_bad_requests() {
    let cluster = cluster().await;
    cluster.config_map("c", json!({})).await;
    let deep = |open: &str, close: &str| format!("{{\"data\":{}{}}}", open.repeat(200_000), close.repeat(200_000));
    let in_yaml = |bomb: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: d}}\ndata:\n  x: 1\n{bomb}");
    let wide = format!("a: &a [{}]\nb: [{}]\n", "x, ".repeat(100_000), "*a, ".repeat(100_000));
    let merged = format!("a: &a {{{}}}\nb: {{<<: [{}]}}\n", "x: 1, ".repeat(1_000), "*a, ".repeat(100_000));
    let object = format!("{CONFIG_MAPS}/c");
    let applied = format!("{object}?fieldManager=m");
    let cases = [
        (Method::POST, CONFIG_MAPS, "application/json", deep("[", "]")),
        (Method::POST, CONFIG_MAPS, "application/json", deep("{\"a\":", "}")),
        (Method::POST, CONFIG_MAPS, "application/json", "[".repeat(MIB)),
        (Method::POST, CONFIG_MAPS, "application/yaml", "[".repeat(MIB)),
        (Method::POST, CONFIG_MAPS, "application/yaml", "- ".repeat(MIB)),
        (Method::POST, CONFIG_MAPS, "application/yaml", in_yaml(&laughs())),
        (Method::POST, CONFIG_MAPS, "application/yaml", in_yaml(&wide)),
        (Method::POST, CONFIG_MAPS, "application/yaml", in_yaml(&merged)),
        (Method::POST, CONFIG_MAPS, "application/yaml", "a: &a [*a]\n".to_owned()),
        (Method::PATCH, object.as_str(), "application/merge-patch+json", deep("{\"a\":", "}")),
        (Method::PATCH, object.as_str(), "application/strategic-merge-patch+json", deep("{\"a\":", "}")),
        (Method::PATCH, object.as_str(), "application/json-patch+json", "[".repeat(MIB)),
        (Method::PATCH, applied.as_str(), "application/apply-patch+yaml", in_yaml(&laughs())),
        (Method::PATCH, applied.as_str(), "application/apply-patch+yaml", in_yaml(&wide)),
    ];
    for (method, path, media, body) in cases {
        let answer = quickly(cluster.request(method, path, media, body.clone())).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{media} {} {answer:?}", body.get(..60).unwrap_or_default());
        assert!(answer.refusal().1.len() < 4_096, "an answer is not as long as the question");
    }
}

#[tokio::test]
async fn what_is_no_text_and_no_number_is_a_bad_request() {
    let cluster = cluster().await;
    let cases: [(&str, &[u8]); 7] = [
        ("application/yaml", b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: \"\xc3\x28\"}\n"),
        ("application/json", b"\xef\xbb\xbf{}"),
        ("application/json", b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\",\"generation\":1e999999}}"),
        ("application/json", b"null"),
        ("application/json", b"\0"),
        ("application/vnd.kubernetes.protobuf", b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("application/vnd.kubernetes.protobuf", b"{}"),
    ];
    for (media, body) in cases {
        let answer = quickly(cluster.request(Method::POST, CONFIG_MAPS, media, body.to_vec())).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{} {answer:?}", String::from_utf8_lossy(body));
    }
    assert_eq!(super::names(&cluster.get(CONFIG_MAPS).await.ok()).len(), 0);
}

/// As upstream's decoder does. A name with such characters is rejected because it is invalid.
#[tokio::test]
async fn halves_of_characters_are_replaced() {
    let cluster = cluster().await;
    for name in [&b"\xff\xfe"[..], b"\\ud800"] {
        let body = [b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"", name, b"\"}}"].concat();
        let answer = cluster.request(Method::POST, CONFIG_MAPS, "application/json", body).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{answer:?}");
    }
    let body = b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"},\"data\":{\"cut\":\"hi \\ud83d\"}}";
    let made = cluster.request(Method::POST, CONFIG_MAPS, "application/json", body.to_vec()).await.ok();
    assert_eq!(made["data"]["cut"], "hi \u{fffd}");
}

#[tokio::test]
async fn patches_that_explode_are_too_large() {
    let cluster = cluster().await;
    cluster.config_map("c", json!({})).await;
    let path = format!("{CONFIG_MAPS}/c");
    let add = json!({"op": "add", "path": "/data/a", "value": "x".repeat(1_000)});
    let double = |at: usize| json!({"op": "copy", "from": "/data", "path": format!("/data/{at}")});
    let doubling: Vec<Value> = std::iter::once(add.clone()).chain((0..64).map(double)).collect();
    let answer = quickly(cluster.patch(&path, "json", doubling.into())).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{answer:?}");
    assert!(answer.refusal().1.starts_with("Unable to complete the copy, the accumulated size increase of copy is "), "{answer:?}");
    let many = vec![json!({"op": "test", "path": "/data/key", "value": "value"}); 10_001];
    let answer = quickly(cluster.patch(&path, "json", many.into())).await;
    assert_eq!(answer.refusal(), (413, "The allowed maximum operations in a JSON patch is 10000, got 10001"));
    assert_eq!(answer.body["reason"], "RequestEntityTooLarge");
    // Many insertions at the beginning of a list.
    let mut shifting = vec![json!({"op": "add", "path": "/metadata/finalizers", "value": []})];
    shifting.extend((0..9_999).map(|at| json!({"op": "add", "path": "/metadata/finalizers/0", "value": format!("example.com/f{at}")})));
    let answer = quickly(cluster.patch(&path, "json", shifting.into())).await;
    assert!(answer.status.is_success() || answer.status.is_client_error(), "{answer:?}");
    let tower: Vec<Value> = (0..9_000)
        .flat_map(|at| {
            [
                json!({"op": "add", "path": "/x", "value": {"a": at}}),
                json!({"op": "move", "from": "/data", "path": "/x/a"}),
                json!({"op": "move", "from": "/x", "path": "/data"}),
            ]
        })
        .take(9_999)
        .collect();
    let answer = quickly(cluster.patch(&path, "json", tower.into())).await;
    assert!(answer.status.is_client_error(), "{answer:?}");
    assert_eq!(cluster.get(&path).await.ok()["data"], json!({"key": "value"}));
}

#[tokio::test]
async fn a_strategic_merge_of_long_lists_takes_time_in_proportion() {
    let cluster = cluster().await;
    cluster.pod("p", "").await;
    let conditions =
        |status: &str| -> Vec<Value> { (0..20_000).map(|at| json!({"type": format!("example.com/c{at}"), "status": status})).collect() };
    let path = format!("{PODS}/p/status");
    for status in ["True", "False"] {
        let patch = json!({"status": {"conditions": conditions(status)}});
        let answer = quickly(cluster.patch(&path, "strategic", patch)).await;
        assert!(answer.status.is_success() || answer.status.is_client_error(), "{:?}", answer.refusal());
    }
}

/// A selector with as many requirements as fit into a body, in an object whose selector is evaluated often.
#[tokio::test]
async fn a_selector_as_long_as_a_body_costs_little() {
    let cluster = cluster().await;
    cluster.service_account().await;
    let requirements: Vec<Value> = (0..60_000).map(|at| json!({"key": format!("k{at}"), "operator": "Exists"})).collect();
    let labels = json!({"a": "b"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": labels, "matchExpressions": requirements},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "image"}]}}}});
    let answer = quickly(cluster.post(DEPLOYMENTS, deployment)).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "the template's labels do not match");
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"}, "spec": {
        "podSelector": {"matchExpressions": requirements}}});
    quickly(cluster.post("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", policy)).await.ok();
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {
        "minAvailable": 1, "selector": {"matchExpressions": requirements}}});
    quickly(cluster.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)).await.ok();
    cluster.pod("p", "").await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let answer = quickly(cluster.post(&format!("{PODS}/p/eviction"), eviction)).await;
    assert!(answer.status.is_success(), "{answer:?}");
}

#[tokio::test]
async fn an_object_of_many_small_things_costs_little() {
    let cluster = cluster().await;
    let data: serde_json::Map<String, Value> = (0..60_000).map(|at| (format!("k{at}"), "".into())).collect();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data});
    quickly(cluster.request(Method::PATCH, &format!("{CONFIG_MAPS}/c?fieldManager=m"), "application/apply-patch+yaml", map.to_string()))
        .await
        .ok();
    let unknown: serde_json::Map<String, Value> = (0..100_000).map(|at| (format!("u{at}"), 1.into())).collect();
    let mut pod = pod("p");
    pod["spec"].as_object_mut().expect("a map").extend(unknown);
    cluster.service_account().await;
    let answer = quickly(cluster.post(&format!("{PODS}?fieldValidation=Strict"), pod.clone())).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.refusal().1.len() < 64 * 1_024, "{}", answer.refusal().1.len());
    let warned = quickly(cluster.post(PODS, pod)).await;
    let warnings: Vec<_> = warned.headers.get_all(header::WARNING).iter().collect();
    assert!(warnings.len() <= 64 && warnings.iter().map(|text| text.len()).sum::<usize>() <= 8 * 1_024, "{warnings:?}");
    warned.ok();
}

/// For each word the parser looks at the text before it. It must not read all of that text.
#[tokio::test]
async fn words_that_are_truth_values_in_yaml_cost_what_words_cost() {
    let cluster = cluster().await;
    let list = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {{a: [{}no]}}\n", "no,".repeat(500_000));
    let answer = quickly(cluster.request(Method::POST, CONFIG_MAPS, "application/yaml", list)).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}
