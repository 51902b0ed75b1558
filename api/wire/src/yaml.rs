//! JSON values as YAML that readers of YAML 1.1 and 1.2 understand alike, in the look of upstream's writer.
//!
//! A string is plain where every reader takes it for a string: `no`, `1_000`, `0777` and `2001-01-01` are quoted. Text of
//! several lines is a block.

use serde_json::{Map, Value};

/// Words that are no strings to some reader, in small letters.
const WORDS: [&str; 13] = ["y", "yes", "n", "no", "on", "off", "true", "false", "null", "nan", ".nan", ".inf", "inf"];
/// Longer keys need a question mark before them (libyaml's writer has the same bound).
const KEY_LEN_MAX: usize = 128;

/// The value as a YAML document.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(map, 0, false, &mut out),
        Value::Array(list) if !list.is_empty() => write_list(list, 0, false, &mut out),
        other => {
            write_scalar(other, 2, &mut out);
            out.push('\n');
        }
    }
    out
}

/// A map's lines; the first is not indented where its line has begun already.
fn write_map(map: &Map<String, Value>, indent: usize, mut is_begun: bool, out: &mut String) {
    for (key, value) in map {
        if !std::mem::take(&mut is_begun) {
            pad(indent, out);
        }
        if key.len() > KEY_LEN_MAX {
            out.push_str("? ");
            write_line(key, out);
            out.push('\n');
            pad(indent, out);
        } else {
            write_line(key, out);
        }
        out.push(':');
        match value {
            Value::Object(map) if !map.is_empty() => {
                out.push('\n');
                write_map(map, indent + 2, false, out);
            }
            Value::Array(list) if !list.is_empty() => {
                out.push('\n');
                write_list(list, indent, false, out);
            }
            other => {
                out.push(' ');
                write_scalar(other, indent + 2, out);
                out.push('\n');
            }
        }
    }
}

fn write_list(list: &[Value], indent: usize, mut is_begun: bool, out: &mut String) {
    for item in list {
        if !std::mem::take(&mut is_begun) {
            pad(indent, out);
        }
        out.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => write_map(map, indent + 2, true, out),
            Value::Array(list) if !list.is_empty() => write_list(list, indent + 2, true, out),
            other => {
                write_scalar(other, indent + 2, out);
                out.push('\n');
            }
        }
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// A value that is not a filled map or list. Blocks are indented by so much.
fn write_scalar(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::String(text) if is_block(text) => write_block(text, indent, out),
        Value::String(text) => write_line(text, out),
        // Empty maps and lists look as in JSON.
        other => out.push_str(&other.to_string()),
    }
}

/// A string on one line.
fn write_line(text: &str, out: &mut String) {
    if is_plain(text) {
        return out.push_str(text);
    }
    // JSON's strings are YAML's except for characters that YAML does not take for printable.
    for c in Value::from(text).to_string().chars() {
        if is_printable(c) {
            out.push(c)
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")))
        }
    }
}

/// Whether a text of several lines can stand as a block without hints of its indentation.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with([' ', '\t', '\n'])
        && text.chars().all(|c| matches!(c, '\n' | '\t') || is_printable(c))
        && text.split('\n').all(|line| line.is_empty() || !line.trim().is_empty())
}

fn write_block(text: &str, indent: usize, out: &mut String) {
    let body = text.trim_end_matches('\n');
    out.push_str(match text.len() - body.len() {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    // The caller ends the last line.
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(indent, out);
            out.push_str(line);
        }
    }
}

/// Whether every reader takes it for a character of a line.
fn is_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether the text means itself without quotes, wherever it stands outside of brackets.
fn is_plain(text: &str) -> bool {
    let begins = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '.' | '(' | '$' | '+' | '^' | ';');
    let is_option = text.starts_with('-') && text.trim_start_matches('-').starts_with(char::is_alphanumeric);
    (text.starts_with(begins) || is_option)
        && text.chars().all(|c| c.is_alphanumeric() || c == ' ' || c.is_ascii_graphic())
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("...")
        && !WORDS.contains(&text.to_lowercase().trim_start_matches(['+', '-']))
        && !is_number_or_date(text)
}

