//! `meta.k8s.io` Tables (what `kubectl get` prints) and partial metadata.

use api_model::kind::Kind;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::json;

/// The object beside a row's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata alone.
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// From `includeObject=`; metadata by default.
    pub fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("" | "Metadata") => Some(Self::Metadata),
            Some("None") => Some(Self::None),
            Some("Object") => Some(Self::Object),
            Some(_) => None,
        }
    }
}

/// A table of some objects; `columns` only if the client does not have them yet.
pub fn table(version: &str, metadata: Value, kind: &Kind, rows: Vec<Value>, columns: bool) -> Value {
    let definitions = if columns { json!(api_print::columns(kind)) } else { Value::Null };
    json!({"kind": "Table", "apiVersion": version, "metadata": metadata, "columnDefinitions": definitions, "rows": rows})
}

/// One object's row. The cells are those of `printed`, which is of that kind.
pub fn row(version: &str, (kind, printed): (&Kind, &Value), object: &Value, include: IncludeObject, now: Timestamp) -> Value {
    let cells = api_print::cells(kind, printed, now);
    let mut row = match include {
        IncludeObject::None => json!({"cells": cells}),
        IncludeObject::Metadata => json!({"cells": cells, "object": partial(version, object)}),
        IncludeObject::Object => json!({"cells": cells, "object": object}),
    };
    if let Some(conditions) = api_print::row_conditions(kind, printed) {
        json::set(&mut row, &["conditions"], conditions);
    }
    row
}

/// An object's metadata alone.
pub fn partial(version: &str, object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata})
}
