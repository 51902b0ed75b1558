//! Conditions of a status: those of CustomResourceDefinitions and APIServices.

use api_model::meta;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A condition's state, without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) kind: &'static str,
    pub(crate) status: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Condition {
    pub(crate) fn new(kind: &'static str, status: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, status, reason, message: message.into() }
    }
}

/// Whether a condition is true.
pub(crate) fn is_true(definition: &Value, kind: &str) -> bool {
    find(definition.get("status").unwrap_or(&Value::Null), kind)
        .is_some_and(|condition| condition.get("status").and_then(Value::as_str) == Some("True"))
}

fn find<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = status.get("conditions")?.as_array()?;
    conditions.iter().find(|condition| condition.get("type").and_then(Value::as_str) == Some(kind))
}

/// Sets a condition. Its transition time changes only with its status. Returns false when the condition was so already.
pub(crate) fn set(status: &mut Value, wanted: &Condition, now: Timestamp) -> bool {
    let word = if wanted.status { "True" } else { "False" };
    let old = find(status, wanted.kind).cloned();
    let text = |field: &str| old.as_ref().and_then(|old| old.get(field)).and_then(Value::as_str).unwrap_or_default();
    if text("status") == word && text("reason") == wanted.reason && text("message") == wanted.message {
        return false;
    }
    let since = if text("status") == word { text("lastTransitionTime").to_owned() } else { meta::time(now) };
    let condition =
        json!({"type": wanted.kind, "status": word, "reason": wanted.reason, "message": wanted.message, "lastTransitionTime": since});
    if !status.get("conditions").is_some_and(Value::is_array) {
        api_wire::json::set(status, &["conditions"], json!([]));
    }
    let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return false };
    match conditions.iter_mut().find(|known| known.get("type").and_then(Value::as_str) == Some(wanted.kind)) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    true
}
