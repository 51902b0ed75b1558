//! Conflicts: fields of other managers that an applied configuration would change, in upstream's words.

use super::managers::{Id, Manager, Managers, Operation};
use super::set::FieldSet;

/// Fields of other managers, by manager in the order of names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conflicts(Vec<(Id, FieldSet)>);

/// One field of one manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// `conflict with "x"`
    pub message: String,
    /// Such as `.spec.replicas`.
    pub field: String,
}

impl Conflicts {
    /// The fields of `changed` that managers other than `applier` own.
    pub(super) fn find(managers: &Managers, applier: &Id, changed: &FieldSet) -> Self {
        let overlap = |manager: &Manager| (manager.id.clone(), manager.fields.intersection(changed));
        let mut conflicts: Vec<_> =
            managers.iter().filter(|manager| !manager.id.is(applier)).map(overlap).filter(|(_, fields)| !fields.is_empty()).collect();
        conflicts.sort_by_cached_key(|(id, _)| (owner(id), id.operation));
        Self(conflicts)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conflicts about other fields than the allowed ones.
    pub(super) fn without(self, allowed: &FieldSet) -> Self {
        let rest = self.0.into_iter().map(|(id, fields)| (id, fields.difference(allowed)));
        Self(rest.filter(|(_, fields)| !fields.is_empty()).collect())
    }

    /// All conflicts.
    pub fn each(&self) -> Vec<Conflict> {
        let per_manager = |(id, fields): &(Id, FieldSet)| {
            let message = format!("conflict with {}", owner(id));
            fields.paths().into_iter().map(move |field| Conflict { message: message.clone(), field }).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(per_manager).collect()
    }
}

impl std::fmt::Display for Conflicts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let [one] = self.each().as_slice() {
            return write!(f, "Apply failed with 1 conflict: {}: {}", one.message, one.field);
        }
        let lines = self.0.iter().flat_map(|(id, fields)| {
            let fields = fields.paths().into_iter().map(|field| format!("- {field}"));
            std::iter::once(format!("conflicts with {}:", owner(id))).chain(fields)
        });
        write!(f, "Apply failed with {} conflicts: {}", self.each().len(), lines.collect::<Vec<_>>().join("\n"))
    }
}

fn owner(id: &Id) -> String {
    let door = if id.subresource.is_empty() { String::new() } else { format!(" with subresource {:?}", id.subresource) };
    match id.operation {
        Operation::Apply => format!("{:?}{door}", id.name),
        Operation::Update => format!("{:?}{door} using {}", id.name, id.api_version),
    }
}
