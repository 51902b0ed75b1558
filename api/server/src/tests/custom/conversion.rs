//! Versions of a custom resource with a conversion webhook. In `v1` a widget has a size, in `v2` it has dimensions;
//! `v1` is stored.

use super::super::policies::apply;
use super::super::watches::watch;
use super::super::webhooks::Hook;
use super::*;

const WIDGETS_V2: &str = "/apis/example.com/v2/namespaces/default/widgets";
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";

/// The webhook's conversion of one object.
fn convert(object: &Value, wanted: &str) -> Value {
    let mut object = object.clone();
    let spec = object["spec"].clone();
    object["apiVersion"] = wanted.into();
    object["spec"] = match wanted {
        "example.com/v2" => json!({"dimensions": {"size": spec["size"]}, "paint": spec["color"], "unknown": true}),
        _ => json!({"size": spec["dimensions"]["size"], "color": spec["paint"]}),
    };
    object["metadata"]["labels"]["shown-as"] = wanted.rsplit('/').next().expect("a version").into();
    object
}

fn answer(review: &Value, objects: Vec<Value>) -> Value {
    let response = json!({"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects});
    json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response})
}

fn right_answer(review: &Value) -> Value {
    let wanted = review["request"]["desiredAPIVersion"].as_str().expect("a version");
    let objects = review["request"]["objects"].as_array().expect("objects");
    answer(review, objects.iter().map(|object| convert(object, wanted)).collect())
}

async fn hook() -> Hook {
    Hook::answering(|review| Response::new(Body::from(right_answer(review).to_string()))).await
}

fn two_versions(hook: &Hook) -> Value {
    let sub = json!({"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"}});
    let status = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let schema = |spec: Value| json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}});
    let v1 = schema(json!({"type": "object", "properties": {
        "size": {"type": "integer", "maximum": 10}, "color": {"type": "string", "default": "red"}}}));
    let v2 = schema(json!({"type": "object", "properties": {
        "dimensions": {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer", "maximum": 20}}},
        "paint": {"type": "string"}, "finish": {"type": "string", "default": "matt"}}}));
    let mut sub_v2 = sub.clone();
    sub_v2["scale"]["specReplicasPath"] = ".spec.dimensions.size".into();
    let mut definition = definition();
    definition["spec"]["versions"] = json!([
        {"name": "v1", "served": true, "storage": true, "schema": v1, "subresources": sub, "selectableFields": [{"jsonPath": ".spec.color"}]},
        {"name": "v2", "served": true, "storage": false, "schema": v2, "subresources": sub_v2, "selectableFields": [{"jsonPath": ".spec.paint"}],
         "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.dimensions.size"}]},
    ]);
    definition["spec"]["conversion"] =
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v7", "v1"], "clientConfig": hook.client_config()}});
    definition
}

async fn with_two_versions(hook: &Hook) -> Cluster {
    let cluster = cluster().await;
    define(&cluster, two_versions(hook)).await;
    cluster
}

fn widget_v2(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// The stored object.
fn stored(cluster: &Cluster, name: &str) -> Value {
    let resource = cluster.server.core().registry.find("example.com", "v1", "widgets").expect("served").resource.clone();
    (*resource.get("default", name).expect("stored").value()).clone()
}

#[tokio::test]
async fn objects_are_stored_in_one_version_and_served_in_each() {
    let hook = hook().await;
    let cluster = with_two_versions(&hook).await;
    let made = cluster.post(WIDGETS_V2, widget_v2("a", json!({"dimensions": {"size": 3}, "paint": "green"}))).await.ok();
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("example.com/v2"), &json!({"dimensions": {"size": 3}, "paint": "green"})),
        "what the stored version has no place for is not there, as upstream: its defaults come before the webhook, not after"
    );
    let inner = stored(&cluster, "a");
    assert_eq!((&inner["apiVersion"], &inner["spec"]), (&json!("example.com/v1"), &json!({"size": 3, "color": "green"})));
    assert_eq!(cluster.get(&format!("{WIDGETS}/a")).await.ok()["spec"], inner["spec"]);
    assert_eq!(cluster.get(&format!("{WIDGETS_V2}/a")).await.ok(), made);
    let review = &hook.received()[0];
    assert_eq!((&review["apiVersion"], &review["query"]), (&json!("apiextensions.k8s.io/v1"), &json!("timeout=30s")));
    assert_eq!(review["request"]["desiredAPIVersion"], "example.com/v1");
    // The rules of the request's version apply.
    let refused = cluster.post(WIDGETS_V2, widget_v2("b", json!({"dimensions": {}}))).await;
    assert!(refused.refusal().1.contains("spec.dimensions.size: Required value"), "{refused:?}");
    let strict = cluster.post(&format!("{WIDGETS_V2}?fieldValidation=Strict"), widget_v2("b", json!({"size": 3}))).await;
    assert!(strict.refusal().1.contains("unknown field \"spec.size\""), "{strict:?}");
    let dry = cluster.post(&format!("{WIDGETS_V2}?dryRun=All"), widget_v2("b", json!({"dimensions": {"size": 3}}))).await.ok();
    assert_eq!(dry["spec"], json!({"dimensions": {"size": 3}, "finish": "matt"}));
}

