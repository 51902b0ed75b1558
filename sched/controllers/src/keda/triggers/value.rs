//! A number in the answer of a server: in JSON or YAML by a path, in Prometheus' text by the name and the labels of a metric.
//!
//! The answer comes from anywhere, and an error goes to the user: it has the location, never a part of the answer.

use std::sync::LazyLock;

use api_model::{decode, quantity};
use serde_json::Value;
use thiserror::Error;

use crate::keda::blocking::Blocking;

/// The format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// Prometheus' text format.
    Prometheus,
    /// YAML.
    Yaml,
}

/// Why there is no number.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ValueError {
    /// The answer is not in the format.
    #[error("the answer is no valid {0}")]
    Invalid(&'static str),
    /// The search panicked.
    #[error("the answer cannot be read")]
    Unreadable,
    /// The location has an expression that this version does not evaluate.
    #[error("valueLocation {0:?} has an unsupported expression")]
    Unsupported(String),
    /// There is something else at the location.
    #[error("valueLocation {0:?} must point to a numeric value or a string parseable as a Quantity, got {1}")]
    NoNumber(String, &'static str),
    /// There is a text at the location.
    #[error("valueLocation {0:?} points to a string that is not parseable as a Quantity")]
    NoQuantity(String),
    /// The path leads nowhere.
    #[error("key '{key}' not found in path '{path}'")]
    NoKey {
        /// The key.
        key: String,
        /// The path.
        path: String,
    },
    /// No series has the name and the labels.
    #[error("value {0} not found")]
    NoSeries(String),
}

/// Answers in YAML that are searched at once. One of the largest size takes some tenths of a second and some ten megabytes.
const SEARCHES_MAX: usize = 2;

static SEARCHES: LazyLock<Blocking> = LazyLock::new(|| Blocking::new("the YAML of a trigger", SEARCHES_MAX));

/// The number at a location. The search in YAML, which is slow, does not hold up this thread.
pub async fn search(body: Vec<u8>, location: &str, format: Format) -> Result<f64, ValueError> {
    match format {
        Format::Json | Format::Prometheus => find(&body, location, format),
        Format::Yaml => {
            let location = location.to_owned();
            SEARCHES.run(move || find(&body, &location, format)).await.unwrap_or(Err(ValueError::Unreadable))
        }
    }
}

/// The number at a location.
pub fn find(body: &[u8], location: &str, format: Format) -> Result<f64, ValueError> {
    match format {
        Format::Json => {
            let root: Value = serde_json::from_slice(body).map_err(|_| ValueError::Invalid("JSON"))?;
            number(location, json(&root, location)?.as_ref())
        }
        Format::Yaml => {
            let root = decode::decode(body, true).map_err(|_| ValueError::Invalid("YAML"))?.value;
            number(location, Some(by_keys(&root, location)?))
        }
        Format::Prometheus => series(body, location),
    }
}

fn number(location: &str, value: Option<&Value>) -> Result<f64, ValueError> {
    let no_number = |kind| Err(ValueError::NoNumber(location.to_owned(), kind));
    match value {
        Some(Value::Number(number)) => number.as_f64().ok_or_else(|| ValueError::NoNumber(location.to_owned(), "Number")),
        Some(Value::String(text)) => match quantity::nano(text) {
            Ok(nano) => Ok(approximate(nano)),
            Err(_) => Err(ValueError::NoQuantity(location.to_owned())),
        },
        Some(Value::Bool(true)) => no_number("True"),
        Some(Value::Bool(false)) => no_number("False"),
        Some(Value::Array(_) | Value::Object(_)) => no_number("JSON"),
        Some(Value::Null) | None => no_number("Null"),
    }
}

#[allow(clippy::cast_precision_loss, reason = "upstream computes with approximate numbers too")]
fn approximate(nano: i128) -> f64 {
    nano as f64 / 1e9
}

/// The value at a path in GJSON's syntax: keys and indexes with dots between them, `\` before a character that is meant as it is,
/// and `#` for the length of a list. Queries and modifiers of GJSON are not evaluated.
fn json(root: &Value, path: &str) -> Result<Option<Value>, ValueError> {
    let keys = keys(path)?;
    let mut value = root;
    for (position, key) in keys.iter().enumerate() {
        let next = match value {
            Value::Array(items) if key == "#" => {
                let is_last = position + 1 == keys.len();
                return if is_last { Ok(Some(items.len().into())) } else { Err(ValueError::Unsupported(path.to_owned())) };
            }
            Value::Array(items) => key.parse::<usize>().ok().and_then(|index| items.get(index)),
            Value::Object(fields) => fields.get(key),
            _ => None,
        };
        let Some(next) = next else { return Ok(None) };
        value = next;
    }
    Ok(Some(value.clone()))
}

fn keys(path: &str) -> Result<Vec<String>, ValueError> {
    let mut keys = vec![String::new()];
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '.' => keys.push(String::new()),
            '|' | '@' | '*' | '?' | '(' | ')' | '{' | '[' | '!' => return Err(ValueError::Unsupported(path.to_owned())),
            letter => {
                let letter = if letter == '\\' { letters.next().unwrap_or(letter) } else { letter };
                if let Some(key) = keys.last_mut() {
                    key.push(letter);
                }
            }
        }
    }
    Ok(keys)
}

