//! Label and field selectors: parsed from query strings and from `LabelSelector` values, and matched against objects
//! that are JSON values.

mod field;
mod parse;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::field::{FieldError, Path};

pub use field::{FieldSelector, FieldTerm, field_text};

/// The maximum of requirements in a selector. A selector with more is rejected.
const REQUIREMENTS_MAX: usize = 10_000;

/// Why a selector is invalid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SelectorError {
    /// The text does not follow the grammar.
    #[error("unable to parse requirement: {0}")]
    Syntax(String),
    /// A requirement starts or ends with an unexpected token.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        /// The unexpected token; empty at the end of the text.
        found: String,
        /// The expected tokens.
        expected: &'static str,
    },
    /// The text is no field selector.
    #[error("{0}")]
    Field(String),
    /// A `LabelSelector` has an unknown operator.
    #[error("\"{0}\" is not a valid label selector operator")]
    Operator(String),
    /// There are too many requirements.
    #[error("too many requirements: at most {REQUIREMENTS_MAX}")]
    TooMany,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// `key=value`, `key in (a,b)`
    In(String, Vec<String>),
    /// `key!=value`, `key notin (a,b)`; also holds where the label is absent
    NotIn(String, Vec<String>),
    /// `key`
    Exists(String),
    /// `!key`
    DoesNotExist(String),
    /// `key>1`
    Greater(String, i64),
    /// `key<1`
    Less(String, i64),
}

impl Requirement {
    fn matches<'a>(&self, get: &dyn Fn(&str) -> Option<&'a str>) -> bool {
        let number = |key: &str| get(key).and_then(|v| v.parse::<i64>().ok());
        match self {
            Self::In(key, values) => get(key).is_some_and(|v| values.iter().any(|x| x == v)),
            Self::NotIn(key, values) => get(key).is_none_or(|v| values.iter().all(|x| x != v)),
            Self::Exists(key) => get(key).is_some(),
            Self::DoesNotExist(key) => get(key).is_none(),
            Self::Greater(key, bound) => number(key).is_some_and(|v| v > *bound),
            Self::Less(key, bound) => number(key).is_some_and(|v| v < *bound),
        }
    }
}

/// A label selector: all requirements must hold. Without requirements everything matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl Selector {
    /// Parses the query-string form: `a=b,c!=d,e in (f,g),h,!i`. An empty text selects everything. An empty requirement
    /// beside a comma is an error, since it must not select more than the user meant.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        Ok(Self { requirements: parse::requirements(text)?, nothing: false })
    }

    /// Parses a `LabelSelector` value. An absent selector matches nothing, an empty one everything.
    pub fn from_label_selector(selector: Option<&Value>) -> Result<Self, SelectorError> {
        let Some(selector) = selector.filter(|s| !s.is_null()) else {
            return Ok(Self { requirements: Vec::new(), nothing: true });
        };
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            requirements.extend(labels.iter().map(|(k, v)| Requirement::In(k.clone(), vec![v.as_str().unwrap_or_default().to_owned()])));
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            requirements.push(from_expression(expression)?);
        }
        Ok(Self { requirements, nothing: false })
    }

    /// The same of a typed selector. One that cannot be parsed matches nothing.
    pub fn typed(selector: Option<&LabelSelector>) -> Self {
        let value = selector.map(|selector| json!(selector));
        Self::from_label_selector(value.as_ref()).unwrap_or(Self { requirements: Vec::new(), nothing: true })
    }

    /// A selector that requires exactly these labels, as in a Service or a ReplicationController.
    pub fn from_map(labels: &Map<String, Value>) -> Self {
        let requirements =
            labels.iter().map(|(k, v)| Requirement::In(k.clone(), vec![v.as_str().unwrap_or_default().to_owned()])).collect();
        Self { requirements, nothing: false }
    }

    /// The same of typed labels.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        Self::new(labels.iter().map(|(key, value)| Requirement::In(key.clone(), vec![value.clone()])).collect())
    }

    /// A selector of the given requirements.
    pub fn new(requirements: Vec<Requirement>) -> Self {
        Self { requirements, nothing: false }
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// The only value of a label that the selector allows by `key=value`.
    pub fn exact(&self, key: &str) -> Option<&str> {
        self.requirements.iter().find_map(|requirement| match requirement {
            Requirement::In(label, values) if label == key => values.first().filter(|_| values.len() == 1).map(String::as_str),
            _ => None,
        })
    }

    /// Whether labels match; `get` returns the value of a label.
    pub fn matches_by<'a>(&self, get: &dyn Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(get))
    }

    /// Whether labels match.
    pub fn matches_map(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_by(&|key| labels.get(key).map(String::as_str))
    }

    /// The selector with one more requirement.
    #[must_use]
    pub fn and(mut self, requirement: Requirement) -> Self {
        self.requirements.push(requirement);
        self
    }

    /// The selector with the requirements of the other one too.
    #[must_use]
    pub fn and_all(mut self, other: Self) -> Self {
        self.requirements.extend(other.requirements);
        self.nothing |= other.nothing;
        self
    }

    /// Whether an object's labels match.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = crate::meta::labels(object);
        self.matches_by(&|key| labels.and_then(|l| l.get(key)).and_then(Value::as_str))
    }
}

fn from_expression(expression: &Value) -> Result<Requirement, SelectorError> {
    let key = expression.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
    let values: Vec<String> =
        expression.get("values").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    match expression.get("operator").and_then(Value::as_str).unwrap_or_default() {
        "In" => Ok(Requirement::In(key, values)),
        "NotIn" => Ok(Requirement::NotIn(key, values)),
        "Exists" => Ok(Requirement::Exists(key)),
        "DoesNotExist" => Ok(Requirement::DoesNotExist(key)),
        "Gt" => bound(values.first().map_or("", String::as_str)).map(|n| Requirement::Greater(key, n)),
        "Lt" => bound(values.first().map_or("", String::as_str)).map(|n| Requirement::Less(key, n)),
        other => Err(SelectorError::Operator(other.to_owned())),
    }
}

fn bound(value: &str) -> Result<i64, SelectorError> {
    let path = Path::new("values").index(0);
    let why = "for 'Gt', 'Lt' operators, the value must be an integer";
    value.parse().map_err(|_| SelectorError::Syntax(FieldError::invalid(&path, value, why).to_string()))
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(key, values) => match values.as_slice() {
                [value] => write!(f, "{key}={value}"),
                values => write!(f, "{key} in ({})", values.join(",")),
            },
            Self::NotIn(key, values) => match values.as_slice() {
                [value] => write!(f, "{key}!={value}"),
                values => write!(f, "{key} notin ({})", values.join(",")),
            },
            Self::Exists(key) => f.write_str(key),
            Self::DoesNotExist(key) => write!(f, "!{key}"),
            Self::Greater(key, bound) => write!(f, "{key}>{bound}"),
            Self::Less(key, bound) => write!(f, "{key}<{bound}"),
        }
    }
}

/// The query-string form, which parses to the same selector. A selector that matches nothing has no such form; its text
/// does not parse.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nothing {
            return f.write_str("<nothing>");
        }
        for (at, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
