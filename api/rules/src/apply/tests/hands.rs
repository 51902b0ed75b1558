//! How managers get fields, take them from other managers, and remove them by giving them up.

use super::*;

#[test]
fn an_applier_owns_what_it_states() {
    let mut story = Story::config_map();
    story.apply("a", json!({"metadata": {"labels": {"l": "1"}}, "data": {"k": "1"}}));
    assert_eq!(story.owners(), ["a Apply: .data.k .metadata.labels.l"]);
    assert_eq!(story.at("/metadata/managedFields/0/time"), "2026-01-01T00:00:01Z");
    assert_eq!(story.at("/metadata/managedFields/0/fieldsType"), "FieldsV1");
}

#[test]
fn who_states_the_same_shares_it() {
    let mut story = Story::config_map();
    story.apply("a", json!({"data": {"k": "1"}})).apply("b", json!({"data": {"k": "1", "l": "2"}}));
    assert_eq!(story.owners(), ["a Apply: .data.k", "b Apply: .data.k .data.l"]);
    // A manager gives up a field without effect while another manager owns it.
    story.apply("a", json!({}));
    assert_eq!((story.at("/data"), story.owners()), (json!({"k": "1", "l": "2"}), vec!["b Apply: .data.k .data.l".to_owned()]));
    story.apply("b", json!({"data": {"l": "2"}}));
    assert_eq!(story.at("/data"), json!({"l": "2"}));
}

#[test]
fn a_conflict_reports_the_owner_of_the_field() {
    let mut story = Story::config_map();
    story.apply("a", json!({"data": {"k": "1", "l": "1"}}));
    assert_eq!(story.conflict("b", json!({"data": {"k": "2"}})), "Apply failed with 1 conflict: conflict with \"a\": .data.k");
    assert_eq!(
        story.conflict("b", json!({"data": {"k": "2", "l": "2"}})),
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.k\n- .data.l"
    );
    assert_eq!(story.at("/data"), json!({"k": "1", "l": "1"}));
}

#[test]
fn conflicts_with_several_tell_each_owner_once() {
    let mut story = Story::config_map();
    story.apply("b", json!({"data": {"k": "1"}})).put("a", json!({"data": {"k": "1", "l": "1"}}));
    assert_eq!(
        story.conflict("c", json!({"data": {"k": "2", "l": "2"}})),
        "Apply failed with 2 conflicts: conflicts with \"a\" using v1:\n- .data.l\nconflicts with \"b\":\n- .data.k"
    );
}

#[test]
fn force_takes_the_field_from_its_owner() {
    let mut story = Story::config_map();
    story.apply("a", json!({"data": {"k": "1", "l": "1"}})).force("b", json!({"data": {"k": "2"}}));
    assert_eq!(story.at("/data"), json!({"k": "2", "l": "1"}));
    assert_eq!(story.owners(), ["a Apply: .data.l", "b Apply: .data.k"]);
    // The manager that lost the field now gets a conflict, and loses nothing else when it omits the field.
    assert!(story.conflict("a", json!({"data": {"k": "1", "l": "1"}})).contains("conflict with \"b\": .data.k"));
    story.apply("a", json!({"data": {"l": "1"}}));
    assert_eq!(story.at("/data"), json!({"k": "2", "l": "1"}));
}

#[test]
fn what_nobody_states_any_more_is_gone() {
    let mut story = Story::config_map();
    story.apply("a", json!({"metadata": {"labels": {"l": "1"}}, "data": {"k": "1", "l": "1"}}));
    story.apply("a", json!({"data": {"l": "1"}}));
    assert_eq!((story.at("/data"), story.at("/metadata/labels")), (json!({"l": "1"}), Value::Null));
    assert_eq!((story.at("/metadata/name"), story.at("/metadata/namespace")), (json!("x"), json!("ns")));
    assert_eq!(story.owners(), ["a Apply: .data.l"]);
    story.apply("a", json!({}));
    assert_eq!((story.at("/data"), story.at("/metadata/managedFields")), (Value::Null, Value::Null));
}

#[test]
fn what_an_updater_owns_stays_when_an_applier_lets_go() {
    let mut story = Story::config_map();
    story.apply("a", json!({"data": {"k": "1"}})).put("u", json!({"data": {"k": "2"}}));
    assert_eq!(story.owners(), ["u Update: .data.k"]);
    story.put("u", json!({"data": {"k": "2", "l": "2"}})).force("a", json!({"data": {"l": "2"}})).apply("a", json!({}));
    assert_eq!(story.at("/data"), json!({"k": "2", "l": "2"}));
}

