//! Where parameters are: in the server's own cache, be they of a built-in kind or custom resources.

use std::sync::Arc;

use api_admission::policy::{ParamKind, Params};
use serde_json::Value;

use crate::app::App;
use crate::cache::{Filter, Object};
use crate::registry::Served;

/// The objects of one kind.
pub(super) struct Source {
    served: Arc<Served>,
}

impl Source {
    /// None where the kind is not served.
    pub(super) fn of(app: &App, kind: &ParamKind) -> Option<Self> {
        app.registry.find_kind(&kind.api_version, &kind.kind).map(|served| Self { served })
    }

    fn shown(&self, object: &Object) -> Arc<Value> {
        let current = self.served.current(object);
        if self.served.is_view() { Arc::new(self.served.shown((*current).clone())) } else { current }
    }
}

impl Params for Source {
    fn is_namespaced(&self) -> bool {
        self.served.kind.namespaced
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.served.resource.get(namespace, name).map(|object| self.shown(&object))
    }

    fn list(&self, namespace: &str) -> Vec<Arc<Value>> {
        let namespace = self.is_namespaced().then(|| namespace.to_owned());
        let page = self.served.resource.list(&Filter { namespace, ..Filter::default() }, 0);
        page.items.iter().map(|object| self.shown(object)).collect()
    }
}
