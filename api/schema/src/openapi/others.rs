//! OpenAPI v2 of other servers beside our own, put together as upstream's aggregator does it: of each document the
//! paths of one version with the definitions and parameters that these lead to. What is here already under its name
//! is left out; what stands here for something else under that name gets a new one, `NAME_v2`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api_model::kind::Kind;
use serde_json::{Map, Value};

use super::render::{self, V2_DEFINITIONS};
use super::{definitions, operations};

/// Where references to parameters point.
const PARAMETERS: &str = "#/parameters/";
/// What a definition stands for: no part of what it says.
const GVK: &str = "x-kubernetes-group-version-kind";

/// What other servers add to the document of some kinds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Others {
    pub(super) paths: Map<String, Value>,
    pub(super) definitions: Map<String, Value>,
    pub(super) parameters: Map<String, Value>,
    /// What definitions of ours stand for, with what others have them stand for too.
    gvks: BTreeMap<String, Value>,
}

impl Others {
    /// A definition of ours as the whole document has it.
    pub(super) fn completed(&self, name: &str, mut definition: Value) -> Value {
        if let (Some(gvks), Some(fields)) = (self.gvks.get(name), definition.as_object_mut()) {
            fields.insert(GVK.to_owned(), gvks.clone());
        }
        definition
    }
}

/// The part of an OpenAPI v2 document that is about paths with a prefix: `paths`, and the `definitions` and `parameters`
/// that they lead to. None where there is no such path, or where the document could not stand beside ours: it is of another
/// version, a reference leads out of it, or what should be an object is none.
pub fn v2_part(document: &Value, prefix: &str) -> Option<Value> {
    let is_v2 = document.get("swagger").and_then(Value::as_str) == Some("2.0");
    narrowed(document, |path| path.starts_with(prefix)).filter(|_| is_v2)
}

/// What parts of other servers' documents ([`v2_part`]) add to that of these kinds. Of two that have a path the first
/// keeps it, and ours before all.
pub fn v2_others<'p>(kinds: &[Arc<Kind>], parts: impl IntoIterator<Item = &'p Value>) -> Others {
    let parts: Vec<&Value> = parts.into_iter().collect();
    if parts.is_empty() {
        return Others::default();
    }
    let mut merger = Merger { own: Own::of(kinds, &parts), others: Others::default() };
    parts.into_iter().for_each(|part| merger.add(part));
    merger.others
}

fn narrowed(document: &Value, is_wanted: impl Fn(&str) -> bool) -> Option<Value> {
    let nothing = Map::new();
    let section = |name: &str| document.get(name).map_or(Some(&nothing), Value::as_object);
    let (all_definitions, all_parameters) = (section("definitions")?, section("parameters")?);
    let paths: Map<String, Value> =
        section("paths")?.iter().filter(|(path, _)| is_wanted(path)).map(|(path, item)| (path.clone(), item.clone())).collect();
    if paths.is_empty() || !paths.values().all(Value::is_object) {
        return None;
    }
    let (mut definitions, mut parameters) = (Map::new(), Map::new());
    let mut open: Vec<&Value> = paths.values().collect();
    while let Some(value) = open.pop() {
        let mut targets = Vec::new();
        references(value, &mut targets);
        for target in targets {
            let (name, from, to) = match target.strip_prefix(V2_DEFINITIONS) {
                Some(name) => (name, all_definitions, &mut definitions),
                None => (target.strip_prefix(PARAMETERS)?, all_parameters, &mut parameters),
            };
            if !to.contains_key(name) {
                let body = from.get(name).filter(|body| body.is_object())?;
                to.insert(name.to_owned(), body.clone());
                open.push(body);
            }
        }
    }
    let sections = [("paths", paths), ("definitions", definitions), ("parameters", parameters)];
    Some(sections.into_iter().map(|(name, entries)| (name.to_owned(), entries.into())).collect::<Map<_, Value>>().into())
}

/// Where the references in a value point. A property may have that name too, but then it is no text.
fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// Points references elsewhere.
fn relink(value: &mut Value, targets: &BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match value.as_str().filter(|_| name == "$ref").and_then(|target| targets.get(target)) {
                    Some(target) => *value = target.as_str().into(),
                    None => relink(value, targets),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|value| relink(value, targets)),
        _ => {}
    }
}

/// What is in our own document, as far as it matters.
struct Own {
    paths: BTreeSet<String>,
    /// What a definition says is known where others have one of its name.
    definitions: BTreeMap<String, Option<Value>>,
}

impl Own {
    fn of(kinds: &[Arc<Kind>], parts: &[&Value]) -> Self {
        let paths = operations::paths(kinds).iter().map(|item| item.path.clone()).collect();
        let mut all = BTreeMap::new();
        definitions::each(kinds, &mut |name, schema| {
            let is_asked_for = parts.iter().any(|part| part.get("definitions").is_some_and(|known| known.get(name).is_some()));
            all.insert(name.to_owned(), is_asked_for.then(|| render::v2_schema(schema)));
        });
        Self { paths, definitions: all }
    }
}

