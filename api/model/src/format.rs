//! Formats of labels and their keys. Each function takes a text and returns upstream's list of errors
//! (`k8s.io/apimachinery/pkg/util/validation`); the list is empty for a valid text.

/// Maximum length of a DNS label.
pub const LABEL_LEN_MAX: usize = 63;
/// Maximum length of a DNS subdomain.
pub const SUBDOMAIN_LEN_MAX: usize = 253;
/// The regular expression of a DNS subdomain, for messages.
pub const SUBDOMAIN_FORMAT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

const NAME_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// Upstream's message for a text that is too long.
pub fn max_len(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// Upstream's message for a text that does not match: the rule, examples, the regular expression.
pub fn mismatch(message: &str, expression: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{message} (regex used for validation is '{expression}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{expression}')", examples.join(" or "))
}

/// Whether a byte is a lower-case letter or a digit.
pub fn lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// Whether a text is not empty, starts and ends with an `edge` byte, and consists of `inner` bytes.
pub fn framed(text: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|&b| edge(b)) && bytes.last().is_some_and(|&b| edge(b)) && bytes.iter().all(|&b| inner(b))
}

/// Whether a text has the form of a DNS label, with any length.
pub fn label_shaped(text: &str) -> bool {
    framed(text, lower_alphanumeric, |b| lower_alphanumeric(b) || b == b'-')
}

/// Whether a text has the form of a DNS subdomain, with any length.
pub fn subdomain_shaped(text: &str) -> bool {
    text.split('.').all(label_shaped)
}

fn name_shaped(text: &str) -> bool {
    framed(text, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Checks a DNS subdomain (RFC 1123).
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > SUBDOMAIN_LEN_MAX {
        wrong.push(max_len(SUBDOMAIN_LEN_MAX));
    }
    if !subdomain_shaped(text) {
        let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        wrong.push(mismatch(words, SUBDOMAIN_FORMAT, &["example.com"]));
    }
    wrong
}

/// Checks a qualified name: an optional DNS subdomain and `/`, then a name of at most 63 bytes.
pub fn qualified_name(text: &str) -> Vec<String> {
    const WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
    let mut wrong = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(dns_subdomain(prefix).into_iter().map(|message| format!("prefix part {message}")));
            }
            *name
        }
        _ => {
            let message = mismatch(WORDS, NAME_FORMAT, &EXAMPLES);
            return vec![format!("a valid label key {message} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LEN_MAX {
        wrong.push(format!("name part {}", max_len(LABEL_LEN_MAX)));
    }
    if !name_shaped(name) {
        wrong.push(format!("name part {}", mismatch(WORDS, NAME_FORMAT, &EXAMPLES)));
    }
    wrong
}

/// Checks the value of a label.
pub fn label_value(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LABEL_LEN_MAX {
        wrong.push(max_len(LABEL_LEN_MAX));
    }
    if !text.is_empty() && !name_shaped(text) {
        let words = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
        wrong.push(mismatch(words, &format!("({NAME_FORMAT})?"), &["MyValue", "my_value", "12345"]));
    }
    wrong
}
