//! `RuleWithOperations`: which operations on which resources are meant.

use api_model::kind::Kind;
use serde_json::Value;

use crate::json;
use crate::request::{Operation, Request};

/// One rule. Each list may hold `*`.
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
    /// Whether a request is meant, taken as one for `form`.
    pub fn matches(&self, request: &Request<'_>, form: &Kind) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|word| word == "*" || word == wanted);
        has(&self.operations, request.operation.as_str())
            && has(&self.groups, &form.group)
            && has(&self.versions, &form.version)
            && self.has_resource(&form.plural, request.subresource)
            && self.has_scope(form)
    }

    /// `pods` means the Pods and nothing under them, `pods/*` them with everything under them, `*`
    /// everything that is under nothing.
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

impl Operation {
    /// Its name in rules and reviews.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}
