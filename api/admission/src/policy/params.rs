//! Parameters: objects that a binding passes to its policy, selected by name or by labels.

use std::sync::Arc;

use api_model::selector::Selector;
use serde_json::Value;

use crate::json;

/// The kind of the parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamKind {
    /// `v1`, `example.com/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
}

impl From<&Value> for ParamKind {
    fn from(kind: &Value) -> Self {
        Self { api_version: json::text(kind, "apiVersion").to_owned(), kind: json::text(kind, "kind").to_owned() }
    }
}

/// Reads the objects of one kind for bindings.
pub trait Params {
    /// Whether the kind is namespaced.
    fn is_namespaced(&self) -> bool;

    /// The object of the given name; `namespace` is empty for cluster-scoped objects.
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// All objects in a namespace; `namespace` is empty for cluster-scoped objects.
    fn list(&self, namespace: &str) -> Vec<Arc<Value>>;
}

/// The reference to the objects that a binding passes to its policy.
#[derive(Clone, Debug)]
pub struct ParamRef {
    name: String,
    /// Empty means the namespace of the request.
    namespace: String,
    selector: Selector,
    /// Whether a missing object is an error; otherwise the policy is skipped.
    must_exist: bool,
}

impl From<&Value> for ParamRef {
    fn from(reference: &Value) -> Self {
        let text = |field: &str| json::text(reference, field);
        Self {
            name: text("name").to_owned(),
            namespace: text("namespace").to_owned(),
            selector: Selector::from_label_selector(reference.get("selector")).unwrap_or_default(),
            must_exist: text("parameterNotFoundAction") == "Deny",
        }
    }
}

impl ParamKind {
    /// The message for a kind that is not served, as upstream words it.
    pub fn missing(&self) -> String {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={}'", self.kind)
    }
}

/// Why a binding's parameters cannot be used. The messages are upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// The parameters are namespaced, the request is cluster-scoped, and the binding names no namespace.
    #[error("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")]
    NoNamespace,
    /// The binding names a namespace, and the parameters are cluster-scoped.
    #[error("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")]
    Namespace,
    /// There are no parameters, although the binding requires some.
    #[error("no params found for policy binding with `Deny` parameterNotFoundAction")]
    NotFound,
}

impl ParamRef {
    /// The parameter objects. The policy is evaluated once with each of them; with an empty list it is skipped.
    ///
    /// # Errors
    /// The reference does not fit the kind, or a required object does not exist.
    pub fn find(&self, params: &dyn Params, request_namespace: &str) -> Result<Vec<Arc<Value>>, ParamError> {
        let namespace = match (params.is_namespaced(), self.namespace.as_str()) {
            (true, "") if request_namespace.is_empty() => {
                return Err(ParamError::NoNamespace);
            }
            (true, "") => request_namespace,
            (false, namespace) if !namespace.is_empty() => {
                return Err(ParamError::Namespace);
            }
            (_, namespace) => namespace,
        };
        let mut found: Vec<Arc<Value>> = match self.name.as_str() {
            "" => params.list(namespace),
            name => params.get(namespace, name).into_iter().collect(),
        };
        if self.name.is_empty() {
            found.retain(|object| self.selector.matches(object));
        }
        if found.is_empty() && self.must_exist {
            return Err(ParamError::NotFound);
        }
        Ok(found)
    }
}
