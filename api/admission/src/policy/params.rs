//! Parameters: objects that a binding hands to its policy, found by name or by labels.

use std::sync::Arc;

use api_model::selector::Selector;
use serde_json::Value;

use crate::json;

/// Of which kind parameters are.
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

/// Where the objects of one kind are, as bindings look for them.
pub trait Params {
    /// Whether the kind's objects are in namespaces.
    fn is_namespaced(&self) -> bool;

    /// The object of that name; `namespace` is empty for objects in none.
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Value>>;

    /// All objects in a namespace, or of a kind without.
    fn list(&self, namespace: &str) -> Vec<Arc<Value>>;
}

/// Which objects a binding hands to its policy.
#[derive(Clone, Debug)]
pub struct ParamRef {
    name: String,
    /// Empty: that of the request.
    namespace: String,
    selector: Selector,
    /// Whether to find none is a mistake rather than a reason to leave the policy out.
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
    /// A kind that is not served, as upstream words it.
    pub fn missing(&self) -> String {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={}'", self.kind)
    }
}

impl ParamRef {
    /// The objects, each of which the policy is evaluated with; none where the policy is left out.
    ///
    /// # Errors
    /// When the reference does not fit the kind, or when something must be found and is not.
    pub fn find(&self, params: &dyn Params, request_namespace: &str) -> Result<Vec<Arc<Value>>, String> {
        let namespace = match (params.is_namespaced(), self.namespace.as_str()) {
            (true, "") if request_namespace.is_empty() => {
                return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned());
            }
            (true, "") => request_namespace,
            (false, namespace) if !namespace.is_empty() => {
                return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
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
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
        }
        Ok(found)
    }
}
