use std::time::Duration;

use super::*;

/// A running watch, line by line.
pub(super) struct Watch {
    body: Body,
    buffer: Vec<u8>,
}

impl Watch {
    /// The next event; `None` when the stream has ended.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("JSON"));
            }
            let frame = tokio::time::timeout(Duration::from_secs(7_200), self.body.frame()).await.expect("in time")?;
            self.buffer.extend_from_slice(&frame.expect("a frame").into_data().expect("data"));
        }
    }

    /// Type and name of the next event.
    async fn next_event(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

pub(super) async fn watch(cluster: &Cluster, path: &str) -> Watch {
    watch_as(cluster, path, "application/json").await
}

async fn watch_as(cluster: &Cluster, path: &str, accept: &str) -> Watch {
    let request = Request::builder().uri(path).header(header::ACCEPT, accept).body(Body::empty()).expect("a request");
    let response = cluster.raw(request).await;
    assert_eq!(response.status(), StatusCode::OK);
    Watch { body: response.into_body(), buffer: Vec::new() }
}

fn event(word: &str, name: &str) -> (String, String) {
    (word.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_tells_what_is_and_what_happens() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    let mut watch = watch(&cluster, &format!("{CONFIG_MAPS}?watch=true")).await;
    assert_eq!(watch.next_event().await, event("ADDED", "a"));
    let b = cluster.config_map("b", json!({})).await;
    let mut changed = b.clone();
    changed["data"]["key"] = "x".into();
    let updated = cluster.put(&format!("{CONFIG_MAPS}/b"), &changed).await.ok();
    cluster.delete(&format!("{CONFIG_MAPS}/a")).await.ok();
    assert_eq!(watch.next().await.expect("an event"), json!({"type": "ADDED", "object": b}));
    assert_eq!(watch.next().await.expect("an event"), json!({"type": "MODIFIED", "object": updated}));
    let gone = watch.next().await.expect("an event");
    assert_eq!((&gone["type"], &gone["object"]["metadata"]["name"]), (&json!("DELETED"), &json!("a")));
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse::<u64>().ok());
    assert!(version(&gone["object"]) > version(&updated), "{gone}");
}

#[tokio::test]
async fn a_watch_resumes_where_another_ended() {
    let cluster = cluster().await;
    let a = cluster.config_map("a", json!({})).await;
    cluster.config_map("b", json!({})).await;
    cluster.delete(&format!("{CONFIG_MAPS}/a")).await.ok();
    let from = a["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut watch = watch(&cluster, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(watch.next_event().await, event("ADDED", "b"));
    assert_eq!(watch.next_event().await, event("DELETED", "a"));
}

#[tokio::test]
async fn selector_transitions_are_additions_and_deletions() {
    let cluster = cluster().await;
    let mut object = cluster.config_map("a", json!({"app": "x"})).await;
    let mut watch = watch(&cluster, &format!("{CONFIG_MAPS}?watch=1&labelSelector=app%3Dx")).await;
    assert_eq!(watch.next_event().await, event("ADDED", "a"));
    for (label, expected) in [("y", "DELETED"), ("z", ""), ("x", "ADDED"), ("x2", "DELETED")] {
        object["metadata"]["labels"]["app"] = label.into();
        object["metadata"]["resourceVersion"] = Value::Null;
        cluster.put(&format!("{CONFIG_MAPS}/a"), &object).await.ok();
        if !expected.is_empty() {
            assert_eq!(watch.next_event().await, event(expected, "a"), "{label}");
        }
    }
}

#[tokio::test]
async fn a_node_sees_the_pods_bound_to_it() {
    let cluster = cluster().await;
    let mut watch = watch(&cluster, "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1").await;
    cluster.pod("elsewhere", "n2").await;
    cluster.pod("waiting", "").await;
    cluster.pod("here", "n1").await;
    assert_eq!(watch.next_event().await, event("ADDED", "here"));
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waiting"}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(cluster.post(&format!("{PODS}/waiting/binding"), binding).await.status, StatusCode::CREATED);
    assert_eq!(watch.next_event().await, event("ADDED", "waiting"));
    cluster.delete(&format!("{PODS}/here?gracePeriodSeconds=0")).await.ok();
    assert_eq!(watch.next_event().await, event("DELETED", "here"));
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = watch(&cluster, &format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(watch.next_event().await, event("ADDED", "a"));
    let bookmark = watch.next().await.expect("an event");
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let list = cluster.get(CONFIG_MAPS).await.ok();
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], list["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_at_the_end() {
    let cluster = cluster().await;
    let from = cluster.config_map("a", json!({})).await["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=90");
    let mut watch = watch(&cluster, &path).await;
    let started = tokio::time::Instant::now();
    for seconds in [60, 90] {
        assert_eq!(watch.next().await.expect("an event")["type"], "BOOKMARK");
        assert_eq!(started.elapsed().as_secs(), seconds);
    }
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_version_that_is_forgotten_is_gone() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    let core = cluster.server.core();
    let now = core.cache.applied();
    core.cache.resource(&api_model::kind::GroupResource::new("", "configmaps")).reset(now, Vec::new());
    let mut watch = watch(&cluster, &format!("{CONFIG_MAPS}?watch=1&resourceVersion=1")).await;
    let event = watch.next().await.expect("an event");
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(event["object"]["message"], format!("too old resource version: 1 ({now})"));
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_ended() {
    let cluster = cluster().await;
    let mut watch = watch(&cluster, &format!("{CONFIG_MAPS}?watch=1")).await;
    let mut object = cluster.config_map("a", json!({})).await;
    for at in 0..1_100 {
        object["data"]["key"] = at.to_string().into();
        object["metadata"]["resourceVersion"] = Value::Null;
        cluster.put(&format!("{CONFIG_MAPS}/a"), &object).await.ok();
    }
    let mut seen = 0;
    while watch.next().await.is_some() {
        seen += 1;
    }
    assert_eq!(seen, 1_024);
}

#[tokio::test]
async fn tables_are_watched_too() {
    let cluster = cluster().await;
    let mut watch = watch_as(&cluster, &format!("{CONFIG_MAPS}?watch=1"), "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    cluster.config_map("a", json!({})).await;
    cluster.config_map("b", json!({})).await;
    let first = watch.next().await.expect("an event");
    assert_eq!((&first["object"]["kind"], &first["object"]["rows"][0]["cells"][0]), (&json!("Table"), &json!("a")));
    assert!(first["object"]["columnDefinitions"].is_array());
    assert!(watch.next().await.expect("an event")["object"]["columnDefinitions"].is_null());
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let mut watch = watch_as(&cluster, &format!("{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Db"), metadata).await;
    let event = watch.next().await.expect("an event");
    assert_eq!((&event["object"]["kind"], &event["object"]["metadata"]["name"]), (&json!("PartialObjectMetadata"), &json!("b")));
    assert!(event["object"].get("data").is_none(), "{event}");
}

#[tokio::test]
async fn watches_end_when_the_server_stops() {
    let cluster = cluster().await;
    let mut watch = watch(&cluster, &format!("{CONFIG_MAPS}?watch=1")).await;
    cluster.server.shutdown().await;
    assert_eq!(watch.next().await, None);
}

/// Concurrent writers and watchers: each watcher gets all events in the same order, and its last event matches the
/// stored object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_watchers_receive_the_same_without_a_gap() {
    let directory = tempfile::tempdir().expect("a directory");
    let sqlite = api_store::SqliteStore::open(api_store::SqliteConfig::new(directory.path().join("db"))).await.expect("opens");
    for store in [Arc::new(MemoryStore::new()) as Arc<dyn Store>, Arc::new(sqlite)] {
        let cluster = Arc::new(cluster_on(store).await);
        for name in ["a", "b", "c"] {
            cluster.config_map(name, json!({})).await;
        }
        let from = cluster.get(CONFIG_MAPS).await.ok()["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
        let mut watches = Vec::new();
        for _ in 0..4 {
            watches.push(watch(&cluster, &format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await);
        }
        let writers = (0..6).map(|writer| {
            let cluster = Arc::clone(&cluster);
            tokio::spawn(async move {
                for at in 0..30 {
                    let path = format!("{CONFIG_MAPS}/{}", ["a", "b", "c"][(writer + at) % 3]);
                    let patch = json!({"data": {format!("w{writer}"): at.to_string()}});
                    let written = cluster.patch(&path, "merge", patch).await.ok();
                    let read = cluster.get(&path).await.ok();
                    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse::<u64>().ok());
                    assert!(version(&read) >= version(&written), "a read sees the write before it");
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.expect("no panic");
        }
        let mut stories = Vec::new();
        for mut watch in watches {
            let mut story = Vec::new();
            for _ in 0..180 {
                story.push(watch.next().await.expect("an event")["object"].clone());
            }
            stories.push(story);
        }
        assert!(stories.windows(2).all(|pair| pair[0] == pair[1]));
        let versions: Vec<u64> = stories[0]
            .iter()
            .map(|object| object["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number"))
            .collect();
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
        for stored in cluster.get(CONFIG_MAPS).await.ok()["items"].as_array().expect("a list") {
            let last = stories[0].iter().rfind(|object| object["metadata"]["name"] == stored["metadata"]["name"]);
            assert_eq!(last.map(|last| (&last["metadata"], &last["data"])), Some((&stored["metadata"], &stored["data"])));
        }
    }
}

#[tokio::test]
async fn a_watch_may_ask_for_any_time() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    let mut watch = watch(&cluster, &format!("{CONFIG_MAPS}?watch=true&timeoutSeconds={}", i64::MAX)).await;
    assert_eq!(watch.next_event().await, event("ADDED", "a"));
}

/// The path of a watch may name one object. A user with the right to watch that object gets no other objects.
#[tokio::test]
async fn a_watch_by_path_shows_the_named_object_alone() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    cluster.config_map("b", json!({})).await;
    let path = "/api/v1/watch/namespaces/default/configmaps";
    let mut one = watch(&cluster, &format!("{path}/b")).await;
    assert_eq!(one.next_event().await, event("ADDED", "b"));
    cluster.delete(&format!("{CONFIG_MAPS}/a")).await.ok();
    cluster.delete(&format!("{CONFIG_MAPS}/b")).await.ok();
    assert_eq!(one.next_event().await, event("DELETED", "b"));
    let mut namespace = watch(&cluster, "/api/v1/watch/namespaces/default").await;
    assert_eq!(namespace.next_event().await, event("ADDED", "default"));
    assert_eq!(cluster.post(path, config_map("c", json!({}))).await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(cluster.get("/api/v1/watch/namespaces/default/pods/p/log").await.status, StatusCode::NOT_FOUND);
}
