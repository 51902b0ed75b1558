//! A short list of the differences between two values, for messages about changes of immutable fields. Upstream appends a
//! Go diff there.

use std::fmt::Write;

use api_model::zero::{is_zero, same, same_field};
use serde_json::Value;

/// Most listed differences.
const LISTED_MAX: usize = 10;
/// Most characters of a value.
const VALUE_LEN_MAX: usize = 80;

/// One line per difference: `path: -old +new`.
pub fn describe(old: Option<&Value>, new: Option<&Value>) -> String {
    let mut lines = Vec::new();
    if !same(old, new) {
        walk(old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null), String::new(), &mut lines);
    }
    let mut text = String::new();
    for line in lines.iter().take(LISTED_MAX) {
        let _infallible = writeln!(text, "{line}");
    }
    if lines.len() > LISTED_MAX {
        let _infallible = writeln!(text, "… {} more", lines.len() - LISTED_MAX);
    }
    text
}

/// The differences of two values that are not equal.
fn walk(old: &Value, new: &Value, path: String, lines: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            for name in names.filter(|name| !same_field(name, a.get(*name), b.get(*name))) {
                let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                walk(a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null), inner, lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate().filter(|(_, (a, b))| !same(Some(a), Some(b))) {
                walk(a, b, format!("{path}[{index}]"), lines);
            }
        }
        _ => lines.push(format!("{path}: -{} +{}", render(old), render(new))),
    }
}

fn render(value: &Value) -> String {
    if is_zero(value) && !value.is_boolean() && !value.is_number() {
        return "none".to_owned();
    }
    let text = value.to_string();
    match text.char_indices().nth(VALUE_LEN_MAX) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_what_changed_and_nothing_else() {
        let old = json!({"a": 1, "b": [{"c": "x"}, {"c": "y"}], "d": ""});
        let new = json!({"a": 2, "b": [{"c": "x"}, {"c": "z"}], "e": [1]});
        assert_eq!(describe(Some(&old), Some(&new)), "a: -1 +2\nb[1].c: -\"y\" +\"z\"\ne: -none +[1]\n");
        let (old, new) = (json!({"a": {"runAsUser": 0, "tty": false}}), json!({"a": {}}));
        assert_eq!(describe(Some(&old), Some(&new)), "a.runAsUser: -0 +none\n");
    }
}
