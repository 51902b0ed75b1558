use api_model::kind::{self, builtin};
use serde_json::{Map, json};

use super::super::{v2, v2_json, v2_protobuf, v2_protobuf_of};
use super::*;

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/definitions/{name}")})
}

/// The document of another server, with one path for each group version. The path refers to some definitions and a
/// parameter.
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

fn part(group_version: &str, leads_to: &[&str], definitions: Value) -> Vec<u8> {
    part_of(&document(&[group_version], leads_to, definitions), group_version).expect("a part")
}

fn part_of(document: &Value, group_version: &str) -> Result<Vec<u8>, Unfit> {
    v2_part(document.to_string().as_bytes(), &format!("/apis/{group_version}/"))
}

/// The merge of parts with the built-in kinds, and the names of the parts that were left out.
fn merged(parts: &[Vec<u8>]) -> (Others, Vec<String>) {
    let mut left_out = Vec::new();
    let named: Vec<(String, &Vec<u8>)> = parts.iter().enumerate().map(|(number, part)| (number.to_string(), part)).collect();
    let others = v2_others(builtin(), named.iter().map(|(name, part)| (name.as_str(), part.as_slice())), |name, why| {
        left_out.push(format!("{name}: {why}"));
    });
    (others, left_out)
}

/// The whole document of the built-in kinds with these parts.
fn whole(parts: &[Vec<u8>]) -> Value {
    let (others, left_out) = merged(parts);
    assert_eq!(left_out, Vec::<String>::new());
    parsed(&v2_json(builtin(), &others))
}

fn parsed(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("JSON")
}

/// The reference in the first response of a path.
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
    let part = parsed(&part_of(&document, "a.io/v1").expect("a part"));
    let names = |section: &str| -> Vec<&str> { part[section].as_object().expect("a map").keys().map(String::as_str).collect() };
    assert_eq!(
        (names("paths"), names("definitions"), names("parameters")),
        (vec!["/apis/a.io/v1/gadgets"], vec!["Gadget", "Size"], vec!["pretty-1"])
    );
    assert!(matches!(part_of(&part, "a.io/v1"), Err(Unfit::NotV2)), "a part is no document");
}

#[test]
fn what_could_not_stand_beside_ours_is_left_out() {
    type Change = fn(&mut Value);
    let part = |change: Change| {
        let mut document = document(&["a.io/v1"], &["Gadget"], json!({"Gadget": {"type": "object"}}));
        change(&mut document);
        part_of(&document, "a.io/v1").err().map(|why| why.to_string())
    };
    let cases: [(Change, Option<&str>); 22] = [
        (|_| (), None),
        (|document| *document = json!("nonsense"), Some("it is not of OpenAPI 2.0")),
        (|document| document["swagger"] = "3.0".into(), Some("it is not of OpenAPI 2.0")),
        (|document| document["paths"] = json!([]), Some("an entry \"paths\" is of another type than it should be")),
        (|document| document["paths"] = json!({}), Some("it has no path of the version")),
        (|document| document["definitions"] = json!({}), Some("the reference \"#/definitions/Gadget\" leads nowhere")),
        (|document| document["parameters"] = Value::Null, Some("an entry \"parameters\" is of another type than it should be")),
        (|document| item(document, &[], json!("nonsense")), Some("/apis/a.io/v1/gadgets")),
        (|document| item(document, &["get"], json!(5)), Some("get")),
        (|document| item(document, &["parameters"], json!({})), Some("parameters")),
        (|document| item(document, &["get", "parameters"], json!({})), Some("parameters")),
        (|document| item(document, &["get", "tags"], json!("one")), Some("tags")),
        (|document| item(document, &["get", "consumes"], json!({})), Some("consumes")),
        (|document| item(document, &["get", "produces"], json!([1])), Some("produces")),
        (|document| item(document, &["get", "responses"], json!([])), Some("responses")),
        (|document| document["definitions"]["Gadget"] = json!("nonsense"), Some("Gadget")),
        (|document| document["definitions"]["Gadget"]["type"] = json!(5), Some("type")),
        (|document| document["definitions"]["Gadget"]["required"] = json!(true), Some("required")),
        (|document| document["definitions"]["Gadget"]["enum"] = json!({}), Some("enum")),
        (|document| document["definitions"]["Gadget"]["allOf"] = json!({}), Some("allOf")),
        (|document| document["definitions"]["Gadget"]["properties"] = json!([]), Some("properties")),
        (|document| document["definitions"]["Gadget"]["properties"] = json!({"size": 5}), Some("size")),
    ];
    for (number, (change, wanted)) in cases.into_iter().enumerate() {
        let found = part(change);
        let fits =
            |wanted: &str| found.as_ref().is_some_and(|found| found == wanted || found.contains(&format!("{wanted:?} is of another")));
        assert!(wanted.map_or(found.is_none(), fits), "{number}: {found:?}");
    }
}