/// Upstream's `GetValueByPath`: keys and indexes with dots between them. The path ends at the first value that is neither a list
/// nor an object.
fn by_keys<'v>(root: &'v Value, path: &str) -> Result<&'v Value, ValueError> {
    let mut value = root;
    for key in path.split('.') {
        let next = match value {
            Value::Array(items) => key.parse::<usize>().ok().and_then(|index| items.get(index)),
            Value::Object(fields) => fields.get(key),
            _ => return Ok(value),
        };
        value = next.ok_or_else(|| ValueError::NoKey { key: key.to_owned(), path: path.to_owned() })?;
    }
    Ok(value)
}

/// A name with labels: `name{label="value"}`.
type Series = (String, Vec<(String, String)>);

/// The value of the first series that has the name and the labels of the location.
fn series(body: &[u8], location: &str) -> Result<f64, ValueError> {
    let unsupported = || ValueError::Unsupported(location.to_owned());
    let ((name, labels), rest) = head(location).ok_or_else(unsupported)?;
    if !rest.trim().is_empty() {
        return Err(unsupported());
    }
    let text = std::str::from_utf8(body).map_err(|_| ValueError::Invalid("text"))?;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let ((own, have), rest) = head(line).ok_or(ValueError::Invalid("Prometheus text"))?;
        if own == name && labels.iter().all(|label| have.contains(label)) {
            let value = rest.split_whitespace().next().and_then(|value| value.parse::<f64>().ok());
            return value.ok_or(ValueError::Invalid("Prometheus text"));
        }
    }
    Err(ValueError::NoSeries(location.to_owned()))
}

/// The name and labels at the beginning of a line, and the rest of it.
fn head(line: &str) -> Option<(Series, &str)> {
    let end = line.find(|c: char| c == '{' || c.is_whitespace()).unwrap_or(line.len());
    let (name, mut rest) = line.split_at_checked(end)?;
    let mut labels = Vec::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            inside = inside.trim_start().trim_start_matches(',').trim_start();
            if let Some(after) = inside.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, after) = inside.split_once('=')?;
            let (value, after) = quoted(after.trim_start())?;
            labels.push((label.trim().to_owned(), value));
            inside = after;
        }
    }
    (!name.is_empty()).then(|| ((name.to_owned(), labels), rest))
}

/// A text in quotes, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let inside = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut letters = inside.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, inside.get(at + 1..)?)),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            letter => value.push(letter),
        }
    }
    None
}
