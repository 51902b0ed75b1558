//! Named formats (`kubernetes.NamedFormat`): the checks of labels, names, URIs and so on.

use std::sync::LazyLock;

use regex::Regex;

use crate::time::timestamp;
use crate::url;

/// A format: its name and its check, which returns error messages.
#[derive(Debug)]
pub struct Format {
    pub(crate) name: &'static str,
    pub(crate) check: fn(&str) -> Vec<String>,
}

pub(crate) static FORMATS: [Format; 13] = [
    Format { name: "dns1123Label", check: |text| LABEL.check(text) },
    Format { name: "dns1123Subdomain", check: |text| SUBDOMAIN.check(text) },
    Format { name: "dns1035Label", check: |text| LABEL_1035.check(text) },
    Format { name: "dns1123LabelPrefix", check: |text| LABEL.check(&masked(text)) },
    Format { name: "dns1123SubdomainPrefix", check: |text| SUBDOMAIN.check(&masked(text)) },
    Format { name: "dns1035LabelPrefix", check: |text| LABEL_1035.check(&masked(text)) },
    Format { name: "qualifiedName", check: qualified_name },
    Format { name: "labelValue", check: |text| if text.is_empty() { Vec::new() } else { LABEL_VALUE.check(text) } },
    Format { name: "uri", check: |text| checked(url::is_url(text), "must be a valid URI") },
    Format { name: "uuid", check: |text| checked(UUID.is_match(text), "does not match the UUID format") },
    Format { name: "byte", check: |text| checked(is_base64(text), "invalid base64") },
    Format { name: "date", check: |text| checked(text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(), "invalid date") },
    Format { name: "datetime", check: |text| checked(timestamp(text).is_some(), "invalid datetime") },
];

static LABEL: LazyLock<Rule> = LazyLock::new(|| Rule {
    pattern: "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    whole: whole("[a-z0-9]([-a-z0-9]*[a-z0-9])?"),
    len_max: 63,
    rule: "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
           alphanumeric character (e.g. 'my-name',  or '123-abc'",
});
static SUBDOMAIN: LazyLock<Rule> = LazyLock::new(|| Rule {
    pattern: r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    whole: whole(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"),
    len_max: 253,
    rule: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
           alphanumeric character (e.g. 'example.com'",
});
static LABEL_1035: LazyLock<Rule> = LazyLock::new(|| Rule {
    pattern: "[a-z]([-a-z0-9]*[a-z0-9])?",
    whole: whole("[a-z]([-a-z0-9]*[a-z0-9])?"),
    len_max: 63,
    rule: "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with \
           an alphanumeric character (e.g. 'my-name',  or 'abc-123'",
});
static NAME: LazyLock<Rule> = LazyLock::new(|| Rule {
    pattern: "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    whole: whole("([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"),
    len_max: 63,
    rule: "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
           (e.g. 'MyName',  or 'my.name',  or '123-abc'",
});
static LABEL_VALUE: LazyLock<Rule> = LazyLock::new(|| Rule {
    pattern: "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
    whole: whole("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"),
    len_max: 63,
    rule: "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
           alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345'",
});
static UUID: LazyLock<Regex> = LazyLock::new(|| whole("(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"));

/// A pattern for the whole text, and its maximum length.
struct Rule {
    pattern: &'static str,
    whole: Regex,
    len_max: usize,
    rule: &'static str,
}

#[expect(clippy::expect_used, reason = "patterns written here; a test reads them all")]
fn whole(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).expect("a pattern")
}

impl Rule {
    fn check(&self, text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        if text.len() > self.len_max {
            wrong.push(format!("must be no more than {} characters", self.len_max));
        }
        if !self.whole.is_match(text) {
            wrong.push(format!("{}, regex used for validation is '{}')", self.rule, self.pattern));
        }
        wrong
    }
}

fn checked(is_good: bool, wrong: &str) -> Vec<String> {
    if is_good { Vec::new() } else { vec![wrong.to_owned()] }
}

/// Allows a prefix to end in a dash, since more characters follow it.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => text.to_owned(),
    }
}

fn qualified_name(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (prefix, name) = match parts.as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            return vec![
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                 character with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
                    .to_owned(),
            ];
        }
    };
    let mut wrong = Vec::new();
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => wrong.extend(SUBDOMAIN.check(prefix).into_iter().map(|problem| format!("prefix part {problem}"))),
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else {
        wrong.extend(NAME.check(name));
    }
    wrong
}

fn is_base64(text: &str) -> bool {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_know_good_from_bad() {
        for (name, good, bad) in [
            ("dns1123Label", "my-name", "My_name"),
            ("dns1123Subdomain", "a.b-c", "a..b"),
            ("dns1035Label", "a1", "1a"),
            ("dns1123LabelPrefix", "my-", "-my"),
            ("dns1123SubdomainPrefix", "a.b-", "a."),
            ("dns1035LabelPrefix", "a-", "1-"),
            ("qualifiedName", "example.com/Name", "a/b/c"),
            ("labelValue", "", "-"),
            ("uri", "https://example.com/a", "example"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
            ("byte", "aGVsbG8=", "?"),
            ("date", "2024-02-29", "2023-02-29"),
            ("datetime", "2024-02-29T00:00:00Z", "2024-02-29 00:00"),
        ] {
            let format = FORMATS.iter().find(|format| format.name == name).expect(name);
            assert!((format.check)(good).is_empty(), "{name} {good}");
            assert!(!(format.check)(bad).is_empty(), "{name} {bad}");
        }
    }
}
