//! Limits the depth of an expression before it is parsed.
//!
//! Brackets nest, and so do successive operators and selections: `a.b.c`, `a + b + c`, `!!!a`. Only commas and logical
//! operators separate parts of the same depth. So the guard counts the successive tokens of each level of brackets. The
//! sum over the open levels is an upper bound of the depth of the tree.

use super::{DEPTH_MAX, too_deep};
use crate::error::CompileError;

/// Upstream's maximum of characters of an expression.
const CHARS_MAX: usize = 100_000;

/// Rejects an expression that is too long or too deep.
pub(super) fn check(text: &str) -> Result<(), CompileError> {
    // A text has at least as many bytes as characters.
    if text.len() > CHARS_MAX {
        let len = text.chars().count();
        if len > CHARS_MAX {
            return Err(CompileError::of_text(format!(
                "ERROR: <input>:-1:0: expression code point size exceeds limit: size: {len}, limit {CHARS_MAX}"
            )));
        }
    }
    let mut levels = vec![Level::default()];
    let mut sum = 0_usize;
    let mut rest = text;
    while let Some(token) = next(&mut rest) {
        let is_nested = levels.len() > 1;
        let Some(level) = levels.last_mut() else { break };
        match token {
            // A bracket after an operand is a call or an index.
            Token::Open => {
                level.following += 1;
                sum += 2;
                levels.push(Level { following: 1, choices: 0 });
            }
            Token::Close if is_nested => {
                sum -= levels.pop().map_or(0, |level| level.following + level.choices);
            }
            Token::Comma => {
                sum -= level.following + level.choices;
                *level = Level::default();
            }
            Token::Junction => {
                sum -= level.following;
                level.following = 0;
            }
            Token::Choice => {
                level.choices += 1;
                sum += 1;
            }
            Token::Operator => {
                level.following += 1;
                sum += 1;
            }
            Token::Close | Token::Other => {}
        }
        if sum > DEPTH_MAX {
            return Err(too_deep());
        }
    }
    Ok(())
}

/// The successive tokens of a level of brackets.
#[derive(Default)]
struct Level {
    /// The tokens since the last comma or logical operator.
    following: usize,
    /// The `?` and `:` since the last comma: each alternative nests in the previous one.
    choices: usize,
}

enum Token {
    Open,
    Close,
    Comma,
    Junction,
    Choice,
    Operator,
    Other,
}

fn next(rest: &mut &str) -> Option<Token> {
    let text = *rest;
    let first = text.chars().next()?;
    let (token, len) = match first {
        '(' | '[' | '{' => (Token::Open, 1),
        ')' | ']' | '}' => (Token::Close, 1),
        ',' => (Token::Comma, 1),
        '&' | '|' => (Token::Junction, 1),
        '?' | ':' => (Token::Choice, 1),
        '.' | '+' | '-' | '*' | '/' | '%' | '!' | '<' | '>' | '=' => match text.get(..2) {
            Some("//") => (Token::Other, text.find('\n').unwrap_or(text.len())),
            Some("==" | "!=" | "<=" | ">=") => (Token::Operator, 2),
            _ => (Token::Operator, 1),
        },
        '\'' | '"' => (Token::Other, text_len(text, false)),
        letter if letter.is_alphanumeric() || letter == '_' => word(text),
        other => (Token::Other, other.len_utf8()),
    };
    *rest = text.get(len..).unwrap_or_default();
    Some(token)
}

/// A word: an operator, the prefix of a text, or a name.
fn word(text: &str) -> (Token, usize) {
    let len = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, after) = text.split_at_checked(len).unwrap_or((text, ""));
    let is_prefix = matches!(name, "r" | "R" | "b" | "B" | "br" | "bR" | "Br" | "BR" | "rb" | "rB" | "Rb" | "RB");
    match name {
        "in" => (Token::Operator, len),
        name if is_prefix && after.starts_with(['\'', '"']) => (Token::Other, len + text_len(after, name.contains(['r', 'R']))),
        _ => (Token::Other, len),
    }
}

/// The bytes of the string literal at the start, including its quotes.
fn text_len(text: &str, is_raw: bool) -> usize {
    let quote = ["'''", "\"\"\"", "'", "\""].into_iter().find(|quote| text.starts_with(quote)).unwrap_or("'");
    let mut at = quote.len();
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(quote) {
            return at + quote.len();
        }
        let letter = rest.chars().next().map_or(1, char::len_utf8);
        let escaped = rest.starts_with('\\') && !is_raw;
        at += letter + if escaped { rest.get(1..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8) } else { 0 };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_bounded_before_anything_is_parsed() {
        let deep = [
            format!("{}1{}", "(".repeat(5_000), ")".repeat(5_000)),
            format!("{}true", "!".repeat(5_000)),
            format!("a{}", ".a".repeat(5_000)),
            format!("1{}", " + 1".repeat(5_000)),
            format!("a{}", "[0]".repeat(5_000)),
            format!("{}1", "true ? 1 : ".repeat(5_000)),
            format!("{}1", "true ? 1 : true && ".repeat(5_000)),
            format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000)),
            "x".repeat(CHARS_MAX + 1),
        ];
        for text in deep {
            assert!(check(&text).is_err(), "{}", &text[..40]);
        }
    }

    #[test]
    fn length_is_not_depth() {
        let wide = [
            format!("[{}]", "1,".repeat(5_000)),
            format!("true{}", " && a.b == 1".repeat(2_000)),
            format!("'{}'", "((((".repeat(2_000)),
            format!("r'{}\\' == ''", "((((".repeat(2_000)),
            format!("// {}\n1", "((((".repeat(2_000)),
            format!("'''{}\n'\\'''''", "((((".repeat(2_000)),
        ];
        for text in wide {
            assert_eq!(check(&text), Ok(()), "{}", &text[..40]);
        }
    }
}
