//! Valid, invalid and hostile bodies.

use std::time::{Duration, Instant};

use super::*;
use serde_json::json;

#[test]
fn json_and_yaml_say_the_same() {
    let json = br#"{"apiVersion":"v1","metadata":{"labels":{"a":"1"}},"data":[1,2.5,true,null,"x"]}"#;
    let yaml = b"apiVersion: v1\nmetadata:\n  labels: {a: '1'}\ndata:\n- 1\n- 2.5\n- true\n- null\n- x\n";
    let wanted = json!({"apiVersion": "v1", "metadata": {"labels": {"a": "1"}}, "data": [1, 2.5, true, null, "x"]});
    for (body, yaml) in [(&json[..], false), (&json[..], true), (&yaml[..], true)] {
        assert_eq!(decode(body, yaml), Ok(Decoded { value: wanted.clone(), duplicates: Vec::new() }));
    }
}

#[test]
fn reports_duplicate_fields_with_their_paths_and_the_last_wins() {
    let json = br#"{"spec":{"replicas":1,"replicas":2,"containers":[{"image":"a","image":"b"}]},"spec":{}}"#;
    let decoded = decode(json, false).expect("decodes");
    let messages = |decoded: &Decoded| decoded.duplicates.iter().map(Duplicate::to_string).collect::<Vec<_>>();
    let wanted = ["spec.replicas", "spec.containers[0].image", "spec"].map(|path| format!("duplicate field \"{path}\""));
    assert_eq!(messages(&decoded), wanted);
    let yaml = b"\nspec:\n  replicas: 1\n  replicas: 2\n  # a remark\n  list:\n  - {a: 1, b: 2, a: 3}\n  replicas: 2\n";
    let decoded = decode(yaml, true).expect("decodes");
    let line = |line: usize, key: &str| format!("line {line}: key \"{key}\" already set in map");
    assert_eq!(messages(&decoded), [line(4, "replicas"), line(7, "a"), line(8, "replicas")]);
    let applied = decode_applied(b"{\"spec\":\n{\"foo\":1,\n\"foo\":2}}").expect("decodes");
    assert_eq!((messages(&applied), &applied.value), (vec![line(3, "foo")], &json!({"spec": {"foo": 2}})));
    assert_eq!(yaml_complaint(&applied.duplicates), "yaml: unmarshal errors:\n  line 3: key \"foo\" already set in map");
    let yaml = b"spec:\n  replicas: 1\n  replicas: 2\n";
    let decoded = decode(yaml, true).expect("decodes");
    assert_eq!(decoded.value, json!({"spec": {"replicas": 2}}));
}

#[test]
fn rejects_broken_bodies_in_words() {
    let text = |body: &[u8], yaml| decode(body, yaml).expect_err("refused").to_string();
    insta::assert_snapshot!(text(b"{\"a\":", false));
    insta::assert_snapshot!(text(b"{} x", false));
    insta::assert_snapshot!(text(b"", false));
    insta::assert_snapshot!(text(b"{\"a\": \"\xff\"}", true));
    insta::assert_snapshot!(text(b"a: [1", true));
    insta::assert_snapshot!(text(b"a: 1\n---\nb: 2\n", true));
    insta::assert_snapshot!(text(b"a: .inf\n", true));
}