#[test]
fn defaults_beside_what_was_given_up_stay() {
    let mut story = Story::for_resource("apps", "deployments");
    story.apply("a", deployment(Some(3), json!([{"name": "c", "image": "i", "command": ["x"]}])));
    story.object.as_mut().expect("applied")["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    story.apply("a", deployment(None, json!([{"name": "c", "image": "i"}])));
    assert_eq!(story.at("/spec/replicas"), Value::Null);
    assert_eq!(story.at("/spec/template/spec/containers"), json!([{"name": "c", "image": "i", "imagePullPolicy": "Always"}]));
    // An element of a list is removed with all of its fields, owned or not.
    story.apply("a", deployment(None, json!([{"name": "d", "image": "i"}])));
    assert_eq!(story.at("/spec/template/spec/containers"), json!([{"name": "d", "image": "i"}]));
}

#[test]
fn a_field_handed_over_to_an_autoscaler() {
    let mut story = Story::for_resource("apps", "deployments");
    story.apply("user", deployment(Some(3), json!([])));
    story.sub = Some("scale");
    let mut scaled = deployment(Some(5), json!([]));
    scaled["metadata"] = json!({});
    story.put("hpa", scaled);
    assert_eq!(story.owners().last().map(String::as_str), Some("hpa Update/scale: .spec.replicas"));
    story.sub = None;
    let refused = story.conflict("user", deployment(Some(3), json!([])));
    assert_eq!(refused, "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using apps/v1: .spec.replicas");
    story.apply("user", deployment(None, json!([])));
    assert_eq!(story.at("/spec/replicas"), 5);
}

#[test]
fn nothing_changes_twice() {
    let mut story = Story::config_map();
    story.apply("a", json!({"data": {"k": "1"}}));
    let first = story.object().clone();
    story.apply("a", json!({"data": {"k": "1"}}));
    assert_eq!(*story.object(), first);
}

#[test]
fn an_object_without_known_owners_belongs_to_before_the_first_apply() {
    let mut story = Story::config_map();
    story.object = Some(story.named(json!({"metadata": {"uid": "u"}, "data": {"k": "1", "l": "1"}})));
    story.put("u", json!({"metadata": {"uid": "u"}, "data": {"k": "1", "l": "2"}}));
    assert_eq!(story.owners(), Vec::<String>::new());
    assert_eq!(
        story.conflict("a", json!({"data": {"k": "2"}})),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.k"
    );
    story.apply("a", json!({"data": {"k": "1"}}));
    assert_eq!(story.owners(), ["a Apply: .data.k", "before-first-apply Update: .data .data.k .data.l"]);
}

#[test]
fn a_status_is_applied_through_its_own_door() {
    let mut story = Story::for_resource("apps", "deployments");
    story.apply("user", deployment(Some(1), json!([])));
    story.sub = Some("status");
    let conditions = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "spec": {"replicas": 7}});
    story.apply("controller", conditions);
    assert_eq!(
        story.owners().last().map(String::as_str),
        Some(
            "controller Apply/status: .status.conditions[type=\"Ready\"] .status.conditions[type=\"Ready\"].status .status.conditions[type=\"Ready\"].type"
        )
    );
    // The main resource cannot own the status.
    story.sub = None;
    story.apply("other", json!({"status": {"replicas": 3}}));
    assert!(!story.owners().iter().any(|line| line.starts_with("other")), "{:?}", story.owners());
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[test]
fn kubectl_takes_over_from_itself() {
    let mut story = Story::config_map();
    let last = |story: &Story, data: Value| story.named(json!({"metadata": {"annotations": {}}, "data": data})).to_string();
    let object = |story: &Story, applied: Value, data: Value| json!({"metadata": {"annotations": {(LAST_APPLIED): last(story, applied)}}, "data": data});
    let first = object(&story, json!({"k": "1", "l": "1"}), json!({"k": "1", "l": "1"}));
    story.put("kubectl-client-side-apply", first);
    // A change by another manager is a conflict; a change by kubectl itself is not.
    let by_other = story.conflict("other", json!({"data": {"k": "2"}}));
    assert_eq!(by_other, "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.k");
    story.apply("kubectl", json!({"data": {"k": "2", "l": "1"}}));
    assert_eq!(story.at("/data"), json!({"k": "2", "l": "1"}));
    let annotation: Value =
        serde_json::from_str(story.object()["metadata"]["annotations"][LAST_APPLIED].as_str().expect("kept")).expect("JSON");
    assert_eq!(annotation["data"], json!({"k": "2", "l": "1"}));
    // A field that another manager has changed since then belongs to that manager.
    let changed = object(&story, json!({"k": "2", "l": "1"}), json!({"k": "2", "l": "3"}));
    story.put("editor", changed);
    let refused = story.conflict("kubectl", json!({"data": {"k": "4", "l": "4"}}));
    assert_eq!(refused, "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.l");
}