/// Sets a value in the path item of a document.
fn item(document: &mut Value, fields: &[&str], value: Value) {
    let item = &mut document["paths"]["/apis/a.io/v1/gadgets"];
    *fields.iter().fold(item, |there, field| &mut there[*field]) = value;
}

#[test]
fn fields_are_allowed_where_the_schema_has_them() {
    let gadget = json!({"type": ["object", "null"], "required": ["size"], "enum": [{}, 5], "items": [{}], "additionalProperties": false,
        "properties": {"type": {"type": "string"}, "required": {"additionalProperties": {}}, "x-y": {"items": {}}}, "x-enum": 5});
    let mut document = document(&["a.io/v1"], &["Gadget"], json!({"Gadget": gadget}));
    document["parameters"]["pretty-1"]["required"] = true.into();
    part_of(&document, "a.io/v1").expect("a part");
}

#[test]
fn text_that_is_called_ref_is_no_reference_where_anything_may_be() {
    let any = json!({"$ref": "#/definitions/Nowhere"});
    let gadget = json!({"default": any, "example": any, "enum": [any], "x-any": any, "properties": {
        "default": reference("Size"), "example": reference("Size")}});
    let mut document = document(&["a.io/v1"], &["Gadget"], json!({"Gadget": gadget, "Size": {"type": "integer"}}));
    item(&mut document, &["x-any"], any.clone());
    item(&mut document, &["get", "responses", "200", "examples"], json!({"application/json": any}));
    item(&mut document, &["get", "responses", "default"], json!({"schema": reference("Default")}));
    document["definitions"]["Default"] = json!({});
    let part = parsed(&part_of(&document, "a.io/v1").expect("a part"));
    let names: Vec<&String> = part["definitions"].as_object().expect("a map").keys().collect();
    assert_eq!(names, ["Default", "Gadget", "Size"]);
}

#[test]
fn references_are_json_pointers_and_foreign_ones_are_left_alone() {
    let foreign = ["#/responses/Gone", "http://example.com/x", "#/parameters/gone"].map(|target| json!({"$ref": target}));
    let definitions = json!({"a/b~c": {"description": "mine"}, STATUS: {"properties": {"other": reference("a~1b~0c")}}});
    let mut document = document(&["a.io/v1"], &[STATUS, "a~1b~0c"], definitions);
    for (code, foreign) in ["400", "500", "503"].iter().zip(&foreign) {
        item(&mut document, &["get", "responses", code], foreign.clone());
    }
    let mut second = document.clone();
    second["paths"] = json!({"/apis/b.io/v1/gadgets": document["paths"]["/apis/a.io/v1/gadgets"]});
    second["definitions"]["a/b~c"]["description"] = "another's".into();
    let both = [part_of(&document, "a.io/v1"), part_of(&second, "b.io/v1")].map(|part| part.expect("a part"));
    let merged = whole(&both);
    let responses = |group: &str| &merged["paths"][format!("/apis/{group}/v1/gadgets")]["get"]["responses"];
    assert_eq!(["400", "500", "503"].map(|code| &responses("a.io")[code]), foreign.each_ref());
    assert_eq!(
        (&responses("a.io")["201"]["schema"]["$ref"], &responses("b.io")["201"]["schema"]["$ref"]),
        (&json!("#/definitions/a~1b~0c"), &json!("#/definitions/a~1b~0c_v2"))
    );
    assert_eq!(merged["definitions"]["a/b~c_v2"]["description"], "another's");
}

