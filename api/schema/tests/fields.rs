//! Checks the table of effects (`api_model::acted`) against the schemas of the served kinds and against the sources of
//! the parts that the table names. Checks also `docs/fields.md`, which is generated from the table.

#![allow(clippy::expect_used, clippy::panic, reason = "what a test cannot do fails it")]

#[path = "fields/page.rs"]
mod page;
#[path = "fields/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use api_model::acted::{self, Acts, Field, Part};
use api_model::kind;
use api_schema::{Schema, Shape};

use crate::source::Source;

/// Fields of every object, and fields that the parts themselves write.
const OUTSIDE: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
/// Types whose fields one function reads for all kinds, or whose content is data of clients.
const CLOSED: [&str; 6] = ["LabelSelector", "ObjectMeta", "JSONSchemaProps", "ObjectReference", "Time", "MicroTime"];

fn is_closed(schema: &Schema) -> bool {
    schema.definition().and_then(|name| name.rsplit('.').next()).is_some_and(|name| CLOSED.contains(&name))
}

/// Walks the schema of a kind along with its rows.
struct Walk<'a> {
    rows: &'a BTreeMap<String, &'static Field>,
    used: HashSet<String>,
    faults: Vec<String>,
}

impl Walk<'_> {
    fn has_rows_below(&self, path: &str) -> bool {
        self.rows.keys().any(|row| row.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '['])))
    }

    fn field(&mut self, schema: &Schema, path: &str) {
        let below = self.has_rows_below(path);
        match (self.rows.get(path), below) {
            (Some(_), true) => self.faults.push(format!("{path} has a row, and so have fields in it")),
            (Some(_), false) => drop(self.used.insert(path.to_owned())),
            (None, false) => self.faults.push(format!("nobody says who acts on {path}")),
            (None, true) => match schema.shape() {
                Shape::Array(items) => self.inside(items, &format!("{path}[]")),
                _ => self.inside(schema, path),
            },
        }
    }

    fn inside(&mut self, schema: &Schema, path: &str) {
        for (name, field) in schema.properties() {
            self.field(field, &format!("{path}.{name}"));
        }
    }
}