#[tokio::test]
async fn every_way_of_writing_speaks_the_requested_version() {
    let hook = hook().await;
    let cluster = with_two_versions(&hook).await;
    cluster.post(WIDGETS, widget("a", json!({"size": 3}))).await.ok();
    let (one, two) = (format!("{WIDGETS}/a"), format!("{WIDGETS_V2}/a"));
    let size = async || cluster.get(&one).await.ok()["spec"]["size"].clone();
    let merged = cluster.patch(&two, "merge", json!({"spec": {"dimensions": {"size": 4}}})).await.ok();
    assert_eq!((&merged["spec"]["dimensions"]["size"], &merged["metadata"]["generation"], size().await), (&json!(4), &json!(2), json!(4)));
    cluster
        .patch(
            &two,
            "json",
            json!([{"op": "test", "path": "/spec/paint", "value": "red"}, {"op": "replace", "path": "/spec/dimensions/size", "value": 5}]),
        )
        .await
        .ok();
    assert_eq!(size().await, 5);
    let mut whole = cluster.get(&two).await.ok();
    whole["spec"]["dimensions"]["size"] = 6.into();
    cluster.put(&two, &whole).await.ok();
    assert_eq!(size().await, 6);
    let config = widget_v2("a", json!({"dimensions": {"size": 7}})).to_string();
    let applied =
        cluster.request(Method::PATCH, &format!("{two}?fieldManager=m&force=true"), "application/apply-patch+yaml", config).await.ok();
    assert_eq!((&applied["spec"]["dimensions"]["size"], size().await), (&json!(7), json!(7)));
    cluster.patch(&format!("{two}/scale"), "merge", json!({"spec": {"replicas": 8}})).await.ok();
    assert_eq!(cluster.get(&format!("{two}/scale")).await.ok()["spec"]["replicas"], 8);
    assert_eq!(size().await, 8);
    let status = cluster.patch(&format!("{two}/status"), "merge", json!({"status": {"replicas": 2}})).await.ok();
    assert_eq!((&status["status"], &status["spec"]["dimensions"]["size"]), (&json!({"replicas": 2}), &json!(8)));
    assert_eq!(cluster.get(&one).await.ok()["status"], json!({"replicas": 2}));
    // A write that changes nothing is not stored.
    let same = cluster.patch(&format!("{two}/status"), "merge", json!({"status": {"replicas": 2}})).await.ok();
    assert_eq!(same["metadata"]["resourceVersion"], status["metadata"]["resourceVersion"]);
    let gone = cluster.delete(&two).await.ok();
    assert_eq!((&gone["kind"], cluster.get(&one).await.status), (&json!("Status"), StatusCode::NOT_FOUND));
}

