//! Merges the OpenAPI v2 documents of other servers with Skiff's own, as upstream's aggregator does. From each document
//! it takes the paths of one version, with the definitions and parameters that these refer to. A definition that exists
//! under the same name with the same content is left out. A definition whose name exists with other content gets a new
//! name, `NAME_v2`.
//!
//! The documents are untrusted. They are stored as text, which takes a tenth of the memory of a tree. At most one is
//! parsed at a time.

mod form;
mod merge;
mod part;

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::kind::Kind;
use serde_json::Value;

use self::merge::Merger;
use self::part::Part;

/// The maximum of `{`, `[` and `,` in a document, which limits its tree to about 150 MB. The document of a whole
/// Kubernetes has fewer.
const MARKS_MAX: usize = 500_000;
/// The kinds of a definition; not part of its content.
const GVK: &str = "x-kubernetes-group-version-kind";

/// Why a document cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// Its tree would be too large.
    #[error("it has more than {MARKS_MAX} parts")]
    TooManyParts,
    /// The document is not JSON.
    #[error("it is no JSON")]
    NotJson(#[from] serde_json::Error),
    /// The document is not OpenAPI v2.
    #[error("it is not of OpenAPI 2.0")]
    NotV2,
    /// The document has none of the wanted paths.
    #[error("it has no path of the version")]
    NoPaths,
    /// Clients could not read the document: an entry of this name has a value of a wrong type.
    #[error("an entry {0:?} is of another type than it should be")]
    Mistyped(String),
    /// A definition is missing that the document refers to.
    #[error("the reference {0:?} leads nowhere")]
    Dangling(String),
    /// All possible names of one of its definitions or parameters are taken.
    #[error("no name is left for {0:?}")]
    NoNameLeft(String),
}

/// The additions of other servers to Skiff's document, each entry by its name, as JSON text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    pub(super) paths: BTreeMap<String, String>,
    pub(super) definitions: BTreeMap<String, String>,
    pub(super) parameters: BTreeMap<String, String>,
    /// The kinds of Skiff's own definitions, merged with the kinds that other documents give them.
    gvks: BTreeMap<String, Value>,
}

impl Others {
    /// One of Skiff's own definitions, with the merged kinds.
    pub(super) fn completed(&self, name: &str, mut definition: Value) -> Value {
        if let (Some(gvks), Some(fields)) = (self.gvks.get(name), definition.as_object_mut()) {
            fields.insert(GVK.to_owned(), gvks.clone());
        }
        definition
    }
}

/// Each entry of [`Others`] with its value. Only one value is in memory at a time.
pub(super) fn values(entries: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, Value)> {
    // The text was written from a value, so it parses.
    entries.iter().filter_map(|(name, text)| Some((name.as_str(), serde_json::from_str(text).ok()?)))
}

/// The paths of an OpenAPI v2 document that start with a prefix, as compact JSON: `paths`, and the `definitions` and
/// `parameters` that they refer to.
///
/// # Errors
/// The document has no such path, or cannot be merged.
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

/// Merges parts of other servers' documents ([`v2_part`]), each with a name, for the document of these kinds. If two
/// parts have the same path, the first part's path counts; Skiff's own paths come before all. `left_out` receives the
/// name of each part that cannot be merged, and the reason.
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
