//! Policies over requests: matching, evaluation and changes.

use std::sync::Arc;

use api_cel::{Authorizer, Check, Decision};
use api_model::kind::{self, Kind};
use api_model::request::UserInfo;
use serde_json::{Value, json};

use super::*;
use crate::request::{Operation, Request};
use crate::testing::Objects;

/// Allows everybody the verb `get`.
struct Readers;

impl Authorizer for Readers {
    fn authorize(&self, check: &Check) -> Decision {
        Decision { allowed: check.verb == "get", ..Decision::default() }
    }
}

fn validating(spec: &Value) -> Policy {
    let mut fields = json!({"matchConstraints": {"resourceRules": [rule("configmaps")]}, "validations": [{"expression": "true"}]});
    fields.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    Policy::from(&json!({"metadata": {"name": "p"}, "spec": fields}))
}

fn mutating(expression: &str, kind: &str) -> Policy {
    let field = if kind == "JSONPatch" { "jsonPatch" } else { "applyConfiguration" };
    let mutation = json!({"patchType": kind, field: {"expression": expression}});
    Policy::from(&json!({"metadata": {"name": "p"}, "spec": {"mutations": [mutation], "reinvocationPolicy": "IfNeeded"}}))
}

fn rule(resource: &str) -> Value {
    json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]})
}

fn binding(policy: &Policy, spec: &Value) -> Binding {
    let mut fields = json!({"policyName": policy.name, "validationActions": ["Deny"]});
    fields.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    let object = json!({"metadata": {"name": "b"}, "spec": fields});
    let policy = Arc::new(validating(&json!({})));
    let hook = Bindings::new(std::iter::once(&object)).hook(&policy).expect("bound");
    hook.bindings.first().expect("one").clone()
}

fn config_maps() -> &'static Kind {
    kind::find("", "configmaps").expect("served")
}

fn with_request<T>(object: &mut Value, then: impl FnOnce(&Request<'_>) -> T) -> T {
    then(&Request {
        operation: Operation::Create,
        kind: config_maps(),
        subresource: "",
        namespace: "here",
        name: "c",
        user: &UserInfo::new("jane", &["devs"]),
        object: Some(object),
        old: None,
        dry_run: false,
    })
}

fn activation<'a>(request: &'a Value, object: &'a Value) -> Activation<'a> {
    Activation { request, object: Some(object), old: None, namespace: None, authorizer: &Readers, check: Check::default() }
}

/// The findings of a policy for an object, with one parameter object.
fn found(policy: &Policy, actions: &[&str], object: &Value, params: Option<&Value>) -> Findings {
    let request = json!({"operation": "CREATE", "userInfo": {"username": "jane"}});
    let mut findings = Findings::default();
    findings.validate(policy, &binding(policy, &json!({"validationActions": actions})), &activation(&request, object), params);
    findings.publish(policy);
    findings
}

fn refusal(findings: &Findings) -> Option<Value> {
    with_request(&mut json!({"metadata": {"name": "c"}}), |request| findings.refusal(request))
}

fn message(policy: &Policy, object: &Value, params: Option<&Value>) -> String {
    let status = refusal(&found(policy, &["Deny"], object, params));
    status.map_or_else(|| "ok".to_owned(), |status| status["message"].as_str().unwrap_or_default().to_owned())
}

const DENIED: &str = "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";

#[test]
fn requests_are_chosen_by_rules_names_and_selectors() {
    let view = Objects::new([json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "here", "labels": {"team": "blue"}}})]);
    let names = |names: &[&str]| {
        let mut rule = rule("configmaps");
        rule["resourceNames"] = json!(names);
        rule
    };
    for (matched, wanted) in [
        (json!({}), true),
        (json!({"resourceRules": [rule("configmaps")]}), true),
        (json!({"resourceRules": [rule("secrets")]}), false),
        (json!({"resourceRules": [names(&["c"])]}), true),
        (json!({"resourceRules": [names(&["d"])]}), false),
        (json!({"resourceRules": [rule("*")], "excludeResourceRules": [rule("configmaps")]}), false),
        (json!({"resourceRules": [rule("*")], "excludeResourceRules": [names(&["d"])]}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}}), true),
        (json!({"namespaceSelector": {"matchLabels": {"team": "red"}}}), false),
        (json!({"objectSelector": {"matchLabels": {"a": "b"}}}), true),
        (json!({"objectSelector": {"matchLabels": {"a": "c"}}}), false),
    ] {
        let mut object = json!({"metadata": {"name": "c", "labels": {"a": "b"}}});
        let form = with_request(&mut object, |request| Match::from(&matched).form(request, &[config_maps()], &view));
        assert_eq!(form.expect("the namespace is there").is_some(), wanted, "{matched}");
    }
    let elsewhere = Match::from(&json!({"namespaceSelector": {"matchLabels": {"team": "blue"}}}));
    let missing = with_request(&mut json!({}), |request| elsewhere.form(request, &[config_maps()], &Objects::default()));
    assert_eq!(missing.expect_err("no namespace").to_string(), "namespaces \"here\" not found");
}

