//! JSONPath as in `k8s.io/client-go/util/jsonpath`, limited to what printer columns of custom resources use: fields,
//! quoted fields, indexes, ranges of all elements, recursive descent, and filters that compare a field with a value.

use serde_json::Value;
use thiserror::Error;

/// A path that does not parse.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct JsonPathError(String);

/// A parsed path such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// A negative index counts from the end.
    Index(i64),
    All,
    Descend(String),
    Filter {
        path: Vec<Step>,
        test: Test,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Exists,
    Compare(Comparison, Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Differs,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Operators; a longer one comes before its prefixes.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::Differs),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl JsonPath {
    /// Parses a path that starts with a dot. `.` is the whole object.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        let text = text.strip_prefix('$').unwrap_or(text);
        Ok(Self(steps(text)?))
    }

    /// All values at the path; empty if a field is missing.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        walk(&self.0, value)
    }
}

fn steps(text: &str) -> Result<Vec<Step>, JsonPathError> {
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("..") {
            let (name, after) = name(after);
            found.push(Step::Descend(name));
            rest = after;
        } else if let Some(after) = rest.strip_prefix('.') {
            let (name, after) = name(after);
            match name.as_str() {
                "" => {}
                "*" => found.push(Step::All),
                _ => found.push(Step::Field(name)),
            }
            rest = after;
        } else if rest.starts_with('[') {
            let end = closing(rest)?;
            let (inside, after) = (rest.get(1..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default());
            found.push(bracket(inside.trim())?);
            rest = after;
        } else {
            let (name, after) = name(rest);
            if name.is_empty() {
                return Err(JsonPathError(format!("unrecognized character in action: {rest:?}")));
            }
            found.push(Step::Field(name));
            rest = after;
        }
    }
    Ok(found)
}

/// A field's name up to the next step. A backslash makes the next character a literal.
fn name(text: &str) -> (String, &str) {
    let mut out = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => out.extend(letters.next().map(|(_, escaped)| escaped)),
            '.' | '[' | ' ' | '=' | '!' | '<' | '>' | ')' => return (out, text.get(at..).unwrap_or_default()),
            _ => out.push(letter),
        }
    }
    (out, "")
}

/// The position of the bracket that closes the opening bracket of the text.
fn closing(text: &str) -> Result<usize, JsonPathError> {
    let (mut depth, mut quote) = (0_usize, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') if depth == 1 => return Ok(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    Err(JsonPathError("unterminated array".to_owned()))
}

fn bracket(inside: &str) -> Result<Step, JsonPathError> {
    if inside == "*" || inside == ":" {
        return Ok(Step::All);
    }
    if let Some(filtered) = inside.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return filter(filtered.trim());
    }
    if let Some(field) = unquoted(inside) {
        return Ok(Step::Field(field));
    }
    inside.parse().map(Step::Index).map_err(|_| JsonPathError(format!("invalid array index {inside}")))
}

fn unquoted(text: &str) -> Option<String> {
    ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote)).map(str::to_owned)
}

fn filter(text: &str) -> Result<Step, JsonPathError> {
    let bad = || JsonPathError(format!("unrecognized filter {text:?}"));
    let left_and_right = COMPARISONS.iter().filter_map(|(sign, comparison)| {
        let at = text.find(sign)?;
        Some((at, *sign, *comparison))
    });
    // The first operator in the text counts; of two at the same position the longer one.
    let first = left_and_right.min_by_key(|(at, sign, _)| (*at, usize::MAX - sign.len()));
    let (left, test) = match first {
        None => (text, Test::Exists),
        Some((at, sign, comparison)) => {
            let right = text.get(at + sign.len()..).unwrap_or_default().trim();
            let value = match unquoted(right) {
                Some(text) => Value::String(text),
                None => serde_json::from_str(right).map_err(|_| bad())?,
            };
            (text.get(..at).unwrap_or_default(), Test::Compare(comparison, value))
        }
    };
    let path = steps(left.trim().strip_prefix('@').ok_or_else(bad)?)?;
    Ok(Step::Filter { path, test })
}

fn walk<'v>(steps: &[Step], value: &'v Value) -> Vec<&'v Value> {
    let mut found = vec![value];
    for step in steps {
        found = found.into_iter().flat_map(|value| take(step, value)).collect();
    }
    found
}

fn take<'v>(step: &Step, value: &'v Value) -> Vec<&'v Value> {
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => {
            let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let at = if *index < 0 { i64::try_from(list.len()).unwrap_or(i64::MAX) + index } else { *index };
            usize::try_from(at).ok().and_then(|at| list.get(at)).into_iter().collect()
        }
        Step::All => elements(value),
        Step::Descend(name) => {
            let mut found: Vec<&Value> = value.get(name).into_iter().collect();
            found.extend(elements(value).into_iter().flat_map(|inner| take(step, inner)));
            found
        }
        Step::Filter { path, test } => {
            elements(value).into_iter().filter(|element| walk(path, element).first().is_some_and(|found| test.holds(found))).collect()
        }
    }
}

fn elements(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

impl Test {
    fn holds(&self, found: &Value) -> bool {
        let Self::Compare(comparison, wanted) = self else { return true };
        let order = match (found, wanted) {
            (Value::Number(a), Value::Number(b)) => a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            _ => None,
        };
        match (comparison, order) {
            (Comparison::Equal, order) => order.is_some_and(|order| order.is_eq()),
            (Comparison::Differs, order) => order.is_none_or(|order| order.is_ne()),
            (Comparison::Less, Some(order)) => order.is_lt(),
            (Comparison::LessOrEqual, Some(order)) => order.is_le(),
            (Comparison::Greater, Some(order)) => order.is_gt(),
            (Comparison::GreaterOrEqual, Some(order)) => order.is_ge(),
            (_, None) => false,
        }
    }
}

/// A value as `jsonpath` prints it in a string column: strings without quotes, other values as JSON.
pub fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_where_kubectl_says() {
        let object = json!({
            "metadata": {"annotations": {"a.b/c": "x"}},
            "spec": {"replicas": 3, "list": [{"name": "a", "n": 1}, {"name": "b", "n": 2}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
        });
        for (path, wanted) in [
            (".spec.replicas", "3"),
            (".spec.list[1].name", "b"),
            (".spec.list[-1].name", "b"),
            (".spec.list[*].name", "a b"),
            (".spec.list[?(@.n>1)].name", "b"),
            (".status.conditions[?(@.type==\"Ready\")].status", "True"),
            (".status.conditions[?(@.type=='Other')].status", "False"),
            (".status.conditions[?(@.nothing)].status", ""),
            (".metadata.annotations['a.b/c']", "x"),
            (".metadata.annotations.a\\.b/c", "x"),
            ("..name", "a b"),
            (".nothing.at.all", ""),
        ] {
            let parsed = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let found: Vec<String> = parsed.find(&object).into_iter().map(printed).collect();
            assert_eq!(found.join(" "), wanted, "{path}");
        }
    }

    #[test]
    fn broken_paths_are_reported() {
        for path in [".spec[", ".spec[x]", ".spec[?(x==1)]", ".spec[?(@.a==)]"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }
}
