//! Expressions over values of a schema.

use serde_json::{Value, json};

use super::*;

fn schema() -> Structural {
    Structural::parse(&json!({"type": "object", "properties": {
        "min": {"type": "integer"},
        "max": {"type": "integer"},
        "share": {"type": "number"},
        "name": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "for": {"type": "string", "format": "duration"},
        "max-surge": {"type": "integer"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}},
        "few": {"type": "array", "maxItems": 5, "items": {"type": "integer"}},
        "port": {"x-kubernetes-int-or-string": true},
    }}))
}

fn check(text: &str, this: Value, old: Option<Value>) -> Result<bool, EvaluateError> {
    let schema = schema();
    let expression = Expression::compile(text, &schema, false, Yields::Bool).unwrap_or_else(|error| panic!("{text}: {error}"));
    expression.holds(&Scope::new(&schema, &this, old.as_ref()), false)
}

#[test]
fn rules_hold_or_do_not() {
    let this = json!({
        "min": 1, "max": 3, "share": 1, "name": "web-1", "at": "2024-01-01T00:00:00Z", "for": "1h30m", "max-surge": 2,
        "labels": {"a.b": "x"}, "parts": [{"name": "a", "count": 1}, {"name": "b", "count": 2}], "few": [1, 2], "port": 80,
    });
    for (rule, holds) in [
        ("self.min <= self.max", true),
        ("self.share > 0.5", true),
        ("self.name.matches('^[a-z]+-[0-9]$') && self.name.startsWith('web')", true),
        ("self.parts.all(p, p.count > 1)", false),
        ("self.parts.exists_one(p, p.name == 'b')", true),
        ("self.parts.map(p, p.count).exists(c, c == 2)", true),
        ("size(self.parts) == 2 && self.few.size() < 3", true),
        ("has(self.name) && !has(self.few) || self.max == 3", true),
        ("self.labels['a.b'] == 'x' && 'a.b' in self.labels", true),
        ("self.max__dash__surge == 2", true),
        ("self.at < timestamp('2025-01-01T00:00:00Z')", true),
        ("self.__for__ == duration('90m')", true),
        ("type(self.port) == int ? self.port < 100 : false", true),
        ("self.name.split('-').size() == 2", true),
        ("self.?name.orValue('') == 'web-1'", true),
    ] {
        assert_eq!(check(rule, this.clone(), None), Ok(holds), "{rule}");
    }
}

#[test]
fn transitions_see_what_was_before() {
    assert_eq!(check("self.max >= oldSelf.max", json!({"max": 2}), Some(json!({"max": 3}))), Ok(false));
    let schema = schema();
    let optional =
        Expression::compile("!oldSelf.hasValue() || oldSelf.value().max <= self.max", &schema, false, Yields::Bool).expect("compiles");
    assert!(optional.uses_old_self());
    let this = json!({"max": 2});
    assert_eq!(optional.holds(&Scope::new(&schema, &this, None), true), Ok(true));
    assert_eq!(optional.holds(&Scope::new(&schema, &this, Some(&json!({"max": 3}))), true), Ok(false));
}

#[test]
fn what_cannot_be_evaluated_is_told() {
    assert_eq!(check("self.max > 1", json!({}), None).map_err(|error| error.to_string()), Err("no such key: max".to_owned()));
    assert!(check("self.max / 0 == 1", json!({"max": 1}), None).is_err());
}

#[test]
fn mistakes_are_found_before_a_definition_is_stored() {
    let schema = schema();
    let refused = |text: &str| Expression::compile(text, &schema, false, Yields::Bool).expect_err(text).to_string();
    assert_eq!(
        refused("self.nothing > 1"),
        "compilation failed: ERROR: <input>:1:5: undefined field 'nothing'\n | self.nothing > 1\n | ....^"
    );
    assert!(refused("other > 1").contains("undeclared reference to 'other' (in container '')"));
    assert!(refused("self.parts.all(p, p.nope == 1)").contains("undefined field 'nope'"));
    assert!(refused("self.min +").contains("ERROR: <input>:1:"));
    assert!(refused("self.min").contains("must evaluate to a bool"));
    assert!(refused("'text'").contains("must evaluate to a bool"));
    assert!(Expression::compile("self.min", &schema, false, Yields::Text).is_err());
    assert!(Expression::compile("'min ' + string(self.min)", &schema, false, Yields::Text).is_ok());
    assert!(Expression::compile("self.metadata.name == 'x'", &schema, true, Yields::Bool).is_ok());
    assert!(Expression::compile("self.metadata.name == 'x'", &schema, false, Yields::Bool).is_err());
}

#[test]
fn cost_grows_with_what_is_repeated() {
    let schema = schema();
    let cost = |text: &str, sizes: Option<Sizes>| Expression::parse(text).expect("parses").cost(&schema, sizes);
    assert!(cost("self.min < self.max", None) < 20);
    assert!(cost("self.few.all(f, self.few.exists(g, g == f))", None) < 1_000);
    assert!(cost("self.parts.all(p, p.count > 1)", None) < ESTIMATED_COST_MAX);
    assert!(cost("self.parts.all(p, self.parts.exists_one(q, p.name == q.name))", None) > ESTIMATED_COST_MAX);
    let small = sizes(&json!({"parts": [{"name": "a"}, {"name": "b"}]}));
    assert!(cost("self.parts.all(p, self.parts.exists_one(q, p.name == q.name))", Some(small)) < 1_000);
    assert_eq!(small, Sizes { collection: 2, text: 1 });
}

#[test]
fn messages_are_texts() {
    let schema = schema();
    let message = Expression::compile("'at most ' + string(self.max)", &schema, false, Yields::Text).expect("compiles");
    assert_eq!(message.text(&Scope::new(&schema, &json!({"max": 3}), None), false), Ok("at most 3".to_owned()));
}
