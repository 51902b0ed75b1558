//! Versions of a custom resource without a webhook: they differ in their name and in their fields. `v1` is stored; it
//! has `left`, `v2` has `right`, and both have `both`.

use super::super::watches::watch;
use super::*;

const WIDGETS_V2: &str = "/apis/example.com/v2/namespaces/default/widgets";

fn schema(own: &str, default: &str) -> Value {
    let spec = json!({"type": "object", "properties": {
        own: {"type": "string"}, format!("{own}Default"): {"type": "string", "default": default}, "both": {"type": "integer"},
        "bothDefault": {"type": "string"},
    }});
    json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": spec, "status": {"type": "object", "properties": {own: {"type": "string"}, "replicas": {"type": "integer"}}}}}})
}

fn two_versions() -> Value {
    let version = |name: &str, own: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "schema": schema(own, own),
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.both", "statusReplicasPath": ".status.replicas"}},
            "additionalPrinterColumns": [
                {"name": "Left", "type": "string", "jsonPath": ".spec.left"}, {"name": "Right", "type": "string", "jsonPath": ".spec.right"},
            ],
            "selectableFields": [{"jsonPath": format!(".spec.{own}")}],
        })
    };
    let mut definition = definition();
    definition["spec"]["versions"] = json!([version("v1", "left", true), version("v2", "right", false)]);
    definition
}

async fn with_two_versions() -> Cluster {
    let cluster = cluster().await;
    define(&cluster, two_versions()).await;
    cluster
}