#[test]
fn a_text_that_would_be_a_large_tree_is_not_read() {
    assert!(matches!(v2_part("[".repeat(MARKS_MAX + 1).as_bytes(), "/"), Err(Unfit::TooManyParts)));
    assert!(matches!(v2_part("[".repeat(MARKS_MAX).as_bytes(), "/"), Err(Unfit::NotJson(_))));
    let mut ours = v2(builtin());
    let mut paths = Map::new();
    paths.insert("/apis/a.io/v1/gadgets".to_owned(), json!({}));
    ours["paths"].as_object_mut().expect("a map").extend(paths);
    part_of(&ours, "a.io/v1").expect("a whole Kubernetes can be read");
}

#[test]
fn a_definition_stands_for_few_kinds_of_one_server() {
    let ours = v2(builtin())["definitions"][OPTIONS].clone();
    let there = ours[GVK].as_array().expect("a list").len();
    let with = |group_version: &str, gvks: Vec<Value>| {
        let mut said = ours.clone();
        said[GVK] = gvks.into();
        let mut definitions: Map<String, Value> = v2(builtin())["definitions"].as_object().expect("a map").clone();
        definitions.insert(OPTIONS.to_owned(), said);
        part(group_version, &[OPTIONS], definitions.into())
    };
    let gvk = |kind: String| json!({"group": "a.io", "version": "v1", "kind": kind});
    let odd = [json!(5), json!({"group": "a.io"}), json!({"group": "a.io", "version": 1, "kind": "A"}), gvk("A".to_owned())];
    let merged = whole(&[with("a.io/v1", (0..10_000).map(|number| gvk(number.to_string())).collect()), with("b.io/v1", odd.to_vec())]);
    assert_eq!(merged["definitions"][OPTIONS][GVK].as_array().map(Vec::len), Some(there + 64 + 1));
}

#[test]
fn a_part_whose_names_are_all_taken_is_left_out_alone() {
    let taken: Vec<String> = (2..=100).map(|number| format!("{STATUS}_v{number}")).collect();
    let definitions: Map<String, Value> = taken.iter().map(|name| (name.clone(), json!({"description": name}))).collect();
    let taken: Vec<&str> = taken.iter().map(String::as_str).collect();
    let another = |group_version: &str| part(group_version, &[STATUS], json!({STATUS: {"description": "another"}}));
    let parts = [part("a.io/v1", &taken, definitions.into()), another("b.io/v1"), part("c.io/v1", &[], json!({}))];
    let (others, left_out) = merged(&parts);
    assert_eq!(left_out, [format!("1: no name is left for {STATUS:?}")]);
    assert_eq!(others.paths.keys().collect::<Vec<_>>(), ["/apis/a.io/v1/gadgets", "/apis/c.io/v1/gadgets"]);
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
    let second = part_of(&second, "b.io/v1").expect("a part");
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
    let theirs = part_of(&theirs, "apps/v1").expect("a part");
    assert_eq!(whole(&[theirs]), v2(builtin()));
}

#[test]
fn protobuf_has_what_the_json_has() {
    let parts = [part("a.io/v1", &[STATUS], json!({STATUS: {"type": "object"}}))];
    let others = merged(&parts).0;
    let merged = whole(&parts);
    assert!(kind::builtin().len() < merged["paths"].as_object().expect("a map").len());
    // Both have the same entries; their order may differ.
    assert_eq!(v2_protobuf_of(builtin(), &others).len(), v2_protobuf(&merged).len());
    assert!(v2_protobuf(&merged).len() > v2_protobuf(&v2(builtin())).len());
}
