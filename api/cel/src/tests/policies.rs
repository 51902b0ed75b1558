//! Tests of the features for policies and match conditions: objects without a schema, composed variables, an
//! authorizer, and message literals.

use super::*;

struct OnlyApps;

impl Authorizer for OnlyApps {
    fn authorize(&self, check: &Check) -> Decision {
        let is_known = check.group == "apps" && check.resource == "deployments" && check.verb == "create" && check.namespace == "n";
        Decision { allowed: is_known || check.path.is_some(), reason: format!("{:?}", check.service_account), error: String::new() }
    }
}

fn admission() -> Env {
    Env::default()
        .with("object", Type::Dyn)
        .with("oldObject", Type::Dyn)
        .with("request", Type::object("kubernetes.AdmissionRequest", [("operation", Type::String), ("name", Type::String)]))
        .with("authorizer", Type::authorizer())
        .with("authorizer.requestResource", Type::resource_check())
}

#[test]
fn objects_of_no_schema_are_read_as_they_stand() {
    let object = json!({"metadata": {"name": "a", "namespace": "n", "labels": {"x-y": "1"}}, "spec": {"replicas": 3}});
    let request = json!({"operation": "CREATE", "name": "a"});
    let authorizer = OnlyApps;
    let scope = || {
        Scope::default()
            .with("object", Value::json(&object, Shape::Free))
            .with("oldObject", Value::Null)
            .with("request", Value::json(&request, Shape::Free))
            .with("authorizer", Value::authorizer(&authorizer))
            .with("authorizer.requestResource", Value::resource_check(&authorizer, Check { group: "apps".to_owned(), ..Check::default() }))
    };
    for (text, expected) in [
        ("object.spec.replicas > 2 && object.metadata.namespace == 'n' && object.metadata.labels['x-y'] == '1'", Ok("true")),
        ("request.operation == 'CREATE' && oldObject == null", Ok("true")),
        ("has(object.spec.missing)", Ok("false")),
        ("object.spec.missing == 1", Err("no such key: missing")),
        ("authorizer.group('apps').resource('deployments').namespace('n').check('create').allowed()", Ok("true")),
        ("authorizer.group('apps').resource('deployments').check('delete').allowed()", Ok("false")),
        ("authorizer.path('/healthz').check('get').allowed()", Ok("true")),
        ("authorizer.requestResource.check('create').allowed()", Ok("false")),
        ("authorizer.serviceAccount('n', 'sa').group('').resource('pods').check('get').reason()", Ok(r#""Some((\"n\", \"sa\"))""#)),
        // A third check exceeds the cost limit of one expression.
        (
            "[1, 2, 3].all(x, !authorizer.group('').resource('a').check('b').allowed())",
            Err("operation cancelled: actual cost limit exceeded"),
        ),
    ] {
        let expression = Expression::compile(text, &admission()).unwrap_or_else(|error| panic!("{text}: {error}"));
        let outcome = expression.evaluate(&scope(), &mut Budget::new(OBJECT_COST_MAX));
        let result = outcome.map(|value| value.to_json().expect("JSON").to_string()).map_err(|error| error.to_string());
        assert_eq!(result, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
    }
    assert!(Expression::compile("request.nope == 1", &admission()).is_err());
    assert!(Expression::compile("params.x == 1", &admission()).is_err());
}

#[test]
fn composed_variables_are_worked_out_once() {
    let object = json!({"list": (0..1_000).collect::<Vec<i64>>()});
    let first = Expression::compile("object.list.map(x, x * 2)", &admission()).expect("compiles");
    let env = admission().with_composed([("doubled", first.result().clone())]);
    let second = Expression::compile("variables.doubled.size()", &env).expect("compiles");
    let env = admission().with_composed([("doubled", first.result().clone()), ("count", second.result().clone())]);
    let main = Expression::compile("variables.count == 1000 && variables.doubled[1] == 2", &env).expect("compiles");
    let scope =
        Scope::default().with("object", Value::json(&object, Shape::Free)).with_composed("doubled", &first).with_composed("count", &second);
    let mut budget = Budget::new(OBJECT_COST_MAX);
    assert_eq!(main.evaluate(&scope, &mut budget).map(|value| value.as_bool()), Ok(Some(true)));
    let once = OBJECT_COST_MAX - budget.left();
    assert!(main.evaluate(&scope, &mut budget).is_ok());
    let twice = OBJECT_COST_MAX - budget.left() - once;
    assert!(once > 5_000 && twice < 50, "{once}, then {twice}");
    assert!(Expression::compile("variables.nope == 1", &env).is_err());
}

/// Each variable nests the previous one in more lists. Without a limit, the drop of the last one would recurse through
/// all of them.
#[test]
fn variables_do_not_nest_without_bound() {
    let mut env = admission();
    let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(90), "]".repeat(90));
    let mut made: Vec<(String, Expression)> = Vec::new();
    for number in 0..20 {
        let text = made.last().map_or_else(|| "[1]".to_owned(), |(before, _)| deep(&format!("dyn(variables.{before})")));
        let expression = Expression::compile(&text, &env).expect("compiles");
        let name = format!("v{number}");
        env = env.with_composed([(name.as_str(), expression.result().clone())]);
        made.push((name, expression));
    }
    let main = Expression::compile("variables.v19.size() == 1", &env).expect("compiles");
    let scope = made.iter().fold(Scope::default(), |scope, (name, expression)| scope.with_composed(name, expression));
    let refused = main.evaluate(&scope, &mut Budget::new(OBJECT_COST_MAX)).expect_err("too deep").to_string();
    assert!(refused.contains("deeper than"), "{refused}");
}

/// A value with shared parts is cheap to build, but its JSON is huge.
#[test]
fn what_is_shared_is_measured_before_it_is_written() {
    let doubled = (0..40).fold("['x', 'x']".to_owned(), |text, number| format!("cel.bind(b{number}, {text}, [b{number}, b{number}])"));
    let expression = Expression::compile(&doubled, &admission()).expect("compiles");
    let outcome = expression.evaluate(&Scope::default(), &mut Budget::new(OBJECT_COST_MAX));
    assert!(outcome.is_err(), "it costs more than there is");
    let small = Value::list(vec![Value::from("text")]);
    assert!(small.is_within(2, 6) && !small.is_within(1, 6) && !small.is_within(2, 5));
}

#[test]
fn policies_that_change_objects_write_them_out() {
    let env = admission().building_objects();
    let object = json!({"spec": {"replicas": 3}});
    let scope = Scope::default().with("object", Value::json(&object, Shape::Free));
    for (text, of, wanted) in [
        (
            "Object{spec: Object.spec{replicas: object.spec.replicas + 1, ?paused: optional.none()}}",
            "Object",
            json!({"spec": {"replicas": 4}}),
        ),
        (
            "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'x'}]",
            "list(JSONPatch)",
            json!([{"op": "add", "path": "/metadata/labels/a~1b", "value": "x"}]),
        ),
    ] {
        let expression = Expression::compile(text, &env).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(expression.result().to_string(), of);
        let value = expression.evaluate(&scope, &mut Budget::new(OBJECT_COST_MAX)).expect("evaluates");
        assert_eq!(value.to_json(), Ok(wanted));
    }
    assert!(Expression::compile("Object{}", &admission()).is_err());
    assert!(Expression::compile("JSONPatch{nope: 1}", &env).is_err());
}
