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
    for text in ["app in web", "a b", "=x", "app=a b", "n>x", "a/b/c", "/a", "A/b", "-a", "a=-b", "a=b-", "a in (b", "a=)", "!!a"] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn nothing_beside_a_comma_is_refused_in_upstreams_words() {
    let refused = |text: &str| Selector::parse(text).expect_err(text).to_string();
    for text in [",", ",x", " , x"] {
        assert_eq!(refused(text), "found ',', expected: !, identifier, or 'end of string'", "{text}");
    }
    for text in ["x,", "x in (a), "] {
        assert_eq!(refused(text), "found '', expected: identifier after ','", "{text}");
    }
    assert_eq!(refused("x,,x"), "found ',', expected: identifier after ','");
    assert!(Selector::parse(" ").is_ok_and(|selector| selector.is_everything()));
    assert!(FieldSelector::parse(",a=b,,").is_ok_and(|fields| fields.terms.len() == 1), "of fields upstream skips them");
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
    let refused = |text: &str| FieldSelector::parse(text).expect_err("refused").to_string();
    assert_eq!(refused("a=b,c"), "invalid selector: 'a=b,c'; can't understand 'c'");
    assert_eq!(refused("a=b=c"), "invalid field selector: unescaped character in value: 61");
    assert_eq!(refused("a=b\\x"), "invalid field selector: invalid escape sequence: \\x");
    assert_eq!(refused("a=b\\"), "invalid field selector: invalid escape sequence: \\");
}

#[test]
fn what_is_shown_parses_to_the_same() {
    for text in ["", "a=b", "a!=", "a in (b,c)", "a notin (,c)", "a,!b,c>1,d<-2", "example.com/a=b"] {
        let selector = Selector::parse(text).expect("parses");
        assert_eq!(selector.to_string(), text);
        assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
    }
    for text in ["", "a=b", "a!=b\\,c", "a=\\\\,b=\\=\\="] {
        let selector = FieldSelector::parse(text).expect("parses");
        assert_eq!(selector.to_string(), text);
    }
    let nothing = Selector::from_label_selector(None).expect("parses").to_string();
    assert!(Selector::parse(&nothing).is_err(), "nothing is not shown as what matches everything");
}
