//! Formats of names, labels, ports and addresses, each a function from a text to upstream's list of
//! messages (`k8s.io/apimachinery/pkg/util/validation`); the list is empty for a valid text.

use std::net::IpAddr;

use api_model::format::{LABEL_LEN_MAX, SUBDOMAIN_FORMAT, SUBDOMAIN_LEN_MAX, framed, label_shaped, lower_alphanumeric, subdomain_shaped};
pub use api_model::format::{dns_subdomain, label_value, max_len, mismatch, qualified_name};

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// Whether a text is a DNS label (RFC 1123): what a host name or a namespace must be.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL_LEN_MAX && label_shaped(text)
}

/// Whether a text is a DNS subdomain (RFC 1123): what most object names must be.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_LEN_MAX && subdomain_shaped(text)
}

/// A DNS label (RFC 1123).
pub fn dns_label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LABEL_LEN_MAX {
        wrong.push(max_len(LABEL_LEN_MAX));
    }
    if !label_shaped(text) {
        if subdomain_shaped(text) {
            wrong.push("must not contain dots".to_owned());
        } else {
            let words = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
            wrong.push(mismatch(words, LABEL_FORMAT, &["my-name", "123-abc"]));
        }
    }
    wrong
}

/// A DNS subdomain whose labels may hold underscores: resolver search domains.
pub fn dns_subdomain_with_underscore(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > SUBDOMAIN_LEN_MAX {
        wrong.push(max_len(SUBDOMAIN_LEN_MAX));
    }
    let label = |part: &str| {
        let part = part.strip_prefix('_').unwrap_or(part);
        framed(part, lower_alphanumeric, |b| lower_alphanumeric(b) || b == b'-' || b == b'_')
    };
    if !text.split('.').all(label) {
        let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character";
        let expression = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
        wrong.push(mismatch(words, expression, &["example.com"]));
    }
    wrong
}

/// A DNS subdomain that starts with `*.`.
pub fn wildcard_subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > SUBDOMAIN_LEN_MAX {
        wrong.push(max_len(SUBDOMAIN_LEN_MAX));
    }
    if !text.strip_prefix("*.").is_some_and(subdomain_shaped) {
        let words = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        wrong.push(mismatch(words, &format!(r"\*\.{SUBDOMAIN_FORMAT}"), &["*.example.com"]));
    }
    wrong
}

/// A DNS label of RFC 1035, which starts with a letter: what a Service name must be.
pub fn dns_1035_label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LABEL_LEN_MAX {
        wrong.push(max_len(LABEL_LEN_MAX));
    }
    if !label_shaped(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        let words = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        wrong.push(mismatch(words, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    wrong
}

/// A key of a ConfigMap or Secret.
pub fn config_key(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > SUBDOMAIN_LEN_MAX {
        wrong.push(max_len(SUBDOMAIN_LEN_MAX));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        let words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        wrong.push(mismatch(words, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    wrong.extend(no_parent_directory(text));
    wrong
}

fn no_parent_directory(text: &str) -> Option<String> {
    match text {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if text.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// The name of an environment variable, by the rule of Kubernetes 1.34.
pub fn env_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if text.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// A port's name.
pub fn port_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 15 {
        wrong.push(max_len(15));
    }
    if text.is_empty() || !text.bytes().all(|b| lower_alphanumeric(b) || b == b'-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

/// The name of an HTTP header.
pub fn header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![mismatch("a valid HTTP header must consist of alphanumeric characters or '-'", "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// A percentage such as `25%`.
pub fn percent(text: &str) -> Vec<String> {
    if text.strip_suffix('%').is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())) {
        return Vec::new();
    }
    vec![mismatch("a valid percent string must be a numeric string followed by an ending '%'", "[0-9]+%", &["1%", "93%"])]
}

/// A path segment, as in names of RBAC objects and of nodes' leases.
pub fn path_segment(text: &str) -> Vec<String> {
    match text {
        "." => return vec!["may not be '.'".to_owned()],
        ".." => return vec!["may not be '..'".to_owned()],
        _ => {}
    }
    ['/', '%'].iter().filter(|&&c| text.contains(c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// An IP address.
pub fn ip(text: &str) -> Vec<String> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => vec!["must not be an IPv4-mapped IPv6 address".to_owned()],
        Ok(_) => Vec::new(),
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    }
}

/// An IP address in its canonical form.
pub fn canonical_ip(text: &str) -> Vec<String> {
    let wrong = ip(text);
    match text.parse::<IpAddr>() {
        Ok(address) if wrong.is_empty() && address.to_string() != text => vec![format!("must be in canonical form (\"{address}\")")],
        _ => wrong,
    }
}

/// A C identifier, as in names of device attributes.
pub fn c_identifier(text: &str) -> Vec<String> {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Vec::new();
    }
    let words = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'";
    vec![mismatch(words, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"])]
}

/// An address range whose address has no bits beyond the mask.
pub fn cidr(text: &str) -> Vec<String> {
    let complaint = match (sloppy_cidr(text), strict_cidr(text)) {
        (None, _) => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        (_, None) => "must not have leading 0s in IP or prefix length",
        (_, Some(ipnet::IpNet::V6(net))) if net.addr().to_ipv4_mapped().is_some() => "must not have an IPv4-mapped IPv6 address",
        (_, Some(net)) if net.addr() != net.network() => "must not have bits set beyond the prefix length",
        _ => return Vec::new(),
    };
    vec![complaint.to_owned()]
}

/// Parses a range as Go's `netip.ParsePrefix` does.
fn strict_cidr(text: &str) -> Option<ipnet::IpNet> {
    let (address, length) = text.split_once('/')?;
    let is_short = length == "0" || !length.starts_with(['0', '+']);
    ipnet::IpNet::new(address.parse().ok()?, length.parse().ok().filter(|_| is_short)?).ok()
}

/// Parses a range as old versions of Go did: leading zeros of a decimal number are ignored.
fn sloppy_cidr(text: &str) -> Option<ipnet::IpNet> {
    let (address, length) = text.split_once('/')?;
    let short = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        short => short.to_owned(),
    };
    let (front, last) = address.split_at_checked(address.rfind(':').map_or(0, |at| at + 1))?;
    let last = if last.contains('.') { last.split('.').map(short).collect::<Vec<_>>().join(".") } else { last.to_owned() };
    strict_cidr(&format!("{front}{last}/{}", short(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_bad_address_ranges_in_upstreams_words() {
        let zeros = "must not have leading 0s in IP or prefix length";
        let wrong = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        let mapped = "must not have an IPv4-mapped IPv6 address";
        for (text, wanted) in [
            ("10.0.0.0/8", ""),
            ("0.0.0.0/0", ""),
            ("2001:0db8::/64", ""),
            ("::/0", ""),
            ("010.0.0.0/8", zeros),
            ("10.0.0.0/08", zeros),
            ("0.0.0.0/00", zeros),
            ("::ffff:001.2.3.0/120", zeros),
            ("::ffff:1.2.3.0/120", mapped),
            ("::ffff:102:304/128", mapped),
            ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
            ("10.0.0.0", wrong),
            ("10.0.0.0/", wrong),
            ("10.0.0.0/+8", wrong),
            ("10.0.0.0/33", wrong),
            ("10.0.0/8", wrong),
            ("00001::/64", wrong),
            ("", wrong),
        ] {
            assert_eq!(cidr(text).concat(), wanted, "{text}");
        }
    }
}
