//! The selection of a list or watch: namespace, name, label and field selectors.

use std::sync::Arc;

use api_model::kind::Kind;
use api_model::selector::{FieldSelector, FieldTerm, Selector, field_text};
use serde_json::Value;

use super::object::Object;

/// The field that has an index of its own: every node watches the Pods bound to it.
pub const NODE_FIELD: &str = "spec.nodeName";

/// The selection of a list or watch.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only objects that these labels select.
    pub labels: Selector,
    /// Only objects that these fields select.
    pub fields: FieldSelector,
    /// The kind in which the objects are stored: it has the names of its selectable fields.
    pub kind: Option<Arc<Kind>>,
}

impl Filter {
    /// Whether only the namespace restricts the selection.
    pub fn is_plain(&self) -> bool {
        self.labels.is_everything() && self.fields.terms.is_empty()
    }

    /// The part that is the same in every version of an object: its namespace and its name.
    pub fn by_name_only(&self) -> Self {
        let names = |term: &&FieldTerm| matches!(term.path.as_str(), "metadata.name" | "metadata.namespace");
        let fields = FieldSelector { terms: self.fields.terms.iter().filter(names).cloned().collect() };
        Self { namespace: self.namespace.clone(), labels: Selector::default(), fields, kind: self.kind.clone() }
    }

    /// The only name that can match, if the selector requires one.
    pub fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    /// The only node whose Pods can match.
    pub fn node(&self) -> Option<&str> {
        self.fields.exact(NODE_FIELD).filter(|node| !node.is_empty())
    }

    /// Whether an object is meant.
    pub fn matches(&self, object: &Object) -> bool {
        if self.namespace.as_deref().is_some_and(|namespace| *namespace != *object.namespace) {
            return false;
        }
        self.fields.terms.iter().all(|term| self.term_matches(term, object))
            && (self.labels.is_everything() || object.is_selected_by(&self.labels))
    }

    fn term_matches(&self, term: &FieldTerm, object: &Object) -> bool {
        let is_equal = match term.path.as_str() {
            "metadata.name" => *object.name == term.value,
            "metadata.namespace" => *object.namespace == term.value,
            // Evaluated for every change of a Pod: too often to read it from JSON.
            NODE_FIELD if self.is_of_pods() => object.node().map_or("", |node| node) == term.value,
            path => self.text(path, &object.shared_value()) == term.value,
        };
        is_equal != term.negated
    }

    /// An internal filter has no kind. Only Pods are selected by a node then.
    fn is_of_pods(&self) -> bool {
        self.kind.as_ref().is_none_or(|kind| kind.group.is_empty() && kind.plural == "pods")
    }

    fn text(&self, path: &str, value: &Value) -> String {
        match &self.kind {
            Some(kind) => api_rules::field_value(kind, value, path),
            None => field_text(value, path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: &Value) -> Object {
        Object::new(("ns".into(), "x".into()), 1, super::super::object::encode(value), None, &Arc::default()).expect("JSON")
    }

    #[test]
    fn pods_are_selected_by_their_node_also_when_they_have_none() {
        let pod = |spec: Value| object(&json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}, "spec": spec}));
        let pods = [pod(json!({"nodeName": "n"})), pod(json!({"nodeName": ""})), pod(json!({}))];
        let kind = api_model::kind::find("", "pods").cloned();
        for (selector, expected) in [
            ("spec.nodeName=n", [true, false, false]),
            ("spec.nodeName!=n", [false, true, true]),
            ("spec.nodeName=", [false, true, true]),
            ("spec.nodeName!=", [true, false, false]),
        ] {
            let fields = FieldSelector::parse(selector).expect("parses");
            let filter = Filter { fields, kind: kind.clone(), ..Filter::default() };
            assert_eq!([0, 1, 2].map(|n: usize| filter.matches(&pods[n])), expected, "{selector}");
        }
    }

    #[test]
    fn absent_booleans_and_counts_compare_like_typed_ones() {
        let node = object(&json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "x"}}));
        for (selector, expected) in [
            ("spec.unschedulable=false", true),
            ("spec.unschedulable=true", false),
            ("spec.unschedulable!=true", true),
            ("metadata.name=x", true),
        ] {
            let kind = api_model::kind::find("", "nodes").cloned();
            let filter = Filter { fields: FieldSelector::parse(selector).expect("parses"), kind, ..Filter::default() };
            assert_eq!(filter.matches(&node), expected, "{selector}");
        }
    }
}
