use std::collections::HashSet;

use serde_json::{Value, json};

use super::*;

/// The present time of all tests.
pub(crate) fn now() -> Timestamp {
    "2024-01-02T12:00:00Z".parse().expect("a time")
}

/// The row of an object that is an hour and a half old; bars separate the cells.
pub(crate) fn row(group: &str, kind: &str, mut object: Value) -> String {
    let metadata = json!({"name": "x", "creationTimestamp": "2024-01-02T10:30:00Z"});
    let object_metadata = object.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut metadata = metadata.as_object().cloned().expect("a map");
    metadata.extend(object_metadata);
    object["metadata"] = metadata.into();
    let printer = printer(group, kind);
    assert_eq!((printer.group, printer.kind), (group, kind), "no printer");
    let cells = (printer.cells)(&object, now());
    assert_eq!(cells.len(), printer.columns.len(), "{kind}");
    for (cell, column) in cells.iter().zip(printer.columns) {
        let fits = match column.kind {
            "integer" => cell.is_i64() || cell.is_u64(),
            // Upstream writes text into some columns of other types.
            _ => cell.is_string() || cell.is_boolean() || cell.is_number(),
        };
        assert!(fits, "{kind} {}: {cell}", column.name);
    }
    let row: Vec<String> = cells.iter().map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned)).collect();
    row.join(" | ")
}

#[test]
fn every_builtin_kind_prints_an_empty_object() {
    for kind in api_model::kind::builtin() {
        let cells = cells(kind, &json!({}), now());
        assert_eq!(cells.len(), columns(kind).len(), "{}", kind.kind);
    }
}

#[test]
fn every_printer_has_one_name_column_and_is_the_only_one_of_its_kind() {
    let mut seen = HashSet::new();
    for printer in PRINTERS.iter().copied().flatten() {
        assert!(seen.insert((printer.group, printer.kind)), "{} twice", printer.kind);
        assert!(printer.columns.iter().any(|column| column.name == "Name" && column.format == "name"), "{}", printer.kind);
    }
}

#[test]
fn kinds_without_a_printer_show_name_and_age() {
    let cells =
        (printer("example.com", "Widget").cells)(&json!({"metadata": {"name": "w", "creationTimestamp": "2024-01-02T11:59:55Z"}}), now());
    assert_eq!(cells, [json!("w"), json!("5s")]);
}

#[test]
fn a_column_is_written_as_a_table_column_definition() {
    let column = serde_json::to_value(NAME).expect("serializable");
    assert_eq!(column, json!({"name": "Name", "type": "string", "format": "name", "description": NAME.description, "priority": 0}));
}

#[test]
fn ended_pods_are_marked_so_that_clients_may_leave_them_out() {
    let pod = api_model::kind::find("", "pods").expect("built in");
    assert_eq!(row_conditions(pod, &json!({"status": {"phase": "Running"}})), None);
    let done = row_conditions(pod, &json!({"status": {"phase": "Succeeded"}})).expect("ended");
    assert_eq!(done[0]["type"], "Completed");
    assert_eq!(done[0]["reason"], "Succeeded");
}
