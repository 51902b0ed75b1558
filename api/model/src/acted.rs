//! Who acts on what is stored: for every served kind and every field of it, the part of Skiff that does what the field
//! says, or nobody.
//!
//! A field that is accepted and on which nobody acts is a promise that is not kept. Each one is a row here; from the
//! rows come `docs/fields.md`, the warnings that a writer gets, and the answer to "is it there yet". A test of
//! `api-schema` holds the rows against the schemas (every field has exactly one row) and against the source of the
//! parts (who is said to act mentions the field, and where nobody acts nobody mentions it).

mod kinds;
mod pod;
mod workloads;

use crate::kind::Kind;

/// Part of Skiff, or of what surrounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The API server: rules, admission, authorization, what it serves.
    ApiServer,
    /// The scheduler.
    Scheduler,
    /// A controller, by its name.
    Controller(&'static str),
    /// The node agent with its runtimes, volumes, images and network.
    NodeAgent,
    /// The Service proxy of each node.
    Proxy,
    /// The DNS server.
    Dns,
    /// Programs that are not part of Skiff, as upstream: an ingress controller, a load balancer's, whoever made the object.
    Clients,
}

/// Who acts on one field and all that lies in it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The path below the group's prefix: names with dots between, `[]` after a list whose elements are meant. Empty
    /// for everything.
    pub path: &'static str,
    /// Who acts; empty where nobody does.
    pub acted_on_by: &'static [Part],
    /// Where: a source file of one of the parts. Where nobody acts, why the parts mention the field all the same.
    pub place: &'static str,
    /// The version since when this is so.
    pub since: &'static str,
    /// Values that ask for nothing (the default, or what happens anyway), as JSON text: no warning is given.
    pub moot: &'static [&'static str],
}

/// Rows that share the start of their paths.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// What stands before each path.
    pub prefix: &'static str,
    /// The rows.
    pub rows: &'static [Field],
}

/// Who acts on a kind.
#[derive(Clone, Copy, Debug)]
pub enum Acts {
    /// Some part does, on the fields that the rows say.
    Fields(&'static [Fields]),
    /// Nobody does: objects are checked, stored and watched. The sentence says so, in the plural, and stands in
    /// warnings.
    Nobody(&'static str),
}

/// One kind.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Group; empty for core.
    pub group: &'static str,
    /// Kind; the same row holds for all its versions.
    pub kind: &'static str,
    /// Who acts on it.
    pub acts: Acts,
    /// Where it has a Pod's spec, whose rows are [`POD_SPEC`].
    pub pod_spec: Option<&'static str>,
}

/// The rows of a Pod's spec, wherever it stands.
pub const POD_SPEC: &[&[Fields]] = pod::SPEC;

/// The version that all rows began with.
const FIRST: &str = "0.1.0";

impl Field {
    const fn by(acted_on_by: &'static [Part], path: &'static str, place: &'static str) -> Self {
        Self { path, acted_on_by, place, since: FIRST, moot: &[] }
    }

    const fn nobody(path: &'static str) -> Self {
        Self { path, acted_on_by: &[], place: "", since: FIRST, moot: &[] }
    }

    /// Values that ask for nothing.
    const fn moot(self, moot: &'static [&'static str]) -> Self {
        Self { moot, ..self }
    }

    /// Why the parts mention a field on which nobody acts.
    const fn although(self, why: &'static str) -> Self {
        Self { place: why, ..self }
    }
}

impl Row {
    const fn new(group: &'static str, kind: &'static str, fields: &'static [Fields]) -> Self {
        Self { group, kind, acts: Acts::Fields(fields), pod_spec: None }
    }

    const fn nobody(group: &'static str, kind: &'static str, sentence: &'static str) -> Self {
        Self { group, kind, acts: Acts::Nobody(sentence), pod_spec: None }
    }

    const fn with_pod_spec(self, path: &'static str) -> Self {
        Self { pod_spec: Some(path), ..self }
    }

    /// Every row of its fields with the whole path, a Pod's spec included.
    pub fn fields(&self) -> impl Iterator<Item = (String, &'static Field)> {
        let own: &'static [Fields] = match self.acts {
            Acts::Fields(fields) => fields,
            Acts::Nobody(_) => &[],
        };
        let of_pod: &'static [&'static [Fields]] = if self.pod_spec.is_some() { POD_SPEC } else { &[] };
        let base = self.pod_spec.unwrap_or_default();
        let under = |base: &'static str, fields: &'static Fields| {
            fields.rows.iter().map(move |row| (joined(&joined(base, fields.prefix), row.path), row))
        };
        own.iter()
            .flat_map(move |fields| under("", fields))
            .chain(of_pod.iter().copied().flatten().flat_map(move |fields| under(base, fields)))
    }
}

/// Two parts of a path as one.
fn joined(one: &str, other: &str) -> String {
    match (one, other) {
        ("", path) | (path, "") => path.to_owned(),
        (one, other) => format!("{one}.{other}"),
    }
}

/// Every row, in the order of the documentation.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    workloads::ROWS.iter().chain(kinds::ROWS)
}

/// The row of a kind; `None` for custom resources, on which whoever defined them acts.
pub fn acted_on_by(kind: &Kind) -> Option<&'static Row> {
    rows().find(|row| kind.custom.is_none() && row.kind == kind.kind && row.group == kind.group)
}