#[test]
fn violations_are_reported() {
    let object = json!({"data": {"colour": "red"}});
    let rule = |validation: Value| validating(&json!({"validations": [validation]}));
    for (policy, wanted) in [
        (rule(json!({"expression": "object.data.colour == 'red'"})), "ok".to_owned()),
        (rule(json!({"expression": " object.data.colour != 'red' "})), format!("{DENIED}failed expression: object.data.colour != 'red'")),
        (rule(json!({"expression": "false", "message": " no "})), format!("{DENIED}no")),
        (
            rule(json!({"expression": "false", "message": "no", "messageExpression": "'not ' + object.data.colour"})),
            format!("{DENIED}not red"),
        ),
        (rule(json!({"expression": "false", "message": "no", "messageExpression": "object.data.size"})), format!("{DENIED}no")),
        (rule(json!({"expression": "false", "message": "no", "messageExpression": "'a\\nb'"})), format!("{DENIED}no")),
        (
            rule(json!({"expression": "object.data.size == '1'"})),
            format!("{DENIED}expression 'object.data.size == '1'' resulted in error: no such key: size"),
        ),
        (validating(&json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.size == '1'"}]})), "ok".to_owned()),
        (rule(json!({"expression": "authorizer.group('').resource('pods').check('get').allowed()"})), "ok".to_owned()),
        (
            rule(json!({"expression": "authorizer.group('').resource('pods').check('create').allowed()"})),
            format!("{DENIED}failed expression: authorizer.group('').resource('pods').check('create').allowed()"),
        ),
    ] {
        assert_eq!(message(&policy, &object, None), wanted);
    }
}

#[test]
fn a_refusal_has_the_reason_of_its_rule() {
    let status = |reason: Value| {
        let policy = validating(&json!({"validations": [{"expression": "false", "reason": reason}]}));
        refusal(&found(&policy, &["Deny"], &json!({}), None)).expect("refused")
    };
    for (reason, wanted, code) in [
        (Value::Null, "Invalid", 422),
        (json!("Forbidden"), "Forbidden", 403),
        (json!("RequestEntityTooLarge"), "RequestEntityTooLarge", 413),
    ] {
        let status = status(reason);
        assert_eq!((&status["reason"], &status["code"]), (&json!(wanted), &json!(code)));
        assert_eq!(status["details"]["kind"], "configmaps");
        let cause = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: false";
        assert_eq!(status["details"]["causes"], json!([{"message": cause}]));
    }
}

#[test]
fn bindings_choose_what_becomes_of_a_refusal() {
    let policy = validating(&json!({"validations": [{"expression": "false", "message": "no"}]}));
    let warned = found(&policy, &["Warn", "Audit"], &json!({}), None);
    assert_eq!(refusal(&warned), None);
    assert_eq!(warned.warnings, ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no"]);
    let [(name, text)] = warned.annotations.as_slice() else { panic!("{:?}", warned.annotations) };
    assert_eq!(name, "validation.policy.admission.k8s.io/validation_failure");
    let recorded: Value = serde_json::from_str(text).expect("JSON");
    let wanted = json!([{"message": "no", "policy": "p", "binding": "b", "expressionIndex": 0, "validationActions": ["Warn", "Audit"]}]);
    assert_eq!(recorded, wanted);
}

#[test]
fn conditions_come_first() {
    let policy = |conditions: &[&str], failure_policy: &str| {
        let conditions: Vec<Value> = conditions.iter().map(|text| json!({"name": "c", "expression": text})).collect();
        validating(&json!({"matchConditions": conditions, "validations": [{"expression": "false"}], "failurePolicy": failure_policy}))
    };
    let denied = format!("{DENIED}failed expression: false");
    for (conditions, failure_policy, wanted) in [
        (["true", "request.userInfo.username == 'jane'"], "Fail", denied.as_str()),
        (["true", "false"], "Fail", "ok"),
        (["object.nothing == 1", "false"], "Fail", "ok"),
        (["object.nothing == 1", "true"], "Ignore", "ok"),
    ] {
        assert_eq!(message(&policy(&conditions, failure_policy), &json!({}), None), wanted, "{conditions:?}");
    }
    let failing = message(&policy(&["object.a == 1", "object.b == 1"], "Fail"), &json!({}), None);
    let error = |field: &str| format!("expression 'object.{field} == 1' resulted in error: no such key: {field}");
    assert_eq!(failing, format!("{DENIED}[{}, {}]", error("a"), error("b")));
}

#[test]
fn variables_and_parameters_are_at_hand() {
    let policy = validating(&json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [{"name": "size", "expression": "int(object.data.size)"}, {"name": "twice", "expression": "variables.size * 2"}],
        "validations": [{"expression": "params == null || variables.twice <= int(params.data.max)",
            "messageExpression": "'at most ' + params.data.max"}],
    }));
    let (object, params) = (json!({"data": {"size": "2"}}), |max: &str| json!({"data": {"max": max}}));
    assert_eq!(message(&policy, &object, Some(&params("4"))), "ok");
    assert_eq!(message(&policy, &object, Some(&params("3"))), format!("{DENIED}at most 3"));
    assert_eq!(message(&policy, &object, None), "ok");
    let unused = validating(&json!({"variables": [{"name": "bad", "expression": "object.nothing"}],
        "validations": [{"expression": "true || variables.bad == 1"}]}));
    assert_eq!(message(&unused, &object, None), "ok", "it is evaluated where it is used");
    let used = validating(&json!({"variables": [{"name": "bad", "expression": "object.nothing"}],
        "validations": [{"expression": "variables.bad == 1"}]}));
    let why = "expression 'variables.bad == 1' resulted in error: composited variable \"bad\" fails to evaluate: no such key: nothing";
    assert_eq!(message(&used, &object, None), format!("{DENIED}{why}"));
}

#[test]
fn annotations_are_published_once_for_all_bindings() {
    let policy = validating(&json!({"auditAnnotations": [
        {"key": "who", "valueExpression": "request.userInfo.username"},
        {"key": "nobody", "valueExpression": "null"},
        {"key": "limit", "valueExpression": "string(object.data.n)"},
    ]}));
    let request = json!({"userInfo": {"username": "jane"}});
    let (one, two, mut findings) = (json!({"data": {"n": 1}}), json!({"data": {"n": 2}}), Findings::default());
    for object in [&one, &two] {
        findings.validate(&policy, &binding(&policy, &json!({})), &activation(&request, object), None);
    }
    findings.publish(&policy);
    let wanted = [("p/limit", "1, 2"), ("p/who", "jane")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(findings.annotations, wanted);
}

#[test]
fn an_expression_that_costs_too_much_ends() {
    let list: Vec<u32> = (0..2_000).collect();
    let policy = validating(&json!({"validations": [{"expression": "object.list.all(a, object.list.all(b, a + b >= 0))"}]}));
    let message = message(&policy, &json!({"list": list}), None);
    assert!(message.ends_with("resulted in error: operation cancelled: actual cost limit exceeded"), "{message}");
}

struct Fixed(bool, Vec<Value>);

impl Params for Fixed {
    fn is_namespaced(&self) -> bool {
        self.0
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.list(namespace).into_iter().find(|object| object["metadata"]["name"] == name)
    }

    fn list(&self, namespace: &str) -> Vec<Arc<Value>> {
        let is_here = |object: &&Value| object["metadata"]["namespace"].as_str().unwrap_or_default() == namespace;
        self.1.iter().filter(is_here).cloned().map(Arc::new).collect()
    }
}

#[test]
fn parameters_are_found_by_name_and_by_labels() {
    let object =
        |namespace: &str, name: &str, label: &str| json!({"metadata": {"name": name, "namespace": namespace, "labels": {"l": label}}});
    let spaced = Fixed(true, vec![object("here", "a", "1"), object("here", "b", "2"), object("there", "a", "1")]);
    let mut bare = object("", "a", "1");
    bare["metadata"].as_object_mut().expect("a map").remove("namespace");
    let cluster = Fixed(false, vec![bare]);
    let find = |params: &Fixed, reference: Value, namespace: &str| {
        let policy = validating(&json!({}));
        let reference = binding(&policy, &json!({"paramRef": reference})).param_ref.expect("a reference");
        let found = reference.find(params, namespace).map_err(|error| error.to_string())?;
        Ok(found.iter().map(|object| object["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>().join(" "))
    };
    let ok = |names: &str| Ok::<_, String>(names.to_owned());
    assert_eq!(find(&spaced, json!({"name": "a"}), "here"), ok("a"));
    assert_eq!(find(&spaced, json!({"name": "b", "namespace": "there"}), "here"), ok(""));
    assert_eq!(find(&spaced, json!({"selector": {}}), "here"), ok("a b"));
    assert_eq!(find(&spaced, json!({"selector": {"matchLabels": {"l": "2"}}}), "here"), ok("b"));
    assert_eq!(find(&cluster, json!({"name": "a"}), "here"), ok("a"));
    for (params, reference, namespace, why) in [
        (&spaced, json!({"name": "a"}), "", "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"),
        (
            &cluster,
            json!({"name": "a", "namespace": "x"}),
            "here",
            "paramRef.namespace must not be provided for a cluster-scoped `paramKind`",
        ),
        (
            &spaced,
            json!({"name": "c", "parameterNotFoundAction": "Deny"}),
            "here",
            "no params found for policy binding with `Deny` parameterNotFoundAction",
        ),
    ] {
        assert_eq!(find(params, reference, namespace), Err(why.to_owned()));
    }
    let kind = ParamKind { api_version: "example.com/v1".to_owned(), kind: "Limit".to_owned() };
    assert_eq!(kind.missing(), "failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'");
}

#[test]
fn changes_are_json() {
    let object = json!({"metadata": {"name": "c"}});
    let request = json!({});
    let change = |policy: &Policy| policy.change(0, &activation(&request, &object), None);
    let apply = "Object{metadata: Object.metadata{labels: {'name': object.metadata.name}}, list: [Object.list{a: 1}]}";
    let wanted = json!({"metadata": {"labels": {"name": "c"}}, "list": [{"a": 1}]});
    assert_eq!(change(&mutating(apply, "ApplyConfiguration")), Ok(Change::Apply(wanted)));
    let patch = "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'x'}, \
                  JSONPatch{op: 'add', path: '/spec', value: Object.spec{a: 1}}]";
    let wanted = json!([{"op": "add", "path": "/metadata/labels/a~1b", "value": "x"}, {"op": "add", "path": "/spec", "value": {"a": 1}}]);
    assert_eq!(change(&mutating(patch, "JSONPatch")), Ok(Change::Patch(wanted)));
    let wrong = change(&mutating("Object{metadata: Object.spec{labels: {}}}", "ApplyConfiguration")).expect_err("wrong");
    let why = "type mismatch: unexpected type name \"Object.spec\", expected \"Object.metadata\", which must match field name path from root Object type";
    assert_eq!(wrong, why);
}

#[test]
fn mutating_policies_that_fail_refuse_unless_they_are_to_be_passed_over() {
    let policy = mutating("Object{metadata: object.nothing}", "ApplyConfiguration");
    let bound = binding(&policy, &json!({}));
    let mut failures = Failures::default();
    let status = |failures: &Failures| with_request(&mut json!({"metadata": {"name": "c"}}), |request| failures.refusal(request));
    assert_eq!(status(&failures), None);
    failures.failed(&policy, &bound, "why");
    failures.misconfigured(&policy, None, "how");
    let status = status(&failures).expect("refused");
    assert_eq!(status["message"], "policy 'p' with binding 'b' denied request: why");
    assert_eq!((&status["reason"], &status["code"]), (&json!("Invalid"), &json!(403)));
    assert_eq!(status["details"]["causes"][1]["message"], "policy \"p\" denied request: failed to configure policy: how");
    let mut passed_over = Failures::default();
    passed_over.failed(&Policy { fails_open: true, ..policy }, &bound, "why");
    assert_eq!(with_request(&mut json!({}), |request| passed_over.refusal(request)), None);
}

#[test]
fn what_policies_have_to_say_is_counted() {
    let counted = |policy: &Policy, actions: &[&str]| -> Vec<(String, &'static str)> {
        let checks = found(policy, actions, &json!({"data": {}}), None).checks;
        assert!(checks.iter().all(|check| check.policy == "p" && check.binding == "b"));
        checks.into_iter().map(|check| (check.enforcement_action, check.error_type)).collect()
    };
    let of = |action: &str| (action.to_owned(), "invalid_error");
    let rules = |fields: Value| validating(&fields);
    assert_eq!(counted(&rules(json!({"validations": [{"expression": "true"}]})), &["Deny"]), []);
    let refusing = rules(json!({"validations": [{"expression": "false"}]}));
    assert_eq!(counted(&refusing, &["Deny"]), [of("deny")]);
    assert_eq!(counted(&refusing, &["Warn", "Audit"]), [of("warn"), of("audit")]);
    let failing = json!([{"expression": "object.x == 1"}]);
    assert_eq!(counted(&rules(json!({"validations": failing})), &["Deny"]), [of("deny")]);
    assert_eq!(counted(&rules(json!({"validations": failing, "failurePolicy": "Ignore"})), &["Deny"]), [of("allow")]);
    let unreadable = rules(json!({"validations": [{"expression": "object."}]}));
    assert_eq!(counted(&unreadable, &["Deny"]), [("deny".to_owned(), "compile_error")]);
    let annotating = rules(json!({"auditAnnotations": [{"key": "k", "valueExpression": "string(object.x)"}]}));
    assert_eq!(counted(&annotating, &["Warn"]), [of("deny")]);
    let costly = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]".to_owned();
    let all = |inner: &str| format!("{costly}.all(x, {inner})");
    let costly = all(&all(&all(&all(&all("x > 0")))));
    let validations: Vec<Value> = (0..100).map(|_| json!({"expression": costly})).collect();
    assert_eq!(counted(&rules(json!({"validations": validations})), &["Deny"]), [("deny".to_owned(), "out_of_budget")]);
    assert_eq!(error_type(None), "no_error");
}
