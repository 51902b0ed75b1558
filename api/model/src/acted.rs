//! The table of effects: for every field of every served kind, the part of Skiff that acts on it, or none.
//!
//! A field that is accepted without an effect is a broken promise. Each such field has a row here. `docs/fields.md` and the
//! warnings of the API server come from the rows. A test of `api-schema` checks the rows against the schemas (every field
//! has exactly one row) and against the sources (the named part mentions the field, and no part mentions a field without
//! effect).

mod csi;
mod kinds;
mod pod;
mod storage;
mod workloads;

use crate::kind::Kind;

/// A part of Skiff or of its environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The API server: rules, admission, authorization.
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
    /// Programs that are not part of Skiff, as upstream: an ingress controller, a cloud load balancer, the creator of the object.
    Clients,
}

/// The parts that act on one field and its children.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The path below the group's prefix: names with dots between, `[]` after a list whose elements are meant. Empty
    /// for everything.
    pub path: &'static str,
    /// The parts that act on it; empty for none.
    pub acted_on_by: &'static [Part],
    /// A source file of one of the parts. For a field without effect: why sources of the parts mention it.
    pub source: &'static str,
    /// The version since which the row holds.
    pub since: &'static str,
}

/// Rows that share the start of their paths.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// The prefix of each path.
    pub prefix: &'static str,
    /// The rows.
    pub rows: &'static [Field],
}

/// Whether parts act on a kind.
#[derive(Clone, Copy, Debug)]
pub enum Acts {
    /// Some part acts on the fields of the rows.
    Fields(&'static [Fields]),
    /// No part acts on the kind: objects are checked, stored and watched. The sentence for warnings, in the plural.
    Nobody(&'static str),
}

/// One kind.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Group; empty for core.
    pub group: &'static str,
    /// Kind; the same row holds for all its versions.
    pub kind: &'static str,
    /// The parts that act on it.
    pub acts: Acts,
    /// The path of its Pod spec, whose rows are [`POD_SPEC`].
    pub pod_spec: Option<&'static str>,
}

/// The rows of a Pod's spec.
pub const POD_SPEC: &[&[Fields]] = pod::SPEC;

/// The first version of the rows.
const FIRST: &str = "0.1.0";

impl Field {
    const fn by(acted_on_by: &'static [Part], path: &'static str, source: &'static str) -> Self {
        Self { path, acted_on_by, source, since: FIRST }
    }

    const fn nobody(path: &'static str) -> Self {
        Self { path, acted_on_by: &[], source: "", since: FIRST }
    }

    /// Sets the reason why sources mention a field without effect.
    const fn although(self, why: &'static str) -> Self {
        Self { source: why, ..self }
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

    /// All rows with their whole paths, including those of the Pod spec.
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

/// Joins two parts of a path.
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

/// The row of a kind; `None` for custom resources, on which their own controllers act.
pub fn acted_on_by(kind: &Kind) -> Option<&'static Row> {
    rows().find(|row| kind.custom.is_none() && row.kind == kind.kind && row.group == kind.group)
}
