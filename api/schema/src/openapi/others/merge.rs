//! Merges parts one by one with Skiff's own document. The entries are stored as text, which is parsed only if two
//! entries have the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api_model::kind::Kind;
use serde_json::{Map, Value, json};

use super::super::{definitions, operations, render};
use super::part::Part;
use super::{GVK, Others, Unfit};
use crate::types::Types;

/// The maximum number at the end of a new name.
const NUMBER_MAX: u32 = 100;
/// The maximum of kinds that another server's definition may add.
const GVKS_MAX: usize = 64;

pub(super) struct Merger {
    own_paths: BTreeSet<String>,
    /// As JSON text.
    own_definitions: BTreeMap<String, String>,
    pub(super) others: Others,
}

impl Merger {
    pub(super) fn new(kinds: &[Arc<Kind>]) -> Self {
        let own_paths = operations::paths(kinds).iter().map(|item| item.path.clone()).collect();
        let mut own_definitions = BTreeMap::new();
        definitions::each(&Types::described(), kinds, &mut |name, schema, author| {
            own_definitions.insert(name.to_owned(), render::v2_definition(schema, author).to_string());
        });
        Self { own_paths, own_definitions, others: Others::default() }
    }

    /// Adds the whole part, or on an error nothing of it.
    pub(super) fn add(&mut self, part: &[u8]) -> Result<(), Unfit> {
        let mut part = Part::parse(serde_json::from_slice(part)?)?;
        part.narrow(|path| !self.own_paths.contains(path) && !self.others.paths.contains_key(path))?;
        let new_definitions = renames(&part.definitions, |name| self.definition(name), is_same_definition)?;
        let new_parameters = renames(&part.parameters, |name| self.others.parameters.get(name), |one, other| one == other)?;
        part.rename(&new_definitions, &new_parameters);
        self.others.paths.extend(part.paths.into_iter().map(|(path, item)| (path, item.to_string())));
        for (name, body) in part.parameters {
            self.others.parameters.entry(name).or_insert_with(|| body.to_string());
        }
        part.definitions.into_iter().for_each(|(name, body)| self.define(name, body));
        Ok(())
    }

    /// The definition of a name, as JSON text.
    fn definition(&self, name: &str) -> Option<&String> {
        self.own_definitions.get(name).or_else(|| self.others.definitions.get(name))
    }

    /// Adds a definition. If the definition exists with the same content, adds only the kinds.
    fn define(&mut self, name: String, body: Value) {
        let Some(mut there) = self.definition(&name).and_then(|text| read(text)) else {
            self.others.definitions.insert(name, body.to_string());
            return;
        };
        let known = self.others.gvks.get(&name).or_else(|| there.get(GVK));
        let Some(all) = union(known, body.get(GVK)) else { return };
        if self.own_definitions.contains_key(&name) {
            self.others.gvks.insert(name, all);
        } else if let Some(fields) = there.as_object_mut() {
            fields.insert(GVK.to_owned(), all);
            self.others.definitions.insert(name, there.to_string());
        }
    }
}

/// Parses text that was written from a value.
fn read(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// New names for entries whose name is taken by an entry with other content. The new name has the first number that is
/// free, or whose entry has the same content. `known` returns the entry of a name, as JSON.
fn renames<'k>(
    entries: &Map<String, Value>,
    known: impl Fn(&str) -> Option<&'k String>,
    is_same: impl Fn(&Value, &Value) -> bool,
) -> Result<BTreeMap<String, String>, Unfit> {
    let mut renames = BTreeMap::new();
    let mut given = BTreeSet::new();
    for (name, body) in entries {
        let is_fit = |candidate: &String| match known(candidate) {
            Some(there) => read(there).is_some_and(|there| is_same(&there, body)),
            None => candidate == name || !entries.contains_key(candidate) && !given.contains(candidate),
        };
        let numbered = (2..=NUMBER_MAX).map(|number| format!("{name}_v{number}"));
        let new = std::iter::once(name.clone()).chain(numbered).find(is_fit).ok_or_else(|| Unfit::NoNameLeft(name.clone()))?;
        if new != *name {
            given.insert(new.clone());
            renames.insert(name.clone(), new);
        }
    }
    Ok(renames)
}

/// Whether two definitions have the same content. Their kinds are not compared.
fn is_same_definition(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return false };
    let said = |fields: &Map<String, Value>| fields.len() - usize::from(fields.contains_key(GVK));
    said(one) == said(other) && one.iter().all(|(name, value)| name == GVK || other.get(name) == Some(value))
}

/// The kinds of both lists, sorted; `None` if the second list adds nothing.
fn union(known: Option<&Value>, more: Option<&Value>) -> Option<Value> {
    let mut all: BTreeSet<[&str; 3]> = kinds_of(known).collect();
    let known = all.len();
    all.extend(kinds_of(more).take(GVKS_MAX));
    let gvk = |[group, version, kind]: [&str; 3]| json!({"group": group, "version": version, "kind": kind});
    (all.len() > known).then(|| all.into_iter().map(gvk).collect())
}

/// The valid entries of a list of kinds: group, version and kind of each.
fn kinds_of(list: Option<&Value>) -> impl Iterator<Item = [&str; 3]> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|gvk| Some([gvk.get("group")?.as_str()?, gvk.get("version")?.as_str()?, gvk.get("kind")?.as_str()?]))
}
