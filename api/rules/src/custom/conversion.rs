//! Conversion of custom resources by webhook, without the call itself: the request (`ConversionReview`), and the checks of
//! the response and of the converted objects. The messages are upstream's.

use api_model::field::aggregate;
use api_model::message::Message;
use api_model::meta;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::at::At;
use crate::checks::Checks;

/// Supported versions of ConversionReview.
pub const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const GROUP: &str = "apiextensions.k8s.io";
/// The metadata that a webhook may change.
const CHANGEABLE: [&str; 2] = ["labels", "annotations"];

/// A converted object is not acceptable.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unacceptable {
    /// It is not an object of the requested version.
    #[error("returned invalid {location}: {why}", location = of_index(*.index, *.of))]
    Form {
        /// Its index in the response.
        index: usize,
        /// The number of objects.
        of: usize,
        /// The problem.
        why: Message,
    },
    /// It is another object.
    #[error("returned invalid {location}: {why}", location = of_object(*.index, *.of))]
    Object {
        /// Its index in the response.
        index: usize,
        /// The number of objects.
        of: usize,
        /// The problem.
        why: Message,
    },
    /// Its metadata is not valid.
    #[error("returned invalid metadata{location}: {why}", location = of_metadata(*.index, *.of))]
    Metadata {
        /// Its index in the response.
        index: usize,
        /// The number of objects.
        of: usize,
        /// The problem.
        why: Message,
    },
}

fn of_index(index: usize, of: usize) -> String {
    if of == 1 { format!("object at index {index}") } else { format!("converted object at index {index}") }
}

fn of_object(index: usize, of: usize) -> String {
    if of == 1 { "object".to_owned() } else { format!("converted object at index {index}") }
}

fn of_metadata(index: usize, of: usize) -> String {
    if of == 1 { String::new() } else { format!(" in object at index {index}") }
}

/// The request: to convert these objects to that version.
pub fn review(version: &str, uid: &str, wanted: &str, objects: &[&Value]) -> Value {
    json!({
        "kind": "ConversionReview", "apiVersion": format!("{GROUP}/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects},
    })
}

/// The objects of a response.
///
/// # Errors
/// When it is not a response to this request, or reports a failure.
pub fn answered(mut answer: Value, version: &str, uid: &str) -> Result<Vec<Value>, Message> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (response_version, response_kind) = (text(answer.get("apiVersion")), text(answer.get("kind")));
    let expected = format!("{GROUP}/{version}");
    if response_version != expected || response_kind != "ConversionReview" {
        return Err(format!(
            "expected webhook response of {expected}, Kind=ConversionReview, got {response_version}, Kind={response_kind}"
        )
        .into());
    }
    let Some(response) = answer.get_mut("response").filter(|response| response.is_object()) else {
        return Err("no response provided".into());
    };
    let response_uid = text(response.get("uid"));
    if response_uid != uid {
        return Err(format!("expected response.uid={uid:?}, got {response_uid:?}").into());
    }
    let result = |field: &str| text(response.get("result").and_then(|result| result.get(field)));
    match (result("status").as_str(), result("message")) {
        ("Success", _) => {}
        (status, message) if message.is_empty() => return Err(format!("response.result.status was '{status}', not 'Success'").into()),
        (_, message) => return Err(message.into()),
    }
    Ok(match response.get_mut("convertedObjects").map(Value::take) {
        Some(Value::Array(objects)) => objects,
        _ => Vec::new(),
    })
}

/// Checks a converted object and returns it with its original metadata, of which a webhook may change only labels and
/// annotations. `index` is its index among the `of` objects of the request.
///
/// # Errors
/// When it is not an object of the requested version, or another object.
pub fn accept(original: &Value, mut converted: Value, wanted: &str, (index, of): (usize, usize)) -> Result<Value, Unacceptable> {
    form(original, &converted, wanted).map_err(|why| Unacceptable::Form { index, of, why })?;
    for (what, field) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let (was, is) = (meta::text(original, field), meta::text(&converted, field));
        if was != is {
            return Err(Unacceptable::Object { index, of, why: format!("must have the same {what}: {was} != {is}").into() });
        }
    }
    let metadata = metadata(original, &converted).map_err(|why| Unacceptable::Metadata { index, of, why })?;
    if let Some(fields) = converted.as_object_mut() {
        fields.insert("metadata".to_owned(), metadata);
    }
    Ok(converted)
}

fn form(original: &Value, converted: &Value, wanted: &str) -> Result<(), Message> {
    let text = |object: &Value, field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text(converted, "apiVersion"), text(converted, "kind"));
    if kind.is_empty() {
        return Err(format!("Object 'Kind' is missing in '{converted}'").into());
    }
    if version != wanted {
        return Err(format!("invalid groupVersion (expected {wanted}, received {version})").into());
    }
    let expected = text(original, "kind");
    if kind != expected {
        return Err(format!("invalid kind (expected {expected}, received {kind})").into());
    }
    Ok(())
}

