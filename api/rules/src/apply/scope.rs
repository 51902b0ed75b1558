//! Which fields a manager can come to own through a door: upstream's reset fields. The main resource
//! leaves the status alone, the status subresource everything else; and nobody owns what only the
//! server writes.

use api_model::kind::Kind;

use super::set::FieldSet;
use crate::strategy::is_custom;

/// Metadata that nobody owns.
const SERVERS_OWN: [&str; 9] =
    ["name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields", "resourceVersion"];

/// Structs that Go's types hold by value, so that an object without them is none that upstream knows:
/// they are never new, and so nobody owns them as such.
const ALWAYS_THERE: [&str; 7] = ["metadata", "spec", "status", "strategy", "updateStrategy", "template", "jobTemplate"];

/// The fields behind a door.
#[derive(Debug)]
pub(super) struct Scope {
    door: Door,
    /// Metadata that this door takes from the stored object.
    kept_metadata: &'static [&'static str],
    /// Whether the kind is one of Go's types.
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
        let kept_metadata: &[&str] = match (kind.kind.as_str(), sub) {
            ("Deployment", Some("status")) => &["labels"],
            ("Pod", Some("status")) => &["deletionTimestamp", "ownerReferences"],
            _ => &[],
        };
        Self { door, kept_metadata, has_skeleton: !custom }
    }

    /// Whether a top-level field is behind the door.
    pub(super) fn owns(&self, field: &str) -> bool {
        match self.door {
            _ if matches!(field, "apiVersion" | "kind") => false,
            Door::Everything => true,
            Door::AllButStatus => field != "status",
            Door::StatusAndMetadata => matches!(field, "metadata" | "status"),
            Door::StatusAlone => field == "status",
        }
    }

    /// Whether a field of the metadata is.
    pub(super) fn owns_metadata(&self, field: &str) -> bool {
        !SERVERS_OWN.contains(&field) && !self.kept_metadata.contains(&field)
    }

    /// Whether upstream's objects have a struct of that name whatever they say.
    pub(super) fn is_always_there(field: &str) -> bool {
        ALWAYS_THERE.contains(&field)
    }

    /// The part of a set that is behind the door.
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
