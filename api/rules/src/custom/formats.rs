//! `format` of strings: upstream's `strfmt`, as far as definitions use it. Unknown formats are ignored, as upstream does.
//! A string that is valid upstream is valid here, even where that is surprising.

mod names;
mod numbers;
mod times;
mod uri;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::LazyLock;

use api_schema::regexp;
use regex::Regex;

use crate::format;

/// The known formats, without dashes, because dashes are ignored. The type checks cover the formats of numbers.
const KNOWN: &[&str] = &[
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "double",
    "duration",
    "email",
    "float",
    "hexcolor",
    "hostname",
    "int32",
    "int64",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Whether upstream knows the format.
pub fn is_known(format: &str) -> bool {
    format.is_empty() || KNOWN.contains(&&*format.replace('-', ""))
}

/// Whether a text has the format.
pub fn is_valid(format: &str, text: &str) -> bool {
    match &*format.replace('-', "") {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "byte" => BASE64.is_match(text),
        "cidr" => is_cidr(text),
        "creditcard" => numbers::is_credit_card(text),
        "date" => times::is_date(text),
        "datetime" => times::is_date_time(text),
        "duration" => times::is_duration(text),
        "email" => names::is_email(text),
        "hexcolor" => HEX_COLOR.is_match(text),
        "hostname" => names::is_hostname(text),
        "ipv4" => text.contains('.') && is_ip(text),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "isbn" => numbers::is_isbn10(text) || numbers::is_isbn13(text),
        "isbn10" => numbers::is_isbn10(text),
        "isbn13" => numbers::is_isbn13(text),
        "k8slongname" => format::dns_subdomain(text).is_empty(),
        "k8sshortname" => format::dns_label(text).is_empty(),
        "mac" => is_mac(text),
        "rgbcolor" => RGB_COLOR.is_match(text),
        "ssn" => text.len() == 11 && SSN.is_match(text),
        "uri" => uri::is_request_uri(text),
        "uuid" => UUID.is_match(text),
        "uuid3" => UUID3.is_match(text),
        "uuid4" => UUID4.is_match(text),
        "uuid5" => UUID5.is_match(text),
        _ => true,
    }
}

/// Most bytes of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 4 << 20;

/// Compiles a constant pattern.
fn pattern(text: &str) -> Regex {
    #[expect(clippy::expect_used, reason = "the patterns below are constants, compiled by a test")]
    regexp::compile(text, PATTERN_BYTES_MAX).expect("a constant pattern")
}

static BASE64: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(?:[A-Za-z0-9+\/]{4})*(?:[A-Za-z0-9+\/]{2}==|[A-Za-z0-9+\/]{3}=|[A-Za-z0-9+\/]{4})$"));
static HEX_COLOR: LazyLock<Regex> = LazyLock::new(|| pattern("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: LazyLock<Regex> = LazyLock::new(|| {
    let byte = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*";
    pattern(&format!(r"^rgb\({byte},{byte},{byte}\)$"))
});
static SSN: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"));
static UUID: LazyLock<Regex> = LazyLock::new(|| pattern("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
static UUID3: LazyLock<Regex> = LazyLock::new(|| pattern("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
static UUID4: LazyLock<Regex> = LazyLock::new(|| pattern("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"));
static UUID5: LazyLock<Regex> = LazyLock::new(|| pattern("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"));

/// `ParseIPSloppy`: the numbers of an IPv4 address may begin with zeros.
fn is_ip(text: &str) -> bool {
    let plain = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let is_sloppy = !text.contains(':') && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let text = if is_sloppy { text.split('.').map(plain).collect::<Vec<_>>().join(".") } else { text.to_owned() };
    text.parse::<IpAddr>().is_ok()
}

/// `ParseCIDRSloppy`
fn is_cidr(text: &str) -> bool {
    let Some((address, len)) = text.split_once('/') else { return false };
    let len_max = if address.contains(':') { 128 } else { 32 };
    let is_number = !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit());
    is_ip(address) && is_number && len.parse::<u32>().is_ok_and(|len| len <= len_max)
}

/// Go's `net.ParseMAC`: 6, 8 or 20 octets, in pairs of digits between colons or dashes or in fours between dots.
fn is_mac(text: &str) -> bool {
    let octets_of = |separator: char, digits: usize| {
        let is_group = |group: &str| group.len() == digits && group.bytes().all(|b| b.is_ascii_hexdigit());
        let groups: Vec<&str> = text.split(separator).collect();
        groups.iter().all(|group| is_group(group)).then_some(groups.len() * digits / 2)
    };
    [(':', 2), ('-', 2), ('.', 4)].into_iter().any(|(separator, digits)| matches!(octets_of(separator, digits), Some(6 | 8 | 20)))
}

#[cfg(test)]
mod tests;
