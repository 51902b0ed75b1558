//! The query string as pairs.

use super::path::percent_decode;

/// Pairs in the order given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Takes a query string apart. Pairs that are not UTF-8 are dropped, as unknown ones are.
    pub(crate) fn parse(text: Option<&str>) -> Self {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((percent_decode(key, true)?.into_owned(), percent_decode(value, true)?.into_owned()))
        });
        Self(pairs.collect())
    }

    /// The first value of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Every value of that name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first value of that name, unless empty.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// A flag as upstream reads one: present and neither `0` nor `false`.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
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
}
