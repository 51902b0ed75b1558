//! StorageObjectInUseProtection: adds the finalizer that keeps claims and volumes while they are in use.

use api_model::meta;
use api_model::view::View;

use crate::denied::Denied;
use crate::json;
use crate::plugin::Plugin;
use crate::request::{Operation, Request};

/// The plugin.
pub struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn admit(&self, request: &mut Request<'_>, _view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        let finalizer = if request.is("", "persistentvolumeclaims") {
            "kubernetes.io/pvc-protection"
        } else if request.is("", "persistentvolumes") {
            "kubernetes.io/pv-protection"
        } else {
            return Ok(());
        };
        let Some(object) = request.object.as_deref_mut().filter(|_| request.operation == Operation::Create) else { return Ok(()) };
        if !meta::finalizers(object).contains(&finalizer) {
            meta::metadata_mut(object);
            if let Some(finalizers) = object.get_mut("metadata").and_then(|m| json::list_mut(m, "finalizers")) {
                finalizers.push(finalizer.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects};
    use serde_json::json;

    #[test]
    fn claims_and_volumes_are_protected_once() {
        for (kind, given, wanted) in [
            ("PersistentVolumeClaim", json!([]), json!(["kubernetes.io/pvc-protection"])),
            ("PersistentVolumeClaim", json!(["kubernetes.io/pvc-protection"]), json!(["kubernetes.io/pvc-protection"])),
            ("PersistentVolume", json!(["mine"]), json!(["mine", "kubernetes.io/pv-protection"])),
            ("ConfigMap", json!([]), json!([])),
        ] {
            let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "x", "finalizers": given } });
            let outcome = Ask::create(object).admit(&StorageObjectInUseProtection, &Objects::default()).expect("admitted");
            assert_eq!(outcome.object["metadata"]["finalizers"], wanted, "{kind}");
        }
    }
}
