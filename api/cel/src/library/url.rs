//! URLs: absolute ones (`https://example.com:80/a?b=c`) and absolute paths, as Go's `url.ParseRequestURI` takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Found;
use crate::error::EvaluateError;
use crate::evaluate::Meter;
use crate::value::{Key, Value};

/// A URL in its parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

/// Calls a function of URLs.
pub(super) fn call<'v>(function: &str, args: &[Value<'v>], meter: &mut Meter) -> Found<'v> {
    let value = match (function, args) {
        ("url", [Value::String(text)]) => {
            meter.pay_text(text.len() as u64)?;
            Value::Url(Arc::new(parse(text)?))
        }
        ("isURL", [Value::String(text)]) => {
            meter.pay_text(text.len() as u64)?;
            Value::Bool(is_url(text))
        }
        (_, [Value::Url(url)]) => {
            meter.pay(1)?;
            match function {
                "getScheme" => Value::from(url.scheme.as_str()),
                "getHost" => Value::from(url.host.as_str()),
                "getHostname" => Value::from(split_host(&url.host).0),
                "getPort" => Value::from(split_host(&url.host).1),
                "getEscapedPath" => Value::from(escape(&url.path)),
                "getQuery" => {
                    meter.pay_text(url.query.len() as u64)?;
                    query(&url.query)
                }
                _ => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// Whether a text is a URL.
pub(super) fn is_url(text: &str) -> bool {
    parse(text).is_ok()
}

fn parse(text: &str) -> Result<Url, EvaluateError> {
    let wrong = |why: &str| EvaluateError::failed(format!("URL parse error during conversion from string: parse {text:?}: {why}"));
    if text.is_empty() {
        return Err(wrong("empty url"));
    }
    if text.chars().any(|c| c.is_control() || c == '\u{7f}') {
        return Err(wrong("net/url: invalid control character in URL"));
    }
    let (rest, query) = text.split_once('?').unwrap_or((text, ""));
    if rest.starts_with('/') {
        return Ok(Url { path: unescape(rest).ok_or_else(|| wrong("invalid URL escape"))?, query: query.to_owned(), ..Url::default() });
    }
    let (scheme, rest) = rest.split_once(':').ok_or_else(|| wrong("invalid URI for request"))?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if !is_scheme {
        return Err(wrong("first path segment in URL cannot contain colon"));
    }
    let scheme = scheme.to_ascii_lowercase();
    let Some(rest) = rest.strip_prefix("//") else {
        return if rest.starts_with('/') {
            Ok(Url { scheme, path: unescape(rest).ok_or_else(|| wrong("invalid URL escape"))?, query: query.to_owned(), ..Url::default() })
        } else {
            Err(wrong("invalid URI for request"))
        };
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if !is_host(host) {
        return Err(wrong("invalid character in host name"));
    }
    if !split_host(host).1.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong("invalid port after host"));
    }
    let path = unescape(path).ok_or_else(|| wrong("invalid URL escape"))?;
    Ok(Url { scheme, host: host.to_owned(), path, query: query.to_owned() })
}

fn is_host(host: &str) -> bool {
    let brackets = host.starts_with('[') == host.contains(']');
    brackets && !host.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '}', '|'])
}

/// The name without brackets, and the port, which may be empty.
fn split_host(host: &str) -> (&str, &str) {
    if let Some((name, rest)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return (name, rest.strip_prefix(':').unwrap_or_default());
    }
    host.rsplit_once(':').unwrap_or((host, ""))
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let (high, low) = (char::from(rest.next()?).to_digit(16)?, char::from(rest.next()?).to_digit(16)?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn escape(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => escaped.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'@' | b'!' | b'\'' | b'(' | b')'
            | b'*' => {
                escaped.push(char::from(byte));
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

/// All values by their names.
fn query<'v>(query: &str) -> Value<'v> {
    let mut found: BTreeMap<Key, Vec<Value<'v>>> = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = |text: &str| unescape(&text.replace('+', " "));
        if let (Some(name), Some(value)) = (plain(name), plain(value)) {
            found.entry(Key::String(name.into())).or_default().push(Value::from(value));
        }
    }
    Value::Map(Arc::new(found.into_iter().map(|(name, values)| (name, Value::list(values))).collect()))
}