#[tokio::test]
async fn managers_of_both_versions_stay() {
    let hook = hook().await;
    let cluster = with_two_versions(&hook).await;
    let apply = async |collection: &str, manager: &str, object: Value| {
        let path = format!("{collection}/a?fieldManager={manager}");
        cluster.request(Method::PATCH, &path, "application/apply-patch+yaml", object.to_string()).await
    };
    apply(WIDGETS, "one", widget("a", json!({"size": 3}))).await.ok();
    let both = apply(WIDGETS_V2, "two", widget_v2("a", json!({"finish": "matt", "paint": "red"}))).await.ok();
    let entries = |object: &Value| -> Vec<(String, String, Value)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = object["metadata"]["managedFields"].as_array().expect("managers");
        all.iter().map(|entry| (text(&entry["manager"]), text(&entry["apiVersion"]), entry["fieldsV1"].clone())).collect()
    };
    let wanted = vec![
        ("one".to_owned(), "example.com/v1".to_owned(), json!({"f:spec": {"f:size": {}}})),
        ("two".to_owned(), "example.com/v2".to_owned(), json!({"f:spec": {"f:finish": {}, "f:paint": {}}})),
    ];
    assert_eq!(entries(&both), wanted);
    assert_eq!(entries(&cluster.get(&format!("{WIDGETS}/a")).await.ok()), wanted, "whatever the webhook sends back");
    // A field that one manager owns as the size would change through the other's dimension.
    let refused = apply(WIDGETS_V2, "two", widget_v2("a", json!({"dimensions": {"size": 4}, "paint": "red"}))).await;
    assert_eq!(refused.refusal(), (409, "Apply failed with 1 conflict: conflict with \"one\": .spec.size"));
    let same = apply(WIDGETS_V2, "two", widget_v2("a", json!({"dimensions": {"size": 3}, "paint": "red"}))).await.ok();
    assert_eq!(entries(&same).len(), 2, "they agree");
    let taken = apply(WIDGETS_V2, "two", widget_v2("a", json!({"dimensions": {"size": 4}, "paint": "red"})));
    assert_eq!(taken.await.status, StatusCode::CONFLICT);
    let updated =
        cluster.patch(&format!("{WIDGETS_V2}/a?fieldManager=three"), "merge", json!({"spec": {"dimensions": {"size": 5}}})).await.ok();
    let managers: Vec<String> = entries(&updated).into_iter().map(|(manager, ..)| manager).collect();
    assert_eq!(managers, ["two", "three"], "who owned the size in the other version does no more");
}

