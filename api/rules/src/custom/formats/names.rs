//! Host names and email addresses.

use std::sync::LazyLock;

use regex::Regex;

use super::{is_ip, pattern};

/// Most bytes of a host name, and of one of its labels.
const HOSTNAME_LEN_MAX: usize = 255;
const LABEL_LEN_MAX: usize = 63;

static LABEL: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[a-zA-Z0-9\p{S}\p{L}]([a-zA-Z0-9\p{S}\p{L}-]*[a-zA-Z0-9\p{S}\p{L}])?$"));
static ALONE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[a-zA-Z0-9\p{S}\p{L}]-?[a-zA-Z0-9\p{S}\p{L}]*$"));
static TOP_LEVEL: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[a-zA-Z\p{L}]{2,}$"));

/// Upstream's `HostnamePattern`; the lengths are checked separately. A name without dots may have one dash, as its
/// second character. The last label of a name with dots consists of letters.
pub(super) fn is_hostname(text: &str) -> bool {
    let labels: Vec<&str> = text.split('.').collect();
    let is_good = match labels.as_slice() {
        [alone] => ALONE.is_match(alone),
        [labels @ .., top] => TOP_LEVEL.is_match(top) && labels.iter().all(|label| LABEL.is_match(label)),
        [] => false,
    };
    is_good && text.len() <= HOSTNAME_LEN_MAX && labels.iter().all(|label| label.len() <= LABEL_LEN_MAX)
}

/// Go's `mail.ParseAddress`, except groups and comments before the address: `a@b.c` and `Foo <a@b.c>`.
static EMAIL: LazyLock<Regex> = LazyLock::new(|| {
    let atom = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x{80}-\x{10FFFF}-]";
    let quoted = r#""(?:[ \t!#-\[\]-~\x{80}-\x{10FFFF}]|\\[ \t!-~\x{80}-\x{10FFFF}])"#;
    let domain = format!(r"(?:{atom}+(?:\.{atom}+)*|\[([!-Z^-~]+)\])");
    let address = format!(r#"[ \t]*(?:{atom}+(?:\.{atom}+)*|{quoted}+")@[ \t]*{domain}"#);
    let phrase = format!(r#"(?:[ \t]*(?:(?:{atom}|\.)+|{quoted}*"))*"#);
    let comments = r"[ \t]*(?:\((?:[^()\\]|\\.)*\)[ \t]*)*";
    pattern(&format!("^(?:{address}|{phrase}[ \t]*<{address}>){comments}$"))
});

/// An email address, with or without the name of its owner.
pub(super) fn is_email(text: &str) -> bool {
    EMAIL.captures(text).is_some_and(|captures| captures.iter().skip(1).flatten().all(|literal| is_ip(literal.as_str())))
}
