//! The built-in StorageClass. It is made once in the life of a cluster: who deletes it has another one, and a class that came
//! back as the default one, and as the newest, would take all claims without a class.

use api_model::kind::GroupResource;
use api_model::local_path::{CLASS, PROVISIONER};
use api_model::meta;
use api_model::storage::IS_DEFAULT_CLASS;
use api_model::view::View;
use serde_json::{Value, json};

/// The namespace that bears the mark, and with it for as long as the cluster lives.
const MARKED: &str = "kube-system";
/// The mark: the class was made.
const MARK: &str = "skiff.internal/local-path-class";

/// The class, if it was never made.
pub(super) fn class(view: &dyn View) -> Vec<Value> {
    let namespace = view.get(&GroupResource::new("", "namespaces"), None, MARKED);
    if namespace.is_some_and(|namespace| is_marked(&namespace)) {
        return Vec::new();
    }
    let is_default =
        |class: &Value| class.pointer("/metadata/annotations").and_then(|all| all.get(IS_DEFAULT_CLASS)) == Some(&json!("true"));
    let others = view.list(&GroupResource::new("storage.k8s.io", "storageclasses"), None);
    let default = if others.iter().any(|class| is_default(class)) { "false" } else { "true" };
    vec![json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": CLASS, "annotations": {IS_DEFAULT_CLASS: default}},
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
    })]
}

/// The namespace with the mark, if it does not have it yet.
pub(super) fn mark(view: &dyn View) -> Vec<Value> {
    let namespace = view.get(&GroupResource::new("", "namespaces"), None, MARKED).filter(|namespace| !is_marked(namespace));
    let marked = namespace.map(|namespace| {
        let mut namespace = Value::clone(&namespace);
        let annotations = meta::metadata_mut(&mut namespace).map(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})));
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.insert(MARK.to_owned(), "made".into());
        }
        namespace
    });
    marked.into_iter().collect()
}

fn is_marked(namespace: &Value) -> bool {
    namespace.pointer("/metadata/annotations").is_some_and(|annotations| annotations.get(MARK).is_some())
}
