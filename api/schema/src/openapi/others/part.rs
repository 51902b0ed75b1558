//! The paths of a document, with the definitions and parameters that they refer to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::super::render::V2_DEFINITIONS;
use super::Unfit;
use super::form::Form;

/// The prefix of references to parameters.
const PARAMETERS: &str = "#/parameters/";

/// Sections of a document by name.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) paths: Map<String, Value>,
    pub(super) definitions: Map<String, Value>,
    pub(super) parameters: Map<String, Value>,
}

impl Part {
    pub(super) fn parse(mut document: Value) -> Result<Self, Unfit> {
        let mut section = |name: &str| match document.get_mut(name).map(Value::take) {
            None => Ok(Map::new()),
            Some(Value::Object(entries)) => Ok(entries),
            Some(_) => Err(Unfit::Mistyped(name.to_owned())),
        };
        Ok(Self { paths: section("paths")?, definitions: section("definitions")?, parameters: section("parameters")? })
    }

    /// Keeps only the wanted paths, with the definitions and parameters that they refer to. As upstream, other
    /// references and missing parameters are left for the reader of the document.
    pub(super) fn narrow(&mut self, is_wanted: impl Fn(&str) -> bool) -> Result<(), Unfit> {
        self.paths.retain(|path, _| is_wanted(path));
        let (mut definitions, mut parameters) = (BTreeSet::new(), BTreeSet::new());
        let mut open = vec![(Form::Paths, &self.paths)];
        while let Some((form, fields)) = open.pop() {
            let mut targets = Vec::new();
            form.references(fields, &mut targets);
            for target in targets {
                if let Some(name) = target.strip_prefix(V2_DEFINITIONS).map(unescaped) {
                    let body = self.definitions.get(&name).ok_or_else(|| Unfit::Dangling(target.to_owned()))?;
                    if definitions.insert(name) {
                        open.extend(body.as_object().map(|fields| (Form::Schema, fields)));
                    }
                } else if let Some(name) = target.strip_prefix(PARAMETERS).map(unescaped)
                    && let Some(body) = self.parameters.get(&name)
                    && parameters.insert(name)
                {
                    open.extend(body.as_object().map(|fields| (Form::Parameter, fields)));
                }
            }
        }
        self.definitions.retain(|name, _| definitions.contains(name));
        self.parameters.retain(|name, _| parameters.contains(name));
        Ok(())
    }

    /// Checks that all values have the types that clients expect.
    pub(super) fn check(&self) -> Result<(), Unfit> {
        let sections = [(Form::Paths, &self.paths), (Form::Schemas, &self.definitions), (Form::Parameters, &self.parameters)];
        let misfit = sections.into_iter().find_map(|(form, entries)| form.misfit(entries));
        misfit.map_or(Ok(()), |name| Err(Unfit::Mistyped(name.to_owned())))
    }

    /// Renames definitions and parameters, by their present names, and changes the references to them.
    pub(super) fn rename(&mut self, definitions: &BTreeMap<String, String>, parameters: &BTreeMap<String, String>) {
        let new = |target: &str| {
            let sections = [(V2_DEFINITIONS, definitions), (PARAMETERS, parameters)];
            let new = |(prefix, names): (&str, &BTreeMap<String, String>)| {
                let new = names.get(&unescaped(target.strip_prefix(prefix)?))?;
                Some(format!("{prefix}{}", new.replace('~', "~0").replace('/', "~1")))
            };
            sections.into_iter().find_map(new)
        };
        Form::Paths.relink(&mut self.paths, &new);
        Form::Schemas.relink(&mut self.definitions, &new);
        Form::Parameters.relink(&mut self.parameters, &new);
        for (entries, names) in [(&mut self.definitions, definitions), (&mut self.parameters, parameters)] {
            let old = std::mem::take(entries);
            entries.extend(old.into_iter().map(|(name, body)| (names.get(&name).cloned().unwrap_or(name), body)));
        }
    }

    /// The part as a JSON object.
    pub(super) fn into_text(self) -> Vec<u8> {
        let sections = [("paths", self.paths), ("definitions", self.definitions), ("parameters", self.parameters)];
        let part: Map<String, Value> = sections.into_iter().map(|(name, entries)| (name.to_owned(), entries.into())).collect();
        Value::from(part).to_string().into_bytes()
    }
}

/// A name in a JSON pointer (RFC 6901, section 4).
fn unescaped(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}
