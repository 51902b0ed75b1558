//! The table of `kubectl get`: the columns of each kind and the cells of one object's row, as upstream's
//! `pkg/printers/internalversion` fills them. All functions are pure, over a JSON value and a time. The client adds the
//! namespace column, the headers and the alignment.
//!
//! A kind is one `Printer` in the file of its family: its columns and the function that fills them.

mod access;
mod config;
mod custom;
mod duration;
mod event;
mod extension;
mod metrics;
mod network;
mod node;
mod pod;
mod printer;
mod read;
mod selector;
mod storage;
mod workload;

use std::borrow::Cow;

use api_model::kind::Kind;
use jiff::Timestamp;
use serde_json::{Value, json};

pub use duration::human as human_duration;
pub use printer::Column;

use printer::{AGE, NAME, Printer};

/// The columns of a kind; name and age for kinds without their own.
pub fn columns(kind: &Kind) -> Cow<'_, [Column<'_>]> {
    match &kind.custom {
        Some(custom) => custom::columns(custom).into(),
        None => printer(&kind.group, &kind.kind).columns.into(),
    }
}

/// The cells of one object, one for each of [`columns`], including those of lower priority.
pub fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    match &kind.custom {
        Some(custom) => custom::cells(custom, object, now),
        None => (printer(&kind.group, &kind.kind).cells)(object, now),
    }
}

/// The conditions of a row (`TableRowCondition`): one says that a Pod has ended, so that clients may omit the row.
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

/// The printers, by family.
static PRINTERS: [&[Printer]; 10] = [
    pod::PRINTERS,
    workload::PRINTERS,
    network::PRINTERS,
    node::PRINTERS,
    config::PRINTERS,
    event::PRINTERS,
    access::PRINTERS,
    storage::PRINTERS,
    extension::PRINTERS,
    metrics::PRINTERS,
];

static DEFAULT: Printer =
    Printer { group: "", kind: "", columns: &[NAME, AGE], cells: |object, now| vec![read::name(object), read::age(object, now)] };

fn printer(group: &str, kind: &str) -> &'static Printer {
    PRINTERS.iter().copied().flatten().find(|p| p.kind == kind && p.group == group).unwrap_or(&DEFAULT)
}

#[cfg(test)]
mod tests;
