//! OpenAPI v2 of other servers beside our own, put together as upstream's aggregator does it: of each document the
//! paths of one version with the definitions and parameters that these lead to. What is here already under its name
//! is left out; what stands here for something else under that name gets a new one, `NAME_v2`.
//!
//! Documents come from strangers. They are kept as text, which is a tenth of their tree, and one at a time is a tree.

mod form;
mod merge;
mod part;

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::kind::Kind;
use serde_json::Value;

use self::merge::Merger;
use self::part::Part;

/// The most that a document may have of `{`, `[` and `,` together, which bounds its tree to some 150 MB. A whole
/// Kubernetes has less.
const MARKS_MAX: usize = 500_000;
/// What a definition stands for: no part of what it says.
const GVK: &str = "x-kubernetes-group-version-kind";

/// Why a document cannot stand beside ours.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// Its tree would be too large.
    #[error("it has more than {MARKS_MAX} parts")]
    TooManyParts,
    /// It cannot be read.
    #[error("it is no JSON")]
    NotJson(#[from] serde_json::Error),
    /// It is another kind of document.
    #[error("it is not of OpenAPI 2.0")]
    NotV2,
    /// None of its paths is wanted.
    #[error("it has no path of the version")]
    NoPaths,
    /// Clients could not read it: an entry of that name holds what it must not.
    #[error("an entry {0:?} is of another type than it should be")]
    Mistyped(String),
    /// A definition that is referred to is missing.
    #[error("the reference {0:?} leads nowhere")]
    Dangling(String),
    /// Every name that could be given to one of its definitions or parameters stands for something else.
    #[error("no name is left for {0:?}")]
    NoNameLeft(String),
}

/// What other servers add to the document of some kinds: each entry by its name, as JSON text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    pub(super) paths: BTreeMap<String, String>,
    pub(super) definitions: BTreeMap<String, String>,
    pub(super) parameters: BTreeMap<String, String>,
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

/// Each entry of [`Others`] with its value. One is a tree at a time.
pub(super) fn values(entries: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, Value)> {
    // Each was written from a value.
    entries.iter().filter_map(|(name, text)| Some((name.as_str(), serde_json::from_str(text).ok()?)))
}

/// The part of an OpenAPI v2 document, as compact JSON, that is about paths with a prefix: `paths`, and the `definitions`
/// and `parameters` that they lead to.
///
/// # Errors
/// Where there is no such path, or where the document could not stand beside ours.
pub fn v2_part(document: &[u8], prefix: &str) -> Result<Vec<u8>, Unfit> {
    if document.iter().filter(|byte| matches!(byte, b'{' | b'[' | b',')).count() > MARKS_MAX {
        return Err(Unfit::TooManyParts);
    }
    let document: Value = serde_json::from_slice(document)?;
    if document.get("swagger").and_then(Value::as_str) != Some("2.0") {
        return Err(Unfit::NotV2);
    }
    let mut part = Part::parse(document)?;
    part.narrow(|path| path.starts_with(prefix))?;
    if part.paths.is_empty() {
        return Err(Unfit::NoPaths);
    }
    part.check()?;
    Ok(part.into_text())
}

/// What parts of other servers' documents ([`v2_part`]), each with a name, add to that of these kinds. Of two that have a
/// path the first keeps it, and ours before all. `left_out` is told the name of each that cannot be added.
pub fn v2_others<'p>(
    kinds: &[Arc<Kind>],
    parts: impl IntoIterator<Item = (&'p str, &'p [u8])>,
    mut left_out: impl FnMut(&str, Unfit),
) -> Others {
    let mut parts = parts.into_iter().peekable();
    if parts.peek().is_none() {
        return Others::default();
    }
    let mut merger = Merger::new(kinds);
    for (name, part) in parts {
        merger.add(part).unwrap_or_else(|why| left_out(name, why));
    }
    merger.others
}

#[cfg(test)]
mod tests;
