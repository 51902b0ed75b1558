//! A printer: the columns of a kind and the function that fills them. Also the columns that several kinds share.

use jiff::Timestamp;
use serde_json::Value;

/// A column definition: `TableColumnDefinition` of `meta.k8s.io/v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Column<'a> {
    /// Heading, for example `Name`.
    pub name: &'a str,
    /// OpenAPI type of the cells.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// `name` marks the column that identifies the row.
    pub format: &'a str,
    /// The meaning of the column.
    pub description: &'a str,
    /// A column of priority 0 is always shown, one of priority 1 only with `-o wide`.
    pub priority: i32,
}

/// The columns and cells of one kind.
pub(crate) struct Printer {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) columns: &'static [Column<'static>],
    /// One cell for each column.
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
}

pub(crate) const fn column(name: &'static str, kind: &'static str, description: &'static str) -> Column<'static> {
    Column { name, kind, format: "", description, priority: 0 }
}

/// A column of text.
pub(crate) const fn text(name: &'static str, description: &'static str) -> Column<'static> {
    column(name, "string", description)
}

/// A column of whole numbers.
pub(crate) const fn integer(name: &'static str, description: &'static str) -> Column<'static> {
    column(name, "integer", description)
}

/// A column of booleans.
pub(crate) const fn boolean(name: &'static str, description: &'static str) -> Column<'static> {
    column(name, "boolean", description)
}

/// A column of text that only `-o wide` shows.
pub(crate) const fn wide(name: &'static str, description: &'static str) -> Column<'static> {
    Column { name, kind: "string", format: "", description, priority: 1 }
}

pub(crate) const NAME: Column<'static> =
    Column { name: "Name", kind: "string", format: "name", description: "Name of the object, unique in its namespace.", priority: 0 };
pub(crate) const AGE: Column<'static> = text("Age", "Time since the object was created.");
pub(crate) const CREATED_AT: Column<'static> = column("Created At", "date", "When the object was created.");
pub(crate) const CONTAINERS: Column<'static> = wide("Containers", "Names of each container in the template.");
pub(crate) const IMAGES: Column<'static> = wide("Images", "Images referenced by each container in the template.");
pub(crate) const SELECTOR: Column<'static> = wide("Selector", "Labels of the Pods that belong to the object.");
