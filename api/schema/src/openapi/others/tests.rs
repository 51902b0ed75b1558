use api_model::kind::{self, builtin};
use serde_json::json;

use super::super::{v2, v2_json, v2_protobuf, v2_protobuf_of};
use super::*;

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/definitions/{name}")})
}

/// What a server says that has one path a group version, which leads to some definitions and a parameter.
fn document(group_versions: &[&str], leads_to: &[&str], definitions: Value) -> Value {
    let path = |group_version: &&str| {
        let answers: Map<String, Value> =
            (200..).zip(leads_to).map(|(code, name): (u16, _)| (code.to_string(), json!({"schema": reference(name)}))).collect();
        let item = json!({"get": {"parameters": [{"$ref": "#/parameters/pretty-1"}], "responses": answers}});
        (format!("/apis/{group_version}/gadgets"), item)
    };
    let paths: Map<String, Value> = group_versions.iter().map(path).collect();
    json!({"swagger": "2.0", "info": {"title": "others"}, "paths": paths, "definitions": definitions,
        "parameters": {"pretty-1": {"name": "pretty", "in": "query", "type": "string"}, "unused": {"name": "x", "in": "query"}}})
}

fn part(group_version: &str, leads_to: &[&str], definitions: Value) -> Value {
    v2_part(&document(&[group_version], leads_to, definitions), &format!("/apis/{group_version}/")).expect("a part")
}

/// The whole document of built-in kinds and these parts.
fn whole(parts: &[Value]) -> Value {
    let bytes = v2_json(builtin(), &v2_others(builtin(), parts));
    serde_json::from_slice(&bytes).expect("JSON")
}

/// Where the first answer of a path leads.
fn answer<'d>(document: &'d Value, path: &str) -> &'d str {
    document["paths"][path]["get"]["responses"]["200"]["schema"]["$ref"].as_str().expect("a reference")
}

#[test]
fn a_part_has_the_paths_of_a_version_and_what_they_lead_to() {
    let definitions = json!({
        "Gadget": {"type": "object", "properties": {"size": reference("Size"), "$ref": {"type": "string"}}},
        "Size": {"type": "object", "properties": {"next": reference("Size")}},
        "Nothing": {"type": "object"},
    });
    let document = document(&["a.io/v1", "a.io/v10", "apps/v1"], &["Gadget"], definitions);
    let part = v2_part(&document, "/apis/a.io/v1/").expect("a part");
    let names = |section: &str| -> Vec<&str> { part[section].as_object().expect("a map").keys().map(String::as_str).collect() };
    assert_eq!(
        (names("paths"), names("definitions"), names("parameters")),
        (vec!["/apis/a.io/v1/gadgets"], vec!["Gadget", "Size"], vec!["pretty-1"])
    );
    assert_eq!(v2_part(&part, "/apis/a.io/v1/"), None, "a part is no document");
}

#[test]
fn what_could_not_stand_beside_ours_is_left_out() {
    let fine = || document(&["a.io/v1"], &["Gadget"], json!({"Gadget": {"type": "object"}}));
    let part = |change: fn(&mut Value)| {
        let mut document = fine();
        change(&mut document);
        v2_part(&document, "/apis/a.io/v1/")
    };
    assert!(part(|_| ()).is_some());
    let changes: [fn(&mut Value); 9] = [
        |document| *document = json!("nonsense"),
        |document| document["swagger"] = "3.0".into(),
        |document| document["paths"] = json!([]),
        |document| document["paths"] = json!({}),
        |document| document["paths"]["/apis/a.io/v1/gadgets"] = json!("nonsense"),
        |document| document["definitions"] = json!({}),
        |document| document["definitions"]["Gadget"] = json!("nonsense"),
        |document| document["definitions"]["Gadget"]["properties"] = json!({"x": {"$ref": "http://example.com/x"}}),
        |document| document["parameters"] = Value::Null,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_eq!(part(change), None, "{number}");
    }
}

