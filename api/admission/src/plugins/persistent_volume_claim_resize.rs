//! PersistentVolumeClaimResize: a claim grows only if its class allows it.

use api_model::kind::GroupResource;
use api_model::view::View;
use serde_json::Value;

use crate::amount;
use crate::denied::Denied;
use crate::json;
use crate::plugin::Plugin;
use crate::request::{Operation, Request};

/// The plugin.
pub struct PersistentVolumeClaimResize;

impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn validate(&self, request: &Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if request.operation != Operation::Update || !request.is("", "persistentvolumeclaims") {
            return Ok(());
        }
        let (Some(new), Some(old)) = (request.object(), request.old) else { return Ok(()) };
        let size = |claim: &Value| amount::list(claim.pointer("/spec/resources/requests")).get("storage").copied().unwrap_or_default();
        if size(new) <= size(old) {
            return Ok(());
        }
        if json::text_at(old, "/status/phase") != "Bound" {
            return Err(Denied::forbidden(request, "Only bound persistent volume claims can be expanded"));
        }
        let class = view.get(&GroupResource::new("storage.k8s.io", "storageclasses"), None, json::text_at(old, "/spec/storageClassName"));
        if class.is_some_and(|c| c.get("allowVolumeExpansion").and_then(Value::as_bool) == Some(true)) {
            return Ok(());
        }
        let message = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        Err(Denied::forbidden(request, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects, verdict};
    use serde_json::json;

    #[test]
    fn claims_grow_where_their_class_lets_them() {
        let view = Objects::new([
            json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "grows" }, "allowVolumeExpansion": true }),
            json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fixed" } }),
        ]);
        let claim = |class: &str, size: &str, phase: &str| {
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c", "namespace": "ns" },
                "spec": { "storageClassName": class, "resources": { "requests": { "storage": size } } }, "status": { "phase": phase },
            })
        };
        let no_resize = "persistentvolumeclaims \"c\" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        let unbound = "persistentvolumeclaims \"c\" is forbidden: Only bound persistent volume claims can be expanded";
        for (class, phase, size, wanted) in [
            ("grows", "Bound", "2Gi", "ok"),
            ("fixed", "Bound", "2Gi", no_resize),
            ("gone", "Bound", "2Gi", no_resize),
            ("fixed", "Bound", "1024Mi", "ok"),
            ("grows", "Pending", "2Gi", unbound),
        ] {
            let old = claim(class, "1Gi", phase);
            assert_eq!(verdict(Ask::update(&old, claim(class, size, phase)).validate(&PersistentVolumeClaimResize, &view)), wanted);
        }
    }
}