#[test]
fn every_field_of_every_kind_has_exactly_one_row() {
    let mut faults = Vec::new();
    for kind in kind::builtin() {
        let whole = kind.api_version();
        let Some(row) = acted::acted_on_by(kind) else {
            faults.push(format!("{whole} {}: nobody says who acts on it", kind.kind));
            continue;
        };
        let mut rows = BTreeMap::new();
        for (path, field) in row.fields() {
            if rows.insert(path.clone(), field).is_some() {
                faults.push(format!("{whole} {}: {path} has two rows", kind.kind));
            }
        }
        if matches!(row.acts, Acts::Nobody(_)) || rows.contains_key("") {
            continue;
        }
        let schema = api_schema::of_kind(kind).expect("served kinds have schemas");
        let mut walk = Walk { rows: &rows, used: HashSet::new(), faults: Vec::new() };
        for (name, field) in schema.properties().filter(|(name, _)| !OUTSIDE.contains(name)) {
            walk.field(field, name);
        }
        let unused: Vec<String> = rows.keys().filter(|path| !walk.used.contains(*path)).map(|path| format!("there is no {path}")).collect();
        faults.extend(walk.faults.into_iter().chain(unused).map(|fault| format!("{whole} {}: {fault}", kind.kind)));
    }
    for row in acted::rows() {
        if !kind::builtin().iter().any(|kind| kind.group == row.group && kind.kind == row.kind) {
            faults.push(format!("{}/{} is not served", row.group, row.kind));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The names of the fields below a schema.
fn names_below(schema: &Schema, seen: &mut HashSet<&'static str>, names: &mut Vec<String>) {
    if is_closed(schema) || schema.definition().is_some_and(|name| !seen.insert(name)) {
        return;
    }
    match schema.shape() {
        Shape::Array(items) | Shape::Map(items) => names_below(items, seen, names),
        _ => {
            for (name, field) in schema.properties() {
                names.push(name.to_owned());
                names_below(field, seen, names);
            }
        }
    }
}

/// The schema at a path.
fn find<'a>(schema: &'a Schema, path: &str) -> Option<&'a Schema> {
    path.split('.').filter(|step| !step.is_empty()).try_fold(schema, |schema, step| match step.strip_suffix("[]") {
        Some(name) => schema.property(name)?.items(),
        None => schema.property(step),
    })
}

fn last(path: &str) -> &str {
    path.rsplit(['.', ']']).find(|step| !step.is_empty()).unwrap_or_default().trim_end_matches("[]")
}

/// The faults of a row with a part that acts.
fn faults_of_acted(kind: &kind::Kind, schema: &Schema, path: &str, field: &Field, source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let inside: Vec<&Part> = field.acted_on_by.iter().filter(|part| **part != Part::Clients).collect();
    for part in &inside {
        if let Part::Controller(name) = part
            && !source.is_controller(name)
        {
            faults.push(format!("there is no {name}"));
        }
    }
    if inside.is_empty() {
        return faults;
    }
    let wanted = if path.is_empty() { vec![kind.kind.as_str(), kind.plural.as_str()] } else { vec![last(path)] };
    if !inside.iter().any(|part| source::is_of(part, field.source)) {
        faults.push(format!("{} is no file of who acts", field.source));
    } else if !wanted.iter().any(|name| source.file_mentions(field.source, name)) {
        faults.push(format!("{} does not mention it", field.source));
    }
    let mut below = Vec::new();
    let schema_there = find(schema, path).expect("checked by the other test");
    if path.is_empty() {
        for (name, field) in schema.properties().filter(|(name, _)| !OUTSIDE.contains(name)) {
            below.push(name.to_owned());
            names_below(field, &mut HashSet::new(), &mut below);
        }
    } else {
        names_below(schema_there, &mut HashSet::new(), &mut below);
    }
    let unread = below.iter().filter(|name| !inside.iter().any(|part| source.part_mentions(part, name)));
    faults.extend(unread.map(|name| format!("{name} in it is mentioned nowhere")));
    faults
}

/// The fault of a row without a part that acts.
fn fault_of_unacted(path: &str, field: &Field, source: &Source) -> Option<String> {
    let places = source.who_mentions(last(path));
    match (places.is_empty(), field.source.is_empty()) {
        (true, true) | (false, false) => None,
        (false, true) => Some(format!("nobody is said to act, but look at {}", places.join(", "))),
        (true, false) => Some("nothing mentions it any more, and the row tells why something does".to_owned()),
    }
}

#[test]
fn who_is_said_to_act_does_and_nobody_else() {
    let source = Source::read();
    let mut faults = BTreeSet::new();
    for kind in kind::builtin() {
        let row = acted::acted_on_by(kind).expect("checked by the other test");
        let schema = api_schema::of_kind(kind).expect("served kinds have schemas");
        for (path, field) in row.fields() {
            // The spec of a Pod is checked once.
            if row.pod_spec.is_some_and(|base| kind.kind != "Pod" && path.starts_with(base)) {
                continue;
            }
            let found = match field.acted_on_by {
                [] => fault_of_unacted(&path, field, &source).into_iter().collect(),
                _ => faults_of_acted(kind, schema, &path, field, &source),
            };
            faults.extend(found.into_iter().map(|fault| format!("{} {path}: {fault}", kind.kind)));
        }
    }
    let faults: Vec<String> = faults.into_iter().collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_page_is_made_from_the_table() {
    let file = source::root().join("docs/fields.md");
    let page = page::page();
    if std::env::var_os("SKIFF_WRITE_DOCS").is_some() {
        std::fs::write(&file, &page).expect("docs/fields.md");
    }
    let stored = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(stored == page, "docs/fields.md is not what the table says: SKIFF_WRITE_DOCS=1 cargo test -p api-schema --test fields");
}
