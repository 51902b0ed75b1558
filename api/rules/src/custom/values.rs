//! Validates values against a schema: types, limits, patterns, formats, and combinations of schemas.

use std::collections::HashMap;

use api_model::field::{FieldError, FieldErrorKind, Path};
use api_schema::{Additional, Structural};
use serde_json::{Map, Value};

use super::{formats, numbers};

/// The result of a check. Where none of several schemas matches, the errors are those of the schema with the most
/// matches.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    matches: usize,
}

/// The errors of a value.
pub fn check(schema: &Structural, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut outcome = Outcome::default();
    outcome.check(schema, value, old, &Path::default());
    outcome.errors
}

impl Outcome {
    fn check(&mut self, schema: &Structural, value: &Value, old: Option<&Value>, path: &Path) {
        if old == Some(value) {
            return;
        }
        if let Some(wrong) = wrong_type(schema, value) {
            let detail = format!("{} in body must be of type {wrong}: {:?}", name(path), type_of(value));
            return self.errors.push(error(FieldErrorKind::TypeInvalid, path, Some(type_of(value).into()), detail));
        }
        self.matches += 1;
        self.enumeration(schema, value, path);
        match value {
            Value::String(text) => self.text(schema, text, path),
            Value::Number(_) => self.number(schema, value, path),
            Value::Array(list) => self.list(schema, list, old, path),
            Value::Object(map) => self.map(schema, map, old, path),
            Value::Null | Value::Bool(_) => {}
        }
        self.any_of(schema, value, old, path);
        self.one_of(schema, value, old, path);
        self.all_of(schema, value, old, path);
        if let Some(not) = &schema.not
            && alone(not, value, old, path).errors.is_empty()
        {
            self.junction(format!("{:?} must not validate the schema (not)", name(path)));
        }
    }

    fn invalid(&mut self, path: &Path, value: impl Into<Value>, detail: &str) {
        self.errors.push(FieldError::invalid(path, value, format!("{} in body {detail}", name(path))));
    }

    /// As upstream, errors of combined schemas are reported at the root, with the path in the message.
    fn junction(&mut self, message: String) {
        self.errors.push(FieldError::invalid(&Path::default(), "", message));
    }

    fn merge(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.matches += other.matches;
    }

    fn enumeration(&mut self, schema: &Structural, value: &Value, path: &Path) {
        if schema.enumeration.is_empty() || schema.enumeration.contains(value) {
            return;
        }
        let bare = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let supported: Vec<String> = schema.enumeration.iter().map(bare).collect();
        let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
        self.errors.push(FieldError::not_supported(path, value.clone(), &supported));
    }

    fn text(&mut self, schema: &Structural, text: &str, path: &Path) {
        let len = || text.chars().count() as u64;
        if let Some(max) = schema.limits.max_length.filter(|max| len() > *max) {
            self.errors.push(FieldError::too_long(path, usize::try_from(max).unwrap_or(usize::MAX)));
        }
        if let Some(min) = schema.limits.min_length.filter(|min| len() < *min) {
            self.invalid(path, text, &format!("should be at least {min} chars long"));
        }
        if let Some(pattern) = &schema.pattern
            && !pattern.regex.as_ref().is_some_and(|regex| regex.is_match(text))
        {
            self.invalid(path, text, &format!("should match '{}'", pattern.text));
        }
        if !formats::is_valid(&schema.format, text) {
            let detail = format!("{} in body must be of type {}: {text:?}", name(path), schema.format);
            self.errors.push(error(FieldErrorKind::TypeInvalid, path, Some(text.into()), detail));
        }
    }

    fn number(&mut self, schema: &Structural, value: &Value, path: &Path) {
        let (limits, number) = (&schema.limits, value.as_f64().unwrap_or_default());
        if let Some(factor) = limits.multiple_of.filter(|factor| *factor > 0.0 && !numbers::is_multiple(number, *factor)) {
            self.invalid(path, value.clone(), &format!("should be a multiple of {}", numbers::go_text(factor)));
        }
        if let Some(max) = limits.maximum.filter(|max| number > *max || limits.exclusive_maximum && number >= *max) {
            let words = if limits.exclusive_maximum { "less than" } else { "less than or equal to" };
            self.invalid(path, value.clone(), &format!("should be {words} {}", numbers::go_text(max)));
        }
        if let Some(min) = limits.minimum.filter(|min| number < *min || limits.exclusive_minimum && number <= *min) {
            let words = if limits.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            self.invalid(path, value.clone(), &format!("should be {words} {}", numbers::go_text(min)));
        }
        if schema.format == "int32" && (number < f64::from(i32::MIN) || number > f64::from(i32::MAX)) {
            self.junction(format!("Checked value must be of type integer with format int32 in {}", name(path)));
        }
    }

    fn list(&mut self, schema: &Structural, list: &[Value], old: Option<&Value>, path: &Path) {
        let len = list.len() as u64;
        if let Some(max) = schema.limits.max_items.filter(|max| len > *max) {
            self.too_many(path, len, max);
        }
        if let Some(min) = schema.limits.min_items.filter(|min| len < *min) {
            self.invalid(path, len, &format!("should have at least {min} items"));
        }
        let Some(items) = &schema.items else { return };
        let old = Elements::by_keys(schema, old);
        for (index, element) in list.iter().enumerate() {
            let before = old.as_ref().and_then(|old| old.same_as(element));
            self.check(items, element, before, &path.index(index));
        }
    }

