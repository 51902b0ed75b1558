//! Go's `url.ParseRequestURI`: absolute URIs and absolute paths.

use std::net::Ipv6Addr;

use api_model::percent;

/// Whether a text is an absolute URI or an absolute path.
pub(super) fn is_request_uri(text: &str) -> bool {
    let is_control = |b: u8| b < b' ' || b == 0x7f;
    if text.is_empty() || text.bytes().any(is_control) {
        return false;
    }
    let Some((scheme, rest)) = scheme(text) else { return false };
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    if !rest.starts_with('/') {
        return scheme.is_some() || text == "*";
    }
    match rest.strip_prefix("//").filter(|_| scheme.is_some()) {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            is_authority(authority) && percent::is_valid(path)
        }
        None => percent::is_valid(rest),
    }
}

/// The scheme, if there is one, and the rest; `None` for a text that starts with a colon.
fn scheme(text: &str) -> Option<(Option<&str>, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(text.len());
    let (scheme, rest) = text.split_at(end);
    match rest.strip_prefix(':') {
        Some(_) if scheme.is_empty() => None,
        Some(rest) if scheme.starts_with(|c: char| c.is_ascii_alphabetic()) => Some((Some(scheme), rest)),
        _ => Some((None, text)),
    }
}

fn is_authority(authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_user = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
    user.bytes().all(is_user) && percent::is_valid(user) && is_host(host)
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let Some((literal, port)) = rest.rsplit_once(']') else { return false };
            let address = literal.split_once("%25").map_or(literal, |(address, _)| address);
            if address.parse::<Ipv6Addr>().is_err() {
                return false;
            }
            (literal, port)
        }
        None => host.split_at(host.rfind(':').unwrap_or(host.len())),
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    let is_plain = |b: u8| !b.is_ascii() || b.is_ascii_alphanumeric() || b"!$&'()*+,;=:[]<>\"-_.~%".contains(&b);
    // A host name may contain escapes only for bytes that are not ASCII.
    let is_high = |rest: &str| rest.starts_with("25") || rest.starts_with(|c: char| c.to_digit(16).is_some_and(|digit| digit >= 8));
    is_port && name.bytes().all(is_plain) && percent::is_valid(name) && name.split('%').skip(1).all(is_high)
}
