//! The query string as pairs.

use std::borrow::Cow;

use super::path::percent_bytes;
use crate::status::{ApiError, ApiResult};

/// The pairs in their order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query string. Bytes that are not UTF-8 are replaced, so that no check of the value passes. They must not
    /// vanish: a broken selector would select everything. Pairs with a malformed escape vanish, as upstream; [`check`] is for
    /// requests that must not have any.
    pub fn parse(text: Option<&str>) -> Self {
        Self(pairs(text).filter_map(|(key, value)| Some((decode(key)?, decode(value)?))).collect())
    }

    /// Of these names and values.
    pub fn of(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// The first value of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Every value of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first value of that name, unless empty.
    pub fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// A flag as upstream reads it: present, and neither `0` nor `false`.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

/// Rejects a query with a malformed escape. Upstream drops such a pair, and deletes or lists everything if it was the selector.
pub fn check(text: Option<&str>) -> ApiResult<()> {
    let broken = pairs(text).flat_map(|(key, value)| [key, value]).find(|part| percent_bytes(part, true).is_none());
    match broken {
        None => Ok(()),
        Some(part) => {
            let start: String = part.chars().take(EXCERPT_LEN_MAX).collect();
            Err(ApiError::bad_request(format!("invalid URL escape in {start:?}")))
        }
    }
}

/// How much of a malformed pair an error shows.
const EXCERPT_LEN_MAX: usize = 64;

fn pairs(text: Option<&str>) -> impl Iterator<Item = (&str, &str)> {
    let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn decode(part: &str) -> Option<String> {
    percent_bytes(part, true).map(|bytes| match bytes {
        Cow::Borrowed(_) => part.to_owned(),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let query = Query::parse(Some("labelSelector=a%3Db%2Cc+in+(d)&watch&limit=0&pretty=false&x=1&x=2"));
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert!(query.flag("watch"));
        assert!(!query.flag("pretty"));
        assert_eq!(query.all("x").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.filled("watch"), None);
    }

    #[test]
    fn a_broken_value_does_not_vanish() {
        let query = Query::parse(Some("labelSelector=a%3D%ff&x=%zz&%ff=1"));
        assert_eq!(query.get("labelSelector"), Some("a=\u{fffd}"));
        assert_eq!((query.get("x"), query.get("\u{fffd}")), (None, Some("1")));
        assert!(check(Some("a=%41+%2c&b")).is_ok());
        for broken in ["a=%", "a=%4", "a=%zz", "%4=a", "a=1&b=%g0"] {
            assert_eq!(check(Some(broken)).map_err(|error| error.code().as_u16()), Err(400), "{broken}");
        }
    }
}