    fn map(&mut self, schema: &Structural, map: &Map<String, Value>, old: Option<&Value>, path: &Path) {
        let len = map.len() as u64;
        if let Some(min) = schema.limits.min_properties.filter(|min| len < *min) {
            self.invalid(path, len, &format!("should have at least {min} properties"));
        }
        if let Some(max) = schema.limits.max_properties.filter(|max| len > *max) {
            self.too_many(path, len, max);
        }
        for (key, value) in map {
            let before = old.and_then(|old| old.get(key));
            match (schema.properties.get(key), &schema.additional) {
                (Some(property), _) => self.check(property, value, before, &path.child(key)),
                (None, Additional::Schema(further)) => self.check(further, value, before, &path.child(key)),
                (None, Additional::Forbidden) => {
                    let detail = format!("{}.{key} in body is a forbidden property", name(path));
                    self.errors.push(FieldError::invalid(path, key.as_str(), detail));
                }
                (None, _) => {}
            }
        }
        for required in schema.required.iter().filter(|required| !map.contains_key(*required)) {
            self.errors.push(FieldError::required(&path.child(required), ""));
        }
    }

    fn too_many(&mut self, path: &Path, len: u64, max: u64) {
        let detail = format!("must have at most {max} {}", if max == 1 { "item" } else { "items" });
        self.errors.push(error(FieldErrorKind::TooMany, path, Some(len.into()), detail));
    }

    fn any_of(&mut self, schema: &Structural, value: &Value, old: Option<&Value>, path: &Path) {
        if schema.any_of.is_empty() {
            return;
        }
        let mut best: Option<Self> = None;
        for one in &schema.any_of {
            let outcome = alone(one, value, old, path);
            if outcome.errors.is_empty() {
                return self.merge(outcome);
            }
            if best.as_ref().is_none_or(|best| outcome.matches > best.matches) {
                best = Some(outcome);
            }
        }
        self.junction(format!("{:?} must validate at least one schema (anyOf)", name(path)));
        self.merge(best.unwrap_or_default());
    }

    fn one_of(&mut self, schema: &Structural, value: &Value, old: Option<&Value>, path: &Path) {
        if schema.one_of.is_empty() {
            return;
        }
        let outcomes: Vec<Self> = schema.one_of.iter().map(|one| alone(one, value, old, path)).collect();
        let (valid, failed): (Vec<Self>, Vec<Self>) = outcomes.into_iter().partition(|outcome| outcome.errors.is_empty());
        let count = valid.len();
        let detail = match count {
            1 => return valid.into_iter().for_each(|outcome| self.merge(outcome)),
            0 => "Found none valid".to_owned(),
            count => format!("Found {count} valid alternatives"),
        };
        self.junction(format!("{:?} must validate one and only one schema (oneOf). {detail}", name(path)));
        if count == 0 {
            // The first of equal ones.
            let best = failed.into_iter().reduce(|best, other| if other.matches > best.matches { other } else { best });
            self.merge(best.unwrap_or_default());
        }
    }

    fn all_of(&mut self, schema: &Structural, value: &Value, old: Option<&Value>, path: &Path) {
        if schema.all_of.is_empty() {
            return;
        }
        let outcomes: Vec<Self> = schema.all_of.iter().map(|one| alone(one, value, old, path)).collect();
        let valid = outcomes.iter().filter(|outcome| outcome.errors.is_empty()).count();
        let all = outcomes.len();
        outcomes.into_iter().for_each(|outcome| self.merge(outcome));
        if valid != all {
            let none = if valid == 0 { ". None validated" } else { "" };
            self.junction(format!("{:?} must validate all the schemas (allOf){none}", name(path)));
        }
    }
}

fn alone(schema: &Structural, value: &Value, old: Option<&Value>, path: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.check(schema, value, old, path);
    outcome
}

/// The elements of an old list by their keys.
pub struct Elements<'s, 'v> {
    schema: &'s Structural,
    by_keys: HashMap<String, &'v Value>,
}

impl<'s, 'v> Elements<'s, 'v> {
    /// `None` where the elements have no keys, or there was no list.
    pub fn by_keys(schema: &'s Structural, old: Option<&'v Value>) -> Option<Self> {
        let old = old.and_then(Value::as_array).filter(|_| schema.list_type == "map")?;
        // The first of several elements with the same keys counts.
        let by_keys = old.iter().rev().map(|element| (keys(schema, element), element)).collect();
        Some(Self { schema, by_keys })
    }

    /// The old element with the same keys.
    pub fn same_as(&self, element: &Value) -> Option<&'v Value> {
        self.by_keys.get(&keys(self.schema, element)).copied()
    }
}

fn keys(schema: &Structural, element: &Value) -> String {
    schema.list_map_keys.iter().map(|key| element.get(key).map_or_else(|| "-".to_owned(), Value::to_string) + ",").collect()
}

/// The expected type of a value of another type.
fn wrong_type(schema: &Structural, value: &Value) -> Option<String> {
    let fits = |kind: &str| match kind {
        "integer" => numbers::is_whole(value),
        kind => type_of(value) == kind || kind == "number" && value.is_number(),
    };
    let kinds: &[&str] = match schema.kind.as_str() {
        _ if schema.int_or_string => &["integer", "string"],
        "" => return None,
        kind => &[kind],
    };
    if value.is_null() && schema.nullable || kinds.iter().any(|kind| fits(kind)) {
        return None;
    }
    Some(kinds.join(","))
}

/// JSON schema's name of a value's type.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The path as messages name it; the root has no name.
fn name(path: &Path) -> String {
    if *path == Path::default() { String::new() } else { path.to_string() }
}

fn error(kind: FieldErrorKind, path: &Path, value: Option<Value>, detail: String) -> FieldError {
    FieldError { kind, path: path.clone(), value, detail }
}
