//! Merges a configuration into an object without field ownership, as mutating admission policies change objects. Fields of
//! the configuration win, other fields stay.

use api_model::message::Message;
use serde_json::Value;

use super::merge::merge;
use super::typing::{Form, Typing};
use super::validate;

/// The merged object.
///
/// # Errors
/// When the configuration does not fit the type, or when it sets an atomic value, whose other content would be lost. The
/// messages are upstream's.
pub fn overlay(typing: Typing<'_>, live: &Value, config: &Value) -> Result<Value, Message> {
    if let Some(complaint) = validate::complaint(typing, config) {
        return Err(format!("failed to convert patch object to typed object: {complaint}").into());
    }
    let mut atomics = Vec::new();
    find_atomics(typing, config, String::new(), &mut atomics);
    if !atomics.is_empty() {
        let atomics = atomics.join(", ");
        return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {atomics}").into());
    }
    Ok(merge(typing, live.clone(), config))
}

/// Paths of atomic lists and objects. Entries of maps with free keys are not searched.
fn find_atomics(typing: Typing<'_>, config: &Value, path: String, paths: &mut Vec<String>) {
    match (typing.form(config), config) {
        (Form::Fields, Value::Object(fields)) => {
            for (name, value) in fields.iter().filter(|(name, _)| typing.declares(name)) {
                find_atomics(typing.field(name), value, format!("{path}.{name}"), paths);
            }
        }
        (Form::Elements(list), Value::Array(values)) => {
            for (at, value) in values.iter().enumerate() {
                find_atomics(list.items(), value, format!("{path}[{at}]"), paths);
            }
        }
        (Form::Whole, Value::Object(_) | Value::Array(_)) => paths.push(path),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overlaid(live: &Value, config: &Value) -> Result<Value, Message> {
        let kind = api_model::kind::find("", "pods").expect("served");
        overlay(Typing::new(kind), live, config)
    }

    #[test]
    fn what_is_stated_wins_and_the_rest_stays() {
        let live = json!({"metadata": {"name": "p", "labels": {"a": "1"}},
            "spec": {"containers": [{"name": "one", "image": "i"}, {"name": "two", "image": "i"}]}});
        let config = json!({"metadata": {"labels": {"b": "2"}},
            "spec": {"containers": [{"name": "two", "imagePullPolicy": "Always"}], "initContainers": [{"name": "first"}]}});
        let wanted = json!({"metadata": {"name": "p", "labels": {"a": "1", "b": "2"}},
            "spec": {"containers": [{"name": "one", "image": "i"}, {"name": "two", "image": "i", "imagePullPolicy": "Always"}],
                "initContainers": [{"name": "first"}]}});
        assert_eq!(overlaid(&live, &config), Ok(wanted));
    }

    #[test]
    fn rejects_what_would_be_replaced_whole() {
        let live = json!({"spec": {"containers": [{"name": "c", "command": ["a"]}]}});
        for (config, why) in [
            (
                json!({"spec": {"containers": [{"name": "c", "command": ["b"]}]}}),
                "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].command",
            ),
            (
                json!({"spec": {"nothing": 1}}),
                "failed to convert patch object to typed object: .spec.nothing: field not declared in schema",
            ),
        ] {
            assert_eq!(overlaid(&live, &config), Err(why.into()));
        }
    }
}