fn of_version(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// The stored object.
fn stored(cluster: &Cluster, name: &str) -> Value {
    let resource = cluster.server.core().registry.find("example.com", "v1", "widgets").expect("served").resource.clone();
    (*resource.get("default", name).expect("stored").value()).clone()
}

#[tokio::test]
async fn each_version_shows_the_fields_that_it_knows_and_the_store_those_of_its_own() {
    let cluster = with_two_versions().await;
    // Written in the version that is not stored: as in upstream, fields that only this version has are lost.
    let made = cluster.post(WIDGETS_V2, of_version("v2", "a", json!({"right": "r", "both": 1}))).await.ok();
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("example.com/v2"), &json!({"both": 1})));
    let inner = stored(&cluster, "a");
    assert_eq!((&inner["apiVersion"], &inner["spec"]), (&json!("example.com/v1"), &json!({"both": 1, "leftDefault": "left"})));
    assert_eq!(cluster.get(&format!("{WIDGETS}/a")).await.ok()["spec"], json!({"both": 1, "leftDefault": "left"}));
    // Written in the stored version: the other version does not show fields that it does not have.
    cluster.post(WIDGETS, of_version("v1", "b", json!({"left": "l", "both": 2}))).await.ok();
    assert_eq!(stored(&cluster, "b")["spec"], json!({"left": "l", "both": 2, "leftDefault": "left"}));
    assert_eq!(cluster.get(&format!("{WIDGETS_V2}/b")).await.ok()["spec"], json!({"both": 2}));
    let list = cluster.get(WIDGETS_V2).await.ok();
    let specs: Vec<&Value> = list["items"].as_array().expect("items").iter().map(|item| &item["spec"]).collect();
    assert_eq!(specs, [&json!({"both": 1}), &json!({"both": 2})]);
    assert!(list["items"].as_array().expect("items").iter().all(|item| item["apiVersion"] == "example.com/v2"));
    let table = cluster.get_as(WIDGETS_V2, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!((&table["rows"][1]["cells"], table["rows"][1]["object"]["apiVersion"].is_string()), (&json!(["b", null, null]), true));
    let table = cluster.get_as(WIDGETS, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(table["rows"][1]["cells"], json!(["b", "l", null]));
    // Objects are selected before the conversion, so pages have the requested length.
    assert_eq!(names(&cluster.get(&format!("{WIDGETS}?fieldSelector=spec.left%3Dl")).await.ok()), ["b"]);
    assert_eq!(cluster.get(&format!("{WIDGETS_V2}?fieldSelector=spec.left%3Dl")).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn every_way_of_writing_keeps_to_both_versions() {
    let cluster = with_two_versions().await;
    cluster.post(WIDGETS, of_version("v1", "a", json!({"left": "l", "both": 1}))).await.ok();
    let (one, two) = (format!("{WIDGETS}/a"), format!("{WIDGETS_V2}/a"));
    let spec = async || cluster.get(&one).await.ok()["spec"].clone();
    // A patch in the other version starts from the object in that version.
    let merged = cluster.patch(&two, "merge", json!({"spec": {"right": "r", "both": 2}})).await.ok();
    assert_eq!((&merged["spec"], spec().await), (&json!({"both": 2}), json!({"both": 2, "leftDefault": "left"})));
    let test = json!([{"op": "test", "path": "/spec/leftDefault", "value": "left"}]);
    assert_eq!(cluster.patch(&two, "json", test.clone()).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(cluster.patch(&one, "json", test).await.status, StatusCode::OK);
    let strict = cluster.patch(&format!("{two}?fieldValidation=Strict"), "merge", json!({"spec": {"left": "l"}})).await;
    assert!(strict.refusal().1.contains("unknown field \"spec.left\""), "{strict:?}");
    let mut whole = cluster.get(&two).await.ok();
    whole["spec"] = json!({"right": "again", "both": 3});
    assert_eq!(cluster.put(&two, &whole).await.ok()["spec"], json!({"both": 3}));
    assert_eq!(spec().await, json!({"both": 3, "leftDefault": "left"}));
    let status = cluster.patch(&format!("{two}/status"), "merge", json!({"status": {"right": "r", "replicas": 2}})).await.ok();
    assert_eq!(status["status"], json!({"replicas": 2}));
    assert_eq!(cluster.get(&one).await.ok()["status"], json!({"replicas": 2}));
    let scaled = cluster.patch(&format!("{two}/scale"), "merge", json!({"spec": {"replicas": 8}})).await.ok();
    assert_eq!((&scaled["spec"]["replicas"], spec().await["both"].clone()), (&json!(8), json!(8)));
    assert_eq!(cluster.get(&format!("{two}/scale")).await.ok()["status"]["replicas"], 2);
    // A write that changes nothing is not stored.
    let before = cluster.get(&two).await.ok();
    let same = cluster.patch(&format!("{two}/status"), "merge", json!({"status": {"right": "r", "replicas": 2}})).await.ok();
    assert_eq!(same["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    let dry = cluster.post(&format!("{WIDGETS_V2}?dryRun=All"), of_version("v2", "dry", json!({"right": "r"}))).await.ok();
    assert_eq!(dry["apiVersion"], "example.com/v2");
}

#[tokio::test]
async fn watches_and_managers_speak_their_version() {
    let cluster = with_two_versions().await;
    let mut watch_v2 = watch(&cluster, &format!("{WIDGETS_V2}?watch=true")).await;
    let mut watch_v1 = watch(&cluster, &format!("{WIDGETS}?watch=true&fieldSelector=spec.left%3Dl")).await;
    let apply = async |collection: &str, manager: &str, object: Value| {
        let path = format!("{collection}/a?fieldManager={manager}");
        cluster.request(Method::PATCH, &path, "application/apply-patch+yaml", object.to_string()).await
    };
    apply(WIDGETS, "one", of_version("v1", "a", json!({"left": "l", "both": 1}))).await.ok();
    let refused = apply(WIDGETS_V2, "two", of_version("v2", "a", json!({"both": 2}))).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "the same field in both versions: {refused:?}");
    let applied = apply(WIDGETS_V2, "two", of_version("v2", "a", json!({"both": 1, "right": "r"}))).await.ok();
    assert_eq!(applied["spec"], json!({"both": 1}));
    let entries = applied["metadata"]["managedFields"].as_array().expect("entries").clone();
    let versions: Vec<&Value> = entries.iter().map(|entry| &entry["apiVersion"]).collect();
    assert_eq!(versions, ["example.com/v1", "example.com/v2"]);
    let first = watch_v2.next().await.expect("an event");
    assert_eq!((&first["object"]["apiVersion"], &first["object"]["spec"]), (&json!("example.com/v2"), &json!({"both": 1})));
    let first = watch_v1.next().await.expect("an event");
    assert_eq!((&first["type"], &first["object"]["spec"]["left"]), (&json!("ADDED"), &json!("l")));
    // A change in the other version removes the field, so the object leaves the selection.
    let mut whole = cluster.get(&format!("{WIDGETS_V2}/a")).await.ok();
    whole["spec"] = json!({"both": 5});
    cluster.put(&format!("{WIDGETS_V2}/a"), &whole).await.ok();
    let mut last = watch_v1.next().await.expect("an event");
    if last["type"] == "MODIFIED" {
        last = watch_v1.next().await.expect("an event");
    }
    assert_eq!(last["type"], "DELETED");
}

/// Objects from an older definition are pruned and defaulted by the stored version before they are shown in another
/// version.
#[tokio::test]
async fn old_objects_are_read_by_the_stored_version_first() {
    let cluster = with_two_versions().await;
    cluster.post(WIDGETS, of_version("v1", "a", json!({"both": 1, "bothDefault": "kept", "left": "l"}))).await.ok();
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let patch = json!([
        {"op": "remove", "path": format!("{properties}/bothDefault")},
        {"op": "add", "path": format!("{properties}/both/default"), "value": 7},
    ]);
    cluster.patch(&path, "json", patch).await.ok();
    let read = until(&cluster, &format!("{WIDGETS_V2}/a"), |answer| answer.body["spec"].get("bothDefault").is_none()).await.ok();
    assert_eq!(read["spec"], json!({"both": 1}));
    cluster.post(WIDGETS_V2, of_version("v2", "b", json!({}))).await.ok();
    assert_eq!(cluster.get(&format!("{WIDGETS_V2}/b")).await.ok()["spec"], json!({"both": 7}), "the stored version's default");
}
