//! Parses the query-string form of label selectors, token by token as upstream (`k8s.io/apimachinery/pkg/labels`), so
//! that the error messages are upstream's.

use std::collections::BTreeSet;

use super::{REQUIREMENTS_MAX, Requirement, SelectorError, bound};
use crate::field::{FieldError, Path};
use crate::format;

/// The operators after a key, as in messages.
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    End,
    /// One of `, ! = == != > < ( )`.
    Sign(&'t str),
    /// A key, a value, or the operator `in` or `notin`.
    Word(&'t str),
}

impl Token<'_> {
    fn literal(&self) -> &str {
        match self {
            Self::End => "",
            Self::Sign(text) | Self::Word(text) => text,
        }
    }
}

struct Tokens<'t> {
    rest: &'t str,
}

impl<'t> Tokens<'t> {
    /// The next token, which is not consumed.
    fn peek(&self) -> Token<'t> {
        self.split().0
    }

    fn next(&mut self) -> Token<'t> {
        let (token, rest) = self.split();
        self.rest = rest;
        token
    }

    fn split(&self) -> (Token<'t>, &'t str) {
        let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
        let is_sign = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
        let text = self.rest.trim_start_matches(is_space);
        let len = match text {
            "" => return (Token::End, ""),
            text if text.starts_with("==") || text.starts_with("!=") => 2,
            text if text.starts_with(is_sign) => 1,
            text => text.find(|c| is_space(c) || is_sign(c)).unwrap_or(text.len()),
        };
        let (token, rest) = text.split_at(len);
        (if token.starts_with(is_sign) { Token::Sign(token) } else { Token::Word(token) }, rest)
    }
}

/// The requirements of a whole selector.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    // Upstream's reader ends at a NUL. Here, a NUL is an invalid character, since the client also meant the text after
    // it.
    let mut tokens = Tokens { rest: text };
    let mut requirements = Vec::new();
    let begins = |token: &Token<'_>| matches!(token, Token::Word(_) | Token::Sign("!"));
    match tokens.peek() {
        Token::End => return Ok(requirements),
        token if !begins(&token) => return Err(unexpected(&token, "!, identifier, or 'end of string'")),
        _ => {}
    }
    loop {
        if requirements.len() == REQUIREMENTS_MAX {
            return Err(SelectorError::TooMany);
        }
        requirements.push(requirement(&mut tokens)?);
        match tokens.next() {
            Token::End => return Ok(requirements),
            Token::Sign(",") => {}
            other => return Err(unexpected(&other, "',' or 'end of string'")),
        }
        let next = tokens.peek();
        if !begins(&next) {
            return Err(unexpected(&next, "identifier after ','"));
        }
    }
}

fn unexpected(token: &Token<'_>, expected: &'static str) -> SelectorError {
    SelectorError::Unexpected { found: token.literal().to_owned(), expected }
}

/// A syntax error within a requirement.
fn broken(token: &Token<'_>, expected: &str) -> SelectorError {
    SelectorError::Syntax(format!("found '{}', expected: {expected}", token.literal()))
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, SelectorError> {
    let mut first = tokens.next();
    let is_negated = first == Token::Sign("!");
    if is_negated {
        first = tokens.next();
    }
    let Token::Word(key) = first else { return Err(broken(&first, "identifier")) };
    check(&Path::default(), key, format::qualified_name(key))?;
    let key = key.to_owned();
    if is_negated {
        return Ok(Requirement::DoesNotExist(key));
    }
    if matches!(tokens.peek(), Token::End | Token::Sign(",")) {
        return Ok(Requirement::Exists(key));
    }
    let operator = tokens.next();
    let values = match operator {
        Token::Word("in" | "notin") => listed(tokens)?,
        Token::Sign("=" | "==" | "!=" | ">" | "<") => BTreeSet::from([exact(tokens)?]),
        other => return Err(broken(&other, OPERATORS)),
    };
    if let Token::Sign(">" | "<") = operator {
        let number = bound(values.first().copied().unwrap_or_default())?;
        return Ok(if operator == Token::Sign(">") { Requirement::Greater(key, number) } else { Requirement::Less(key, number) });
    }
    for (at, value) in values.iter().enumerate() {
        check(&Path::new("values").index(at).key(&key), value, format::label_value(value))?;
    }
    let values = values.into_iter().map(str::to_owned).collect();
    Ok(match operator {
        Token::Word("notin") | Token::Sign("!=") => Requirement::NotIn(key, values),
        _ => Requirement::In(key, values),
    })
}

fn check(path: &Path, text: &str, wrong: Vec<String>) -> Result<(), SelectorError> {
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(SelectorError::Syntax(FieldError::invalid(path, text, wrong.join("; ")).to_string())),
    }
}

/// One value, which may be empty.
fn exact<'t>(tokens: &mut Tokens<'t>) -> Result<&'t str, SelectorError> {
    if matches!(tokens.peek(), Token::End | Token::Sign(",")) {
        return Ok("");
    }
    match tokens.next() {
        Token::Word(value) => Ok(value),
        other => Err(broken(&other, "identifier")),
    }
}

/// Values in parentheses, each of which may be empty.
fn listed<'t>(tokens: &mut Tokens<'t>) -> Result<BTreeSet<&'t str>, SelectorError> {
    let first = tokens.next();
    if first != Token::Sign("(") {
        return Err(SelectorError::Syntax(format!("found '{}' expected: '('", first.literal())));
    }
    match tokens.peek() {
        Token::Word(_) | Token::Sign("," | ")") => {}
        other => return Err(broken(&other, "',', ')' or identifier")),
    }
    let mut values = BTreeSet::new();
    loop {
        match tokens.peek() {
            Token::Word(value) => {
                values.insert(value);
                tokens.next();
            }
            Token::Sign("," | ")") => {
                values.insert("");
            }
            other => return Err(broken(&other, "',', or identifier")),
        }
        match tokens.next() {
            Token::Sign(",") => {}
            Token::Sign(")") => return Ok(values),
            other => return Err(broken(&other, "',' or ')'")),
        }
    }
}
