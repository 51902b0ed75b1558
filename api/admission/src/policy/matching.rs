//! `MatchResources`: the requests that a policy or a binding matches.

use api_model::kind::Kind;
use api_model::selector::Selector;
use api_model::view::View;
use serde_json::Value;

use crate::denied::Denied;
use crate::json;
use crate::matching::{Rule, in_namespace, selector, wants_object};
use crate::request::Request;

/// `MatchResources`.
#[derive(Clone, Debug, Default)]
pub struct Match {
    equivalent: bool,
    rules: Vec<Named>,
    excluded: Vec<Named>,
    namespaces: Selector,
    objects: Selector,
}

/// A rule, optionally for some object names only.
#[derive(Clone, Debug)]
struct Named {
    rule: Rule,
    names: Vec<String>,
}

impl From<&Value> for Match {
    fn from(matched: &Value) -> Self {
        let rules = |field: &str| json::list(matched, field).iter().map(Named::from).collect();
        Self {
            equivalent: json::text(matched, "matchPolicy") != "Exact",
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
            namespaces: selector(matched.get("namespaceSelector")),
            objects: selector(matched.get("objectSelector")),
        }
    }
}

impl From<&Value> for Named {
    fn from(rule: &Value) -> Self {
        let names = json::list(rule, "resourceNames").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self { rule: Rule::from(rule), names }
    }
}

impl Named {
    fn matches(&self, request: &Request<'_>, form: &Kind) -> bool {
        self.rule.matches(request, form) && (self.names.is_empty() || self.names.iter().any(|name| name == request.object_name()))
    }
}

impl Match {
    /// The index of the form of the object that matches; `None` if the request does not match. The first form is the
    /// form of the request. Without rules every request matches.
    ///
    /// # Errors
    /// The namespace of the request does not exist, and its labels are needed.
    pub fn form(&self, request: &Request<'_>, forms: &[&Kind], view: &dyn View) -> Result<Option<usize>, Denied> {
        let forms = if self.equivalent { forms } else { forms.get(..1).unwrap_or_default() };
        let by = |rules: &[Named]| forms.iter().position(|form| rules.iter().any(|rule| rule.matches(request, form)));
        let found = if self.rules.is_empty() { Some(0) } else { by(&self.rules) };
        // The cheap checks come first: a request that the rules exclude needs no namespace.
        if found.is_none() || by(&self.excluded).is_some() || !wants_object(&self.objects, request) {
            return Ok(None);
        }
        let is_meant = in_namespace(&self.namespaces, request, view)?;
        Ok(found.filter(|_| is_meant))
    }
}
