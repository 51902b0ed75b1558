//! For tests: passes an object through the functions of this crate in the order of the server.

use api_model::kind::Kind;
use serde_json::Value;

use crate::{FieldValidation, check_fields, default, prepare_create, prepare_update, validate_create, validate_update};

/// A served kind.
pub fn kind(group: &str, plural: &str) -> &'static Kind {
    api_model::kind::find(group, plural).expect("served")
}

/// A body, checked against its schema and defaulted.
pub fn read(kind: &Kind, yaml: &str) -> Value {
    // The parser reads YAML 1.2, in which `y` and `n` are strings and so can be names.
    let mut object: Value = serde_yaml::from_str(yaml).expect("yaml");
    if object.is_null() {
        object = Value::Object(serde_json::Map::new());
    }
    check_fields(kind, &mut object, &[], FieldValidation::Strict).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    default(kind, &mut object);
    object
}

/// A new object just before validation. The defaults are the name `a`, the namespace `default` and a uid.
pub fn new(kind: &Kind, yaml: &str) -> Value {
    let mut object = read(kind, yaml);
    let namespace = if kind.namespaced { "default" } else { "" };
    for (field, value) in [("name", "a"), ("namespace", namespace), ("uid", "b0d3c8a7-0000-4000-8000-000000000001")] {
        if api_model::meta::text(&object, field).is_empty() && !value.is_empty() {
            api_model::meta::set(&mut object, field, value);
        }
    }
    default(kind, &mut object);
    prepare_create(kind, &mut object);
    object
}

/// The errors of a new object, one per line.
pub fn create_problems(kind: &Kind, yaml: &str) -> String {
    lines(&validate_create(kind, &new(kind, yaml)))
}

/// The errors of an update, one per line.
pub fn update_problems(kind: &Kind, sub: Option<&str>, old: &str, new_yaml: &str) -> String {
    let mut old = new(kind, old);
    api_model::meta::set(&mut old, "resourceVersion", "1");
    if let Some(status) = read(kind, new_yaml).get("status").cloned().filter(|_| sub.is_none()) {
        old["status"] = status;
    }
    let mut changed = read(kind, new_yaml);
    api_model::meta::set(&mut changed, "resourceVersion", "1");
    prepare_update(kind, sub, &mut changed, &old);
    lines(&validate_update(kind, sub, &changed, &old, &mut Vec::new()))
}

fn lines(errors: &[api_model::field::FieldError]) -> String {
    if errors.is_empty() {
        return "ok".to_owned();
    }
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// A table of cases and their results, for a snapshot.
pub fn table(cases: &[&str], problems: impl Fn(&str) -> String) -> String {
    cases.iter().map(|case| format!("{}\n  => {}\n", case.trim_end(), problems(case).replace('\n', "\n     "))).collect()
}
