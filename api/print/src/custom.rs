//! Columns of custom resources: the name and `additionalPrinterColumns`, or the name and the age where the definition
//! has no columns.

use api_model::json_path::{JsonPath, printed};
use api_model::kind::{Custom, CustomColumn, Slot};
use jiff::Timestamp;
use serde_json::{Number, Value};

use crate::duration::human as human_duration;
use crate::printer::{AGE, Column, NAME};
use crate::read;

/// The columns of a definition.
pub(crate) fn columns(custom: &Custom) -> Vec<Column<'_>> {
    let mut columns = vec![NAME];
    if custom.columns.is_empty() {
        columns.push(Column { kind: "date", ..AGE });
    }
    columns.extend(custom.columns.iter().map(|column| Column {
        name: &column.name,
        kind: &column.kind,
        format: &column.format,
        description: &column.description,
        priority: column.priority,
    }));
    columns
}

/// The cells of one object.
pub(crate) fn cells(custom: &Custom, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![read::name(object)];
    if custom.columns.is_empty() {
        cells.push(read::age(object, now));
    }
    let parse = || -> Vec<Option<JsonPath>> { custom.columns.iter().map(|column| JsonPath::parse(&column.json_path).ok()).collect() };
    let paths = custom.cached(Slot::Columns, parse).map(Vec::as_slice).unwrap_or_default();
    cells.extend(custom.columns.iter().zip(paths).map(|(column, path)| {
        let found = path.as_ref().and_then(|path| path.find(object).first().copied());
        found.and_then(|value| cell(column, value, now)).unwrap_or(Value::Null)
    }));
    cells
}

/// A value in the form of its column's type; `None` where it does not fit the type.
fn cell(column: &CustomColumn, value: &Value, now: Timestamp) -> Option<Value> {
    match column.kind.as_str() {
        _ if value.is_null() => None,
        "string" => Some(printed(value).into()),
        "integer" => match value.as_i64() {
            Some(number) => Some(number.into()),
            #[expect(clippy::cast_possible_truncation, reason = "upstream cuts the fraction off, and what is too large")]
            None => value.as_f64().map(|number| (number as i64).into()),
        },
        "number" => value.as_f64().and_then(Number::from_f64).map(Value::Number),
        "boolean" => value.as_bool().map(Value::Bool),
        "date" => value.as_str().map(|text| {
            let at: Option<Timestamp> = text.parse().ok();
            at.map_or_else(|| "<invalid>".to_owned(), |at| human_duration(now.duration_since(at))).into()
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_have_the_types_of_their_columns() {
        let column = |name: &str, kind: &str, path: &str| CustomColumn {
            name: name.to_owned(),
            kind: kind.to_owned(),
            json_path: path.to_owned(),
            ..CustomColumn::default()
        };
        let custom = Custom {
            columns: vec![
                column("Size", "integer", ".spec.size"),
                column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
                column("Ports", "string", ".spec.ports"),
                column("On", "boolean", ".spec.on"),
                column("Since", "date", ".metadata.creationTimestamp"),
                column("None", "string", ".spec.nothing"),
                column("Wrong", "integer", ".spec.on"),
            ],
            ..Custom::default()
        };
        let object = json!({
            "metadata": {"name": "w", "creationTimestamp": "2024-01-02T11:59:55Z"},
            "spec": {"size": 3, "ports": [80, 81], "on": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let row = cells(&custom, &object, crate::tests::now());
        assert_eq!(row, [json!("w"), json!(3), json!("True"), json!("[80,81]"), json!(true), json!("5s"), Value::Null, Value::Null]);
        assert_eq!(columns(&custom).len(), row.len());
    }

    #[test]
    fn without_columns_there_is_the_age() {
        let object = json!({"metadata": {"name": "w", "creationTimestamp": "2024-01-02T11:59:55Z"}});
        assert_eq!(cells(&Custom::default(), &object, crate::tests::now()), [json!("w"), json!("5s")]);
        assert_eq!(columns(&Custom::default()).len(), 2);
    }
}
