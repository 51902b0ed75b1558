//! Every expression ends, with any content.

use std::time::{Duration, Instant};

use super::*;

/// Enough time for the slowest machine; a hanging test still fails soon.
const PATIENCE: Duration = Duration::from_secs(60);

fn spent(text: &str, this: &Json) -> (Result<String, EvaluateError>, u64) {
    let schema = schema();
    let expression = Expression::compile(text, &env(&schema, false)).unwrap_or_else(|error| panic!("{text}: {error}"));
    let scope = Scope::default().with("self", Value::json(this, Shape::Schema(&schema)));
    let mut budget = Budget::new(OBJECT_COST_MAX);
    let outcome = expression.evaluate(&scope, &mut budget).map(|value| value.to_json().expect("JSON").to_string());
    (outcome, OBJECT_COST_MAX - budget.left())
}

#[test]
fn simple_rules_cost_little() {
    let this = json!({"min": 1, "max": 2, "name": "abcdefghij", "few": [1, 2, 3]});
    for (text, cost) in [
        ("self.min < self.max", 5),
        ("self.name == 'abcdefghij'", 4),
        ("has(self.name)", 1),
        ("self.name.startsWith('abc')", 3),
        ("self.few.size() == 3", 4),
        ("true", 0),
    ] {
        assert_eq!(spent(text, &this).1, cost, "{text}");
    }
}

#[test]
fn what_would_run_for_ever_ends() {
    let numbers: Vec<i64> = (0..3_000).collect();
    let texts: Vec<String> = numbers.iter().map(|number| format!("{number:x>200}")).collect();
    let this = json!({"few": numbers, "set": texts, "name": "a".repeat(100_000)});
    let hostile = [
        "self.few.all(x, self.few.all(y, self.few.all(z, x + y + z >= 0)))",
        "self.few.map(x, self.few.map(y, self.few)).size() == 0",
        "self.few.all(x, self.name.matches('(a*)*' + string(x)) || true)",
        "self.few.all(x, self.name.replace('a', self.name).size() > 0)",
        "self.few.all(x, self.set == self.set)",
        "self.few.all(x, sets.equivalent(self.set, self.set))",
        "self.few.all(x, 'zz' in self.set || true)",
        "self.few.all(x, self.set.join(self.name).size() > 0)",
        "self.few.all(x, '%s%s%s'.format([self.set, self.set, self.set]).size() > 0)",
        "self.few.all(x, self.few.all(y, '%.1000f'.format([1e300]).size() > 0))",
        "self.few.all(x, self.name.split('').size() > 0)",
        "self.few.all(x, self.few.all(y, 'a'.matches('(((a{30}){30}){' + string(x) + '}){' + string(y) + '}') || true))",
        "self.few.all(x, self.name.findAll('a').size() > 0)",
        "self.few.all(x, self == self)",
        "self.few.all(x, self.few + self.few == self.few || true)",
    ];
    for text in hostile {
        let started = Instant::now();
        let (outcome, cost) = spent(text, &this);
        assert_eq!(outcome, Err(EvaluateError::CallCost), "{text}");
        assert!(cost >= CALL_COST_MAX, "{text}: {cost}");
        assert!(started.elapsed() < PATIENCE, "{text}: {:?}", started.elapsed());
    }
}

#[test]
fn patterns_that_are_written_out_are_compiled_once() {
    let this = json!({"name": "a"});
    let (outcome, cost) = spent("self.name.matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$')", &this);
    assert_eq!((outcome, cost < 20), (Ok("true".to_owned()), true));
    let (outcome, cost) = spent("self.name.matches('^' + self.name + '$') && self.name.matches('^' + self.name + '$')", &this);
    assert_eq!((outcome, (5_000..6_000).contains(&cost)), (Ok("true".to_owned()), true), "{cost}");
}

#[test]
fn texts_that_double_end() {
    let mut text = "'a'".to_owned();
    for level in 0..40 {
        text = format!("cel.bind(v{level}, {text}, v{level} + v{level})");
    }
    let (outcome, _) = spent(&format!("{text} == 'b'"), &json!({}));
    assert_eq!(outcome, Err(EvaluateError::CallCost));
}

#[test]
fn lists_are_built_in_one_pass() {
    let this = json!({"few": (0..20_000).collect::<Vec<i64>>()});
    let (outcome, cost) = spent("self.few.map(x, x).filter(x, x > 10).size() == 19989", &this);
    assert_eq!(outcome, Ok("true".to_owned()));
    assert!(cost < 1_000_000, "{cost}");
}

#[test]
fn a_budget_is_shared() {
    let schema = schema();
    let expression = Expression::compile("self.few.all(x, x >= 0)", &env(&schema, false)).expect("compiles");
    let this = json!({"few": (0..1_000).collect::<Vec<i64>>()});
    let scope = Scope::default().with("self", Value::json(&this, Shape::Schema(&schema)));
    let mut budget = Budget::new(10_000);
    assert!(expression.evaluate(&scope, &mut budget).is_ok());
    assert!(budget.left() < 10_000);
    let mut last = Ok(());
    for _ in 0..10 {
        last = expression.evaluate(&scope, &mut budget).map(drop);
    }
    assert_eq!((last, budget.left()), (Err(EvaluateError::OutOfBudget), 0));
}

#[test]
fn estimates_grow_with_what_is_repeated() {
    let schema = schema();
    let cost =
        |text: &str| Expression::compile(text, &env(&schema, false)).unwrap_or_else(|error| panic!("{text}: {error}")).estimate(&schema);
    assert!(cost("self.min < self.max") < 20);
    assert!(cost("self.few.all(f, self.few.exists(g, g == f))") < 1_000);
    assert!(cost("self.parts.all(p, p.count > 1)") < ESTIMATED_COST_MAX * 2);
    assert!(cost("self.parts.all(p, self.parts.exists_one(q, p.name == q.name))") > ESTIMATED_COST_MAX);
    assert!(cost("self.name.matches('^[a-z]+$')") < 1_000);
    assert!(cost("self.labels.all(k, self.labels[k].contains(self.labels[k]))") > ESTIMATED_COST_MAX);
    assert!(cost("'max was ' + string(self.max)") < 1_000);
    assert_eq!(repeated(2, &Structural::parse(&json!({"type": "array", "maxItems": 7, "items": {"type": "integer"}}))), 14);
}

#[test]
fn deep_and_long_texts_are_rejected_at_once() {
    let refused = |text: String| Expression::compile(&text, &Env::default()).expect_err("too deep").to_string();
    for text in [
        format!("{}1{} == 1", "(".repeat(3_000), ")".repeat(3_000)),
        format!("{}true", "!".repeat(3_000)),
        format!("1{} == 1", " + 1".repeat(3_000)),
        format!("{}1{} == []", "[".repeat(300), "]".repeat(300)),
    ] {
        assert_eq!(refused(text), "compilation failed: ERROR: <input>:-1:0: expression recursion limit exceeded: 200");
    }
    assert!(refused(format!("'{}' == ''", "a".repeat(200_000))).contains("expression code point size exceeds limit"));
    let deep = format!("{}1{} == 1", "(".repeat(90), ")".repeat(90));
    assert!(Expression::compile(&deep, &Env::default()).is_ok());
    let folds = (0..60).fold("true".to_owned(), |inner, level| format!("[1].all(x{level}, {inner})"));
    let outcome = Expression::compile(&folds, &Env::default());
    assert!(
        outcome.is_err() || outcome.is_ok_and(|expression| expression.evaluate(&Scope::default(), &mut Budget::new(1_000_000)).is_ok())
    );
}
