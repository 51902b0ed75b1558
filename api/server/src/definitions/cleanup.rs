//! The end of a definition: its objects go first. Upstream's finalizing controller.

use std::sync::Arc;

use api_model::meta;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::condition::{self, Condition};
use super::{Definition, Definitions, Rest, user};
use crate::app::Call;
use crate::registry::Served;
use crate::verbs::delete::delete_object;
use api_cache::{Filter, Object};
use api_wire::options::DeleteOptions;

/// Holds a definition until its objects are gone.
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What a deletion does to a definition beside what it does to every object.
pub(crate) fn hold_for_cleanup(definition: &mut Value, now: Timestamp) {
    let mut finalizers: Vec<String> = meta::finalizers(definition).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
        meta::set(definition, "finalizers", finalizers);
    }
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set(definition, &Condition::new("Terminating", true, "InstanceDeletionPending", message), now);
}

fn set(definition: &mut Value, wanted: &Condition, now: Timestamp) {
    let mut status = definition.get("status").cloned().unwrap_or_else(|| json!({}));
    if condition::set(&mut status, wanted, now) {
        api_wire::json::set(definition, &["status"], status);
    }
}

impl Definitions {
    /// Deletes what is left of a definition's objects, and lets the definition go when nothing is.
    pub(super) async fn clean_up(&self, definition: &Definition) -> Rest {
        let value = &definition.value;
        if !meta::finalizers(value).contains(&FINALIZER) {
            return Rest::Nothing;
        }
        let versions = self.of(definition);
        let Some(served) = versions.iter().find(|served| served.custom.as_ref().is_some_and(|custom| custom.is_stored_version)) else {
            return self.let_go(value).await;
        };
        let objects = served.resource.list(&Filter::default(), 0).items;
        if objects.is_empty() {
            return self.let_go(value).await;
        }
        let mut rest = Rest::Objects;
        for object in objects.iter().filter(|object| !meta::is_deleting(&object.value())) {
            rest = rest.max(self.delete(served, object).await);
        }
        rest
    }

    async fn delete(&self, served: &Arc<Served>, object: &Arc<Object>) -> Rest {
        let mut call = Call::internal(&self.app, served, &object.namespace, user());
        match delete_object(&mut call, &object.name, &DeleteOptions::default()).await {
            Ok(_) => Rest::Objects,
            Err(error) if error.code() == StatusCode::NOT_FOUND => Rest::Objects,
            Err(error) => {
                tracing::warn!(resource = %served.name, name = &*object.name, error = error.message(), "object not deleted");
                Rest::Retry
            }
        }
    }

    /// Removes our finalizer.
    async fn let_go(&self, definition: &Value) -> Rest {
        let mut definition = definition.clone();
        let kept: Vec<String> =
            meta::finalizers(&definition).into_iter().filter(|finalizer| *finalizer != FINALIZER).map(str::to_owned).collect();
        if kept.is_empty() {
            meta::unset(&mut definition, "finalizers");
        } else {
            meta::set(&mut definition, "finalizers", kept);
        }
        self.put(&definition, "").await
    }
}