#[test]
fn what_is_here_already_is_left_out() {
    let ours = v2(builtin());
    let of_us = ours["definitions"].as_object().expect("a map").iter().filter(|(name, _)| name.contains("apis.meta"));
    let mut definitions: Map<String, Value> = of_us.map(|(name, body)| (name.clone(), body.clone())).collect();
    let gvk = json!({"group": "a.io", "version": "v1", "kind": "DeleteOptions"});
    definitions[OPTIONS][GVK] = json!([gvk]);
    let merged = whole(&[part("a.io/v1", &[STATUS, OPTIONS], definitions.into())]);
    assert_eq!(answer(&merged, "/apis/a.io/v1/gadgets"), format!("#/definitions/{STATUS}"));
    let mut wanted = ours["definitions"].clone();
    let all = wanted[OPTIONS][GVK].as_array_mut().expect("a list");
    all.push(gvk);
    all.sort_by_key(|gvk| (gvk["group"].to_string(), gvk["version"].to_string()));
    assert_eq!(merged["definitions"], wanted);
}

#[test]
fn what_is_something_else_gets_a_name_of_its_own() {
    let with = |group_version: &str, says: Value| part(group_version, &[STATUS], json!({STATUS: says}));
    let itself = json!({"properties": {"again": reference(STATUS)}});
    let parts = [
        ("a.io/v1", json!({"description": "one"})),
        ("b.io/v1", json!({"description": "two"})),
        ("c.io/v1", json!({"description": "one"})),
        ("d.io/v1", itself),
    ];
    let merged = whole(&parts.map(|(group_version, says)| with(group_version, says)));
    let names = ["a", "b", "c", "d"].map(|group| answer(&merged, &format!("/apis/{group}.io/v1/gadgets")));
    let numbered = |number: u8| format!("#/definitions/{STATUS}_v{number}");
    assert_eq!(names, [2, 3, 2, 4].map(numbered));
    let said = |number: u8| &merged["definitions"][format!("{STATUS}_v{number}")];
    assert_eq!((&said(2)["description"], &said(3)["description"]), (&json!("one"), &json!("two")));
    assert_eq!(said(4)["properties"]["again"]["$ref"], numbered(4), "references follow");
    assert_eq!(merged["definitions"][STATUS], v2(builtin())["definitions"][STATUS], "ours keeps its name");
}

#[test]
fn parameters_go_with_the_paths() {
    let mut second = document(&["b.io/v1"], &[], json!({}));
    second["parameters"]["pretty-1"]["type"] = "boolean".into();
    let second = v2_part(&second, "/apis/b.io/v1/").expect("a part");
    let merged = whole(&[part("a.io/v1", &[], json!({})), second, part("c.io/v1", &[], json!({}))]);
    let parameter = |group: &str| merged["paths"][format!("/apis/{group}/v1/gadgets")]["get"]["parameters"][0]["$ref"].as_str();
    assert_eq!(
        [parameter("a.io"), parameter("b.io"), parameter("c.io")],
        ["#/parameters/pretty-1", "#/parameters/pretty-1_v2", "#/parameters/pretty-1"].map(Some)
    );
    let names: Vec<&String> = merged["parameters"].as_object().expect("a map").keys().collect();
    assert_eq!(names, ["pretty-1", "pretty-1_v2"]);
}

#[test]
fn of_two_that_have_a_path_the_first_keeps_it() {
    let gadget = |description: &str| part("a.io/v1", &["Gadget"], json!({"Gadget": {"description": description}}));
    let merged = whole(&[gadget("first"), gadget("second")]);
    assert_eq!(merged["definitions"]["Gadget"]["description"], "first");
    assert_eq!(merged["definitions"].get("Gadget_v2"), None);
    let mut theirs = document(&["apps/v1"], &[], json!({}));
    theirs["paths"]["/apis/apps/v1/deployments"] = theirs["paths"]["/apis/apps/v1/gadgets"].take();
    theirs["paths"].as_object_mut().expect("a map").remove("/apis/apps/v1/gadgets");
    let theirs = v2_part(&theirs, "/apis/apps/v1/").expect("a part");
    assert_eq!(whole(&[theirs]), v2(builtin()));
}

#[test]
fn protobuf_has_what_the_json_has() {
    let parts = [part("a.io/v1", &[STATUS], json!({STATUS: {"type": "object"}}))];
    let others = v2_others(builtin(), &parts);
    let merged = whole(&parts);
    assert!(kind::builtin().len() < merged["paths"].as_object().expect("a map").len());
    // The same entries, in whatever order.
    assert_eq!(v2_protobuf_of(builtin(), &others).len(), v2_protobuf(&merged).len());
    assert!(v2_protobuf(&merged).len() > v2_protobuf(&v2(builtin())).len());
}
