//! `format` of texts: upstream's `strfmt`, as far as definitions use it. Formats that nobody knows are
//! passed over, as upstream does.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;

use crate::format;

/// Formats that are checked, and those of numbers, which the type checks cover.
const KNOWN: &[&str] = &[
    "byte",
    "cidr",
    "date",
    "date-time",
    "datetime",
    "double",
    "duration",
    "email",
    "float",
    "hostname",
    "int32",
    "int64",
    "ipv4",
    "ipv6",
    "k8s-long-name",
    "k8s-short-name",
    "mac",
    "password",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Whether upstream knows the format.
pub fn is_known(format: &str) -> bool {
    format.is_empty() || KNOWN.contains(&format)
}

/// Whether a text has the format.
pub fn is_valid(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_date_time(text),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_duration(text),
        "email" => EMAIL.is_match(text),
        "hostname" => !text.is_empty() && HOSTNAME.is_match(text) && text.len() <= 255,
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => text.parse::<ipnet::IpNet>().is_ok(),
        "mac" => MAC.is_match(text),
        "uuid" => UUID.is_match(text),
        "uuid3" => is_uuid(text, '3'),
        "uuid4" => is_uuid(text, '4'),
        "uuid5" => is_uuid(text, '5'),
        "uri" => URI.is_match(text),
        "byte" => STANDARD.decode(text).is_ok(),
        "k8s-short-name" => format::dns_label(text).is_empty(),
        "k8s-long-name" => format::dns_subdomain(text).is_empty(),
        _ => true,
    }
}

/// A pattern that is part of the program; one that is broken would match nothing.
fn pattern(text: &str) -> Regex {
    #[expect(clippy::expect_used, reason = "the patterns below are constants, compiled by a test")]
    Regex::new(text).expect("a constant pattern")
}

static EMAIL: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[^@\s<>]+@[^@\s<>]+$"));
static HOSTNAME: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9])?)(\.[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9])?)*\.?$"));
static MAC: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?i)[0-9a-f]{2}([:-][0-9a-f]{2}){5}([:-][0-9a-f]{2}){0,2}$"));
static UUID: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
static URI: LazyLock<Regex> = LazyLock::new(|| pattern(r"^([a-zA-Z][a-zA-Z0-9+.-]*:\S+|/\S*)$"));
static DATE_TIME: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:?\d{2})$"));
static DURATION: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[+-]?((\d+(\.\d*)?|\.\d+)\s*(ns|us|µs|μs|ms|s|m|h|d|w|days?|weeks?|hours?|minutes?|seconds?)\s*)+$|^0$"));

fn is_date_time(text: &str) -> bool {
    DATE_TIME.is_match(text) && text.parse::<jiff::Timestamp>().is_ok()
}

fn is_duration(text: &str) -> bool {
    DURATION.is_match(text)
}

fn is_uuid(text: &str, version: char) -> bool {
    let digits = text.chars().filter(|c| *c != '-');
    UUID.is_match(text) && digits.clone().nth(12) == Some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_tell_good_from_bad() {
        for (format, good, bad) in [
            ("date-time", "2024-02-29T12:00:00Z", "2024-02-30T12:00:00Z"),
            ("date-time", "2024-01-01T00:00:00.5+02:00", "2024-01-01"),
            ("date", "2024-02-29", "2024-2-29"),
            ("duration", "1h30m", "soon"),
            ("email", "a@b.c", "a.b.c"),
            ("hostname", "a.example.com", "a_b!"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "fd00::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0"),
            ("mac", "01:23:45:67:89:ab", "01:23"),
            ("uuid", "b0d3c8a7-0000-4000-8000-000000000001", "b0d3"),
            ("uuid4", "b0d3c8a7-0000-4000-8000-000000000001", "b0d3c8a7-0000-3000-8000-000000000001"),
            ("uri", "https://example.com/x", "no uri"),
            ("byte", "aGk=", "a"),
            ("k8s-short-name", "web-1", "Web"),
            ("k8s-long-name", "a.b", "a..b"),
        ] {
            assert!(is_valid(format, good), "{format} {good}");
            assert!(!is_valid(format, bad), "{format} {bad}");
        }
        assert!(is_valid("nobody-knows", "anything") && !is_known("nobody-knows"));
    }
}
