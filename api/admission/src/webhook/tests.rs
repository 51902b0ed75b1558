//! Table tests for configurations, requests and responses.

use std::sync::Arc;

use api_model::kind;
use api_model::request::UserInfo;
use serde_json::{Value, json};

use super::*;
use crate::request::Operation;
use crate::testing::Objects;
use api_model::message::Message;

fn webhook(fields: &Value) -> Webhook {
    let mut webhook = json!({"name": "a.b.c", "sideEffects": "None", "rules": [rule(&["*"], &["*"], "*")]});
    webhook.as_object_mut().expect("a map").extend(fields.as_object().expect("a map").clone());
    let configuration = json!({"metadata": {"name": "mine"}, "webhooks": [webhook]});
    Webhook::all_of(&configuration).next().expect("one")
}

fn rule(operations: &[&str], resources: &[&str], scope: &str) -> Value {
    json!({"operations": operations, "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources, "scope": scope})
}

struct RequestFixture {
    kind: &'static Arc<Kind>,
    operation: Operation,
    subresource: &'static str,
    namespace: &'static str,
    object: Value,
    old: Option<Value>,
}

fn request_for(group: &str, plural: &str, operation: Operation, subresource: &'static str) -> RequestFixture {
    let kind = kind::find(group, plural).expect("served");
    RequestFixture { kind, operation, subresource, namespace: if kind.namespaced { "here" } else { "" }, object: json!({}), old: None }
}

impl RequestFixture {
    fn with<T>(&mut self, then: impl FnOnce(&Request<'_>) -> T) -> T {
        then(&Request {
            operation: self.operation,
            kind: self.kind,
            subresource: self.subresource,
            namespace: self.namespace,
            name: "n",
            user: &UserInfo::new("jane", &["devs"]),
            object: Some(&mut self.object),
            old: self.old.as_ref(),
            dry_run: false,
        })
    }

    fn concerns(&mut self, webhook: &Webhook) -> bool {
        let (kind, view) = (self.kind, view());
        self.with(|request| webhook.concerns(request, &[kind], &view)).expect("the namespace is there").is_some()
    }
}

fn view() -> Objects {
    Objects::new([json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "here", "labels": {"team": "blue"}}})])
}

#[test]
fn rules_choose_by_operation_resource_and_scope() {
    use Operation::{Connect, Create, Delete, Update};
    for (rule, mut request, wanted) in [
        (rule(&["CREATE"], &["pods"], "*"), request_for("", "pods", Create, ""), true),
        (rule(&["CREATE"], &["pods"], "*"), request_for("", "pods", Update, ""), false),
        (rule(&["*"], &["pods"], "*"), request_for("", "pods", Delete, ""), true),
        (rule(&["*"], &["pods"], "*"), request_for("", "pods", Update, "status"), false),
        (rule(&["*"], &["pods/status"], "*"), request_for("", "pods", Update, "status"), true),
        (rule(&["*"], &["pods/*"], "*"), request_for("", "pods", Connect, "exec"), true),
        (rule(&["*"], &["pods/*"], "*"), request_for("", "pods", Create, ""), true),
        (rule(&["*"], &["*"], "*"), request_for("apps", "deployments", Create, ""), true),
        (rule(&["*"], &["*"], "*"), request_for("apps", "deployments", Update, "scale"), false),
        (rule(&["*"], &["*/scale"], "*"), request_for("apps", "deployments", Update, "scale"), true),
        (rule(&["*"], &["*/*"], "*"), request_for("apps", "deployments", Update, "scale"), true),
        (rule(&["*"], &["*"], "Cluster"), request_for("", "nodes", Create, ""), true),
        (rule(&["*"], &["*"], "Cluster"), request_for("", "namespaces", Create, ""), true),
        (rule(&["*"], &["*"], "Cluster"), request_for("", "pods", Create, ""), false),
        (rule(&["*"], &["*"], "Namespaced"), request_for("", "namespaces", Create, ""), false),
        (rule(&["*"], &["*"], "Namespaced"), request_for("", "pods", Create, ""), true),
    ] {
        let name = format!("{rule} {} {} {:?}", request.kind.plural, request.subresource, request.operation);
        assert_eq!(request.concerns(&webhook(&json!({"rules": [rule]}))), wanted, "{name}");
    }
}

