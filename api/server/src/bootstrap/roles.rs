//! Upstream's roles and bindings. A stored one that is marked as kept up to date regains rules or
//! subjects that it lost; whatever was added to it stays.

use std::sync::Arc;

use api_model::kind::find_by_kind;
use api_model::meta;
use api_model::view::View;
use serde_json::Value;

use crate::app::App;
use crate::json;

/// Whether upstream may change a stored role at the start.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What has to be created, or replaced (such objects bear a resource version).
pub(super) fn outdated(app: &Arc<App>) -> Vec<Value> {
    api_auth::bootstrap::objects().into_iter().filter_map(|wanted| outdated_one(app, wanted)).collect()
}

fn outdated_one(app: &App, wanted: Value) -> Option<Value> {
    let text = |field: &str| wanted.get(field).and_then(Value::as_str).unwrap_or_default();
    let kind = find_by_kind(text("apiVersion"), text("kind"))?;
    let namespace = kind.namespaced.then(|| meta::namespace(&wanted));
    match app.cache.get(&kind.group_resource(), namespace, meta::name(&wanted)) {
        None => Some(wanted),
        Some(stored) => merged(&stored, &wanted),
    }
}

/// The stored object with what it lacks; `None` when it lacks nothing or is not to be touched.
fn merged(stored: &Value, wanted: &Value) -> Option<Value> {
    if meta::annotation(stored, AUTO_UPDATE) != Some("true") {
        return None;
    }
    let mut merged = stored.clone();
    for field in ["rules", "subjects"] {
        // An aggregated role's rules are worked out from other roles.
        if field == "rules" && stored.get("aggregationRule").is_some() {
            continue;
        }
        let Some(wanted) = wanted.get(field).and_then(Value::as_array) else { continue };
        let mut list = stored.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        list.extend(
            wanted.iter().filter(|item| !stored.get(field).and_then(Value::as_array).is_some_and(|had| had.contains(item))).cloned(),
        );
        if !list.is_empty() {
            json::set(&mut merged, &[field], list);
        }
    }
    (merged != *stored).then_some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_role_regains_what_it_lost_and_keeps_what_was_added() {
        let role = |rules: Value, auto: &str| json!({"metadata": {"name": "r", "annotations": {AUTO_UPDATE: auto}}, "rules": rules});
        let wanted = role(json!([{"verbs": ["get"]}, {"verbs": ["list"]}]), "true");
        let stored = role(json!([{"verbs": ["list"]}, {"verbs": ["mine"]}]), "true");
        assert_eq!(
            merged(&stored, &wanted).expect("changed")["rules"],
            json!([{"verbs": ["list"]}, {"verbs": ["mine"]}, {"verbs": ["get"]}])
        );
        assert_eq!(merged(&wanted, &wanted), None);
        assert_eq!(merged(&role(json!([]), "false"), &wanted), None);
    }
}
