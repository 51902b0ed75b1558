//! Custom resources, from the creation of their definition to its deletion.

mod conversion;
mod versions;

use std::time::Duration;

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A definition of widgets with two versions; the first one is stored.
pub(super) fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "x-kubernetes-validations": [{"rule": "self.color != 'green' || self.size < 9", "message": "green ones are small"}], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "maybe": {"type": "string", "nullable": true},
        }},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}},
    }}});
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage, "schema": schema,
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            "selectableFields": [{"jsonPath": ".spec.color"}],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    })
}

pub(super) fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// Repeats a request until the answer satisfies `wish`, because the server's own work takes some time.
async fn until(cluster: &Cluster, path: &str, wish: impl Fn(&Answer) -> bool) -> Answer {
    let asking = async {
        loop {
            let answer = cluster.get(path).await;
            if wish(&answer) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), asking).await.unwrap_or_else(|_| panic!("{path} never came to be as wished"))
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

pub(super) async fn define(cluster: &Cluster, definition: Value) -> Value {
    let name = definition["metadata"]["name"].as_str().expect("a name").to_owned();
    cluster.post(DEFINITIONS, definition).await.ok();
    until(cluster, &format!("{DEFINITIONS}/{name}"), |answer| is_established(&answer.body)).await.ok()
}

async fn with_widgets() -> Cluster {
    let cluster = cluster().await;
    define(&cluster, definition()).await;
    cluster
}

#[tokio::test]
async fn a_definition_is_completed_accepted_and_served() {
    let cluster = cluster().await;
    assert_eq!(cluster.get(WIDGETS).await.status, StatusCode::NOT_FOUND);
    let defined = define(&cluster, definition()).await;
    assert_eq!((&defined["spec"]["names"]["singular"], &defined["spec"]["names"]["listKind"]), (&json!("widget"), &json!("WidgetList")));
    assert_eq!(defined["status"]["acceptedNames"], defined["spec"]["names"]);
    assert_eq!(defined["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(cluster.get(WIDGETS).await.ok()["kind"], "WidgetList");
    let refused = cluster.post(DEFINITIONS, json!({"metadata": {"name": "x"}, "spec": {}})).await;
    assert!(refused.refusal().1.contains("metadata.name: Invalid value: \"x\": must be spec.names.plural+\".\"+spec.group"), "{refused:?}");
}

#[tokio::test]
async fn objects_are_pruned_defaulted_and_checked() {
    let cluster = with_widgets().await;
    let made = cluster.post(WIDGETS, widget("a", json!({"size": 3, "extra": true, "maybe": null}))).await;
    let warning = made.headers[header::WARNING].to_str().expect("text").to_owned();
    assert_eq!(warning, "299 - \"unknown field \\\"spec.extra\\\"\"");
    let made = made.ok();
    assert_eq!(made["spec"], json!({"size": 3, "color": "red", "maybe": null}));
    assert_eq!(made["metadata"]["generation"], 1);
    let strict = cluster.post(&format!("{WIDGETS}?fieldValidation=Strict"), widget("b", json!({"size": 3, "extra": true}))).await;
    assert!(strict.refusal().1.contains("strict decoding error: unknown field \"spec.extra\""), "{strict:?}");
    let refused = cluster.post(WIDGETS, widget("b", json!({"size": "big", "color": "blue"}))).await;
    let (code, message) = refused.refusal();
    assert_eq!(code, 422);
    assert_eq!(
        message,
        "Widget.example.com \"b\" is invalid: [spec.color: Unsupported value: \"blue\": supported values: \"red\", \"green\", spec.size: \
         Invalid value: \"string\": spec.size in body must be of type integer: \"string\", <nil>: Invalid value: null: some validation rules \
         were not checked because the object was invalid; correct the existing errors to complete validation]"
    );
    assert_eq!(refused.body["details"]["causes"][1]["reason"], "FieldValueTypeInvalid");
    let refused = cluster.post(WIDGETS, widget("b", json!({"size": 9, "color": "green"}))).await;
    assert_eq!(refused.refusal(), (422, "Widget.example.com \"b\" is invalid: spec: Invalid value: green ones are small"));
}

#[tokio::test]
async fn whole_numbers_are_integers() {
    let cluster = cluster().await;
    let mut definition = definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["ratio"] =
        json!({"type": "number", "enum": [1.0, 1000.0, 0.0, 0.5]});
    define(&cluster, definition).await;
    let made = cluster.post(WIDGETS, widget("a", json!({"size": 3.0, "ratio": 1e3}))).await.ok();
    assert_eq!(made["spec"].to_string(), r#"{"color":"red","ratio":1000,"size":3}"#);
    let path = format!("{WIDGETS}/a");
    let same = cluster.patch(&path, "merge", json!({"spec": {"size": 3.0, "ratio": 1000}})).await.ok();
    assert_eq!((&same["metadata"]["generation"], &same["metadata"]["resourceVersion"]), (&json!(1), &made["metadata"]["resourceVersion"]));
    let changed = cluster.patch(&path, "merge", json!({"spec": {"ratio": 0.0}})).await.ok();
    assert_eq!((&changed["spec"]["ratio"], &changed["metadata"]["generation"]), (&json!(0), &json!(2)));
    assert_eq!(cluster.patch(&path, "merge", json!({"spec": {"ratio": 0.5}})).await.ok()["spec"]["ratio"], json!(0.5));
    assert_eq!(cluster.patch(&path, "merge", json!({"spec": {"size": 3.5}})).await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn patterns_are_gos() {
    let cluster = cluster().await;
    let mut definition = definition();
    let color = |pattern: &str| json!({"type": "string", "pattern": pattern, "default": "red"});
    let set = |definition: &mut Value, pattern: &str| {
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"] = color(pattern);
    };
    set(&mut definition, r"^[\p{L}\d-_]{1,63}$");
    define(&cluster, definition.clone()).await;
    assert_eq!(cluster.post(WIDGETS, widget("a", json!({"size": 3, "color": "größe-1_"}))).await.ok()["spec"]["color"], "größe-1_");
    let refused = cluster.post(WIDGETS, widget("b", json!({"size": 3, "color": "١"}))).await;
    assert!(refused.refusal().1.contains(r"spec.color in body should match '^[\p{L}\d-_]{1,63}$'"), "{refused:?}");
    set(&mut definition, "a**");
    let refused = cluster.post(&format!("{DEFINITIONS}?dryRun=All"), definition).await;
    assert!(refused.refusal().1.contains("must be a valid regular expression, but isn't: error parsing regexp: a**"), "{refused:?}");
}

#[tokio::test]
async fn patches_status_and_scale_change_their_own_part() {
    let cluster = with_widgets().await;
    cluster.post(WIDGETS, widget("a", json!({"size": 3}))).await.ok();
    let path = format!("{WIDGETS}/a");
    assert_eq!(cluster.patch(&path, "merge", json!({"spec": {"size": 4}})).await.ok()["metadata"]["generation"], 2);
    assert_eq!(cluster.patch(&path, "json", json!([{"op": "replace", "path": "/spec/size", "value": 5}])).await.ok()["spec"]["size"], 5);
    assert_eq!(cluster.patch(&path, "strategic", json!({"spec": {"size": 6}})).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let status = cluster
        .patch(&format!("{path}/status"), "merge", json!({"spec": {"size": 9}, "status": {"replicas": 2, "selector": "a=b"}}))
        .await
        .ok();
    assert_eq!(
        (&status["spec"]["size"], &status["status"]["replicas"], &status["metadata"]["generation"]),
        (&json!(5), &json!(2), &json!(3))
    );
    let patched = cluster.patch(&path, "merge", json!({"status": {"replicas": 7}})).await.ok();
    assert_eq!(patched["status"]["replicas"], 2);
    let scale = cluster.get(&format!("{path}/scale")).await.ok();
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]), (&json!(5), &json!({"replicas": 2, "selector": "a=b"})));
    cluster.patch(&format!("{path}/scale"), "merge", json!({"spec": {"replicas": 8}})).await.ok();
    assert_eq!(cluster.get(&path).await.ok()["spec"]["size"], 8);
    let refused = cluster.patch(&format!("{path}/scale"), "merge", json!({"spec": {"replicas": 80}})).await;
    assert!(refused.refusal().1.contains("spec.size in body should be less than or equal to 10"), "{refused:?}");
    let mut unversioned = cluster.get(&path).await.ok();
    unversioned["metadata"].as_object_mut().expect("a map").remove("resourceVersion");
    let refused = cluster.put(&path, &unversioned).await;
    assert!(refused.refusal().1.contains("metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"), "{refused:?}");
}

#[tokio::test]
async fn lists_tables_and_selectors_work_as_for_any_kind() {
    let cluster = with_widgets().await;
    cluster.post(WIDGETS, widget("a", json!({"size": 3}))).await.ok();
    cluster.post(WIDGETS, widget("b", json!({"size": 4, "color": "green"}))).await.ok();
    assert_eq!(names(&cluster.get("/apis/example.com/v1/widgets").await.ok()), ["a", "b"]);
    assert_eq!(names(&cluster.get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dgreen")).await.ok()), ["b"]);
    assert_eq!(cluster.get(&format!("{WIDGETS}?fieldSelector=spec.size%3D3")).await.status, StatusCode::BAD_REQUEST);
    let table = cluster.get_as(WIDGETS, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(table["columnDefinitions"][1]["name"], "Size");
    assert_eq!((&table["rows"][0]["cells"], &table["rows"][1]["cells"]), (&json!(["a", 3]), &json!(["b", 4])));
    let partial = cluster.get_as(&format!("{WIDGETS}/a"), "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!((&partial["kind"], partial.get("spec")), (&json!("PartialObjectMetadata"), None));
}

#[tokio::test]
async fn versions_differ_in_their_name_alone() {
    let cluster = with_widgets().await;
    let beta = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let mut object = widget("a", json!({"size": 3}));
    object["apiVersion"] = "example.com/v1beta1".into();
    assert_eq!(cluster.post(beta, object.clone()).await.ok()["apiVersion"], "example.com/v1beta1");
    assert_eq!(cluster.get(&format!("{WIDGETS}/a")).await.ok()["apiVersion"], "example.com/v1");
    let list = cluster.get(beta).await.ok();
    assert_eq!((&list["apiVersion"], &list["items"][0]["apiVersion"]), (&json!("example.com/v1beta1"), &json!("example.com/v1beta1")));
    let patched = cluster.patch(&format!("{beta}/a"), "merge", json!({"spec": {"size": 4}})).await.ok();
    assert_eq!((&patched["apiVersion"], &patched["metadata"]["generation"]), (&json!("example.com/v1beta1"), &json!(2)));
    assert!(cluster.post(WIDGETS, object).await.refusal().1.contains("does not match the expected API version"));
}

#[tokio::test]
async fn discovery_and_openapi_follow() {
    let cluster = with_widgets().await;
    let group = cluster.get("/apis/example.com").await.ok();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let resources = cluster.get("/apis/example.com/v1").await.ok();
    let rows: Vec<&str> = resources["resources"].as_array().expect("rows").iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(rows, ["widgets", "widgets/status", "widgets/scale"]);
    assert_eq!(resources["resources"][0]["shortNames"], json!(["wd"]));
    let aggregated = cluster.get_as("/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").await.ok();
    let ours = aggregated["items"].as_array().expect("groups").last().expect("a group").clone();
    assert_eq!((&ours["metadata"]["name"], &ours["versions"][1]["version"]), (&json!("example.com"), &json!("v1beta1")));
    let index = cluster.get("/openapi/v3").await.ok();
    let url = index["paths"]["apis/example.com/v1"]["serverRelativeURL"].as_str().expect("a document").to_owned();
    let document = cluster.get(&url).await.ok();
    assert_eq!(document["components"]["schemas"]["com.example.v1.Widget"]["properties"]["spec"]["properties"]["size"]["minimum"], 1.0);
    assert!(cluster.get("/openapi/v2").await.ok()["definitions"]["com.example.v1.Widget"].is_object());
    cluster.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.ok();
    until(&cluster, "/apis/example.com/v1", |answer| answer.status == StatusCode::NOT_FOUND).await;
    assert_eq!(cluster.get("/openapi/v3").await.ok()["paths"].get("apis/example.com/v1"), None);
    assert_eq!(cluster.get("/openapi/v2").await.ok()["definitions"].get("com.example.v1.Widget"), None);
}

#[tokio::test]
async fn a_deleted_definition_takes_its_objects_with_it_and_waits_for_their_finalizers() {
    let cluster = with_widgets().await;
    cluster.post(WIDGETS, widget("a", json!({"size": 3}))).await.ok();
    let mut finalized = widget("held", json!({"size": 3}));
    finalized["metadata"]["finalizers"] = json!(["example.com/hold"]);
    cluster.post(WIDGETS, finalized).await.ok();
    let going = cluster.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.ok();
    assert_eq!(going["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    until(&cluster, &format!("{WIDGETS}/a"), |answer| answer.status == StatusCode::NOT_FOUND).await;
    let refused = cluster.post(WIDGETS, widget("b", json!({"size": 3}))).await;
    assert_eq!(refused.refusal(), (405, "create not allowed while custom resource definition is terminating"));
    cluster.patch(&format!("{WIDGETS}/held"), "merge", json!({"metadata": {"finalizers": null}})).await.ok();
    until(&cluster, &format!("{DEFINITIONS}/widgets.example.com"), |answer| answer.status == StatusCode::NOT_FOUND).await;
    until(&cluster, WIDGETS, |answer| answer.status == StatusCode::NOT_FOUND).await;
    define(&cluster, definition()).await;
    assert_eq!(names(&cluster.get(WIDGETS).await.ok()), Vec::<&str>::new());
}

#[tokio::test]
async fn old_objects_read_as_the_definition_says_by_now() {
    let cluster = with_widgets().await;
    cluster.post(WIDGETS, widget("old", json!({"size": 3}))).await.ok();
    cluster.post(WIDGETS, widget("gone", json!({"size": 3}))).await.ok();
    let path = format!("{DEFINITIONS}/widgets.example.com");
    for version in 0..2 {
        let spec = format!("/spec/versions/{version}/schema/openAPIV3Schema/properties/spec");
        let properties = format!("{spec}/properties");
        let patch = json!([
            {"op": "add", "path": format!("{properties}/shape"), "value": {"type": "string", "default": "round"}},
            {"op": "remove", "path": format!("{spec}/x-kubernetes-validations")},
            {"op": "remove", "path": format!("{properties}/color")},
            {"op": "remove", "path": format!("/spec/versions/{version}/selectableFields")},
        ]);
        cluster.patch(&path, "json", patch).await.ok();
    }
    let read = until(&cluster, &format!("{WIDGETS}/old"), |answer| answer.body["spec"]["shape"] == "round").await.ok();
    assert_eq!(read["spec"], json!({"size": 3, "shape": "round"}));
    let list = cluster.get(WIDGETS).await.ok();
    assert_eq!(list["items"][1]["spec"], read["spec"]);
    // Also in a deletion event, for an object that was not written since.
    let from = list["metadata"]["resourceVersion"].as_str().expect("a revision");
    let mut watch = super::watches::watch(&cluster, &format!("{WIDGETS}?watch=true&resourceVersion={from}")).await;
    cluster.delete(&format!("{WIDGETS}/gone")).await.ok();
    let event = watch.next().await.expect("an event");
    assert_eq!((&event["type"], &event["object"]["spec"]), (&json!("DELETED"), &read["spec"]));
    assert_eq!(
        cluster.patch(&format!("{WIDGETS}/old"), "merge", json!({"metadata": {"labels": {"a": "b"}}})).await.ok()["metadata"]["generation"],
        1
    );
}

#[tokio::test]
async fn custom_resources_are_served_again_after_a_restart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let first = cluster_on(Arc::clone(&store)).await;
    define(&first, definition()).await;
    first.post(WIDGETS, widget("a", json!({"size": 3}))).await.ok();
    first.server.shutdown().await;
    let second = cluster_on(store).await;
    assert_eq!(names(&second.get(WIDGETS).await.ok()), ["a"]);
}

#[tokio::test]
async fn a_name_in_use_is_not_given_twice() {
    let cluster = with_widgets().await;
    let mut other = definition();
    other["metadata"]["name"] = "gadgets.example.com".into();
    other["spec"]["names"]["plural"] = "gadgets".into();
    cluster.post(DEFINITIONS, other).await.ok();
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let has_conditions = |answer: &Answer| answer.body["status"]["conditions"].as_array().is_some_and(|conditions| conditions.len() == 2);
    let refused = until(&cluster, &path, has_conditions).await.ok();
    assert_eq!(refused["status"]["conditions"][0]["reason"], "ListKindConflict");
    assert_eq!(cluster.get("/apis/example.com/v1/gadgets").await.status, StatusCode::NOT_FOUND);
    cluster.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.ok();
    until(&cluster, &path, |answer| is_established(&answer.body)).await;
    assert_eq!(cluster.get("/apis/example.com/v1/gadgets").await.status, StatusCode::OK);
}

#[tokio::test]
async fn applying_knows_the_schema_of_the_definition() {
    let cluster = with_widgets().await;
    let apply = async |manager: &str, spec: Value| {
        let path = format!("{WIDGETS}/a?fieldManager={manager}");
        cluster.request(Method::PATCH, &path, "application/apply-patch+yaml", widget("a", spec).to_string()).await
    };
    let made = apply("one", json!({"size": 3})).await.ok();
    assert_eq!(made["spec"], json!({"size": 3, "color": "red"}));
    assert_eq!(made["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:spec": {"f:size": {}}}));
    let unknown = apply("one", json!({"size": 3, "shape": "round"})).await;
    assert!(unknown.refusal().1.contains(".spec.shape: field not declared in schema"), "{unknown:?}");
    assert_eq!(apply("two", json!({"size": 4})).await.status, StatusCode::CONFLICT);
    assert_eq!(apply("two", json!({"color": "green"})).await.ok()["spec"], json!({"size": 3, "color": "green"}));
}

/// The definition says where the replicas are, both in the object and in `managedFields`.
#[tokio::test]
async fn a_scale_is_applied_where_the_definition_has_the_replicas() {
    let cluster = with_widgets().await;
    cluster.post(WIDGETS, widget("a", json!({"size": 3}))).await.ok();
    let path = format!("{WIDGETS}/a");
    let apply = |sub: &'static str, manager: &'static str, config: Value| {
        let path = format!("{path}{sub}?fieldManager={manager}");
        let cluster = &cluster;
        async move { cluster.request(Method::PATCH, &path, "application/apply-patch+yaml", config.to_string()).await }
    };
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 7}});
    let refused = apply("/scale", "hpa", scale.clone()).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{refused:?}");
    assert!(refused.refusal().1.ends_with(": .spec.size") || refused.refusal().1.ends_with(": .spec.replicas"), "{refused:?}");
    assert_eq!(apply("/scale", "hpa&force=true", scale).await.ok()["spec"]["replicas"], 7);
    let scaled = cluster.get(&path).await.ok();
    assert_eq!(scaled["spec"], json!({"size": 7, "color": "red"}), "no other field");
    let entries = scaled["metadata"]["managedFields"].as_array().expect("entries").clone();
    let own = entries.iter().find(|entry| entry["manager"] == "hpa").expect("an entry");
    assert_eq!((&own["subresource"], &own["fieldsV1"]), (&json!("scale"), &json!({"f:spec": {"f:size": {}}})));
    let refused = apply("", "other", widget("a", json!({"size": 2}))).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{refused:?}");
    // A manager that states no replicas gives them up. The field stays if the schema requires it.
    let nothing = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {}});
    let given_up = apply("/scale", "hpa", nothing).await;
    assert!(given_up.status.is_success() || given_up.status == StatusCode::UNPROCESSABLE_ENTITY, "{given_up:?}");
}

/// Custom resources have no protobuf messages; their metadata has the message of all objects.
#[tokio::test]
async fn protobuf_is_for_metadata_alone() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let cluster = with_widgets().await;
    cluster.post(WIDGETS, widget("a", json!({"size": 3}))).await.ok();
    assert_eq!(cluster.get_as(WIDGETS, PROTOBUF).await.status, StatusCode::NOT_ACCEPTABLE);
    assert_eq!(cluster.get_as(WIDGETS, &format!("{PROTOBUF},application/json")).await.ok()["kind"], "WidgetList");
    assert_eq!(cluster.request(Method::POST, WIDGETS, PROTOBUF, "k8s\0").await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let missing = cluster.get_as(&format!("{WIDGETS}/x"), &format!("{PROTOBUF},application/json")).await;
    assert_eq!((missing.status, &missing.body["reason"]), (StatusCode::NOT_FOUND, &json!("NotFound")));
    let list = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let answer = cluster.get_as(WIDGETS, &list).await;
    assert_eq!((answer.status, answer.headers[header::CONTENT_TYPE].to_str().expect("text")), (StatusCode::OK, PROTOBUF));
}