#[tokio::test]
async fn lists_are_converted_in_batches_and_cached() {
    let hook = hook().await;
    let cluster = with_two_versions(&hook).await;
    for index in 0..20 {
        let color = if index % 2 == 0 { "red" } else { "green" };
        cluster.post(WIDGETS, widget(&format!("w{index:02}"), json!({"size": 3, "color": color}))).await.ok();
    }
    assert_eq!(hook.received().len(), 0, "the stored version needs nobody");
    let list = cluster.get(WIDGETS_V2).await.ok();
    assert_eq!((&list["apiVersion"], list["items"].as_array().expect("items").len()), (&json!("example.com/v2"), 20));
    assert!(
        list["items"]
            .as_array()
            .expect("items")
            .iter()
            .all(|item| item["spec"]["dimensions"]["size"] == 3 && item["spec"].get("unknown").is_none())
    );
    assert_eq!(hook.received().len(), 1);
    assert_eq!(hook.received()[0]["request"]["objects"].as_array().expect("objects").len(), 20);
    cluster.get(WIDGETS_V2).await.ok();
    cluster.get(&format!("{WIDGETS_V2}/w07")).await.ok();
    let table = cluster.get_as(WIDGETS_V2, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(table["rows"][0]["cells"], json!(["w00", 3]));
    assert_eq!(names(&cluster.get(&format!("{WIDGETS_V2}?fieldSelector=spec.paint%3Dgreen&limit=4")).await.ok()), ["w01", "w03"]);
    assert_eq!(cluster.get(&format!("{WIDGETS_V2}?labelSelector=shown-as%3Dv2")).await.ok()["items"].as_array().map(Vec::len), Some(20));
    assert_eq!(names(&cluster.get(&format!("{WIDGETS}?labelSelector=shown-as")).await.ok()), Vec::<&str>::new());
    assert_eq!(hook.received().len(), 1, "what was converted is kept");
}

#[tokio::test]
async fn a_change_is_converted_once_for_all_who_watch() {
    let hook = hook().await;
    let cluster = with_two_versions(&hook).await;
    cluster.post(WIDGETS, widget("a", json!({"size": 3, "color": "green"}))).await.ok();
    let mut watches = Vec::new();
    for _ in 0..30 {
        watches.push(watch(&cluster, &format!("{WIDGETS_V2}?watch=true")).await);
    }
    let mut green = watch(&cluster, &format!("{WIDGETS_V2}?watch=true&fieldSelector=spec.paint%3Dgreen")).await;
    cluster.patch(&format!("{WIDGETS}/a"), "merge", json!({"spec": {"color": "red"}})).await.ok();
    cluster.delete(&format!("{WIDGETS}/a")).await.ok();
    for watch in &mut watches {
        for (kind, paint) in [("ADDED", "green"), ("MODIFIED", "red"), ("DELETED", "red")] {
            let event = watch.next().await.expect("an event");
            assert_eq!((&event["type"], &event["object"]["spec"]["paint"]), (&json!(kind), &json!(paint)));
            assert_eq!(event["object"]["apiVersion"], "example.com/v2");
        }
    }
    assert_eq!(green.next().await.expect("an event")["type"], "ADDED");
    assert_eq!(green.next().await.expect("an event")["type"], "DELETED", "it left the selection");
    assert!(hook.received().len() <= 3, "{} conversions", hook.received().len());
}

/// Answers of the webhook, and the errors for clients.
#[tokio::test]
async fn nonsense_is_not_believed() {
    let hook = Hook::answering(|review| {
        let mut said = right_answer(review);
        let change = |said: &mut Value, path: &str, value: Value| *said.pointer_mut(path).expect("there") = value;
        let name = review["request"]["objects"][0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match name.as_str() {
            "uid" => change(&mut said, "/response/uid", "other".into()),
            "failure" => change(&mut said, "/response/result", json!({"status": "Failure", "message": "no such size"})),
            "fewer" => change(&mut said, "/response/convertedObjects", json!([])),
            "version" => change(&mut said, "/response/convertedObjects/0/apiVersion", "example.com/v1".into()),
            "kind" => change(&mut said, "/response/convertedObjects/0/kind", "Gadget".into()),
            "name" => change(&mut said, "/response/convertedObjects/0/metadata/name", "other".into()),
            "labels" => change(&mut said, "/response/convertedObjects/0/metadata/labels", json!({"a b": "c"})),
            "garbage" => return Response::new(Body::from("hello")),
            "error" => {
                let mut response = Response::new(Body::from("oh no"));
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                return response;
            }
            "long" => return Response::new(Body::from("x".repeat(17 << 20))),
            _ => {}
        }
        Response::new(Body::from(said.to_string()))
    })
    .await;
    let cluster = with_two_versions(&hook).await;
    for (name, wanted) in [
        ("uid", "failed: expected response.uid="),
        ("failure", "failed: no such size"),
        ("fewer", "returned 0 objects, expected 1"),
        ("version", "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v1)"),
        ("kind", "returned invalid object at index 0: invalid kind (expected Widget, received Gadget)"),
        ("name", "returned invalid object: must have the same name: name != other"),
        ("labels", "returned invalid metadata: metadata.labels: Invalid value: \"a b\""),
        ("garbage", "failed: couldn't get version/kind; json parse error"),
        ("error", "failed: an error on the server (\"oh no\") has prevented the request from succeeding"),
        ("long", "length limit exceeded"),
    ] {
        cluster.post(WIDGETS, widget(name, json!({"size": 3}))).await.ok();
        let refused = cluster.get(&format!("{WIDGETS_V2}/{name}")).await;
        let (code, message) = refused.refusal();
        let begin = "conversion webhook for example.com/v1, Kind=Widget ";
        assert!(code == 500 && message.starts_with(begin) && message.contains(wanted), "{name}: {code} {message}");
        assert_eq!(cluster.get(WIDGETS_V2).await.status, StatusCode::INTERNAL_SERVER_ERROR, "{name}: no list without it");
        assert_eq!(cluster.get(&format!("{WIDGETS}/{name}")).await.status, StatusCode::OK, "the stored version is as it was");
        cluster.delete(&format!("{WIDGETS}/{name}")).await.ok();
    }
    // The webhook's changes to other metadata are ignored.
    assert_eq!(cluster.get(WIDGETS_V2).await.status, StatusCode::OK);
    let refused = cluster.post(WIDGETS_V2, widget_v2("failure", json!({"dimensions": {"size": 3}}))).await;
    assert_eq!(refused.refusal(), (500, "conversion webhook for example.com/v2, Kind=Widget failed: no such size"));
    assert_eq!(cluster.get(&format!("{WIDGETS}/failure")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_watch_that_cannot_go_on_says_why() {
    let hook = Hook::answering(|review| {
        let is_bad = review["request"]["objects"].as_array().expect("objects").iter().any(|object| object["metadata"]["name"] == "bad");
        let said = if is_bad { answer(review, Vec::new()) } else { right_answer(review) };
        Response::new(Body::from(said.to_string()))
    })
    .await;
    let cluster = with_two_versions(&hook).await;
    let mut watch = watch(&cluster, &format!("{WIDGETS_V2}?watch=true")).await;
    cluster.post(WIDGETS, widget("good", json!({"size": 3}))).await.ok();
    assert_eq!(watch.next().await.expect("an event")["type"], "ADDED");
    cluster.post(WIDGETS, widget("bad", json!({"size": 3}))).await.ok();
    let error = watch.next().await.expect("an event");
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(500)));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_webhook_that_hangs_is_waited_for_thirty_seconds() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    // The backlog accepts connections, and nothing answers on them.
    let hook = Hook { port: listener.local_addr().expect("an address").port(), received: Arc::default(), connections: Arc::default() };
    let cluster = with_two_versions(&hook).await;
    cluster.post(WIDGETS, widget("a", json!({"size": 3}))).await.ok();
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let refused = cluster.get(&format!("{WIDGETS_V2}/a")).await;
    let (code, message) = refused.refusal();
    assert!(code == 500 && message.ends_with("/think?timeout=30s\": context deadline exceeded"), "{message}");
    assert_eq!(started.elapsed().as_secs(), 30);
    drop(listener);
}

#[tokio::test]
async fn the_stored_version_changes_and_the_old_one_stays_readable() {
    let hook = hook().await;
    let cluster = with_two_versions(&hook).await;
    cluster.post(WIDGETS, widget("old", json!({"size": 3}))).await.ok();
    let storage = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": true},
    ]);
    let changed = cluster.patch(PATH, "json", storage).await.ok();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    let in_v2 = |answer: &Answer| answer.body["spec"]["dimensions"]["size"] == 3;
    until(&cluster, &format!("{WIDGETS_V2}/old"), in_v2).await;
    let stored_now = async || {
        cluster.post(WIDGETS, widget("new", json!({"size": 4}))).await.ok();
        let version = stored(&cluster, "new")["apiVersion"].clone();
        cluster.delete(&format!("{WIDGETS}/new")).await.ok();
        version
    };
    tokio::time::timeout(Duration::from_secs(10), async { while stored_now().await != "example.com/v2" {} }).await.expect("in time");
    assert_eq!(stored(&cluster, "old")["apiVersion"], "example.com/v1");
    assert_eq!(cluster.get(&format!("{WIDGETS}/old")).await.ok()["spec"]["size"], 3);
    let gone = json!([{"op": "remove", "path": "/spec/versions/0"}]);
    let refused = cluster.patch(PATH, "json", gone.clone()).await;
    assert!(refused.refusal().1.contains("v1 was previously a storage version, and must remain in spec.versions"), "{refused:?}");
    // After a write without a change, the stored object has the new version.
    let whole = cluster.get(&format!("{WIDGETS_V2}/old")).await.ok();
    cluster.put(&format!("{WIDGETS_V2}/old"), &whole).await.ok();
    assert_eq!(stored(&cluster, "old")["apiVersion"], "example.com/v2");
    cluster.patch(&format!("{PATH}/status"), "merge", json!({"status": {"storedVersions": ["v2"]}})).await.ok();
    cluster.patch(PATH, "json", gone).await.ok();
    until(&cluster, WIDGETS, |answer| answer.status == StatusCode::NOT_FOUND).await;
    assert_eq!(cluster.get(&format!("{WIDGETS_V2}/old")).await.ok()["spec"]["dimensions"]["size"], 3);
}

/// An admission webhook with rules for one version is called for requests in the other version.
#[tokio::test]
async fn admission_sees_the_version_of_its_rules() {
    let hook = hook().await;
    let cluster = with_two_versions(&hook).await;
    let admission = Hook::answering(|review| {
        let patch =
            base64::Engine::encode(&base64::engine::general_purpose::STANDARD, r#"[{"op": "replace", "path": "/spec/size", "value": 9}]"#);
        let response = json!({"uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch});
        Response::new(Body::from(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}).to_string()))
    })
    .await;
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "m"},
        "webhooks": [{"name": "m.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": admission.client_config(),
            "rules": [{"operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"]}]}]});
    cluster.post("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", configuration).await.ok();
    let made = cluster.post(WIDGETS_V2, widget_v2("a", json!({"dimensions": {"size": 3}}))).await.ok();
    assert_eq!(made["spec"]["dimensions"]["size"], 9);
    let request = &admission.received()[0]["request"];
    assert_eq!((&request["kind"]["version"], &request["requestKind"]["version"]), (&json!("v1"), &json!("v2")));
    assert_eq!(request["object"]["spec"]["size"], 3);
}

