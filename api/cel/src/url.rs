//! URLs: absolute ones (`https://example.com:80/a?b=c`) and absolute paths, as Go's `url.ParseRequestURI` accepts them.

use api_model::percent;

use crate::error::EvaluateError;

/// The parts of a URL.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Url {
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

/// Whether a text is a URL.
pub(crate) fn is_url(text: &str) -> bool {
    parse(text).is_ok()
}

/// Parses a URL.
pub(crate) fn parse(text: &str) -> Result<Url, EvaluateError> {
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

/// The host without brackets, and the port, which may be empty.
pub(crate) fn split_host(host: &str) -> (&str, &str) {
    if let Some((name, rest)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return (name, rest.strip_prefix(':').unwrap_or_default());
    }
    host.rsplit_once(':').unwrap_or((host, ""))
}

/// Decodes percent escapes; `None` if one is malformed.
pub(crate) fn unescape(text: &str) -> Option<String> {
    percent::decode(text).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
