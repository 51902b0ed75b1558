use std::collections::BTreeSet;

use api_model::kind;

use super::*;

fn widget() -> Arc<Kind> {
    let mut kind = Kind::clone(kind::find("apps", "deployments").expect("built in"));
    kind.group = "stable.example.com".to_owned();
    kind.kind = "Widget".to_owned();
    kind.plural = "widgets".to_owned();
    Arc::new(kind)
}

fn apps() -> Value {
    v3("apps", "v1", kind::builtin()).expect("served")
}

/// Every `$ref` in a value.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_to_a_definition() {
    let mut kinds = kind::builtin().to_vec();
    kinds.push(widget());
    for path in v3_index(&kinds)["paths"].as_object().expect("a map").keys() {
        let parts: Vec<&str> = path.split('/').collect();
        let (group, version) = if parts[0] == "api" { ("", parts[1]) } else { (parts[1], parts[2]) };
        let document = v3(group, version, &kinds).expect("served");
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for target in found {
            let name = target.strip_prefix("#/components/schemas/").unwrap_or_else(|| panic!("{path}: {target}"));
            assert!(document["components"]["schemas"].get(name).is_some(), "{path}: {name}");
        }
    }
    let document = v2(&kinds);
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    for target in found {
        let name = target.strip_prefix("#/definitions/").unwrap_or_else(|| panic!("{target}"));
        assert!(document["definitions"].get(name).is_some(), "{name}");
    }
}

#[test]
fn text_and_values_are_the_same_documents() {
    let kinds = kind::builtin();
    let parsed = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).expect("JSON");
    assert_eq!(parsed(v3_json("apps", "v1", kinds).expect("served")), apps());
    assert_eq!(parsed(v2_json(kinds, &Others::default())), v2(kinds));
    assert!(v3_json("apps", "v2", kinds).is_none() && v3("apps", "v2", kinds).is_none());
}

#[test]
fn operations_read_like_upstreams() {
    let apps = apps();
    let operations: Vec<String> = apps["paths"]
        .as_object()
        .expect("a map")
        .iter()
        .filter(|(path, _)| path.contains("deployments") || path.as_str() == "/apis/apps/v1/")
        .flat_map(|(path, item)| item.as_object().into_iter().flatten().map(move |(method, operation)| (path, method, operation)))
        .filter(|(_, method, _)| *method != "parameters")
        .map(|(path, method, operation)| {
            let gvk = &operation["x-kubernetes-group-version-kind"];
            let (id, action) = (&operation["operationId"], &operation["x-kubernetes-action"]);
            format!("{method} {path}: {id} {action} {}/{} {}", gvk["group"], gvk["version"], gvk["kind"]).replace('"', "")
        })
        .collect();
    insta::assert_yaml_snapshot!(operations);
}

#[test]
fn a_patch_names_its_parameters_and_types() {
    let apps = apps();
    let item = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|p| p["name"].as_str()).map(str::to_owned).collect()
    };
    assert_eq!(names(&item["parameters"]), ["name", "namespace", "pretty"]);
    assert_eq!(names(&item["patch"]["parameters"]), ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let content =
        |item: &Value| -> Vec<String> { item["patch"]["requestBody"]["content"].as_object().expect("a map").keys().cloned().collect() };
    assert!(content(item).contains(&"application/strategic-merge-patch+json".to_owned()));
    let widgets = v3("stable.example.com", "v1", &[widget()]).expect("served");
    let item = &widgets["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/widgets/{name}"];
    assert_eq!(content(item), ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]);
    assert_eq!(item["get"]["operationId"], "readStableExampleComV1NamespacedWidget");
}

