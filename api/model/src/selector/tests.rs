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
fn nonsense_is_rejected() {
    for text in ["app in web", "a b", "=x", "app=a b", "n>x", "a/b/c", "/a", "A/b", "-a", "a=-b", "a=b-", "a in (b", "a=)", "!!a"] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn nothing_beside_a_comma_is_rejected_in_upstreams_words() {
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
fn mistakes_are_reported_in_upstreams_words() {
    const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let inner = |text: &str| format!("unable to parse requirement: {text}");
    for (text, wanted) in [
        ("a in (b", inner("found '', expected: ',' or ')'")),
        ("a in (b c)", inner("found 'c', expected: ',' or ')'")),
        ("a in b", inner("found 'b' expected: '('")),
        ("a in (=)", inner("found '=', expected: ',', ')' or identifier")),
        ("a in (b,=)", inner("found '=', expected: ',', or identifier")),
        ("a b", inner("found 'b', expected: in, notin, =, ==, !=, gt, lt")),
        ("a=)", inner("found ')', expected: identifier")),
        ("!!a", inner("found '!', expected: identifier")),
        ("a==b c", "found 'c', expected: ',' or 'end of string'".to_owned()),
        ("!a=b", "found '=', expected: ',' or 'end of string'".to_owned()),
        ("=x", "found '=', expected: !, identifier, or 'end of string'".to_owned()),
        ("a>x", inner("values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer")),
        ("-a", inner(&format!("<nil>: Invalid value: \"-a\": name part {NAME}"))),
        ("a=-b", inner(&format!("values[0][a]: Invalid value: \"-b\": {VALUE}"))),
    ] {
        assert_eq!(Selector::parse(text).expect_err(text).to_string(), wanted, "{text}");
    }
    // `in` and `notin` are operators only after a key, and a value in a list may be empty.
    for (text, rendered) in [
        ("in in (notin,in)", "in in (in,notin)"),
        ("a in ()", "a="),
        ("a notin (b,,b)", "a notin (,b)"),
        ("a =b , !c", "a=b,!c"),
        ("a in (,)", "a="),
        ("a in (b,)", "a in (,b)"),
    ] {
        assert_eq!(Selector::parse(text).map(|selector| selector.to_string()), Ok(rendered.to_owned()), "{text}");
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
    let refused = |text: &str| FieldSelector::parse(text).expect_err("refused").to_string();
    assert_eq!(refused("a=b,c"), "invalid selector: 'a=b,c'; can't understand 'c'");
    assert_eq!(refused("a=b=c"), "invalid field selector: unescaped character in value: 61");
    assert_eq!(refused("a=b\\x"), "invalid field selector: invalid escape sequence: \\x");
    assert_eq!(refused("a=b\\"), "invalid field selector: invalid escape sequence: \\");
}

#[test]
fn the_printed_form_parses_to_the_same() {
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
