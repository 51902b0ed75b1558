//! The fields that a manager can own through the main resource or a subresource: upstream's reset fields. The main resource
//! does not own the status, the status subresource owns nothing else, and no manager owns fields that only the server
//! writes.

use api_model::kind::Kind;

use super::set::FieldSet;
use crate::strategy::is_custom;

/// Metadata that no manager owns.
const SERVERS_OWN: [&str; 9] =
    ["name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields", "resourceVersion"];

/// Structs that Go's types hold by value. Every object of upstream has them, so they are never new and no manager owns
/// them.
const ALWAYS_THERE: [&str; 7] = ["metadata", "spec", "status", "strategy", "updateStrategy", "template", "jobTemplate"];

/// The fields of the main resource or of a subresource.
#[derive(Debug)]
pub(super) struct Scope {
    door: Door,
    /// Metadata that a write through it copies from the stored object.
    copied_metadata: &'static [&'static str],
    /// Whether the kind is built in, so that upstream has a Go type.
    pub(super) has_skeleton: bool,
}

#[derive(Debug)]
enum Door {
    Everything,
    AllButStatus,
    StatusAndMetadata,
    StatusAlone,
}

impl Scope {
    pub(super) fn new(kind: &Kind, sub: Option<&str>) -> Self {
        let custom = is_custom(kind);
        let door = match sub {
            Some("status") if custom => Door::StatusAlone,
            Some("status" | "approval") => Door::StatusAndMetadata,
            _ if kind.has_status() => Door::AllButStatus,
            _ => Door::Everything,
        };
        let copied_metadata: &[&str] = match (kind.kind.as_str(), sub) {
            ("Deployment", Some("status")) => &["labels"],
            ("Pod", Some("status")) => &["deletionTimestamp", "ownerReferences"],
            _ => &[],
        };
        Self { door, copied_metadata, has_skeleton: !custom }
    }

    /// Whether a top-level field is in the scope.
    pub(super) fn owns(&self, field: &str) -> bool {
        match self.door {
            _ if matches!(field, "apiVersion" | "kind") => false,
            Door::Everything => true,
            Door::AllButStatus => field != "status",
            Door::StatusAndMetadata => matches!(field, "metadata" | "status"),
            Door::StatusAlone => field == "status",
        }
    }

    /// Whether a field of the metadata is in the scope.
    pub(super) fn owns_metadata(&self, field: &str) -> bool {
        !SERVERS_OWN.contains(&field) && !self.copied_metadata.contains(&field)
    }

    /// Whether upstream's objects always have a struct of that name.
    pub(super) fn is_always_there(field: &str) -> bool {
        ALWAYS_THERE.contains(&field)
    }

    /// The part of a set that is in the scope.
    pub(super) fn part(&self, mut set: FieldSet) -> FieldSet {
        set.retain(|element, node| {
            let name = element.name().unwrap_or_default();
            if name == "metadata" {
                node.member = false;
                node.children.retain(|field, _| self.owns_metadata(field.name().unwrap_or_default()));
            }
            self.owns(name)
        });
        set
    }
}
