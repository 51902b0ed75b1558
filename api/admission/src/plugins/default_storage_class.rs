//! DefaultStorageClass: sets the default class on a claim without a class.

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::storage::{IS_DEFAULT_CLASS, OLD_CLASS};
use api_model::view::View;
use serde_json::Value;

use crate::denied::Denied;
use crate::json;
use crate::plugin::Plugin;
use crate::request::{Operation, Request};

/// The plugin.
pub struct DefaultStorageClass;

impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn admit(&self, request: &mut Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if request.operation != Operation::Create || !request.is("", "persistentvolumeclaims") {
            return Ok(());
        }
        let Some(claim) = request.object.as_deref_mut() else { return Ok(()) };
        if json::has_annotation(claim, OLD_CLASS) || claim.get("spec").is_some_and(|spec| json::has(spec, "storageClassName")) {
            return Ok(());
        }
        let default = newest_default(view, &GroupResource::new("storage.k8s.io", "storageclasses"), IS_DEFAULT_CLASS);
        if let (Some(class), Some(spec)) = (default, claim.get_mut("spec")) {
            json::set(spec, "storageClassName", class);
        }
        Ok(())
    }
}

/// The name of the default class, which an annotation marks. Of several, the newest one counts, then the first by name,
/// as upstream.
pub fn newest_default(view: &dyn View, classes: &GroupResource, annotation: &str) -> Option<String> {
    let mut defaults: Vec<_> = view.list(classes, None).into_iter().filter(|c| json::annotation(c, annotation) == "true").collect();
    let created = |class: &Value| meta::text(class, "creationTimestamp").to_owned();
    defaults.sort_by(|a, b| created(b).cmp(&created(a)).then_with(|| meta::name(a).cmp(meta::name(b))));
    defaults.first().map(|class| meta::name(class).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects};
    use serde_json::json;

    fn class(name: &str, created: &str, default: &str) -> Value {
        let metadata = json!({ "name": name, "creationTimestamp": created, "annotations": { IS_DEFAULT_CLASS: default } });
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata })
    }

    #[test]
    fn the_newest_default_is_taken() {
        let none = Objects::new([class("a", "2024-01-01T00:00:00Z", "false")]);
        let some = Objects::new([
            class("old", "2024-01-01T00:00:00Z", "true"),
            class("z-new", "2024-02-01T00:00:00Z", "true"),
            class("new", "2024-02-01T00:00:00Z", "true"),
        ]);
        for (view, given, wanted) in [
            (&none, json!({}), json!({})),
            (&some, json!({}), json!({ "storageClassName": "new" })),
            (&some, json!({ "storageClassName": "" }), json!({ "storageClassName": "" })),
            (&some, json!({ "storageClassName": "old" }), json!({ "storageClassName": "old" })),
        ] {
            let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c", "namespace": "ns" }, "spec": given });
            assert_eq!(Ask::create(claim).admit(&DefaultStorageClass, view).expect("admitted").object["spec"], wanted);
        }
    }
}
