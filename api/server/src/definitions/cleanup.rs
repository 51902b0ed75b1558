//! The deletion of a definition: its objects are deleted first. Upstream's finalizing controller.

use std::sync::Arc;

use api_model::meta;
use http::StatusCode;
use serde_json::Value;

use super::{Definition, Definitions, Rest};
use crate::call::Call;
use crate::loopback::user;
use crate::registry::Served;
use crate::verbs::delete::definition::CLEANUP_FINALIZER;
use crate::verbs::delete::delete_object;
use api_cache::{Filter, Object};
use api_wire::options::DeleteOptions;

impl Definitions {
    /// Deletes the remaining objects of a definition. When there are none, removes the finalizer.
    pub(super) async fn clean_up(&self, definition: &Definition) -> Rest {
        let value = &definition.value;
        if !meta::finalizers(value).contains(&CLEANUP_FINALIZER) {
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
        let mut call = Call::internal(&self.loopback.core, served, &object.namespace, user());
        match delete_object(&self.writes.admission, &mut call, &object.name, &DeleteOptions::default()).await {
            Ok(_) => Rest::Objects,
            Err(error) if error.code() == StatusCode::NOT_FOUND => Rest::Objects,
            Err(error) => {
                tracing::warn!(resource = %served.name, name = &*object.name, error = error.message(), "object not deleted");
                Rest::Retry
            }
        }
    }

    /// Removes the server's finalizer.
    async fn let_go(&self, definition: &Value) -> Rest {
        let mut definition = definition.clone();
        let finalizers: Vec<String> =
            meta::finalizers(&definition).into_iter().filter(|finalizer| *finalizer != CLEANUP_FINALIZER).map(str::to_owned).collect();
        if finalizers.is_empty() {
            meta::unset(&mut definition, "finalizers");
        } else {
            meta::set(&mut definition, "finalizers", finalizers);
        }
        self.put(&definition, "").await
    }
}