#[test]
fn half_characters_of_json_are_replaced_as_gos_decoder_does() {
    for (body, wanted) in [
        (&br#"{"a":"x\ud83d"}"#[..], "x\u{fffd}"),
        (br#"{"a":"\uDE00x"}"#, "\u{fffd}x"),
        (br#"{"a":"\ud83d\ude00\ud83d\n"}"#, "\u{1f600}\u{fffd}\n"),
        (br#"{"a":"\ud83d\ud83d\ude00"}"#, "\u{fffd}\u{1f600}"),
        (br#"{"a":"\ud83d\u0041"}"#, "\u{fffd}A"),
        (br#"{"a":"\\ud83d\ud83d"}"#, "\\ud83d\u{fffd}"),
        (b"{\"a\":\"\xf0\x9f\x98\"}", "\u{fffd}\u{fffd}\u{fffd}"),
        (b"{\"a\":\"\xff\\udc00\"}", "\u{fffd}\u{fffd}"),
    ] {
        assert_eq!(decode(body, false).map(|decoded| decoded.value), Ok(json!({"a": wanted})), "{wanted}");
    }
    for body in [&b"{\"a\":\xff}"[..], b"\xff", br#"{"a":"\ud8"}"#, br#"{"a":"\ud83d"#] {
        assert!(matches!(decode(body, false), Err(DecodeError::Json(_))), "{body:?}");
    }
}

#[test]
fn floats_without_a_fraction_are_whole_numbers_in_yaml_and_strategic_patches() {
    let value = |decoded: Result<Decoded, DecodeError>| decoded.expect("decodes").value.to_string();
    let body = br#"{"a":3.0,"b":1e1,"c":-0.0,"d":1.5,"e":1e+300}"#;
    let whole = r#"{"a":3,"b":10,"c":0,"d":1.5,"e":1e+300}"#;
    assert_eq!(value(decode_strategic(body)), whole);
    assert_eq!(value(decode_applied(body)), whole);
    assert_eq!(value(decode(b"{a: 3.0, b: 1e1, c: -0.0, d: 1.5, e: 1e300}", true)), whole);
    assert_eq!(value(decode(body, false)), r#"{"a":3.0,"b":10.0,"c":-0.0,"d":1.5,"e":1e+300}"#);
}

#[test]
fn plain_scalars_are_read_as_yaml_1_1() {
    for (text, wanted) in [
        ("0644", json!(420)),
        ("-0644", json!(-420)),
        ("+0644", json!(420)),
        ("0_7", json!(7)),
        ("0o644", json!(420)),
        ("0x_1F", json!(31)),
        ("0b1_1", json!(3)),
        ("1_000", json!(1000)),
        ("1_000.5", json!(1000.5)),
        ("089", json!(89)),
        ("1_0e1", json!(100)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("yes", json!(true)),
        ("On", json!(true)),
        ("y", json!(true)),
        ("NO", json!(false)),
        ("&x off", json!(false)),
        ("yEs", json!("yEs")),
        ("1:30", json!("1:30")),
        ("2001-01-01", json!("2001-01-01")),
        ("1_000x", json!("1_000x")),
        ("'0644'", json!("0644")),
        ("\"yes\"", json!("yes")),
        ("!!str yes", json!("yes")),
        ("!!str &x 0644", json!("0644")),
        ("&x !!str 0644", json!("0644")),
        ("|-\n  yes", json!("yes")),
        ("-", json!([null])),
    ] {
        // The text before the value has more bytes than characters.
        let body = format!("# é\nb: é\na:\n  {text}\n");
        assert_eq!(decode(body.as_bytes(), true).map(|decoded| decoded.value), Ok(json!({"b": "é", "a": wanted})), "{text}");
    }
    let body = b"{yes: 1, 'no': 2, 010: 3, list: [no, \"no\",on], same: &a no, again: *a}";
    let wanted = json!({"true": 1, "no": 2, "8": 3, "list": [false, "no", true], "same": false, "again": false});
    assert_eq!(decode(body, true).map(|decoded| decoded.value), Ok(wanted));
    assert_eq!(decode(b"{\"a\":\"yes\",\"b\":\"0644\"}", true).map(|decoded| decoded.value), Ok(json!({"a": "yes", "b": "0644"})));
}

#[test]
fn one_document_may_have_an_empty_neighbour() {
    for body in [&b"---\na: 1\n"[..], b"a: 1\n---\n", b"a: 1\n...\n", b"# only\n---\na: 1\n"] {
        assert_eq!(decode(body, true).map(|d| d.value), Ok(json!({"a": 1})), "{body:?}");
    }
    assert_eq!(decode(b"", true).map(|d| d.value), Ok(Value::Null));
}

#[test]
fn aliases_and_merge_keys_work_within_bounds() {
    let body = b"base: &b {cpu: 1, memory: 2}\na: *b\nc:\n  <<: *b\n  cpu: 3\n";
    let decoded = decode(body, true).expect("decodes");
    assert_eq!(decoded.value.get("a"), Some(&json!({"cpu": 1, "memory": 2})));
    assert_eq!(decoded.value.get("c"), Some(&json!({"cpu": 3, "memory": 2})));
    assert!(decoded.duplicates.is_empty());
}

/// Asserts that the work ends within a time that is long enough for a busy machine.
fn quickly<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    assert!(start.elapsed() < Duration::from_secs(20), "took {:?}", start.elapsed());
    result
}

#[test]
fn bombs_cost_little() {
    let mut laughs = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        laughs.push_str(&format!("a{level}: &a{level} [{}]\n", vec![before; 9].join(", ")));
    }
    assert!(quickly(|| decode(laughs.as_bytes(), true)).is_err());

    let wide = format!("a: &a [{}]\nb: [{}]\n", "x, ".repeat(100_000), "*a, ".repeat(100_000));
    assert!(quickly(|| decode(wide.as_bytes(), true)).is_err());

    // One long text and 130,000 aliases of it: 68 GB.
    let long = format!("[&a \"{}\"{}]", "x".repeat(512 << 10), ", *a".repeat(130_000));
    assert!(quickly(|| decode(long.as_bytes(), true)).is_err());

    for (open, yaml) in
        [("[", false), ("[", true), ("{\"a\":", false), ("{a: ", true), ("- ", true), ("? ", true), ("&a ", true), ("!!x ", true)]
    {
        let deep = open.repeat(1_000_000 / open.len());
        assert!(quickly(|| decode(deep.as_bytes(), yaml)).is_err(), "{open}");
    }
    let stairs: String = (0..2000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(quickly(|| decode(stairs.as_bytes(), true)).is_err());
    let rows = "- a\n".repeat(200_000);
    assert!(quickly(|| decode(rows.as_bytes(), true)).is_ok());
}

#[test]
fn errors_read_like_upstreams_in_the_sentence_around_them() {
    let error = DecodeError::Strict(vec!["unknown field \"spec.foo\"".to_owned(), "duplicate field \"spec.replicas\"".to_owned()]);
    assert_eq!(
        error.handled_as("Deployment", "v1"),
        "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \"spec.foo\", duplicate field \"spec.replicas\""
    );
}

proptest::proptest! {
    #[test]
    fn nothing_makes_it_panic(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), yaml in proptest::prelude::any::<bool>()) {
        let _any_answer = decode(&body, yaml);
    }

    #[test]
    fn text_that_looks_like_yaml_does_not_either(body in "[-:{}\\[\\]&*!|>'\"%@`,? \n\ta-c0-9]{0,80}") {
        let _any_answer = decode(body.as_bytes(), true);
    }
}

#[test]
fn a_tag_says_what_a_plain_scalar_is() {
    let value = |text: &str| decode(text.as_bytes(), true).expect("YAML").value.to_string();
    assert_eq!(value("[!!str yes, yes, !!str &a no, *a]"), r#"["yes",true,"no","no"]"#);
    let long = "1_".repeat(1_000);
    assert_eq!(value(&format!("a: {long}")), format!(r#"{{"a":"{long}"}}"#));
}
