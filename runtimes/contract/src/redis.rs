//! The Redis server behind a container's `wasi:keyvalue`, and the URL that names it.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

/// The port of Redis.
const PORT: u16 = 6_379;

/// A Redis server and who connects to it. Written as text it is its address; nothing but the record of a container has the password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedisServer {
    /// Its name or IP address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The user; `None` is the server's default user.
    pub user: Option<String>,
    /// The user's password. Without one there is no user either.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u32,
}

/// Why a text is not the URL of a Redis server. It does not repeat the text, which has a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisUrlError {
    /// Another scheme, or none.
    #[error("it does not begin with redis://")]
    Scheme,
    /// Redis over TLS.
    #[error("it begins with rediss://, and Redis over TLS is not offered")]
    Tls,
    /// A query or a fragment.
    #[error("it has a \"?\" or a \"#\"; in a password they are written %3F and %23")]
    Query,
    /// Clients of Redis do not agree whether a single word is a user or a password.
    #[error("what is before the \"@\" is neither user:password nor :password")]
    Credentials,
    /// The server's protocol could have other passwords.
    #[error("user or password is not UTF-8")]
    Encoding,
    /// An empty host, or one with other characters.
    #[error("the host is neither a name nor an IP address")]
    Host,
    /// A port out of range.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// What follows the address.
    #[error("the database is not a number")]
    Database,
}

impl FromStr for RedisServer {
    type Err = RedisUrlError;

    /// Reads `redis://[[user]:password@]host[:port][/database]`. User and password are percent-encoded. Space around the URL does not count:
    /// many a Secret ends with a line feed.
    fn from_str(url: &str) -> Result<Self, RedisUrlError> {
        let rest = match url.trim().split_once("://") {
            Some(("redis", rest)) => rest,
            Some(("rediss", _)) => return Err(RedisUrlError::Tls),
            Some(_) | None => return Err(RedisUrlError::Scheme),
        };
        if rest.contains(['?', '#']) {
            return Err(RedisUrlError::Query);
        }
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let database = if database.is_empty() { Ok(0) } else { number(database).ok_or(RedisUrlError::Database) };
        let (credentials, address) = authority.rsplit_once('@').map_or((None, authority), |(before, after)| (Some(before), after));
        let (user, password) = credentials.map_or(Ok((None, None)), read_credentials)?;
        let (host, port) = read_address(address)?;
        Ok(Self { host, port, user, password, database: database? })
    }
}

/// User and password.
fn read_credentials(text: &str) -> Result<(Option<String>, Option<String>), RedisUrlError> {
    let decoded = |text| percent_decode_str(text).decode_utf8().map_err(|_| RedisUrlError::Encoding);
    let (user, password) = text.split_once(':').ok_or(RedisUrlError::Credentials)?;
    let (user, password) = (decoded(user)?.into_owned(), decoded(password)?.into_owned());
    match (user.is_empty(), password.is_empty()) {
        (true, true) => Ok((None, None)),
        (true, false) => Ok((None, Some(password))),
        (false, _) => Ok((Some(user), Some(password))),
    }
}

/// Host and port. An IPv6 address is in brackets.
fn read_address(text: &str) -> Result<(String, u16), RedisUrlError> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']').ok_or(RedisUrlError::Host)?;
            host.parse::<Ipv6Addr>().map_err(|_| RedisUrlError::Host)?;
            (host, rest)
        }
        None => {
            let (host, rest) = text.find(':').and_then(|colon| text.split_at_checked(colon)).unwrap_or((text, ""));
            let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if host.is_empty() || !host.bytes().all(is_of_name) {
                return Err(RedisUrlError::Host);
            }
            (host, rest)
        }
    };
    if rest.is_empty() {
        return Ok((host.to_owned(), PORT));
    }
    let port = rest.strip_prefix(':').and_then(number).filter(|&port| port != 0);
    Ok((host.to_owned(), port.ok_or(RedisUrlError::Port)?))
}