#[test]
fn equivalent_forms_count_unless_the_match_is_to_be_exact() {
    let (core, events) = (kind::find("", "events").expect("served"), kind::find("events.k8s.io", "events").expect("served"));
    let rules = json!([{"operations": ["*"], "apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "resources": ["events"]}]);
    let concerns = |policy: &str| {
        let webhook = webhook(&json!({"rules": rules, "matchPolicy": policy}));
        request_for("", "events", Operation::Create, "").with(|request| webhook.concerns(request, &[core, events], &view())).expect("there")
    };
    assert_eq!((concerns("Equivalent"), concerns("Exact")), (Some(1), None));
}

#[test]
fn selectors_look_at_namespace_and_object() {
    let selector = |team: &str| json!({"matchLabels": {"team": team}});
    let labelled = |team: &str| json!({"metadata": {"labels": {"team": team}}});
    let mut pod = request_for("", "pods", Operation::Update, "");
    for (fields, object, old, wanted) in [
        (json!({"namespaceSelector": selector("blue")}), json!({}), None, true),
        (json!({"namespaceSelector": selector("red")}), json!({}), None, false),
        (json!({"objectSelector": selector("red")}), json!({}), None, false),
        (json!({"objectSelector": selector("red")}), labelled("red"), None, true),
        (json!({"objectSelector": selector("red")}), json!({}), Some(labelled("red")), true),
    ] {
        (pod.object, pod.old) = (object, old);
        assert_eq!(pod.concerns(&webhook(&fields)), wanted, "{fields}");
    }
    let mut node = request_for("", "nodes", Operation::Create, "");
    assert!(node.concerns(&webhook(&json!({"namespaceSelector": selector("red")}))), "what is in no namespace is not left out");
    let mut namespace = request_for("", "namespaces", Operation::Create, "");
    namespace.object = labelled("red");
    assert!(namespace.concerns(&webhook(&json!({"namespaceSelector": selector("red")}))), "a namespace goes by its own labels");
    assert!(!namespace.concerns(&webhook(&json!({"namespaceSelector": selector("blue")}))));
    let mut lost = request_for("", "pods", Operation::Create, "");
    lost.namespace = "gone";
    let refused = lost.with(|request| webhook(&json!({"namespaceSelector": selector("red")})).concerns(request, &[request.kind], &view()));
    assert_eq!(refused.expect_err("no such namespace").to_string(), "namespaces \"gone\" not found");
}

#[test]
fn a_review_says_what_is_about_to_happen() {
    let mut request = request_for("apps", "deployments", Operation::Update, "scale");
    let review = request.with(|request| {
        let (object, options) = (json!({"kind": "Scale"}), json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}));
        let (form, requested) = (request.kind, request.kind);
        let review = Review { uid: "u", version: "v1", request, form, requested, object: Some(object), old: None, options: Some(options) };
        review.into_value()
    });
    insta::assert_json_snapshot!(review);
}

#[test]
fn answers_of_another_kind_are_rejected() {
    let review = |response: Value| json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
    let read = |review: &Value, mutating| Answer::read(review, "u", "v1", mutating).map_err(|error| error.to_string());
    let patch = base64_of("[{\"op\": \"remove\", \"path\": \"/a\"}]");
    for (answer, mutating, wanted) in [
        (json!({"apiVersion": "admission.k8s.io/v1"}), true, "webhook response was absent"),
        (review(json!({"uid": "v", "allowed": true})), true, "expected response.uid=\"u\", got \"v\""),
        (
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v2", "response": {"uid": "u"}}),
            true,
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v2, Kind=AdmissionReview",
        ),
        (review(json!({"uid": "u", "patch": patch})), true, "webhook returned response.patch but not response.patchType"),
        (review(json!({"uid": "u", "patchType": "JSONPatch"})), true, "webhook returned response.patchType but not response.patch"),
        (
            review(json!({"uid": "u", "patch": patch, "patchType": "Merge"})),
            true,
            "webhook returned invalid response.patchType of \"Merge\"",
        ),
        (review(json!({"uid": "u", "patch": patch, "patchType": "JSONPatch"})), false, "validating webhook may not return response.patch"),
        (review(json!({"uid": "u", "patchType": "JSONPatch"})), false, "validating webhook may not return response.patchType"),
    ] {
        assert_eq!(read(&answer, mutating).expect_err("refused"), wanted);
    }
    let good = review(json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch", "warnings": ["w"]}));
    let answer = read(&good, true).expect("good");
    assert_eq!((answer.allowed, answer.warnings), (true, vec!["w".to_owned()]));
    assert_eq!(answer.patch, Some(json!([{"op": "remove", "path": "/a"}])));
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[test]
fn a_rejection_says_who_and_why() {
    for (status, code, message) in [
        (None, 400, "admission webhook \"a.b.c\" denied the request without explanation"),
        (Some(json!({"reason": "Nope"})), 400, "admission webhook \"a.b.c\" denied the request: Nope"),
        (Some(json!({"message": "no", "code": 403, "status": "Success"})), 403, "admission webhook \"a.b.c\" denied the request: no"),
        (Some(json!({"message": "no", "code": 200})), 400, "admission webhook \"a.b.c\" denied the request: no"),
    ] {
        let rejected = rejection("a.b.c", status);
        assert_eq!(
            (rejected["code"].as_i64(), rejected["message"].as_str(), rejected["status"].as_str()),
            (Some(code), Some(message), Some("Failure"))
        );
    }
}

#[test]
fn reinvocation_happens_once_after_a_later_change() {
    let (one, two) = (json!(1), json!(2));
    let mut rounds = Reinvocation::default();
    rounds.begin(Some(&one));
    rounds.invoked("early");
    rounds.changed();
    rounds.invoked("late");
    rounds.end(Some(&two));
    assert!(Reinvocation::goes_on([&mut rounds]));
    rounds.begin(Some(&two));
    assert!(rounds.is_due("early") && !rounds.is_due("late"), "late has seen it all");
    rounds.changed();
    assert!(!Reinvocation::goes_on([&mut rounds]), "there is no third round");
    let mut rounds = Reinvocation::default();
    rounds.changed();
    rounds.invoked("only");
    rounds.end(Some(&one));
    let mut others = Reinvocation::default();
    others.invoked("other");
    assert!(Reinvocation::goes_on([&mut rounds, &mut others]) && !rounds.is_due("only"), "its own change is no news to it");
    assert!(!others.is_due("other"), "nobody has told it of a change yet");
    rounds.begin(Some(&two));
    assert!(rounds.is_due("only"), "a plugin has changed it since");
    let mut quiet = Reinvocation::default();
    quiet.invoked("only");
    assert!(!Reinvocation::goes_on([&mut quiet]));
}

#[test]
fn a_service_goes_by_its_dns_name() {
    let at = |config: Value| webhook(&json!({"clientConfig": config})).endpoint.url();
    assert_eq!(at(json!({"url": "https://a/b"})), "https://a/b");
    assert_eq!(at(json!({"service": {"name": "s", "namespace": "n", "port": 8443, "path": "p"}})), "https://s.n.svc:8443/p");
    assert_eq!(at(json!({"service": {"name": "s", "namespace": "n"}})), "https://s.n.svc:443");
}

struct Nobody;

impl api_cel::Authorizer for Nobody {
    fn authorize(&self, _: &api_cel::Check) -> api_cel::Decision {
        api_cel::Decision::default()
    }
}

#[test]
fn conditions_decide_whom_a_webhook_concerns() {
    let (request, object) = (json!({"operation": "CREATE", "userInfo": {"username": "jane"}}), json!({"data": {"a": "1"}}));
    let activation = crate::policy::Activation {
        request: &request,
        object: Some(&object),
        old: None,
        namespace: None,
        authorizer: &Nobody,
        check: api_cel::Check::default(),
    };
    let missing = "expression 'object.data.b == 1' resulted in error: no such key: b";
    for (expressions, policy, wanted) in [
        (&[][..], "Fail", Ok(true)),
        (&["object.data.a == '1'", "request.userInfo.username == 'jane'"], "Fail", Ok(true)),
        (&["object.data.a == '2'", "object.data.b == 1"], "Fail", Ok(false)),
        (&["object.data.b == 1", "object.data.a == '2'"], "Fail", Ok(false)),
        (&["object.data.b == 1", "true"], "Fail", Err(missing)),
        (&["object.data.b == 1", "true"], "Ignore", Ok(false)),
        (&["authorizer.group('').resource('pods').check('get').allowed()"], "Fail", Ok(false)),
    ] {
        let conditions: Vec<Value> =
            expressions.iter().enumerate().map(|(index, text)| json!({"name": format!("c{index}"), "expression": text})).collect();
        let webhook = webhook(&json!({"failurePolicy": policy, "matchConditions": conditions}));
        assert_eq!(webhook.has_conditions(), !expressions.is_empty());
        assert_eq!(webhook.wants(&activation), wanted.map_err(Message::from), "{expressions:?} {policy}");
    }
}
