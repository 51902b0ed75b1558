//! Upstream's roles and bindings. A stored object gets back the rules, subjects, labels and annotations that it lost,
//! unless an annotation turns updates off. Additions of users stay. A binding to a wrong role is deleted and created
//! again, because the role of a binding cannot be changed.

use api_auth::rule::Rule;
use api_model::kind::find_by_kind;
use api_model::meta;
use api_model::view::View;
use serde_json::Value;

use api_wire::json;

/// With the value `false`, a stored role belongs to the administrator.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// The necessary changes of the stored roles and bindings.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// Objects to delete, before the writes.
    pub(super) delete: Vec<Value>,
    /// Objects to create, or to replace if they have a resource version.
    pub(super) write: Vec<Value>,
}

/// Compares the stored objects with the wanted ones.
pub(super) fn changes(view: &dyn View) -> Changes {
    let mut changes = Changes::default();
    for wanted in api_auth::bootstrap::objects() {
        let text = |field: &str| wanted.get(field).and_then(Value::as_str).unwrap_or_default();
        let Some(kind) = find_by_kind(text("apiVersion"), text("kind")) else { continue };
        let namespace = kind.namespaced.then(|| meta::namespace(&wanted));
        let stored = view.get(&kind.group_resource(), namespace, meta::name(&wanted));
        changes.add(stored.as_deref(), wanted);
    }
    changes
}

/// The role of those who read the metrics of resources.
pub(super) fn metrics_reader() -> Option<Value> {
    let is_it = |object: &Value| meta::name(object) == api_auth::bootstrap::METRICS_READER;
    api_auth::bootstrap::objects().into_iter().find(is_it)
}

impl Changes {
    fn add(&mut self, stored: Option<&Value>, wanted: Value) {
        let Some(stored) = stored else { return self.write.push(wanted) };
        if meta::annotation(stored, AUTO_UPDATE) == Some("false") {
            return;
        }
        if stored.get("roleRef") != wanted.get("roleRef") {
            self.delete.push(stored.clone());
            return self.write.push(wanted);
        }
        let merged = merged(stored, &wanted);
        if merged != *stored {
            self.write.push(merged);
        }
    }
}

/// The stored object with its missing parts.
fn merged(stored: &Value, wanted: &Value) -> Value {
    let mut merged = stored.clone();
    for field in ["labels", "annotations"] {
        let lost = wanted.pointer(&format!("/metadata/{field}")).and_then(Value::as_object).into_iter().flatten();
        for (key, value) in
            lost.filter(|(key, _)| stored.pointer(&format!("/metadata/{field}")).and_then(|existing| existing.get(*key)).is_none())
        {
            json::set(&mut merged, &["metadata", field, key], value.clone());
        }
    }
    // The rules of an aggregated role are computed from other roles.
    if stored.get("aggregationRule").is_none() {
        regain(&mut merged, wanted, &["rules"], covered);
    }
    regain(&mut merged, wanted, &["aggregationRule", "clusterRoleSelectors"], |existing, item| existing.contains(item));
    regain(&mut merged, wanted, &["subjects"], |existing, item| existing.contains(item));
    merged
}

/// Appends the missing items of a list.
fn regain(merged: &mut Value, wanted: &Value, path: &[&str], has: impl Fn(&[Value], &Value) -> bool) {
    let pointer = format!("/{}", path.join("/"));
    let Some(wanted) = wanted.pointer(&pointer).and_then(Value::as_array) else { return };
    let existing = merged.pointer(&pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let lost: Vec<Value> = wanted.iter().filter(|item| !has(&existing, item)).cloned().collect();
    if !lost.is_empty() {
        json::set(merged, path, [existing, lost].concat());
    }
}

/// Whether the rules allow everything that the other rule allows.
fn covered(rules: &[Value], rule: &Value) -> bool {
    let own: Vec<Rule> = rules.iter().map(Rule::from_value).collect();
    Rule::from_value(rule).singles().iter().all(|single| own.iter().any(|rule| rule.covers(single)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn changes(stored: Value, wanted: Value) -> Changes {
        let mut changes = Changes::default();
        changes.add(Some(&stored), wanted);
        changes
    }

    fn rule(verb: &str) -> Value {
        json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]})
    }

    #[test]
    fn a_role_regains_what_it_lost_and_keeps_what_was_added() {
        let role = |rules: Value, auto: &str| json!({"metadata": {"name": "r", "annotations": {AUTO_UPDATE: auto}}, "rules": rules});
        let wanted = role(json!([rule("get"), rule("list")]), "true");
        let stored = role(json!([rule("list"), rule("mine")]), "true");
        assert_eq!(changes(stored, wanted.clone()).write[0]["rules"], json!([rule("list"), rule("mine"), rule("get")]));
        assert_eq!(changes(wanted.clone(), wanted.clone()), Changes::default());
        assert_eq!(changes(role(json!([rule("*")]), "true"), wanted.clone()), Changes::default(), "a wider rule covers both");
        assert_eq!(changes(role(json!([]), "false"), wanted.clone()), Changes::default(), "the administrator's own");
        let bare = changes(json!({"metadata": {"name": "r"}, "rules": []}), wanted.clone());
        assert_eq!(bare.write[0]["metadata"]["annotations"], wanted["metadata"]["annotations"]);
        assert_eq!(bare.write[0]["rules"], wanted["rules"]);
    }

    #[test]
    fn aggregated_roles_regain_selectors_and_not_rules() {
        let role = |selectors: Value, rules: Value| json!({"metadata": {"name": "r"}, "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": rules});
        let wanted = role(json!([{"matchLabels": {"a": "b"}}]), json!([rule("get")]));
        let written = changes(role(json!([{"matchLabels": {"own": "x"}}]), json!([])), wanted).write;
        assert_eq!(written[0], role(json!([{"matchLabels": {"own": "x"}}, {"matchLabels": {"a": "b"}}]), json!([])));
    }

    #[test]
    fn a_binding_that_leads_elsewhere_is_made_anew() {
        let binding = |role: &str, subjects: Value| json!({"metadata": {"name": "b"}, "roleRef": {"name": role}, "subjects": subjects});
        let wanted = binding("r", json!([{"name": "jane"}]));
        let stored = binding("other", json!([{"name": "joe"}]));
        assert_eq!(changes(stored.clone(), wanted.clone()), Changes { delete: vec![stored], write: vec![wanted.clone()] });
        let emptied = changes(binding("r", Value::Null), wanted.clone());
        assert_eq!(emptied, Changes { delete: Vec::new(), write: vec![wanted] });
    }
}