/// The original's metadata with the labels and annotations of the converted object.
fn metadata(original: &Value, converted: &Value) -> Result<Value, Message> {
    let theirs = match converted.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Err("invalid metadata in converted object".into()),
        None => return Err("missing metadata in converted object".into()),
    };
    let mut ours = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in CHANGEABLE {
        match theirs.get(field).filter(|value| !value.is_null()) {
            None => {
                ours.remove(field);
            }
            Some(Value::Object(texts)) => {
                check(field, texts, ours.get(field))?;
                ours.insert(field.to_owned(), Value::Object(texts.clone()));
            }
            Some(_) => return Err(format!("invalid metadata.{field} in converted object").into()),
        }
    }
    Ok(Value::Object(ours))
}

/// Checks that all values are strings, and that changed ones are valid.
fn check(field: &str, texts: &Map<String, Value>, before: Option<&Value>) -> Result<(), Message> {
    if let Some((key, _)) = texts.iter().find(|(_, value)| !value.is_string()) {
        return Err(format!("metadata.{field}[{key}] must be a string in converted object").into());
    }
    if before.and_then(Value::as_object) == Some(texts) {
        return Ok(());
    }
    let shell = json!({"metadata": {field: texts}});
    let at = At::root(&shell).get("metadata").get(field);
    let mut checks = Checks::default();
    match field {
        "labels" => checks.labels(&at),
        _ => crate::meta::annotations(&at, &mut checks),
    }
    let errors = checks.into_errors();
    if errors.is_empty() { Ok(()) } else { Err(aggregate(&errors).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(metadata: Value) -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": 1}})
    }

    fn converted(metadata: Value) -> Value {
        json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": metadata, "spec": {"dimensions": {"size": 1}}})
    }

    #[test]
    fn a_webhook_may_change_labels_and_annotations_and_nothing_else_of_the_metadata() {
        let original = object(json!({"name": "a", "namespace": "n", "uid": "u", "finalizers": ["x/y"], "labels": {"a": "b"},
            "managedFields": [{"manager": "m"}]}));
        let answer = converted(json!({"name": "a", "namespace": "n", "uid": "u", "generation": 7, "annotations": {"was": "v1"}}));
        let accepted = accept(&original, answer, "example.com/v2", (0, 1)).expect("acceptable");
        let metadata = json!({"name": "a", "namespace": "n", "uid": "u", "finalizers": ["x/y"], "annotations": {"was": "v1"},
            "managedFields": [{"manager": "m"}]});
        assert_eq!(accepted["metadata"], metadata);
        assert_eq!(accepted["spec"], json!({"dimensions": {"size": 1}}));
    }

    #[test]
    fn rejects_another_object_in_upstreams_words() {
        let original = object(json!({"name": "a", "namespace": "n", "uid": "u"}));
        let said = |answer: Value, of: usize| accept(&original, answer, "example.com/v2", (0, of)).expect_err("unacceptable").to_string();
        let mine = |field: &str, value: Value| {
            let mut metadata = json!({"name": "a", "namespace": "n", "uid": "u"});
            metadata[field] = value;
            converted(metadata)
        };
        let cases = [
            (mine("name", "b".into()), "returned invalid object: must have the same name: a != b"),
            (mine("namespace", "m".into()), "returned invalid object: must have the same namespace: n != m"),
            (mine("uid", "w".into()), "returned invalid object: must have the same UID: u != w"),
            (mine("labels", json!({"a": 1})), "returned invalid metadata: metadata.labels[a] must be a string in converted object"),
            (
                object(json!({"name": "a"})),
                "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v1)",
            ),
            (
                json!({"apiVersion": "example.com/v2", "kind": "Gadget"}),
                "returned invalid object at index 0: invalid kind (expected Widget, received Gadget)",
            ),
            (json!(7), "returned invalid object at index 0: Object 'Kind' is missing in '7'"),
        ];
        for (answer, wanted) in cases {
            assert_eq!(said(answer, 1), wanted);
        }
        assert!(
            said(mine("labels", json!({"a b": "c"})), 1).starts_with("returned invalid metadata: metadata.labels: Invalid value: \"a b\"")
        );
        assert_eq!(said(mine("name", "b".into()), 2), "returned invalid converted object at index 0: must have the same name: a != b");
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let said = |response: Value| {
            let answer = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
            answered(answer, "v1", "u").expect_err("no answer")
        };
        assert_eq!(said(Value::Null), "no response provided");
        assert_eq!(said(json!({"uid": "w"})), "expected response.uid=\"u\", got \"w\"");
        assert_eq!(said(json!({"uid": "u", "result": {"status": "Failure"}})), "response.result.status was 'Failure', not 'Success'");
        assert_eq!(said(json!({"uid": "u", "result": {"status": "Failure", "message": "too big"}})), "too big");
        assert_eq!(
            answered(json!({}), "v1", "u").expect_err("no answer"),
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got , Kind="
        );
        let good = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "response": {"uid": "u", "result": {"status": "Success"}, "convertedObjects": [{}, {}]}});
        assert_eq!(answered(good, "v1", "u").expect("an answer").len(), 2);
    }
}
