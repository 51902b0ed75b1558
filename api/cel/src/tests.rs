//! Tests of expressions over values with a schema, and of their costs.

mod costs;
mod libraries;
mod policies;

use serde_json::{Value as Json, json};

use super::*;

fn schema() -> Structural {
    Structural::parse(&json!({"type": "object", "properties": {
        "min": {"type": "integer"},
        "max": {"type": "integer"},
        "share": {"type": "number"},
        "name": {"type": "string", "maxLength": 63},
        "at": {"type": "string", "format": "date-time"},
        "for": {"type": "string", "format": "duration"},
        "max-surge": {"type": "integer"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}},
        "few": {"type": "array", "maxItems": 5, "items": {"type": "integer"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 5, "items": {"type": "string"}},
        "port": {"x-kubernetes-int-or-string": true},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}))
}

fn env(schema: &Structural, is_root: bool) -> Env {
    let of = type_of(schema, is_root).expect("a type");
    Env::default().with("self", of.clone()).with("oldSelf", of)
}

fn evaluate(text: &str, this: &Json, old: Option<&Json>) -> Result<String, String> {
    let schema = schema();
    let expression = Expression::compile(text, &env(&schema, false)).map_err(|error| error.to_string())?;
    let mut scope = Scope::default().with("self", Value::json(this, Shape::Schema(&schema)));
    if let Some(old) = old {
        scope = scope.with("oldSelf", Value::json(old, Shape::Schema(&schema)));
    }
    let value = expression.evaluate(&scope, &mut Budget::new(OBJECT_COST_MAX)).map_err(|error| error.to_string())?;
    Ok(value.to_json().map_or_else(|_| format!("{value:?}"), |json| json.to_string()))
}

fn holds(text: &str) -> Result<String, String> {
    evaluate(text, &json!({}), None)
}

#[test]
fn rules_hold_or_do_not() {
    let this = json!({
        "min": 1, "max": 3, "share": 1, "name": "web-1", "at": "2024-01-01T00:00:00Z", "for": "1h30m", "max-surge": 2,
        "labels": {"a.b": "x"}, "parts": [{"name": "a", "count": 1}, {"name": "b", "count": 2}], "few": [1, 2], "port": 80, "set": ["a", "b"],
        "free": {"x": 1}, "unknown": 1,
    });
    for (rule, holds) in [
        ("self.min <= self.max", true),
        ("self.share > 0.5", true),
        ("self.share == 1.0", true),
        ("self.name.matches('^[a-z]+-[0-9]$') && self.name.startsWith('web')", true),
        ("self.parts.all(p, p.count > 1)", false),
        ("self.parts.exists_one(p, p.name == 'b')", true),
        ("self.parts.map(p, p.count).exists(c, c == 2)", true),
        ("self.parts.filter(p, p.count > 1).size() == 1", true),
        ("size(self.parts) == 2 && self.few.size() < 3", true),
        ("has(self.name) && !has(self.few) || self.max == 3", true),
        ("self.labels['a.b'] == 'x' && 'a.b' in self.labels", true),
        ("self.labels.all(key, key == 'a.b')", true),
        ("self.labels.all(key, value, key == 'a.b' && value == 'x')", true),
        ("self.max__dash__surge == 2", true),
        ("self.at < timestamp('2025-01-01T00:00:00Z')", true),
        ("self.__for__ == duration('90m')", true),
        ("type(self.port) == int ? self.port < 100 : false", true),
        ("self.name.split('-').size() == 2", true),
        ("self.?name.orValue('') == 'web-1'", true),
        ("self.set == ['a', 'b'] && self.set + ['c'] == ['a', 'b', 'c']", true),
        ("self == self", true),
        ("has(self.labels.x)", false),
        ("self.parts[0].name == 'a' && self.parts[?7].hasValue() == false", true),
        ("1 / 0 == 1 || true", true),
        ("[0, 1].exists(x, 1 / x == 1)", true),
    ] {
        assert_eq!(evaluate(rule, &this, None), Ok(holds.to_string()), "{rule}");
    }
}

#[test]
fn transitions_see_what_was_before() {
    assert_eq!(evaluate("self.max >= oldSelf.max", &json!({"max": 2}), Some(&json!({"max": 3}))), Ok("false".to_owned()));
    let schema = schema();
    let env = env(&schema, false).with("oldSelf", Type::optional(type_of(&schema, false).expect("a type")));
    let optional = Expression::compile("!oldSelf.hasValue() || oldSelf.value().max <= self.max", &env).expect("compiles");
    assert!(optional.uses("oldSelf") && !optional.uses("old"));
    let (this, old) = (json!({"max": 2}), json!({"max": 3}));
    for (old, holds) in [(None, true), (Some(&old), false)] {
        let old = Value::optional(old.map(|old| Value::json(old, Shape::Schema(&schema))));
        let scope = Scope::default().with("self", Value::json(&this, Shape::Schema(&schema))).with("oldSelf", old);
        let outcome = optional.evaluate(&scope, &mut Budget::new(1_000)).expect("evaluates");
        assert_eq!(outcome.as_bool(), Some(holds));
    }
}

#[test]
fn evaluation_errors_are_reported() {
    for (text, message) in [
        ("self.max > 1", "no such key: max"),
        ("1 / 0 == 1", "division by zero"),
        ("1 % 0 == 1", "modulus by zero"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        ("[1][1] == 1", "index out of bounds: 1"),
        ("{'a': 1}['b'] == 1", "no such key: b"),
        ("dyn('a') > 1", "no such overload"),
        ("int('x') == 1", "type conversion error from 'string' to 'int'"),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("[].min() == 1", "min called on empty list"),
    ] {
        assert_eq!(holds(text), Err(message.to_owned()), "{text}");
    }
}

#[test]
fn mistakes_are_found_before_anything_is_stored() {
    let schema = schema();
    let refused = |text: &str| Expression::compile(text, &env(&schema, false)).expect_err(text).to_string();
    assert_eq!(
        refused("self.nothing > 1"),
        "compilation failed: ERROR: <input>:1:5: undefined field 'nothing'\n | self.nothing > 1\n | ....^"
    );
    for (text, message) in [
        ("other > 1", "undeclared reference to 'other' (in container '')"),
        ("nope(self)", "undeclared reference to 'nope' (in container '')"),
        ("self.parts.all(p, p.nope == 1)", "undefined field 'nope'"),
        ("self.free.x == 1", "undefined field 'x'"),
        ("self.min +", "ERROR: <input>:1:"),
        ("self.min > 'a'", "found no matching overload for '_>_' applied to '(int, string)'"),
        ("self.min == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.name.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
        ("self.min.all(x, true)", "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)"),
        ("self.min.x == 1", "type 'int' does not support field selection"),
        ("[1, 'a'] == []", "expected type 'int' but found 'string'"),
        ("self.name.matches('(')", "invalid matches argument"),
        ("self.metadata.name == 'x'", "undefined field 'metadata'"),
    ] {
        assert!(refused(text).contains(message), "{text}: {}", refused(text));
    }
    let of = |text: &str, is_root| Expression::compile(text, &env(&schema, is_root)).map(|expression| expression.result().to_string());
    assert_eq!(of("self.min", false).as_deref(), Ok("int"));
    assert_eq!(of("'min ' + string(self.min)", false).as_deref(), Ok("string"));
    assert_eq!(of("self.metadata.name == 'x'", true).as_deref(), Ok("bool"));
    assert_eq!(of("self.parts.map(p, p.name)", false).as_deref(), Ok("list(string)"));
    assert_eq!(of("self.labels.transformMap(k, v, size(v))", false).as_deref(), Ok("map(string, int)"));
    assert_eq!(of("self.port", false).as_deref(), Ok("dyn"));
}

#[test]
fn places_are_counted_in_characters() {
    let error = Expression::compile("'ä' == 'ö' &&\n 'ü' == x", &Env::default()).expect_err("no x").to_string();
    assert_eq!(error, "compilation failed: ERROR: <input>:2:9: undeclared reference to 'x' (in container '')\n |  'ü' == x\n | ........^");
}
