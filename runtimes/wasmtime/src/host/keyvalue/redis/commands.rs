//! What the interface does with keys, as commands of Redis. Keys and values are as they are, so other clients of the server see the same.

use super::super::store::{StoreFault, check};
use super::client::{Client, Effect};
use super::fault::Fault;
use super::resp::Reply;

/// The number of keys that `SCAN` looks at for one answer, roughly.
const PAGE_LEN: &str = "1000";

/// Stores a value if the present one is as expected. Returns 1, or else the present value.
const SWAP: &str = "local now = redis.call('GET', KEYS[1])
if ARGV[1] == '0' and not now or ARGV[1] == '1' and now == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[3])
  return 1
end
return now";

/// How Redis begins its errors about numbers.
const NOT_A_NUMBER: &str = "ERR value is not an integer";
const OVERFLOW: &str = "ERR increment or decrement would overflow";

/// Some of the keys.
pub struct Page {
    /// The keys.
    pub keys: Vec<String>,
    /// Where the next ones begin, if there are more.
    pub cursor: Option<u64>,
}

/// The result of a swap.
pub enum Swap {
    /// The new value is stored.
    Stored,
    /// The value is another than was expected: this one.
    Changed(Option<Vec<u8>>),
}

impl Client {
    /// The value of a key.
    pub async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        value(self.execute(&[b"GET", key.as_bytes()], Effect::Read).await?)
    }

    /// Stores a value.
    pub async fn set(&self, key: &str, value: &[u8]) -> Result<(), Fault> {
        check(key)?;
        done(&self.execute(&[b"SET", key.as_bytes(), value], Effect::Write).await?)
    }

    /// Whether a key is there.
    pub async fn exists(&self, key: &str) -> Result<bool, Fault> {
        Ok(number(&self.execute(&[b"EXISTS", key.as_bytes()], Effect::Read).await?)? != 0)
    }

    /// Some of the keys: all at once would stop the server. A page may be empty although others follow, and a key may be in several of
    /// them. Keys that are not UTF-8 have no name here.
    pub async fn keys(&self, cursor: u64) -> Result<Page, Fault> {
        let cursor = cursor.to_string();
        match self.execute(&[b"SCAN", cursor.as_bytes(), b"COUNT", PAGE_LEN.as_bytes()], Effect::Read).await? {
            Reply::List(replies) => page(replies).ok_or(Fault::Protocol),
            Reply::Done | Reply::Error(_) | Reply::Integer(_) | Reply::Value(_) => Err(Fault::Protocol),
        }
    }

    /// Adds to a number, and returns the sum.
    pub async fn increment(&self, key: &str, delta: i64) -> Result<i64, Fault> {
        check(key)?;
        match self.execute(&[b"INCRBY", key.as_bytes(), delta.to_string().as_bytes()], Effect::Write).await {
            Err(Fault::Server(text)) if text.starts_with(NOT_A_NUMBER) => Err(StoreFault::NotANumber.into()),
            Err(Fault::Server(text)) if text.starts_with(OVERFLOW) => Err(StoreFault::Range.into()),
            result => number(&result?),
        }
    }

    /// The values of several keys.
    pub async fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        match self.execute(&command(b"MGET", keys.iter().map(String::as_bytes)), Effect::Read).await? {
            Reply::List(replies) if replies.len() == keys.len() => replies.into_iter().map(value).collect(),
            Reply::Done | Reply::Error(_) | Reply::Integer(_) | Reply::Value(_) | Reply::List(_) => Err(Fault::Protocol),
        }
    }

    /// Stores several values, all of them or none.
    pub async fn set_many(&self, pairs: &[(String, Vec<u8>)]) -> Result<(), Fault> {
        pairs.iter().try_for_each(|(key, _)| check(key))?;
        if pairs.is_empty() {
            return Ok(());
        }
        let arguments = pairs.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_slice()]);
        done(&self.execute(&command(b"MSET", arguments), Effect::Write).await?)
    }

    /// Removes keys, if they are there.
    pub async fn delete(&self, keys: &[String]) -> Result<(), Fault> {
        if keys.is_empty() {
            return Ok(());
        }
        number(&self.execute(&command(b"DEL", keys.iter().map(String::as_bytes)), Effect::Write).await?).map(drop)
    }

    /// Stores a value if the present one is as expected.
    pub async fn swap(&self, key: &str, expected: Option<&[u8]>, new: &[u8]) -> Result<Swap, Fault> {
        check(key)?;
        let is_there: &[u8] = if expected.is_some() { b"1" } else { b"0" };
        let command: [&[u8]; 7] = [b"EVAL", SWAP.as_bytes(), b"1", key.as_bytes(), is_there, expected.unwrap_or_default(), new];
        match self.execute(&command, Effect::Write).await? {
            Reply::Integer(_) => Ok(Swap::Stored),
            present => value(present).map(Swap::Changed),
        }
    }
}

fn command<'a>(name: &'a [u8], arguments: impl Iterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
    std::iter::once(name).chain(arguments).collect()
}

fn done(reply: &Reply) -> Result<(), Fault> {
    if *reply == Reply::Done { Ok(()) } else { Err(Fault::Protocol) }
}

fn number(reply: &Reply) -> Result<i64, Fault> {
    if let Reply::Integer(number) = reply { Ok(*number) } else { Err(Fault::Protocol) }
}

fn value(reply: Reply) -> Result<Option<Vec<u8>>, Fault> {
    if let Reply::Value(value) = reply { Ok(value) } else { Err(Fault::Protocol) }
}

/// The reply to `SCAN`: a cursor, and a list of keys.
fn page(replies: Vec<Reply>) -> Option<Page> {
    let [Reply::Value(Some(cursor)), Reply::List(keys)]: [Reply; 2] = replies.try_into().ok()? else { return None };
    let cursor: u64 = str::from_utf8(&cursor).ok()?.parse().ok()?;
    let keys = keys.into_iter().filter_map(|key| value(key).ok().flatten()).filter_map(|key| String::from_utf8(key).ok());
    Some(Page { keys: keys.collect(), cursor: Some(cursor).filter(|&cursor| cursor != 0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_keys_that_are_text() {
        let bytes = |bytes: &[u8]| Reply::Value(Some(bytes.to_vec()));
        let of = |cursor: &[u8], keys: Vec<Reply>| page(vec![bytes(cursor), Reply::List(keys)]).map(|page| (page.keys, page.cursor));
        assert_eq!(of(b"0", vec![]), Some((vec![], None)));
        let keys = vec![bytes(b"a"), bytes(b"\xff"), bytes("\u{e9}".as_bytes())];
        assert_eq!(of(b"18446744073709551615", keys), Some((vec!["a".to_owned(), "\u{e9}".to_owned()], Some(u64::MAX))));
        assert_eq!(of(b"-1", vec![]), None);
        assert!(page(vec![]).is_none() && page(vec![Reply::Done, Reply::List(vec![])]).is_none());
    }
}
