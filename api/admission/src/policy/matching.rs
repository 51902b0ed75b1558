//! `MatchResources`: which requests a policy or a binding is about.

use api_model::kind::Kind;
use api_model::selector::Selector;
use api_model::view::View;
use serde_json::Value;

use crate::denied::Denied;
use crate::json;
use crate::matching::{Rule, in_namespace, selector, wants_object};
use crate::request::Request;

/// Which requests are meant.
#[derive(Clone, Debug, Default)]
pub struct Match {
    equivalent: bool,
    rules: Vec<Named>,
    excluded: Vec<Named>,
    namespaces: Selector,
    objects: Selector,
}

/// A rule, perhaps for objects of some names only.
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
    /// As which of the forms of its object a request is meant; `None` where it is not. The first form is the
    /// one that the request is for. Without rules every request is meant.
    ///
    /// # Errors
    /// When the request's namespace, whose labels decide, does not exist.
    pub fn form(&self, request: &Request<'_>, forms: &[&Kind], view: &dyn View) -> Result<Option<usize>, Denied> {
        let forms = if self.equivalent { forms } else { forms.get(..1).unwrap_or_default() };
        let by = |rules: &[Named]| forms.iter().position(|form| rules.iter().any(|rule| rule.matches(request, form)));
        let found = if self.rules.is_empty() { Some(0) } else { by(&self.rules) };
        // The cheap questions first: what the rules leave out needs no namespace.
        if found.is_none() || by(&self.excluded).is_some() || !wants_object(&self.objects, request) {
            return Ok(None);
        }
        let is_meant = in_namespace(&self.namespaces, request, view)?;
        Ok(found.filter(|_| is_meant))
    }
}
