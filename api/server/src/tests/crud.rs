use super::*;

#[tokio::test]
async fn an_object_lives_from_create_to_delete() {
    let cluster = cluster().await;
    let created = cluster.config_map("a", json!({})).await;
    assert_eq!(created["kind"], "ConfigMap");
    assert_eq!(created["metadata"]["namespace"], "default");
    assert_eq!(created["metadata"]["uid"].as_str().map(str::len), Some(36));
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(cluster.get(&path).await.ok(), created);
    let mut changed = created.clone();
    changed["data"]["key"] = "other".into();
    let updated = cluster.put(&path, &changed).await.ok();
    assert_eq!(updated["data"]["key"], "other");
    assert_ne!(updated["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    assert_eq!(updated["metadata"]["uid"], created["metadata"]["uid"]);
    let deleted = cluster.delete(&path).await.ok();
    assert_eq!(deleted["status"], "Success");
    assert_eq!(deleted["details"], json!({"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}));
    assert_eq!(cluster.get(&path).await.refusal(), (404, "configmaps \"a\" not found"));
}

#[tokio::test]
async fn every_served_kind_lists() {
    let cluster = cluster().await;
    for kind in api_model::kind::builtin().iter().filter(|kind| kind.allows("list") && !kind.is_delegable()) {
        let root = if kind.group.is_empty() { "api" } else { "apis" };
        let path = format!("/{root}/{}/{}", kind.api_version(), kind.plural);
        let list = cluster.get(&path).await.ok();
        assert_eq!(list["kind"], format!("{}List", kind.kind), "{path}");
        assert!(list["metadata"]["resourceVersion"].as_str().is_some_and(|rv| rv != "0"), "{path}");
    }
}

#[tokio::test]
async fn a_stale_update_is_a_conflict() {
    let cluster = cluster().await;
    let created = cluster.config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a");
    let mut first = created.clone();
    first["data"]["key"] = "first".into();
    cluster.put(&path, &first).await.ok();
    let mut second = created.clone();
    second["data"]["key"] = "second".into();
    let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest \
                   version and try again";
    assert_eq!(cluster.put(&path, &second).await.refusal(), (409, message));
    second["metadata"]["resourceVersion"] = Value::Null;
    assert_eq!(cluster.put(&path, &second).await.ok()["data"]["key"], "second");
    second["metadata"]["uid"] = "other".into();
    let (code, message) = (cluster.put(&path, &second).await.status, "Precondition failed: UID in precondition: other");
    assert_eq!(code, StatusCode::CONFLICT);
    assert!(cluster.put(&path, &second).await.refusal().1.contains(message));
}

#[tokio::test]
async fn an_update_that_changes_nothing_writes_nothing() {
    let cluster = cluster().await;
    let created = cluster.config_map("a", json!({})).await;
    let updated = cluster.put(&format!("{CONFIG_MAPS}/a"), &created).await.ok();
    assert_eq!(updated["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn bodies_that_do_not_fit_the_path_are_rejected_in_upstreams_words() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    let with = |change: fn(&mut Value)| {
        let mut body = config_map("b", json!({}));
        change(&mut body);
        body
    };
    let cases = [
        (
            with(|b| b["metadata"]["namespace"] = "other".into()),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            with(|b| b["apiVersion"] = "apps/v1".into()),
            400,
            "the API version in the data (apps/v1) does not match the expected API version (v1)",
        ),
        (with(|b| b["metadata"]["resourceVersion"] = "1".into()), 400, "resourceVersion should not be set on objects to be created"),
        (with(|b| b["metadata"]["name"] = "a".into()), 409, "configmaps \"a\" already exists"),
    ];
    for (body, code, message) in cases {
        assert_eq!(cluster.post(CONFIG_MAPS, body.clone()).await.refusal(), (code, message), "{body}");
    }
    let renamed = cluster.put(&format!("{CONFIG_MAPS}/a"), &config_map("b", json!({}))).await;
    assert_eq!(renamed.refusal(), (400, "the name of the object (b) does not match the name on the URL (a)"));
    let nameless = cluster.post(CONFIG_MAPS, with(|b| b["metadata"]["name"] = Value::Null)).await;
    assert_eq!(nameless.status, StatusCode::UNPROCESSABLE_ENTITY, "{nameless:?}");
    assert!(nameless.refusal().1.contains("metadata.name: Required value: name or generateName is required"), "{nameless:?}");
    let elsewhere = cluster.post("/api/v1/namespaces/nowhere/configmaps", config_map("a", json!({}))).await;
    assert_eq!(elsewhere.refusal(), (404, "namespaces \"nowhere\" not found"));
}

#[tokio::test]
async fn unknown_fields_are_warned_of_ignored_or_rejected() {
    let cluster = cluster().await;
    let mut body = config_map("a", json!({}));
    body["bogus"] = 1.into();
    let path = |mode: &str| format!("{CONFIG_MAPS}?fieldValidation={mode}");
    let strict = cluster.post(&path("Strict"), body.clone()).await;
    assert_eq!(strict.status, StatusCode::BAD_REQUEST);
    assert!(strict.refusal().1.contains("strict decoding error: unknown field \"bogus\""), "{strict:?}");
    let warned = cluster.post(&path("Warn"), body.clone()).await;
    assert_eq!(warned.headers.get("warning").and_then(|w| w.to_str().ok()), Some("299 - \"unknown field \\\"bogus\\\"\""));
    assert!(warned.ok().get("bogus").is_none());
    body["metadata"]["name"] = "b".into();
    assert!(cluster.post(&path("Ignore"), body).await.headers.get("warning").is_none());
}

#[tokio::test]
async fn generated_names_are_made_by_the_server() {
    let cluster = cluster().await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "web-"}});
    let first = cluster.post(CONFIG_MAPS, body.clone()).await.ok();
    let second = cluster.post(CONFIG_MAPS, body).await.ok();
    for object in [&first, &second] {
        assert!(object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("web-") && name.len() == 9), "{object}");
    }
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
}

#[tokio::test]
async fn a_job_knows_its_own_uid() {
    let cluster = cluster().await;
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "j-"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let job = cluster.post("/apis/batch/v1/namespaces/default/jobs", job).await.ok();
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["batch.kubernetes.io/controller-uid"], job["metadata"]["uid"]);
    assert_eq!(labels["batch.kubernetes.io/job-name"], job["metadata"]["name"]);
}

#[tokio::test]
async fn a_dry_run_leaves_no_trace() {
    let cluster = cluster().await;
    let before = cluster.get(CONFIG_MAPS).await.ok()["metadata"]["resourceVersion"].clone();
    let created = cluster.post(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("a", json!({}))).await.ok();
    assert_eq!(created["metadata"]["name"], "a");
    assert_eq!(cluster.get(&format!("{CONFIG_MAPS}/a")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(cluster.get(CONFIG_MAPS).await.ok()["metadata"]["resourceVersion"], before);
    let refused = cluster.post(&format!("{CONFIG_MAPS}?dryRun=Some"), config_map("a", json!({}))).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn yaml_goes_in_and_out() {
    let cluster = cluster().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  key: value\n";
    cluster.request(Method::POST, CONFIG_MAPS, "application/yaml", yaml).await.ok();
    let answer = cluster.get_as(&format!("{CONFIG_MAPS}/a"), "application/yaml").await.ok();
    assert!(answer.as_str().is_some_and(|text| text.contains("\n  key: value\n")), "{answer}");
}

#[tokio::test]
async fn media_that_nobody_understands_are_rejected() {
    let cluster = cluster().await;
    let cbor = cluster.request(Method::POST, CONFIG_MAPS, "application/cbor", "k8s").await;
    assert_eq!(cbor.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let wanted = cluster.get_as(CONFIG_MAPS, "application/cbor").await;
    assert_eq!(wanted.status, StatusCode::NOT_ACCEPTABLE);
    let large = cluster.request(Method::POST, CONFIG_MAPS, "application/json", vec![b' '; 3 * 1024 * 1024 + 1]).await;
    assert_eq!(large.refusal(), (413, "Request entity too large: limit is 3145728"));
    let broken = cluster.request(Method::POST, CONFIG_MAPS, "application/json", "{").await;
    assert_eq!(broken.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn paths_and_methods_that_mean_nothing_get_upstreams_status() {
    let cluster = cluster().await;
    let missing = "the server could not find the requested resource";
    for path in [
        "/api/v1/bogus",
        "/apis/bogus/v1/things",
        "/api/v1/pods/x",
        "/api/v1/namespaces/default/nodes",
        "/bogus",
        "/api/v1/namespaces/default/pods/x/bogus",
    ] {
        assert_eq!(cluster.get(path).await.refusal(), (404, missing), "{path}");
    }
    let denied = "the server does not allow this method on the requested resource";
    assert_eq!(cluster.post("/api/v1/pods", pod("x")).await.refusal(), (405, denied));
    assert_eq!(cluster.delete("/api/v1/namespaces").await.refusal(), (405, denied));
}

#[tokio::test]
async fn a_put_creates_kinds_that_allow_it() {
    let cluster = cluster().await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    assert_eq!(cluster.put(path, &lease).await.status, StatusCode::CREATED);
    let refused = cluster.put(path, &lease).await;
    assert!(refused.refusal().1.contains("metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"), "{refused:?}");
    assert_eq!(cluster.put(&format!("{CONFIG_MAPS}/none"), &config_map("none", json!({}))).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn events_of_both_groups_are_the_same_objects() {
    let cluster = cluster().await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "R", "message": "text", "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    cluster.post("/api/v1/namespaces/default/events", event).await.ok();
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let seen = cluster.get(&format!("{path}/e")).await.ok();
    assert_eq!((&seen["apiVersion"], &seen["note"], &seen["regarding"]["name"]), (&json!("events.k8s.io/v1"), &json!("text"), &json!("p")));
    let listed = cluster.get(&format!("{path}?fieldSelector=regarding.name%3Dp")).await.ok();
    assert_eq!((names(&listed), &listed["items"][0]["note"]), (vec!["e"], &json!("text")));
    assert_eq!(names(&cluster.get("/api/v1/events?fieldSelector=involvedObject.name%3Dq").await.ok()), Vec::<&str>::new());
}

/// The code does not make clients retry soon, and nobody takes it for a defect of the server.
#[tokio::test]
async fn a_full_store_has_a_status_code_of_its_own() {
    let full = api_store::StoreError::DiskFull { path: "/data/state.db".to_owned() };
    for (error, words) in [
        (full, "no space left on the disk of /data/state.db"),
        (api_store::StoreError::SpaceExceeded, "etcdserver: mvcc: database space exceeded"),
    ] {
        let answer = json_of(api_wire::status::ApiError::from(error).into_response()).await;
        assert_eq!(answer.refusal(), (507, format!("Internal error occurred: {words}").as_str()));
        assert_eq!((&answer.body["reason"], &answer.body["code"]), (&json!("InternalError"), &json!(507)));
        assert!(answer.body["details"]["retryAfterSeconds"].is_null() && !answer.headers.contains_key(header::RETRY_AFTER), "{answer:?}");
    }
}

#[tokio::test]
async fn a_selector_with_nothing_beside_a_comma_deletes_nothing() {
    let cluster = cluster().await;
    cluster.config_map("kept", json!({})).await;
    for selector in [",", "a,", ",a", "a,,b"] {
        let refused = cluster.delete(&format!("{CONFIG_MAPS}?labelSelector={selector}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{refused:?}");
    }
    cluster.get(&format!("{CONFIG_MAPS}/kept")).await.ok();
}

#[tokio::test]
async fn a_head_is_answered_without_a_body() {
    let cluster = cluster().await;
    for path in ["/api/v1/namespaces/default", "/api/v1/namespaces/none", "/version", "/healthz", CONFIG_MAPS] {
        let request = |method: Method| Request::builder().method(method).uri(path).body(Body::empty()).expect("a request");
        let got = cluster.raw(request(Method::GET)).await;
        let (parts, body) = cluster.raw(request(Method::HEAD)).await.into_parts();
        assert_eq!(parts.status, got.status(), "{path}");
        let length = parts.headers.get(header::CONTENT_LENGTH).map(|length| length.to_str().expect("text").to_owned());
        assert_eq!(length, http_body::Body::size_hint(got.body()).exact().map(|length| length.to_string()), "{path}");
        assert!(body.collect().await.expect("a body").to_bytes().is_empty(), "{path}");
    }
}

#[tokio::test]
async fn a_timeout_in_the_query_is_looked_at() {
    let cluster = cluster().await;
    for path in [CONFIG_MAPS, "/version"] {
        let refused = cluster.get(&format!("{path}?timeout=invalid")).await;
        let message = "invalid timeout specified in the request URL - time: invalid duration \"invalid\"";
        assert_eq!(refused.refusal(), (400, message));
        cluster.get(&format!("{path}?timeout=32s")).await.ok();
    }
    let watch = Request::builder().uri(format!("{CONFIG_MAPS}?watch=1&timeout=invalid")).body(Body::empty()).expect("a request");
    assert_eq!(cluster.raw(watch).await.status(), StatusCode::OK, "a watch has none");
}

#[tokio::test]
async fn managers_of_events_own_the_fields_of_the_version_that_they_speak() {
    let cluster = cluster().await;
    let (new, core) = ("/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/namespaces/default/events");
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "regarding": {"kind": "Pod", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/c", "reportingInstance": "i", "action": "A",
        "reason": "R", "type": "Normal", "note": "text",
    });
    cluster.post(&format!("{new}?fieldManager=one"), event).await.ok();
    cluster.patch(&format!("{core}/e?fieldManager=two"), "merge", json!({"count": 3})).await.ok();
    for path in [new, core] {
        let entries = cluster.get(&format!("{path}/e")).await.ok()["metadata"]["managedFields"].clone();
        let managers: Vec<_> = entries.as_array().expect("entries").iter().map(|entry| (&entry["manager"], &entry["apiVersion"])).collect();
        assert_eq!(managers, [(&json!("one"), &json!("events.k8s.io/v1")), (&json!("two"), &json!("v1"))], "{path}");
        let (one, two) = (&entries[0]["fieldsV1"], &entries[1]["fieldsV1"]);
        assert!(one["f:regarding"].is_object() && one["f:note"].is_object() && one["f:message"].is_null(), "{one}");
        assert!(two["f:count"].is_object() && two["f:deprecatedCount"].is_null(), "{two}");
    }
}

#[tokio::test]
async fn an_event_of_the_newer_group_follows_that_groups_rules() {
    let cluster = cluster().await;
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = |more: Value| {
        let mut event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "regarding": {"kind": "Pod", "namespace": "default"},
            "eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "a.b/c", "reportingInstance": "i", "action": "A",
            "reason": "R", "type": "Normal",
        });
        event.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        event
    };
    for (more, wanted) in [
        (json!({"eventTime": null}), "eventTime: Required value"),
        (json!({"type": "Foo"}), "type: Invalid value: \"\": has invalid value: Foo"),
        (json!({"deprecatedCount": 1}), "count: Invalid value: \"\": needs to be unset"),
    ] {
        let refused = cluster.post(events, event(more)).await;
        assert_eq!(refused.refusal(), (422, format!("Event.events.k8s.io \"e\" is invalid: {wanted}").as_str()));
    }
    cluster.post(events, event(json!({}))).await.ok();
    let path = format!("{events}/e");
    let series = json!({"series": {"count": 2, "lastObservedTime": "2024-01-01T00:00:01.000000Z"}});
    assert_eq!(cluster.patch(&path, "merge", series).await.ok()["series"]["count"], 2);
    let refused = cluster.patch(&path, "merge", json!({"note": "other"})).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{refused:?}");
    // In the older group, these fields are optional and may change.
    let core =
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "c"}, "involvedObject": {"namespace": "default"}, "type": "Foo"});
    cluster.post("/api/v1/namespaces/default/events", core).await.ok();
}
