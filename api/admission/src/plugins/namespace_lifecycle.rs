//! NamespaceLifecycle: rejects new objects in a namespace that does not exist or is being deleted, and rejects the
//! deletion of the namespaces that the cluster needs.

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::view::View;

use crate::denied::{Cause, Denied};
use crate::json;
use crate::plugin::Plugin;
use crate::request::{Operation, Request};

const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

/// The plugin.
pub struct NamespaceLifecycle;

impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn admit(&self, request: &mut Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        let namespaces = GroupResource::new("", "namespaces");
        if request.kind.group_resource() == namespaces {
            return if request.operation == Operation::Delete && IMMORTAL.contains(&request.name) {
                Err(Denied::forbidden(request, "this namespace may not be deleted"))
            } else {
                Ok(())
            };
        }
        let question = request.kind.group == "authorization.k8s.io" && request.kind.plural == "localsubjectaccessreviews";
        if request.namespace.is_empty() || question || matches!(request.operation, Operation::Delete | Operation::Connect) {
            return Ok(());
        }
        let Some(namespace) = view.get(&namespaces, None, request.namespace) else {
            return Err(Denied::NotFound { resource: namespaces, name: request.namespace.to_owned() });
        };
        let terminating = json::text_at(&namespace, "/status/phase") == "Terminating" || meta::is_deleting(&namespace);
        if request.operation == Operation::Create && terminating {
            return Err(terminating_error(request));
        }
        Ok(())
    }
}

fn terminating_error(request: &Request<'_>) -> Denied {
    let namespace = request.namespace;
    Denied::Forbidden {
        resource: request.kind.group_resource(),
        name: request.object_name().to_owned(),
        message: format!("unable to create new content in namespace {namespace} because it is being terminated"),
        causes: Box::new([Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        }]),
        awaits: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects, verdict};
    use serde_json::{Value, json};

    fn view() -> Objects {
        Objects::new([
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "here" }, "status": { "phase": "Active" } }),
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "going" }, "status": { "phase": "Terminating" } }),
        ])
    }

    fn config_map(namespace: &str) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c", "namespace": namespace } })
    }

    #[test]
    fn content_needs_a_living_namespace() {
        let (here, going, gone) = (config_map("here"), config_map("going"), config_map("gone"));
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } });
        let going_message = "configmaps \"c\" is forbidden: unable to create new content in namespace going because it is being terminated";
        let review =
            json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "metadata": { "namespace": "gone" } });
        for (ask, wanted) in [
            (Ask::create(here.clone()), "ok"),
            (Ask::create(gone.clone()), "namespaces \"gone\" not found"),
            (Ask::update(&gone, gone.clone()), "namespaces \"gone\" not found"),
            (Ask::delete(&gone), "ok"),
            (Ask::create(going.clone()), going_message),
            (Ask::update(&going, going.clone()), "ok"),
            (Ask::delete(&going), "ok"),
            (Ask::create(node), "ok"),
            (Ask::create(review), "ok"),
        ] {
            assert_eq!(verdict(ask.admit(&NamespaceLifecycle, &view())), wanted);
        }
    }

    #[test]
    fn a_terminating_namespace_is_a_cause() {
        let denied = Ask::create(config_map("going")).admit(&NamespaceLifecycle, &view()).expect_err("refused");
        let Denied::Forbidden { causes, .. } = denied else { panic!("{denied:?}") };
        assert_eq!(causes[0].reason, "NamespaceTerminating");
        assert_eq!(causes[0].message, "namespace going is being terminated");
        assert_eq!(causes[0].field, "metadata.namespace");
    }

    #[test]
    fn the_clusters_own_namespaces_stay() {
        for (name, wanted) in [
            ("default", "namespaces \"default\" is forbidden: this namespace may not be deleted"),
            ("kube-system", "namespaces \"kube-system\" is forbidden: this namespace may not be deleted"),
            ("kube-public", "namespaces \"kube-public\" is forbidden: this namespace may not be deleted"),
            ("kube-node-lease", "ok"),
            ("mine", "ok"),
        ] {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            assert_eq!(verdict(Ask::delete(&namespace).admit(&NamespaceLifecycle, &view())), wanted);
        }
    }
}
