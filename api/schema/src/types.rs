//! The schemas of k8s-openapi's types, as its `schemars` feature generates them.
//!
//! The program has them as text. The code that generates them is not in the program: it would be 2 MB of machine code, where the files are 0.4 MB.
//! `tests/definitions.rs` generates the files of `api/schema/definitions`, and checks that they say what the types say.
//!
//! A line of the files has three fields with tabs between them: upstream's name of the type (for example
//! `io.k8s.api.apps.v1.Deployment`), `GROUP/VERSION/KIND` if the type is the body of a kind, and the schema as JSON. The
//! lines are in the order of the names.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read as _;
use std::sync::LazyLock;

use flate2::read::GzDecoder;

static SHAPES: &str = include_str!("../definitions/shapes.tsv");
static DESCRIBED: &[u8] = include_bytes!("../definitions/described.tsv.gz");

/// The lines of a file.
pub(crate) struct Types {
    text: Cow<'static, str>,
    /// The offset of each line.
    lines: Vec<usize>,
}

impl Types {
    /// The types without descriptions. They stay part of the program's file, and are paged in as they are read.
    pub(crate) fn shapes() -> &'static Self {
        static TYPES: LazyLock<Types> = LazyLock::new(|| Types::new(SHAPES.into()));
        &TYPES
    }

    /// The types with their descriptions: 0.9 MB of text, which the caller drops after use.
    pub(crate) fn described() -> Self {
        let mut text = String::new();
        // The file is part of the program, and a test reads it to the end.
        let _ = GzDecoder::new(DESCRIBED).read_to_string(&mut text);
        Self::new(text.into())
    }

    fn new(text: Cow<'static, str>) -> Self {
        let lines = text.split_inclusive('\n').scan(0, |end, line| Some(std::mem::replace(end, *end + line.len()))).collect();
        Self { text, lines }
    }

    fn line(&self, start: usize) -> Option<(&str, &str, &str)> {
        let (name, rest) = self.text.get(start..)?.split_once('\t')?;
        let (gvk, rest) = rest.split_once('\t')?;
        Some((name, gvk, rest.lines().next()?))
    }

    /// Name, `GROUP/VERSION/KIND` and schema of every type.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.lines.iter().filter_map(|start| self.line(*start))
    }

    /// The schema of a type as JSON text, by its name.
    pub(crate) fn schema(&self, name: &str) -> Option<&str> {
        let at = self.lines.binary_search_by(|start| self.line(*start).map(|(found, ..)| found).cmp(&Some(name))).ok()?;
        self.line(*self.lines.get(at)?).map(|(_, _, schema)| schema)
    }
}

/// The names of the types of all described kinds, by `GROUP/VERSION/KIND`: served objects, bodies of subresources, and
/// other bodies in responses.
pub(crate) fn kinds() -> &'static HashMap<&'static str, &'static str> {
    static KINDS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
        let types = Types::shapes().all();
        types.filter(|(_, gvk, _)| !gvk.is_empty()).map(|(name, gvk, _)| (gvk, name)).collect()
    });
    &KINDS
}

#[cfg(test)]
mod tests;
