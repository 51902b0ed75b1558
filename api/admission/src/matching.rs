//! Which requests a webhook or a policy matches: by `RuleWithOperations`, by the labels of the object and by those of
//! its namespace.

use api_model::kind::{GroupResource, Kind};
use api_model::selector::Selector;
use api_model::view::View;
use serde_json::Value;

use crate::denied::Denied;
use crate::json;
use crate::request::{Operation, Request};

/// `RuleWithOperations`: operations on resources. Each list may hold `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    All,
    Cluster,
    Namespaced,
}

impl From<&Value> for Rule {
    fn from(rule: &Value) -> Self {
        let list = |field: &str| json::list(rule, field).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self {
            operations: list("operations"),
            groups: list("apiGroups"),
            versions: list("apiVersions"),
            resources: list("resources"),
            scope: match json::text(rule, "scope") {
                "Cluster" => Scope::Cluster,
                "Namespaced" => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }
}

impl Rule {
    /// Whether a request for `form` matches.
    pub fn matches(&self, request: &Request<'_>, form: &Kind) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|word| word == "*" || word == wanted);
        has(&self.operations, request.operation.as_str())
            && has(&self.groups, &form.group)
            && has(&self.versions, &form.version)
            && self.has_resource(&form.plural, request.subresource)
            && self.has_scope(form)
    }

    /// `pods` matches Pods without subresources, `pods/*` Pods with all subresources, `*` all resources without
    /// subresources.
    fn has_resource(&self, plural: &str, subresource: &str) -> bool {
        self.resources.iter().any(|resource| {
            let (name, sub) = resource.split_once('/').unwrap_or((resource, ""));
            (name == "*" || name == plural) && (sub == "*" || sub == subresource)
        })
    }

    fn has_scope(&self, form: &Kind) -> bool {
        match self.scope {
            Scope::All => true,
            Scope::Cluster => !form.namespaced,
            Scope::Namespaced => form.namespaced,
        }
    }
}

/// Parses a label selector. An absent selector matches everything. The server never stores a selector that does not
/// parse.
pub(crate) fn selector(value: Option<&Value>) -> Selector {
    match value.filter(|value| !value.is_null()) {
        None => Selector::default(),
        value => Selector::from_label_selector(value).unwrap_or_default(),
    }
}

/// Whether the labels of the old or the new object match.
pub(crate) fn wants_object(selector: &Selector, request: &Request<'_>) -> bool {
    selector.is_everything() || [request.object(), request.old].into_iter().flatten().any(|object| selector.matches(object))
}

/// Whether the labels of the request's namespace match. A cluster-scoped object always matches.
///
/// # Errors
/// The namespace does not exist.
pub(crate) fn in_namespace(selector: &Selector, request: &Request<'_>, view: &dyn View) -> Result<bool, Denied> {
    let is_namespace = request.kind.group.is_empty() && request.kind.plural == "namespaces";
    if selector.is_everything() || (request.namespace.is_empty() && !is_namespace) {
        return Ok(true);
    }
    if is_namespace
        && request.subresource.is_empty()
        && matches!(request.operation, Operation::Create | Operation::Update)
        && let Some(namespace) = request.object()
    {
        return Ok(selector.matches(namespace));
    }
    let (resource, name) = (GroupResource::new("", "namespaces"), if is_namespace { request.object_name() } else { request.namespace });
    match view.get(&resource, None, name) {
        Some(namespace) => Ok(selector.matches(&namespace)),
        None => Err(Denied::NotFound { resource, name: name.to_owned() }),
    }
}
