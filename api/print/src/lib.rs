//! What `kubectl get` shows: the columns of each kind and the cells of one object's row, as upstream's
//! `pkg/printers/internalversion` fills them. Pure functions of a JSON value and a time; the namespace
//! column, headers and alignment are the client's business.
//!
//! A kind is one `Printer` in the file of its family: its columns and a function that fills them.

mod access;
mod config;
mod custom;
mod duration;
mod event;
mod extension;
mod network;
mod node;
mod pod;
mod read;
mod selector;
mod storage;
mod workload;

use std::borrow::Cow;

use api_model::kind::Kind;
use jiff::Timestamp;
use serde_json::{Value, json};

pub use duration::human as human_duration;

/// A column definition, as `meta.k8s.io/v1 TableColumnDefinition` carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Column<'a> {
    /// Heading, for example `Name`.
    pub name: &'a str,
    /// OpenAPI type of the cells.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// `name` marks the column that identifies the row.
    pub format: &'a str,
    /// What the column tells.
    pub description: &'a str,
    /// 0 is always shown, 1 only with `-o wide`.
    pub priority: i32,
}

/// The columns of a kind; name and age for kinds without their own.
pub fn columns(kind: &Kind) -> Cow<'_, [Column<'_>]> {
    match &kind.custom {
        Some(custom) => custom::columns(custom).into(),
        None => printer(&kind.group, &kind.kind).columns.into(),
    }
}

/// The cells of one object, one for each of [`columns`], those of lower priority included.
pub fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    match &kind.custom {
        Some(custom) => custom::cells(custom, object, now),
        None => (printer(&kind.group, &kind.kind).cells)(object, now),
    }
}

/// The conditions of a row (`TableRowCondition`): that a Pod has ended, so that clients may leave it out.
pub fn row_conditions(kind: &Kind, object: &Value) -> Option<Value> {
    if !kind.group.is_empty() || kind.kind != "Pod" {
        return None;
    }
    let (reason, message) = match read::text(object, "status.phase") {
        phase @ "Succeeded" => (phase, "The pod has completed successfully."),
        phase @ "Failed" => (phase, "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// How one kind is shown.
struct Printer {
    group: &'static str,
    kind: &'static str,
    columns: &'static [Column<'static>],
    /// One cell for each column.
    cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// The printers, by family.
static PRINTERS: [&[Printer]; 9] = [
    pod::PRINTERS,
    workload::PRINTERS,
    network::PRINTERS,
    node::PRINTERS,
    config::PRINTERS,
    event::PRINTERS,
    access::PRINTERS,
    storage::PRINTERS,
    extension::PRINTERS,
];

static DEFAULT: Printer =
    Printer { group: "", kind: "", columns: &[NAME, AGE], cells: |object, now| vec![read::name(object), read::age(object, now)] };

fn printer(group: &str, kind: &str) -> &'static Printer {
    PRINTERS.iter().copied().flatten().find(|p| p.kind == kind && p.group == group).unwrap_or(&DEFAULT)
}

const fn column(name: &'static str, kind: &'static str, description: &'static str) -> Column<'static> {
    Column { name, kind, format: "", description, priority: 0 }
}

/// A column of text.
const fn text(name: &'static str, description: &'static str) -> Column<'static> {
    column(name, "string", description)
}

/// A column of whole numbers.
const fn integer(name: &'static str, description: &'static str) -> Column<'static> {
    column(name, "integer", description)
}

/// A column of truth values.
const fn boolean(name: &'static str, description: &'static str) -> Column<'static> {
    column(name, "boolean", description)
}

/// A column of text that only `-o wide` shows.
const fn wide(name: &'static str, description: &'static str) -> Column<'static> {
    Column { name, kind: "string", format: "", description, priority: 1 }
}

const NAME: Column<'static> =
    Column { name: "Name", kind: "string", format: "name", description: "Name of the object, unique in its namespace.", priority: 0 };
const AGE: Column<'static> = text("Age", "Time since the object was created.");
const CREATED_AT: Column<'static> = column("Created At", "date", "When the object was created.");
const CONTAINERS: Column<'static> = wide("Containers", "Names of each container in the template.");
const IMAGES: Column<'static> = wide("Images", "Images referenced by each container in the template.");
const SELECTOR: Column<'static> = wide("Selector", "Labels of the Pods that belong to the object.");

#[cfg(test)]
mod tests;
