//! Events in the forms of both groups that serve them: `v1` and `events.k8s.io/v1` have different names for the
//! same fields.

use jiff::Timestamp;
use serde_json::Value;

use crate::printer::{Column, Printer, text as column, wide};
use crate::read::{at, name, since, text, time};

const COLUMNS: &[Column<'static>] = &[
    column("Last Seen", "Time since it last happened."),
    column("Type", "Normal or Warning."),
    column("Reason", "Why, in one word."),
    column("Object", "What it happened to."),
    wide("Subobject", "The part of the object it happened to."),
    wide("Source", "Who reports it."),
    column("Message", "What happened, for people."),
    wide("First Seen", "Time since it first happened."),
    wide("Count", "How often it happened."),
    Column { name: "Name", kind: "string", format: "name", description: "Name of the event.", priority: 1 },
];

pub(crate) const PRINTERS: &[Printer] = &[
    Printer { group: "", kind: "Event", columns: COLUMNS, cells: event },
    Printer { group: "events.k8s.io", kind: "Event", columns: COLUMNS, cells: event },
];

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let first = seen(event, &["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"], now);
    let last = seen(event, &["series.lastObservedTime", "lastTimestamp", "deprecatedLastTimestamp"], now);
    let first = first.unwrap_or_else(|| "<unknown>".to_owned());
    let count = [at(event, "series.count"), at(event, "count"), at(event, "deprecatedCount")];
    let count = count.into_iter().flatten().filter_map(Value::as_i64).find(|count| *count != 0).unwrap_or(1);
    let subject = at(event, "involvedObject").or_else(|| at(event, "regarding")).unwrap_or(&Value::Null);
    let kind = text(subject, "kind").to_lowercase();
    let object = match text(subject, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.unwrap_or_else(|| first.clone()).into(),
        text(event, "type").into(),
        text(event, "reason").into(),
        object.into(),
        text(subject, "fieldPath").into(),
        source(event).into(),
        either(event, &["message", "note"]).trim().into(),
        first.into(),
        count.into(),
        name(event),
    ]
}

/// The time since the first of these times that is set.
fn seen(event: &Value, paths: &[&str], now: Timestamp) -> Option<String> {
    paths.iter().find(|path| time(event, path).is_some()).map(|path| since(event, path, now))
}

fn source(event: &Value) -> String {
    let component = either(event, &["source.component", "deprecatedSource.component", "reportingComponent", "reportingController"]);
    match either(event, &["source.host", "deprecatedSource.host", "reportingInstance"]) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}

/// The first of these texts that is not empty.
fn either<'a>(event: &'a Value, paths: &[&str]) -> &'a str {
    paths.iter().map(|path| text(event, path)).find(|text| !text.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