/// A policy gets parameters in the version that it names, in whatever version they are stored.
#[tokio::test]
async fn parameters_of_policies_come_in_the_version_that_is_named() {
    let hook = hook().await;
    let cluster = with_two_versions(&hook).await;
    let mut limit = widget("limit", json!({"size": 3, "color": "green"}));
    limit["metadata"]["labels"] = json!({"limit": "yes"});
    cluster.post(WIDGETS, limit).await.ok();
    let outcome = async |name: &str, version: &str, size: &str, reference: Value| {
        let spec = json!({
            "paramKind": {"apiVersion": format!("example.com/{version}"), "kind": "Widget"},
            "validations": [{"expression": "false", "messageExpression": format!("params.apiVersion + ' of ' + string({size})")}],
        });
        cluster.validating(name, spec, json!({"paramRef": reference})).await;
        let refused = cluster.post(CONFIG_MAPS, config_map("c", json!({}))).await;
        cluster.delete(&format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}")).await.ok();
        refused.refusal().1.rsplit(": ").next().expect("a message").to_owned()
    };
    let named = json!({"name": "limit", "parameterNotFoundAction": "Deny"});
    let labelled = json!({"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Deny"});
    assert_eq!(outcome("stored", "v1", "params.spec.size", named.clone()).await, "example.com/v1 of 3");
    assert_eq!(hook.received().len(), 0, "the stored version needs nobody");
    assert_eq!(outcome("named", "v2", "params.spec.dimensions.size", named).await, "example.com/v2 of 3");
    assert_eq!(outcome("labelled", "v2", "params.spec.dimensions.size", labelled).await, "example.com/v2 of 3");
    // A parameter object that was written in the other version.
    cluster.patch(&format!("{WIDGETS_V2}/limit"), "merge", json!({"spec": {"dimensions": {"size": 5}}})).await.ok();
    let named = json!({"name": "limit", "parameterNotFoundAction": "Deny"});
    assert_eq!(outcome("written", "v2", "params.spec.dimensions.size", named.clone()).await, "example.com/v2 of 5");
    let size = apply("Object{metadata: Object.metadata{labels: {'size': string(params.spec.dimensions.size)}}}");
    let kind = json!({"paramKind": {"apiVersion": "example.com/v2", "kind": "Widget"}});
    cluster.mutating("changes", json!([size]), kind).await;
    let binding = json!({"spec": {"paramRef": named}});
    cluster.patch("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings/changes", "merge", binding).await.ok();
    assert_eq!(cluster.config_map("d", json!({})).await["metadata"]["labels"]["size"], "5");
}

/// If its parameters cannot be converted, the policy cannot be evaluated.
#[tokio::test]
async fn parameters_that_cannot_be_converted_refuse() {
    let hook = Hook::answering(|_| Response::new(Body::from("no review"))).await;
    let cluster = with_two_versions(&hook).await;
    cluster.post(WIDGETS, widget("limit", json!({"size": 3}))).await.ok();
    let rule = json!({"paramKind": {"apiVersion": "example.com/v2", "kind": "Widget"}, "validations": [{"expression": "true"}]});
    cluster.validating("p", rule, json!({"paramRef": {"name": "limit", "parameterNotFoundAction": "Allow"}})).await;
    let refused = cluster.post(CONFIG_MAPS, config_map("c", json!({}))).await;
    assert!(refused.refusal().1.contains("'p' with binding 'p' denied request: failed to configure binding: "), "{refused:?}");
}