struct Merger {
    own: Own,
    others: Others,
}

impl Merger {
    fn add(&mut self, part: &Value) {
        let is_new = |path: &str| !self.own.paths.contains(path) && !self.others.paths.contains_key(path);
        let Some(mut part) = narrowed(part, is_new) else { return };
        let mut taken = |name: &str| match part.get_mut(name).map(Value::take) {
            Some(Value::Object(entries)) => entries,
            _ => Map::new(),
        };
        let (paths, definitions, parameters) = (taken("paths"), taken("definitions"), taken("parameters"));
        let new_definitions = renames(&definitions, |name| self.definition(name), is_same_definition);
        let new_parameters = renames(&parameters, |name| self.others.parameters.get(name).map(Some), |one, other| one == other);
        let of = |prefix: &'static str, (old, new): (&String, &String)| (format!("{prefix}{old}"), format!("{prefix}{new}"));
        let targets = new_definitions.iter().map(|pair| of(V2_DEFINITIONS, pair));
        let targets: BTreeMap<_, _> = targets.chain(new_parameters.iter().map(|pair| of(PARAMETERS, pair))).collect();
        let renamed = |(name, mut body): (String, Value), names: &BTreeMap<String, String>| {
            relink(&mut body, &targets);
            (names.get(&name).cloned().unwrap_or(name), body)
        };
        let nothing = BTreeMap::new();
        self.others.paths.extend(paths.into_iter().map(|entry| renamed(entry, &nothing)));
        for entry in parameters {
            let (name, body) = renamed(entry, &new_parameters);
            self.others.parameters.entry(name).or_insert(body);
        }
        for entry in definitions {
            let (name, body) = renamed(entry, &new_definitions);
            self.define(name, body);
        }
    }

    /// Whether there is a definition of that name, and what it says where that is known.
    fn definition(&self, name: &str) -> Option<Option<&Value>> {
        let own = self.own.definitions.get(name).map(Option::as_ref);
        own.or_else(|| self.others.definitions.get(name).map(Some))
    }

    /// Adds a definition, or what it stands for to the one that says the same.
    fn define(&mut self, name: String, body: Value) {
        if let Some(own) = self.own.definitions.get(&name) {
            let known = self.others.gvks.get(&name).or_else(|| own.as_ref()?.get(GVK));
            if let Some(all) = union(known, body.get(GVK)) {
                self.others.gvks.insert(name, all);
            }
        } else if let Some(known) = self.others.definitions.get_mut(&name) {
            if let (Some(all), Some(fields)) = (union(known.get(GVK), body.get(GVK)), known.as_object_mut()) {
                fields.insert(GVK.to_owned(), all);
            }
        } else {
            self.others.definitions.insert(name, body);
        }
    }
}

/// New names for those entries whose name stands for something else: the first with a number that is free, or that
/// stands for the same. `known` is whether a name stands for anything, and for what.
fn renames<'k>(
    entries: &Map<String, Value>,
    known: impl Fn(&str) -> Option<Option<&'k Value>>,
    is_same: impl Fn(&Value, &Value) -> bool,
) -> BTreeMap<String, String> {
    let mut renames = BTreeMap::new();
    let mut given = BTreeSet::new();
    for (name, body) in entries {
        let is_fit = |candidate: &String| match known(candidate) {
            Some(there) => there.is_some_and(|there| is_same(there, body)),
            None => candidate == name || !entries.contains_key(candidate) && !given.contains(candidate),
        };
        let mut candidates = std::iter::once(name.clone()).chain((2_u64..).map(|number| format!("{name}_v{number}")));
        // One of that many numbers is free.
        let Some(new) = candidates.find(is_fit).filter(|new| new != name) else { continue };
        given.insert(new.clone());
        renames.insert(name.clone(), new);
    }
    renames
}

/// Whether two definitions say the same, whatever they stand for.
fn is_same_definition(one: &Value, other: &Value) -> bool {
    let said = |definition: &Value| -> Option<BTreeMap<String, Value>> {
        Some(definition.as_object()?.iter().filter(|(name, _)| *name != GVK).map(|(name, value)| (name.clone(), value.clone())).collect())
    };
    said(one) == said(other)
}

/// What either stands for, in order; none where the second adds nothing.
fn union(known: Option<&Value>, more: Option<&Value>) -> Option<Value> {
    let known = known.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut all = known.to_vec();
    for gvk in more?.as_array()? {
        if !all.contains(gvk) {
            all.push(gvk.clone());
        }
    }
    if all.len() == known.len() {
        return None;
    }
    let text = |gvk: &Value, field: &str| gvk.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    all.sort_by_cached_key(|gvk| (text(gvk, "group"), text(gvk, "version"), text(gvk, "kind")));
    Some(all.into())
}

#[cfg(test)]
mod tests;