#[test]
fn schemas_carry_facts_and_kinds() {
    let apps = apps();
    let schemas = &apps["components"]["schemas"];
    let volumes = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["volumes"];
    assert_eq!(volumes["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(volumes["x-kubernetes-patch-strategy"], "merge,retainKeys");
    let ports = &schemas["io.k8s.api.core.v1.Container"]["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-list-type"], "map");
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
    assert_eq!(schemas["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"]["default"], "TCP");
    let gvk = |name: &str| schemas[name]["x-kubernetes-group-version-kind"].clone();
    assert_eq!(gvk("io.k8s.api.apps.v1.Deployment"), json!([{"group": "apps", "version": "v1", "kind": "Deployment"}]));
    assert_eq!(gvk("io.k8s.api.apps.v1.DeploymentList"), json!([{"group": "apps", "version": "v1", "kind": "DeploymentList"}]));
    assert_eq!(gvk("io.k8s.api.autoscaling.v1.Scale"), json!([{"group": "autoscaling", "version": "v1", "kind": "Scale"}]));
    assert_eq!(gvk("io.k8s.apimachinery.pkg.apis.meta.v1.Status"), json!([{"group": "", "version": "v1", "kind": "Status"}]));
    assert!(gvk("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions").as_array().is_some_and(|all| all.len() > 10));
    assert!(gvk("io.k8s.api.apps.v1.DeploymentSpec").is_null());
    assert_eq!(schemas["io.k8s.api.core.v1.LocalObjectReference"].get("required"), None);
    assert!(schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"]["oneOf"].is_array());
}

#[test]
fn custom_kinds_are_free_form_under_upstreams_name() {
    let widgets = v3("stable.example.com", "v1", &[widget()]).expect("served");
    let schema = &widgets["components"]["schemas"]["com.example.stable.v1.Widget"];
    assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(schema["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    assert!(widgets["components"]["schemas"].get("com.example.stable.v1.WidgetList").is_some());
}

#[test]
fn a_custom_kinds_own_schema_is_published_with_metadata() {
    let schema = json!({"type": "object", "description": "A widget.", "properties": {
        "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "default": 1},
            "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "maybe": {"type": "string", "nullable": true},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        }},
    }});
    let mut kind = Kind::clone(&widget());
    kind.custom = Some(Arc::new(kind::Custom { list_kind: "Widgets".to_owned(), schema, ..kind::Custom::default() }));
    let kinds = [Arc::new(kind)];
    let three = v3("stable.example.com", "v1", &kinds).expect("served");
    let widget = &three["components"]["schemas"]["com.example.stable.v1.Widget"];
    assert_eq!(widget["description"], "A widget.");
    assert_eq!(
        widget["properties"]["metadata"]["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    assert_eq!(
        widget["properties"]["metadata"]["description"],
        "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
    );
    assert_eq!(widget["properties"]["spec"]["properties"]["size"]["default"], 1);
    assert!(widget["properties"]["spec"]["properties"]["template"]["properties"]["metadata"].is_object());
    assert_eq!(widget["properties"]["spec"]["properties"]["template"]["required"], json!(["kind", "apiVersion"]));
    let list = &three["components"]["schemas"]["com.example.stable.v1.WidgetList"];
    assert_eq!(list["x-kubernetes-group-version-kind"][0]["kind"], "Widgets");
    let two = v2(&kinds);
    let spec = &two["definitions"]["com.example.stable.v1.Widget"]["properties"]["spec"]["properties"];
    assert_eq!(spec["color"], json!({"type": "string", "enum": ["red", "green"]}));
    assert_eq!(spec["maybe"], json!({}));
    assert_eq!(spec["port"], json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(spec["template"].get("type"), None);
}

/// As upstream's builder: with more, `kubectl` would reject every other field.
#[test]
fn version_two_says_of_a_kind_with_unknown_fields_that_it_is_an_object_and_no_more() {
    let mut kind = Kind::clone(&widget());
    let schema = json!({"type": "object", "description": "Anything.", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"size": {"type": "integer"}}}}});
    let gvk = json!([{"group": "stable.example.com", "version": "v1", "kind": "Widget"}]);
    for schema in [schema, Value::Null] {
        kind.custom = Some(Arc::new(kind::Custom { list_kind: "WidgetList".to_owned(), schema, ..kind::Custom::default() }));
        let kinds = [Arc::new(kind.clone())];
        let two = v2(&kinds);
        assert_eq!(two["definitions"]["com.example.stable.v1.Widget"], json!({"type": "object", "x-kubernetes-group-version-kind": gvk}));
        let three = v3("stable.example.com", "v1", &kinds).expect("served");
        let widget = &three["components"]["schemas"]["com.example.stable.v1.Widget"];
        assert!(widget["properties"]["metadata"].is_object() && widget["x-kubernetes-preserve-unknown-fields"] == true, "{widget}");
    }
}

#[test]
fn the_index_names_a_document_by_a_hash_that_changes_with_its_kinds_alone() {
    let builtin = kind::builtin();
    let mut more = builtin.to_vec();
    more.push(widget());
    let (before, after) = (v3_index(builtin), v3_index(&more));
    assert_eq!(before["paths"]["apis/apps/v1"], after["paths"]["apis/apps/v1"]);
    let url = |index: &Value| index["paths"]["apis/stable.example.com/v1"]["serverRelativeURL"].as_str().map(str::to_owned);
    assert_eq!(url(&before), None);
    let first = url(&after).expect("served");
    assert!(first.starts_with("/openapi/v3/apis/stable.example.com/v1?hash="), "{first}");
    let mut other = Kind::clone(&widget());
    other.namespaced = false;
    assert_ne!(url(&v3_index(&[Arc::new(other)])).expect("served"), first);
}

#[test]
fn version_two_has_no_words_of_version_three() {
    let document = v2(kind::builtin());
    let definitions = &document["definitions"];
    assert_eq!(definitions["io.k8s.api.core.v1.Pod"]["properties"]["spec"]["$ref"], "#/definitions/io.k8s.api.core.v1.PodSpec");
    assert_eq!(definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["type"], "string");
    assert_eq!(definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"], "int-or-string");
    // Definitions of custom resources contain fields of these names.
    let plain = definitions.as_object().expect("a map").iter().filter(|(name, _)| !name.contains("apiextensions"));
    let text: String = plain.map(|(_, definition)| definition.to_string()).collect();
    for word in ["oneOf", "allOf", "components/schemas", "\"enum\":["] {
        assert!(!text.contains(word), "{word}");
    }
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(
        patch["parameters"][0],
        json!({"in": "body", "name": "body", "required": true, "schema": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Patch"}})
    );
}

#[test]
fn protobuf_holds_what_the_json_holds() {
    let kinds = kind::builtin();
    let document = v2(kinds);
    let bytes = v2_protobuf(&document);
    let top = fields(&bytes);
    assert_eq!(only(&top, 1), b"2.0");
    let names = |list: &[u8], number: u64| -> BTreeSet<String> {
        fields(list)
            .iter()
            .filter(|(n, _)| *n == number)
            .map(|(_, entry)| String::from_utf8_lossy(only(&fields(entry), 1)).into_owned())
            .collect()
    };
    let keys = |value: &Value| -> BTreeSet<String> { value.as_object().expect("a map").keys().cloned().collect() };
    assert_eq!(names(only(&top, 8), 2), keys(&document["paths"]));
    assert_eq!(names(only(&top, 9), 1), keys(&document["definitions"]));
    let again = v2_protobuf_of(kinds, &Others::default());
    assert_eq!(again.len(), bytes.len());
    assert_eq!(names(only(&fields(&again), 9), 1), keys(&document["definitions"]));
}

/// Numbers and contents of the length-delimited fields of a message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        while let Some((&byte, rest)) = bytes.split_first() {
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        match tag & 7 {
            0 => drop(varint(&mut bytes)),
            2 => {
                let len = usize::try_from(varint(&mut bytes)).expect("a length");
                let (content, rest) = bytes.split_at(len);
                found.push((tag >> 3, content));
                bytes = rest;
            }
            wire => panic!("wire type {wire}"),
        }
    }
    found
}

fn only<'a>(fields: &[(u64, &'a [u8])], number: u64) -> &'a [u8] {
    fields.iter().find(|(n, _)| *n == number).map(|(_, content)| *content).expect("a field")
}
