use super::*;

async fn with_config_maps(count: usize) -> Cluster {
    let cluster = cluster().await;
    for at in 0..count {
        let label = if at % 2 == 0 { "even" } else { "odd" };
        cluster.config_map(&format!("c{at:02}"), json!({"parity": label})).await;
    }
    cluster
}

/// A list has kind and version once for all items, in every form of the list.
#[tokio::test]
async fn items_bear_no_kind() {
    let cluster = with_config_maps(1).await;
    for path in [CONFIG_MAPS, "/api/v1/componentstatuses"] {
        for media in ["application/json", "application/yaml"] {
            let request = Request::builder().uri(path).header(header::ACCEPT, media).body(Body::empty()).expect("a request");
            let bytes = cluster.raw(request).await.into_body().collect().await.expect("a body").to_bytes();
            let list: Value = serde_yaml::from_slice(&bytes).expect("JSON is YAML");
            assert_eq!(list["apiVersion"], "v1", "{path} as {media}");
            let item = list["items"][0].as_object().expect("an item");
            assert!(item.contains_key("metadata") && !item.contains_key("kind") && !item.contains_key("apiVersion"), "{item:?}");
        }
    }
}

#[tokio::test]
async fn selectors_choose() {
    let cluster = with_config_maps(4).await;
    for (selector, expected) in [
        ("labelSelector=parity%3Deven", vec!["c00", "c02"]),
        ("labelSelector=parity+notin+(even)", vec!["c01", "c03"]),
        ("fieldSelector=metadata.name%3Dc03", vec!["c03"]),
        ("fieldSelector=metadata.name!%3Dc03,metadata.namespace%3Ddefault&labelSelector=parity", vec!["c00", "c01", "c02"]),
    ] {
        let list = cluster.get(&format!("{CONFIG_MAPS}?{selector}")).await.ok();
        assert_eq!(names(&list), expected, "{selector}");
    }
    let unknown = cluster.get(&format!("{CONFIG_MAPS}?fieldSelector=data.key%3Dx")).await;
    assert_eq!(unknown.status, StatusCode::BAD_REQUEST, "{unknown:?}");
    assert_eq!(cluster.get(&format!("{PODS}?fieldSelector=bogus%3Dx")).await.refusal(), (400, "field label not supported: bogus"));
}

/// For Pods an index finds objects by node name; other kinds have the field too.
#[tokio::test]
async fn node_names_select_in_every_kind() {
    let cluster = cluster().await;
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    let chosen = format!("{slices}?fieldSelector=spec.nodeName%3Dn1");
    let from = cluster.get(&chosen).await.ok()["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    let mut watch = super::watches::watch(&cluster, &format!("{chosen}&watch=true&resourceVersion={from}")).await;
    for node in ["n0", "n1"] {
        let pool = json!({"name": node, "resourceSliceCount": 1, "generation": 1});
        let spec = json!({"driver": "d.example.com", "pool": pool, "nodeName": node});
        let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec});
        cluster.post(slices, slice).await.ok();
    }
    assert_eq!(names(&cluster.get(&chosen).await.ok()), ["n1"]);
    assert_eq!(watch.next().await.expect("an event")["object"]["metadata"]["name"], "n1");
}

