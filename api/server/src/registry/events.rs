//! `events.k8s.io/v1` Events are the core group's Events with other field names. Both are stored in the core form.

use serde_json::{Map, Value};

use super::Conversion;

pub(super) const CONVERSION: Conversion = Conversion { to_stored, from_stored, stored_field };

/// Name in `events.k8s.io/v1`, name in `v1`.
const RENAMED: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn to_stored(event: &mut Value) {
    convert(event, "v1", |map| {
        for (new, core) in RENAMED {
            rename(map, new, core);
        }
        rename_in_series(map, "lastObservedTime");
    });
}

fn from_stored(event: &mut Value) {
    convert(event, "events.k8s.io/v1", |map| {
        for (new, core) in RENAMED {
            rename(map, core, new);
        }
        // This version requires the field. Core events do not have it before their first series.
        map.entry("eventTime").or_insert(Value::Null);
    });
}

fn convert(event: &mut Value, api_version: &str, fields: impl FnOnce(&mut Map<String, Value>)) {
    if let Some(map) = event.as_object_mut() {
        map.insert("apiVersion".to_owned(), api_version.into());
        fields(map);
    }
}

fn rename(map: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to.to_owned(), value);
    }
}

/// Both versions have the same name for the field. A field that older clients leave empty must not become `null`.
fn rename_in_series(map: &mut Map<String, Value>, field: &str) {
    if let Some(series) = map.get_mut("series").and_then(Value::as_object_mut)
        && series.get(field).is_some_and(Value::is_null)
    {
        series.remove(field);
    }
}

fn stored_field(path: &str) -> Option<&'static str> {
    Some(match path {
        "metadata.name" => "metadata.name",
        "metadata.namespace" => "metadata.namespace",
        "reason" => "reason",
        "type" => "type",
        "reportingController" => "reportingComponent",
        "regarding.kind" => "involvedObject.kind",
        "regarding.namespace" => "involvedObject.namespace",
        "regarding.name" => "involvedObject.name",
        "regarding.uid" => "involvedObject.uid",
        "regarding.apiVersion" => "involvedObject.apiVersion",
        "regarding.resourceVersion" => "involvedObject.resourceVersion",
        "regarding.fieldPath" => "involvedObject.fieldPath",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_survives_the_way_there_and_back() {
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "n"},
            "regarding": {"kind": "Pod", "name": "p"}, "note": "text", "reportingController": "c", "reportingInstance": "i",
            "reason": "R", "type": "Normal", "action": "A", "eventTime": "2024-01-01T00:00:00.000000Z", "deprecatedCount": 2,
        });
        let mut stored = event.clone();
        to_stored(&mut stored);
        assert_eq!(stored["involvedObject"]["name"], "p");
        assert_eq!((&stored["message"], &stored["apiVersion"]), (&json!("text"), &json!("v1")));
        from_stored(&mut stored);
        assert_eq!(stored, event);
    }
}
