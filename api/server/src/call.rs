//! One request for a resource, taken apart.

use std::net::IpAddr;
use std::sync::Arc;

use api_auth::bootstrap::is_controller;
use api_cache::{Object, key};
use api_model::field::FieldError;
use api_model::kind::GroupResource;
use api_model::request::{Attributes, UserInfo};
use api_model::view::View as _;
use api_wire::query::Query;
use api_wire::status::{ApiError, ApiResult};
use http::HeaderMap;
use serde_json::Value;

use crate::audit::Trail;
use crate::authorize;
use crate::core::Core;
use crate::fence::Fence;
use crate::registry::Served;

/// A request for a resource.
pub(crate) struct Call {
    pub(crate) core: Arc<Core>,
    pub(crate) served: Arc<Served>,
    /// Namespace in the path; empty when none.
    pub(crate) namespace: String,
    /// Name in the path; empty for collections.
    pub(crate) name: String,
    /// Subresource; empty when none.
    pub(crate) subresource: String,
    /// What follows the subresource.
    pub(crate) rest: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) user: Arc<UserInfo>,
    /// The condition on what a leader in this process writes.
    pub(crate) fence: Option<Arc<Fence>>,
    /// The connection's other end; none for clients in this process.
    pub(crate) remote: Option<IpAddr>,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
    /// The request's entry in the audit log.
    pub(crate) trail: Option<Arc<Trail>>,
}

impl Call {
    /// A call that the server itself makes, for objects of a kind in a namespace.
    pub(crate) fn internal(core: &Arc<Core>, served: &Arc<Served>, namespace: &str, user: UserInfo) -> Self {
        Self {
            core: Arc::clone(core),
            served: Arc::clone(served),
            namespace: namespace.to_owned(),
            name: String::new(),
            subresource: String::new(),
            rest: String::new(),
            query: Query::default(),
            headers: HeaderMap::new(),
            user: Arc::new(user),
            fence: None,
            remote: None,
            warnings: Vec::new(),
            trail: None,
        }
    }

    /// The object that the path names.
    pub(crate) fn object(&self) -> ApiResult<Arc<Object>> {
        self.object_named(&self.name)
    }

    /// [`Call::object`] in the version of the call's kind.
    pub(crate) async fn object_in_version(&self) -> ApiResult<Arc<Object>> {
        self.served.one_in_version(self.object()?).await
    }

    /// An object of the call's kind and namespace.
    pub(crate) fn object_named(&self, name: &str) -> ApiResult<Arc<Object>> {
        let (resource, namespace) = (&self.served.resource, self.namespace_key());
        resource.get(namespace, name).ok_or_else(|| match resource.unreadable(namespace, name) {
            Some(unreadable) => ApiError::unreadable(&key::object_key(&resource.name, namespace, name), &unreadable.why),
            None => ApiError::not_found(&self.served.name, name),
        })
    }

    /// Rejects a selection with an object that cannot be read: the answer would lack it.
    pub(crate) fn check_readable(&self, namespace: Option<&str>) -> ApiResult<()> {
        let resource = &self.served.resource;
        match resource.unreadable_in(namespace) {
            Some((namespace, name, why)) => Err(ApiError::unreadable(&key::object_key(&resource.name, &namespace, &name), &why)),
            None => Ok(()),
        }
    }

    /// What is wrong with an object for the namespace that it is in.
    pub(crate) fn misplaced(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let namespace = || self.core.cache.get(&GroupResource::new("", "namespaces"), None, &self.namespace);
        api_rules::validate_admin_access(&self.served.stored, self.sub(), new, old, namespace)
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.served.name, &self.name)
    }

    /// The namespace under which the object is stored: cluster-scoped objects, among them
    /// namespaces (whose path carries their own name as namespace), have none.
    pub(crate) fn namespace_key(&self) -> &str {
        if self.served.kind.namespaced { &self.namespace } else { "" }
    }

    /// Rejects what the caller may not also do to the object that the call is for.
    pub(crate) fn check_may(&self, verb: &str) -> ApiResult<()> {
        authorize::check((&self.core.authorizer, &self.core.cache), &self.user, &self.attributes(verb))
    }

    /// The attributes of `verb` for authorization.
    pub(crate) fn attributes(&self, verb: &str) -> Attributes {
        let kind = &self.served.kind;
        Attributes {
            verb: verb.to_owned(),
            group: kind.group.clone(),
            version: kind.version.clone(),
            resource: kind.plural.clone(),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            ..Attributes::default()
        }
    }

    /// The subresource, where there is one.
    pub(crate) fn sub(&self) -> Option<&str> {
        (!self.subresource.is_empty()).then_some(self.subresource.as_str())
    }

    /// Adds texts for the client.
    pub(crate) fn warn(&mut self, warnings: Vec<String>) {
        self.warnings.extend(warnings);
    }

    /// Warns of the fields of an object, or of a change from `old`, that are stored although nothing acts on them. The cluster's
    /// own parts get no such warnings: they write what others asked for, and nobody reads their warnings.
    pub(crate) fn warn_of_unacted(&mut self, new: &Value, old: Option<&Value>) {
        if !is_part_of_the_cluster(&self.user.username) {
            self.warn(api_rules::unacted(&self.served.stored, new, old));
        }
    }
}

fn is_part_of_the_cluster(user: &str) -> bool {
    matches!(user, "system:apiserver" | "system:kube-controller-manager" | "system:kube-scheduler")
        || user.starts_with("system:node:")
        || is_controller(user)
}