/// Whether some reader takes the text for a number (also of base 60) or a date, or it begins like one.
fn is_number_or_date(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']).replace('_', "");
    let Some((first, rest)) = digits.split_at_checked(1) else { return false };
    if !first.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return false;
    }
    let has_base = first == "0" && rest.starts_with(['x', 'X', 'o', 'O', 'b', 'B']);
    let is_date = digits.get(4..5) == Some("-") && digits.bytes().take(4).all(|b| b.is_ascii_digit());
    let mut groups = digits.split(':');
    let is_first = groups.next().is_some_and(|group| group.bytes().all(|b| b.is_ascii_digit()));
    let is_later = |group: &str| group.split('.').next().unwrap_or_default().parse::<u8>().is_ok_and(|number| number < 100);
    let is_sexagesimal = is_first && digits.contains(':') && groups.all(is_later);
    has_base && rest.bytes().skip(1).all(|b| b.is_ascii_hexdigit()) || is_date || is_sexagesimal || digits.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn objects_look_as_upstream_writes_them() {
        let long = "k".repeat(KEY_LEN_MAX + 1);
        let value = json!({
            "apiVersion": "v1",
            "data": {"script": "#!/bin/sh\nexit 0\n", "no": "yes", "tail": "a\n\n b", "empty": "", long.as_str(): ["x"]},
            "metadata": {"creationTimestamp": "2024-01-02T03:04:05Z", "labels": {}, "uid": "3f2a0c9e-2222-4444-8888-000000000000"},
            "spec": {"args": ["--flag=x", "-c", "a: b", ["x", {"y": 1}], [], {"host": "10.0.0.1:80", "image": "a/b:1.2@sha256:00"}], "n": 1, "f": 1.5, "t": true, "z": null},
        });
        insta::assert_snapshot!(text(&value));
        assert_eq!(text(&json!("no")), "\"no\"\n");
        assert_eq!(text(&json!({})), "{}\n");
    }

    #[test]
    fn what_some_reader_takes_for_something_else_is_quoted() {
        let words = "y Yes NO on Off TRUE ~ null NaN .inf -.Inf << = 1 -1 +1 1_000 0_7 0777 089 0x1F 0b1_0 0o7 1.5 .5 5. 1e3 1:30 \
            190:20:30.15 2001-01-01 - --- ... a: #a &a *a !a | > 'a' \"a\" %a @a `a [a] {a} , ?";
        let others = ["", "2001-1-1 1:2:3", "- a", "a: b", "a #b", " a", "a ", "a\tb", "a\u{7f}", "\u{feff}a"];
        for word in words.split_whitespace().chain(others) {
            assert!(text(&json!(word)).starts_with('"'), "{word}");
            assert!(text(&json!({word: 1})).starts_with('"'), "{word}");
        }
        for word in "a yess 10.0.0.1 1Gi 500m v1 10.0.0.1:80 /bin/sh --a a:b a#b é 3f2a-1 1.2.3 a,b $(A)".split_whitespace().chain(["a b"])
        {
            assert_eq!(text(&json!(word)), format!("{word}\n"));
        }
    }

    fn anything() -> impl Strategy<Value = Value> {
        let strings = prop_oneof!["[-:#'\"yn01_.~ \n\t|>&*!%@`{}\\[\\],?=<a-c]{0,12}", any::<String>()];
        let leaf = prop_oneof![
            strings.prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let keys = prop_oneof!["[-:#'\"yn01_.~ \n|>?=<a-c]{0,8}", "[a-c]{120,140}"];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(keys, inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in anything()) {
            let text = text(&value);
            let read: Value = serde_yaml::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
            prop_assert_eq!(&read, &value, "{}", text);
        }
    }
}
