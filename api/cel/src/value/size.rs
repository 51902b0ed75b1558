//! The size of a value from an expression. A shared part counts each time it occurs, because each walk or output visits
//! it each time. So the count stops at a limit.

use serde_json::Value as Json;

use super::Value;

/// A walk with its remaining limit.
struct Walk {
    left: u64,
    /// Whether the parts of JSON count.
    into_json: bool,
}

/// The number of parts; `None` if it exceeds `limit`, or if a part is nested deeper than `depth`.
pub(crate) fn made(value: &Value<'_>, depth: usize, limit: u64) -> Option<u64> {
    let mut walk = Walk { left: limit, into_json: false };
    walk.value(value, depth).then(|| limit - walk.left)
}

/// Whether the JSON of the value has at most `limit` parts and characters, nested at most `depth` deep.
pub(super) fn is_within(value: &Value<'_>, depth: usize, limit: u64) -> bool {
    Walk { left: limit, into_json: true }.value(value, depth)
}

impl Walk {
    fn take(&mut self, count: usize) -> bool {
        let left = self.left.checked_sub(count as u64);
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    fn value(&mut self, value: &Value<'_>, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        match value {
            Value::List(list) => self.take(1) && list.iter().all(|value| self.value(value, depth)),
            Value::Map(map) => self.take(1) && map.values().all(|value| self.value(value, depth)),
            Value::MapWithDefault(map) => self.take(1) && map.0.values().all(|value| self.value(value, depth)),
            Value::Message(message) => self.take(1) && message.1.values().all(|value| self.value(value, depth)),
            Value::Optional(Some(value)) => self.value(value, depth),
            Value::Json(json, _) if self.into_json => self.json(json),
            Value::String(text) if self.into_json => self.take(1 + text.len()),
            Value::Bytes(bytes) if self.into_json => self.take(1 + bytes.len()),
            _ => self.take(1),
        }
    }

    /// Counts JSON. It comes from a request, which limits its depth, so the depth is not checked.
    fn json(&mut self, json: &Json) -> bool {
        match json {
            Json::Array(list) => self.take(1) && list.iter().all(|json| self.json(json)),
            Json::Object(map) => self.take(1) && map.iter().all(|(name, json)| self.take(name.len()) && self.json(json)),
            Json::String(text) => self.take(1 + text.len()),
            _ => self.take(1),
        }
    }
}