#[tokio::test]
async fn pages_are_of_one_moment() {
    let cluster = with_config_maps(5).await;
    let first = cluster.get(&format!("{CONFIG_MAPS}?limit=2")).await.ok();
    assert_eq!(names(&first), ["c00", "c01"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let revision = first["metadata"]["resourceVersion"].clone();
    // Later pages do not show changes since the first page.
    cluster.delete(&format!("{CONFIG_MAPS}/c02")).await.ok();
    cluster.config_map("c02a", json!({})).await;
    let page = |token: &Value| format!("{CONFIG_MAPS}?limit=2&continue={}", token.as_str().expect("a token"));
    let second = cluster.get(&page(&first["metadata"]["continue"])).await.ok();
    assert_eq!(names(&second), ["c02", "c03"]);
    assert_eq!(second["metadata"]["resourceVersion"], revision);
    let third = cluster.get(&page(&second["metadata"]["continue"])).await.ok();
    assert_eq!(names(&third), ["c04"]);
    assert!(third["metadata"].get("continue").is_none());
    assert_eq!(names(&cluster.get(CONFIG_MAPS).await.ok()), ["c00", "c01", "c02a", "c03", "c04"]);
    let selected = cluster.get(&format!("{CONFIG_MAPS}?limit=1&labelSelector=parity%3Deven")).await.ok();
    assert!(selected["metadata"]["continue"].is_string() && selected["metadata"].get("remainingItemCount").is_none());
}

#[tokio::test]
async fn the_past_can_be_listed_exactly() {
    let cluster = with_config_maps(2).await;
    let then = cluster.get(CONFIG_MAPS).await.ok()["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    cluster.delete(&format!("{CONFIG_MAPS}/c00")).await.ok();
    let exact = cluster.get(&format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")).await.ok();
    assert_eq!((names(&exact), exact["metadata"]["resourceVersion"].as_str()), (vec!["c00", "c01"], Some(then.as_str())));
    let core = cluster.server.core();
    core.cache.expire_lists(core.cache.applied());
    let expired = cluster.get(&format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=Exact")).await;
    assert_eq!(expired.refusal(), (410, "The resourceVersion for the provided list is too old."));
    let not_older = cluster.get(&format!("{CONFIG_MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan")).await.ok();
    assert_eq!(names(&not_older), ["c01"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_of_the_future_times_out() {
    let cluster = with_config_maps(1).await;
    let now = cluster.get(CONFIG_MAPS).await.ok()["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let answer = cluster.get(&format!("{CONFIG_MAPS}?resourceVersion=1000000")).await;
    let message = format!("Timeout: Too large resource version: 1000000, current: {now}");
    assert_eq!(answer.refusal(), (504, message.as_str()));
    assert_eq!(answer.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

#[tokio::test]
async fn a_token_that_is_too_old_comes_with_a_fresh_one() {
    let cluster = with_config_maps(3).await;
    let first = cluster.get(&format!("{CONFIG_MAPS}?limit=1")).await.ok();
    cluster.config_map("e00", json!({})).await;
    // A reset drops the history of changes.
    let resource = cluster.server.core().cache.resource(&api_model::kind::GroupResource::new("", "configmaps"));
    resource.reset(cluster.server.core().cache.applied(), Vec::new());
    cluster.config_map("d00", json!({})).await;
    let token = first["metadata"]["continue"].as_str().expect("a token");
    let gone = cluster.get(&format!("{CONFIG_MAPS}?limit=5&continue={token}")).await;
    assert_eq!(gone.status, StatusCode::GONE);
    let fresh = gone.body["metadata"]["continue"].as_str().expect("a token").to_owned();
    assert_eq!(names(&cluster.get(&format!("{CONFIG_MAPS}?limit=5&continue={fresh}")).await.ok()), ["d00"]);
}

/// As with etcd, whose history is compacted every five minutes.
#[tokio::test(start_paused = true)]
async fn a_token_is_good_for_five_to_ten_minutes() {
    let cluster = with_config_maps(3).await;
    let first = cluster.get(&format!("{CONFIG_MAPS}?limit=1")).await.ok();
    let next = format!("{CONFIG_MAPS}?limit=1&continue={}", first["metadata"]["continue"].as_str().expect("a token"));
    cluster.config_map("e00", json!({})).await;
    tokio::time::sleep(std::time::Duration::from_secs(299)).await;
    assert_eq!(names(&cluster.get(&next).await.ok()), ["c01"]);
    tokio::time::sleep(std::time::Duration::from_secs(302)).await;
    let gone = cluster.get(&next).await;
    assert_eq!((gone.status, &gone.body["reason"]), (StatusCode::GONE, &json!("Expired")));
    let fresh = gone.body["metadata"]["continue"].as_str().expect("a token");
    assert_eq!(names(&cluster.get(&format!("{CONFIG_MAPS}?continue={fresh}")).await.ok()), ["c01", "c02", "e00"]);
}

#[tokio::test]
async fn large_lists_are_compressed_on_request() {
    use std::io::Read;
    let cluster = cluster().await;
    for at in 0..4 {
        let mut body = config_map(&format!("c{at}"), json!({}));
        body["data"]["key"] = "x".repeat(50_000).into();
        cluster.post(CONFIG_MAPS, body).await.ok();
    }
    let request = Request::builder().uri(CONFIG_MAPS).header(header::ACCEPT_ENCODING, "gzip").body(Body::empty()).expect("a request");
    let (parts, body) = cluster.raw(request).await.into_parts();
    assert_eq!(parts.headers[header::CONTENT_ENCODING], "gzip");
    let bytes = body.collect().await.expect("a body").to_bytes();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).expect("gzip");
    assert!(bytes.len() < 10_000 && text.len() > 200_000, "{} of {}", bytes.len(), text.len());
    assert_eq!(names(&serde_json::from_str(&text).expect("JSON")), ["c0", "c1", "c2", "c3"]);
    let plain = cluster.get(CONFIG_MAPS).await.ok();
    assert_eq!(plain, serde_json::from_str::<Value>(&text).expect("JSON"));
}
