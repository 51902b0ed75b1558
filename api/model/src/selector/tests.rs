use serde_json::json;

use super::*;

#[test]
fn label_selectors_match_as_upstream_documents() {
    let object = json!({"metadata": {"labels": {"app": "web", "tier": "front", "n": "5"}}});
    for (text, wanted) in [
        ("", true),
        ("app=web", true),
        ("app==web,tier=front", true),
        ("app!=web", false),
        ("missing!=web", true),
        ("app in (api, web)", true),
        ("app notin (api,web)", false),
        ("missing notin (a)", true),
        ("app", true),
        ("!app", false),
        ("!missing", true),
        ("n>4", true),
        ("n<5", false),
    ] {
        assert_eq!(Selector::parse(text).map(|s| s.matches(&object)), Ok(wanted), "{text}");
    }
}

#[test]
fn nonsense_is_refused() {
    for text in ["app in web", "a b", "=x", "app=a b", "n>x"] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn absent_selector_matches_nothing_and_empty_matches_all() {
    let object = json!({"metadata": {}});
    assert!(!Selector::from_label_selector(None).expect("parses").matches(&object));
    assert!(Selector::from_label_selector(Some(&json!({}))).expect("parses").matches(&object));
}

#[test]
fn field_selectors_compare_text() {
    let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n1", "hostNetwork": true}});
    for (text, wanted) in [
        ("spec.nodeName=n1", true),
        ("spec.nodeName!=n1", false),
        ("status.phase=", true),
        ("spec.hostNetwork=true,metadata.name==a", true),
    ] {
        assert_eq!(FieldSelector::parse(text).map(|s| s.matches(&pod)), Ok(wanted), "{text}");
    }
    assert!(FieldSelector::parse("metadata.name").is_err());
}
