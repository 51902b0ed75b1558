//! Label maps and label selectors as text, upstream's `labels.FormatLabels`, `Selector.String` and
//! `metav1.FormatLabelSelector`.

use serde_json::{Map, Value};

use crate::read::{text, texts};

/// `a=b,c=d` in key order; `<none>` for no labels.
pub(crate) fn labels(labels: Option<&Map<String, Value>>) -> String {
    let mut pairs: Vec<String> =
        labels.into_iter().flatten().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.sort_unstable();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A `LabelSelector` as text; `<none>` when it is absent or empty, `<error>` with an unknown operator.
pub(crate) fn label_selector(selector: Option<&Value>) -> String {
    match requirements(selector) {
        None => "<error>".to_owned(),
        Some(text) if text.is_empty() => "<none>".to_owned(),
        Some(text) => text,
    }
}

/// The requirements of a `LabelSelector` in key order; `None` with an unknown operator.
pub(crate) fn requirements(selector: Option<&Value>) -> Option<String> {
    let Some(selector) = selector else { return Some(String::new()) };
    let mut all: Vec<(String, String)> = Vec::new();
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        all.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = text(expression, "key");
        let mut values = texts(expression, "values");
        values.sort_unstable();
        let values = values.join(",");
        let requirement = match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        all.push((key.to_owned(), requirement));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Some(all.into_iter().map(|(_, requirement)| requirement).collect::<Vec<_>>().join(","))
}
