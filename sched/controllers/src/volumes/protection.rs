//! Protection of claims and volumes that are used: their finalizers go when the object is being deleted and nothing uses it.
//! Two controllers, upstream's `pvc-protection` and `pv-protection`.
//!
//! Watch claims, volumes and Pods. Write one finalizer each, and nothing else. An admission plugin adds the finalizers to new
//! objects; these controllers add them to objects that lack one.

mod claims;
mod volumes;

pub use claims::build as build_claims;
pub use volumes::build as build_volumes;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;

/// What an object needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// The finalizer is missing.
    Finalizer,
    /// The finalizer goes when nothing uses the object.
    Check,
}

fn need(meta: &ObjectMeta, finalizer: &str) -> Need {
    match (meta::is_deleting(meta), meta::has_finalizer(meta, finalizer)) {
        (false, false) => Need::Finalizer,
        (true, true) => Need::Check,
        _ => Need::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_have_the_finalizer_until_they_are_deleted_and_unused() {
        for (object, wanted) in [
            (json!({}), Need::Finalizer),
            (json!({"finalizers": ["other"]}), Need::Finalizer),
            (json!({"finalizers": ["f"]}), Need::Nothing),
            (json!({"finalizers": ["f"], "deletionTimestamp": "2026-01-01T00:00:00Z"}), Need::Check),
            (json!({"finalizers": ["other"], "deletionTimestamp": "2026-01-01T00:00:00Z"}), Need::Nothing),
        ] {
            let meta: ObjectMeta = serde_json::from_value(object.clone()).expect("metadata");
            assert_eq!(need(&meta, "f"), wanted, "{object}");
        }
    }
}
