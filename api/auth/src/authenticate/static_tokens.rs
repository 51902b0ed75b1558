//! A fixed table of tokens from upstream's `--token-auth-file`, with lines of the form
//! `token,user,uid,"group1,group2"`.

use std::collections::HashMap;

use api_model::request::UserInfo;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// A token file does not parse.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StaticTokensError {
    /// A line has too few columns.
    #[error("line {line}: token file must have at least 3 columns (token, user name, user uid), found {found}")]
    Columns {
        /// The number of the line, from one.
        line: usize,
        /// The number of its columns.
        found: usize,
    },
    /// A quote is misplaced or not closed.
    #[error("line {line}: bare or unclosed quote")]
    Quote {
        /// The number of the line, from one.
        line: usize,
    },
}

/// Users by the hash of their token, so that the time of a look-up reveals nothing about the tokens.
#[derive(Debug, Default)]
pub struct StaticTokens {
    users: HashMap<[u8; 32], UserInfo>,
}

impl StaticTokens {
    /// Parses the content of a file. Blank lines and lines with an empty token are skipped.
    pub fn parse(content: &str) -> Result<Self, StaticTokensError> {
        let mut users = HashMap::new();
        for (at, text) in content.lines().enumerate() {
            let line = at + 1;
            if text.trim().is_empty() {
                continue;
            }
            let columns = columns(text).ok_or(StaticTokensError::Quote { line })?;
            let [token, username, uid, rest @ ..] = columns.as_slice() else {
                return Err(StaticTokensError::Columns { line, found: columns.len() });
            };
            if token.is_empty() {
                continue;
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty()).map(str::to_owned).collect();
            let user = UserInfo { username: username.clone(), uid: uid.clone(), groups, ..UserInfo::default() };
            users.insert(Sha256::digest(token).into(), user);
        }
        Ok(Self { users })
    }

    /// Adds one user.
    pub fn insert(&mut self, token: &str, user: UserInfo) {
        self.users.insert(Sha256::digest(token).into(), user);
    }

    /// The user of a token.
    pub fn user(&self, token: &str) -> Option<UserInfo> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        self.users.get(&hash).cloned()
    }
}

/// The columns of one line (RFC 4180) without surrounding blanks; `None` for a misplaced quote.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let mut rest = line.trim();
    loop {
        let (column, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (plain, after) = rest.split_at_checked(end)?;
                if plain.contains('"') {
                    return None;
                }
                (plain.trim().to_owned(), after)
            }
        };
        columns.push(column);
        match after.strip_prefix(',') {
            Some(next) => rest = next.trim_start(),
            None if after.trim().is_empty() => return Some(columns),
            None => return None,
        }
    }
}

/// The text up to the closing quote, and the rest; a doubled quote stands for one.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut column = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"')?;
        column.push_str(before);
        match after.strip_prefix('"') {
            Some(next) => {
                column.push('"');
                rest = next;
            }
            None => return Some((column, after.trim_start())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_lines_are_read() {
        let content = "t1,alice,1\nt2,bob,2,\"g1, g2\"\n\n,nobody,3\nt4,carol,4,solo\n\"t\"\"5\",dan,5\n";
        let tokens = StaticTokens::parse(content).expect("good");
        let groups = |token: &str| tokens.user(token).map(|u| (u.username, u.groups.join("|")));
        assert_eq!(groups("t1"), Some(("alice".into(), String::new())));
        assert_eq!(groups("t2"), Some(("bob".into(), "g1|g2".into())));
        assert_eq!(groups("t4"), Some(("carol".into(), "solo".into())));
        assert_eq!(groups("t\"5"), Some(("dan".into(), String::new())));
        assert_eq!(groups(""), None);
        assert_eq!(groups("t"), None);
    }

    #[test]
    fn broken_lines_are_named() {
        assert_eq!(StaticTokens::parse("a,b,c\nt,u").expect_err("short"), StaticTokensError::Columns { line: 2, found: 2 });
        for text in ["t,\"u,1", "t,a\"b,1", "t,\"u\"x,1"] {
            assert_eq!(StaticTokens::parse(text).expect_err("quote"), StaticTokensError::Quote { line: 1 }, "{text}");
        }
    }
}
