//! Parameters of policies, from the server's own cache, both of built-in kinds and of custom resources.

use std::sync::Arc;

use api_admission::policy::{ParamKind, Params};
use api_model::meta;
use serde_json::Value;

use crate::core::Core;
use crate::registry::Served;
use api_cache::{Filter, Object};
use api_wire::status::ApiResult;

/// The objects of one kind.
pub(super) struct Source {
    served: Arc<Served>,
}

impl Source {
    /// None if the kind is not served.
    pub(super) fn of(core: &Core, kind: &ParamKind) -> Option<Self> {
        core.registry.find_kind(&kind.api_version, &kind.kind).map(|served| Self { served })
    }

    /// A parameter in the version that the policy names. If a webhook converts the kind, `found` is in the stored
    /// version.
    pub(super) async fn converted(&self, found: Arc<Value>) -> ApiResult<Arc<Value>> {
        if self.served.converter().is_none() {
            return Ok(found);
        }
        match self.served.resource.get(meta::namespace(&found), meta::name(&found)) {
            Some(object) => Ok(self.served.one_in_version(object).await?.value()),
            // The object was deleted in the meantime. The found one still applies to this request.
            None => Ok(Arc::new(self.served.external_of_version(&found).await?)),
        }
    }

    fn external(&self, object: &Object) -> Arc<Value> {
        let current = self.served.current(object);
        if self.served.is_view() { Arc::new(self.served.external(&current).into_value()) } else { current.shared() }
    }
}

impl Params for Source {
    fn is_namespaced(&self) -> bool {
        self.served.kind.namespaced
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.served.resource.get(namespace, name).map(|object| self.external(&object))
    }

    fn list(&self, namespace: &str) -> Vec<Arc<Value>> {
        let namespace = self.is_namespaced().then(|| namespace.to_owned());
        let page = self.served.resource.list(&Filter { namespace, ..Filter::default() }, 0);
        page.items.iter().map(|object| self.external(object)).collect()
    }
}
