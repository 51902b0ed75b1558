//! A short account of what differs between two values, for messages that say "you changed what may
//! not be changed": upstream appends a Go diff there.

use std::fmt::Write;

use serde_json::Value;

use crate::at::{is_zero, same};

/// Differences listed; the first ones tell enough.
const LISTED_MAX: usize = 10;
/// Characters of a value shown.
const SHOWN_LEN_MAX: usize = 80;

/// One line a difference: `path: -old +new`.
pub fn describe(old: Option<&Value>, new: Option<&Value>) -> String {
    let mut lines = Vec::new();
    walk(old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null), String::new(), &mut lines);
    let mut text = String::new();
    for line in lines.iter().take(LISTED_MAX) {
        let _infallible = writeln!(text, "{line}");
    }
    if lines.len() > LISTED_MAX {
        let _infallible = writeln!(text, "… {} more", lines.len() - LISTED_MAX);
    }
    text
}

fn walk(old: &Value, new: &Value, path: String, lines: &mut Vec<String>) {
    if same(Some(old), Some(new)) {
        return;
    }
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                walk(a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null), inner, lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                walk(a, b, format!("{path}[{index}]"), lines);
            }
        }
        _ => lines.push(format!("{path}: -{} +{}", shown(old), shown(new))),
    }
}

fn shown(value: &Value) -> String {
    if is_zero(value) && !value.is_boolean() && !value.is_number() {
        return "none".to_owned();
    }
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_LEN_MAX) {
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
    }
}