/// A number of digits alone.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisServer({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(host: &str, port: u16, user: Option<&str>, password: Option<&str>, database: u32) -> RedisServer {
        RedisServer { host: host.into(), port, user: user.map(Into::into), password: password.map(Into::into), database }
    }

    #[test]
    fn urls_are_read() {
        for (url, wanted) in [
            ("redis://redis", server("redis", 6379, None, None, 0)),
            ("redis://redis/", server("redis", 6379, None, None, 0)),
            (" redis://redis.shop.svc.cluster.local:7000/3\n", server("redis.shop.svc.cluster.local", 7000, None, None, 3)),
            ("redis://:secret@10.0.0.1:1", server("10.0.0.1", 1, None, Some("secret"), 0)),
            ("redis://shop:secret@redis_1:65535/15", server("redis_1", 65535, Some("shop"), Some("secret"), 15)),
            ("redis://sh%6Fp:a%40%2F%3A%25:b@redis", server("redis", 6379, Some("shop"), Some("a@/:%:b"), 0)),
            ("redis://shop:an@t@redis", server("redis", 6379, Some("shop"), Some("an@t"), 0)),
            ("redis://shop:@redis", server("redis", 6379, Some("shop"), Some(""), 0)),
            ("redis://:@[::1]", server("::1", 6379, None, None, 0)),
            ("redis://[fd00::7]:6380/1", server("fd00::7", 6380, None, None, 1)),
        ] {
            assert_eq!(url.parse(), Ok(wanted), "{url}");
        }
    }

    #[test]
    fn faults_are_named() {
        for (url, wanted) in [
            ("", RedisUrlError::Scheme),
            ("redis", RedisUrlError::Scheme),
            ("redis:6379", RedisUrlError::Scheme),
            ("Redis://redis", RedisUrlError::Scheme),
            ("unix:///run/redis.sock", RedisUrlError::Scheme),
            ("rediss://redis", RedisUrlError::Tls),
            ("redis://redis?timeout=1", RedisUrlError::Query),
            ("redis://:sec#ret@redis", RedisUrlError::Query),
            ("redis://secret@redis", RedisUrlError::Credentials),
            ("redis://@redis", RedisUrlError::Credentials),
            ("redis://:%ff@redis", RedisUrlError::Encoding),
            ("redis://", RedisUrlError::Host),
            ("redis:///0", RedisUrlError::Host),
            ("redis://:secret@", RedisUrlError::Host),
            ("redis://:6379", RedisUrlError::Host),
            ("redis://re dis", RedisUrlError::Host),
            ("redis://re%20dis", RedisUrlError::Host),
            ("redis://[redis]", RedisUrlError::Host),
            ("redis://[::1", RedisUrlError::Host),
            ("redis://redis:", RedisUrlError::Port),
            ("redis://redis:0", RedisUrlError::Port),
            ("redis://redis:65536", RedisUrlError::Port),
            ("redis://redis:+80", RedisUrlError::Port),
            ("redis://::1", RedisUrlError::Host),
            ("redis://fd00::1", RedisUrlError::Port),
            ("redis://[::1]6379", RedisUrlError::Port),
            ("redis://redis/zero", RedisUrlError::Database),
            ("redis://redis/0/1", RedisUrlError::Database),
            ("redis://redis/-1", RedisUrlError::Database),
            ("redis://redis/+1", RedisUrlError::Database),
        ] {
            assert_eq!(url.parse::<RedisServer>(), Err(wanted), "{url}");
        }
    }

    #[test]
    fn its_text_has_no_password() {
        for (url, text) in [("redis://shop:secret@redis/1", "redis:6379"), ("redis://shop:secret@[::1]:1", "[::1]:1")] {
            let server: RedisServer = url.parse().unwrap();
            assert_eq!((server.to_string(), format!("{server:?}")), (text.to_owned(), format!("RedisServer({text})")));
            let record = serde_json::to_string(&server).unwrap();
            assert_eq!(serde_json::from_str::<RedisServer>(&record).unwrap(), server);
        }
    }
}
