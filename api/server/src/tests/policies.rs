//! Admission policies, from creation to deletion.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::nodes::{node, upgraded, with_pod};
use super::*;
use crate::{AuditConfig, AuditLog, AuditPolicy};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn matching(group: &str, resource: &str) -> Value {
    json!({"resourceRules": [{"operations": ["*"], "apiGroups": [group], "apiVersions": ["*"], "resources": [resource]}]})
}

fn with(base: Value, more: &Value) -> Value {
    let mut fields = base;
    fields.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    fields
}

impl Cluster {
    async fn policy(&self, kind: &str, name: &str, spec: Value) -> Value {
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        let plural = kind.to_lowercase().replace("policy", "policies").replace("policiesbinding", "policybindings");
        self.post(&format!("{GROUP}/{plural}"), object).await.ok()
    }

    /// Creates a policy for ConfigMaps, and a binding with the same name.
    pub(super) async fn validating(&self, name: &str, spec: Value, binding: Value) {
        let spec = with(json!({"matchConstraints": matching("", "configmaps")}), &spec);
        self.policy("ValidatingAdmissionPolicy", name, spec).await;
        let binding = with(json!({"policyName": name, "validationActions": ["Deny"]}), &binding);
        self.policy("ValidatingAdmissionPolicyBinding", name, binding).await;
    }

    pub(super) async fn mutating(&self, name: &str, mutations: Value, more: Value) {
        let base = json!({"matchConstraints": matching("", "configmaps"), "reinvocationPolicy": "IfNeeded", "mutations": mutations});
        self.policy("MutatingAdmissionPolicy", name, with(base, &more)).await;
        self.policy("MutatingAdmissionPolicyBinding", name, json!({"policyName": name})).await;
    }
}

pub(super) fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

fn labelled(key: &str, value: &str) -> Value {
    apply(&format!("Object{{metadata: Object.metadata{{labels: {{'{key}': '{value}'}}}}}}"))
}

#[tokio::test]
async fn custom_resources_are_pruned_of_what_a_policy_adds() {
    let cluster = cluster().await;
    let mut definition = custom::definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["free"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    custom::define(&cluster, definition).await;
    let patches =
        "[JSONPatch{op: 'add', path: '/spec/unknown', value: true}, JSONPatch{op: 'add', path: '/spec/free', value: {'kept': 1}}]";
    cluster.mutating("p", json!([patch(patches)]), json!({"matchConstraints": matching("example.com", "widgets")})).await;
    let made = cluster.post(custom::WIDGETS, custom::widget("a", json!({"size": 1}))).await.ok();
    assert_eq!(made["spec"], json!({"size": 1, "color": "red", "free": {"kept": 1}}));
}

#[tokio::test]
async fn a_bound_policy_denies_until_the_binding_goes() {
    let cluster = cluster().await;
    let rule = json!({"validations": [{"expression": "object.data.key != 'value'", "message": "not this value"}]});
    cluster.validating("p", rule, json!({})).await;
    let refused = cluster.post(CONFIG_MAPS, config_map("c", json!({}))).await;
    let message = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not this value";
    assert_eq!(refused.refusal(), (422, format!("configmaps \"c\" is forbidden: {message}").as_str()));
    assert_eq!(refused.body["reason"], "Invalid");
    assert_eq!(refused.body["details"], json!({"name": "c", "kind": "configmaps", "causes": [{"message": message}]}));
    let counted = "apiserver_validating_admission_policy_check_total{enforcement_action=\"deny\",error_type=\"invalid_error\",policy=\"p\",policy_binding=\"p\"} 1";
    assert!(cluster.get("/metrics").await.ok().as_str().is_some_and(|text| text.lines().any(|line| line == counted)));
    cluster.request(Method::DELETE, &format!("{GROUP}/validatingadmissionpolicybindings/p"), "application/json", "").await.ok();
    cluster.config_map("c", json!({})).await;
}

#[tokio::test]
async fn deletions_and_updates_see_what_was_there() {
    let cluster = cluster().await;
    let rules = json!({"validations": [
        {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'", "message": "it is kept"},
        {"expression": "request.operation != 'UPDATE' || object.data.key == oldObject.data.key", "reason": "Forbidden", "message": "fixed"},
    ]});
    cluster.config_map("kept", json!({})).await;
    cluster.config_map("gone", json!({})).await;
    cluster.validating("p", rules, json!({})).await;
    let delete = |name: &str| format!("{CONFIG_MAPS}/{name}");
    let refused = cluster.request(Method::DELETE, &delete("kept"), "application/json", "").await;
    assert!(refused.refusal().1.ends_with("denied request: it is kept"), "{refused:?}");
    cluster.request(Method::DELETE, &delete("gone"), "application/json", "").await.ok();
    let changed = cluster.patch(&delete("kept"), "merge", json!({"data": {"key": "other"}})).await;
    assert_eq!((changed.refusal().0, &changed.body["reason"]), (403, &json!("Forbidden")));
    cluster.patch(&delete("kept"), "merge", json!({"data": {"more": "other"}})).await.ok();
}

#[tokio::test]
async fn a_policy_that_fails_refuses_unless_it_is_to_be_passed_over() {
    let cluster = cluster().await;
    let rule = |failure_policy: &str| json!({"failurePolicy": failure_policy, "validations": [{"expression": "object.spec.x == 1"}]});
    cluster.validating("ignored", rule("Ignore"), json!({})).await;
    cluster.config_map("one", json!({})).await;
    cluster.validating("strict", rule("Fail"), json!({})).await;
    let refused = cluster.post(CONFIG_MAPS, config_map("two", json!({}))).await;
    let why = "denied request: expression 'object.spec.x == 1' resulted in error: no such key: spec";
    assert!(refused.refusal().1.ends_with(why), "{refused:?}");
}

#[tokio::test]
async fn parameters_come_from_objects_that_bindings_name() {
    let cluster = cluster().await;
    let limit = |name: &str, max: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": {"limit": "yes", "max": max}}});
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "Secret"},
        "validations": [{"expression": "object.data.size(), true", "message": "x"}],
    });
    let bad = with(json!({"matchConstraints": matching("", "configmaps")}), &spec);
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"}, "spec": bad});
    let refused = cluster.post(&format!("{GROUP}/validatingadmissionpolicies"), object).await;
    assert!(refused.refusal().1.contains("spec.validations[0].expression: Invalid value"), "{refused:?}");
    assert!(refused.refusal().1.contains("compilation failed: ERROR: <input>:1:"), "{refused:?}");
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "Secret"},
        "validations": [{"expression": "object.data.key != params.metadata.labels.max",
            "messageExpression": "params.metadata.name + ' forbids it'"}],
    });
    let by_name = json!({"paramRef": {"name": "one", "parameterNotFoundAction": "Deny"}});
    cluster.validating("by-name", spec.clone(), by_name).await;
    let missing = cluster.post(CONFIG_MAPS, config_map("c", json!({}))).await;
    let why = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert!(missing.refusal().1.ends_with(why), "{missing:?}");
    let secrets = "/api/v1/namespaces/default/secrets";
    cluster.post(secrets, limit("one", "other")).await.ok();
    cluster.config_map("c", json!({})).await;
    let by_label = json!({"paramRef": {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Allow"}});
    cluster.validating("by-label", spec, by_label).await;
    cluster.config_map("d", json!({})).await;
    cluster.post(secrets, limit("two", "value")).await.ok();
    let refused = cluster.post(CONFIG_MAPS, config_map("e", json!({}))).await;
    assert!(refused.refusal().1.ends_with("'by-label' with binding 'by-label' denied request: two forbids it"), "{refused:?}");
}

#[tokio::test]
async fn a_kind_of_parameters_that_is_not_served_is_a_mistake() {
    let cluster = cluster().await;
    let spec = json!({"paramKind": {"apiVersion": "example.com/v1", "kind": "Limit"}, "validations": [{"expression": "true"}]});
    cluster.validating("p", spec, json!({"paramRef": {"name": "a", "parameterNotFoundAction": "Allow"}})).await;
    let refused = cluster.post(CONFIG_MAPS, config_map("c", json!({}))).await;
    let why = "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: \
               failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'";
    assert!(refused.refusal().1.ends_with(why), "{refused:?}");
}

#[tokio::test]
async fn expressions_ask_the_authorizer_for_who_asks() {
    let cluster = cluster().await;
    let rule = json!({"validations": [{"expression": "authorizer.requestResource.check('approve').allowed()", "message": "no approver"}]});
    cluster.validating("p", rule, json!({})).await;
    cluster.config_map("by-admin", json!({})).await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let meta = |kind: &str, name: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
    let rules = json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]});
    cluster.post(&format!("{rbac}/clusterroles"), with(meta("ClusterRole", "makers"), &rules)).await.ok();
    let to = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "makers"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    cluster.post(&format!("{rbac}/clusterrolebindings"), with(meta("ClusterRoleBinding", "makers"), &to)).await.ok();
    let jane = cluster.user("jane", &["system:authenticated"]);
    let body = config_map("by-jane", json!({})).to_string();
    let request = Request::post(CONFIG_MAPS).header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).expect("a request");
    let refused = json_of(send(&jane, request).await).await;
    assert!(refused.refusal().1.ends_with("denied request: no approver"), "{refused:?}");
}

#[tokio::test]
async fn parameters_must_be_readable_for_who_names_them() {
    let cluster = cluster().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let meta = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "policies"}});
    let rules = json!({"rules": [{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}]});
    cluster.post(&format!("{rbac}/clusterroles"), with(meta("ClusterRole"), &rules)).await.ok();
    let to = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "policies"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    cluster.post(&format!("{rbac}/clusterrolebindings"), with(meta("ClusterRoleBinding"), &to)).await.ok();
    let jane = cluster.user("jane", &["system:authenticated"]);
    let post = |kind: &str, plural: &str, spec: Value| {
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "p"}, "spec": spec});
        let request = Request::post(format!("{GROUP}/{plural}")).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(object.to_string())).expect("a request");
        let jane = &jane;
        async move { json_of(send(jane, request).await).await }
    };
    let spec =
        |kind: Value| json!({"matchConstraints": matching("", "configmaps"), "validations": [{"expression": "true"}], "paramKind": kind});
    let (policy, policies) = ("ValidatingAdmissionPolicy", "validatingadmissionpolicies");
    let refused = post(policy, policies, spec(json!({"apiVersion": "v1", "kind": "Secret"}))).await;
    let why = "spec.paramKind: Forbidden: user jane must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)";
    assert!(refused.refusal().1.ends_with(why), "{refused:?}");
    post(policy, policies, spec(Value::Null)).await.ok();
    let reference = json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}});
    let refused = post("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", reference).await;
    let why = "spec.paramRef: Forbidden: user jane does not have \"get\" permission on the object referenced by paramRef";
    assert!(refused.refusal().1.ends_with(why), "{refused:?}");
}

#[tokio::test]
async fn warnings_reach_the_client_and_failures_the_audit_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("audit.log");
    let policy = AuditPolicy::parse("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}").expect("a good policy");
    let log = AuditLog { path: path.clone(), max_age_days: 0, max_backups: 0, max_size_mb: 100 };
    let config = Config { audit: Some(AuditConfig { policy, log }), ..config() };
    let cluster = cluster_with(config, Arc::new(MemoryStore::new())).await;
    let spec = json!({"validations": [{"expression": "false", "message": "mind this"}],
        "auditAnnotations": [{"key": "who", "valueExpression": "'by ' + request.userInfo.username"}]});
    cluster.validating("p", spec, json!({"validationActions": ["Warn", "Audit"]})).await;
    let made = cluster.post(CONFIG_MAPS, config_map("c", json!({}))).await;
    let warning = made.headers.get("warning").and_then(|warning| warning.to_str().ok()).unwrap_or_default().to_owned();
    assert_eq!(warning, "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': mind this\"");
    made.ok();
    cluster.server.app().audit.as_ref().expect("audit is on").flush().await;
    let text = std::fs::read_to_string(&path).expect("the log");
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let matching = events.filter(|event| event["objectRef"]["resource"] == "configmaps" && event["objectRef"]["name"] == "c");
    let annotations = matching.map(|event| event["annotations"].clone()).next_back().expect("recorded");
    assert_eq!(annotations["p/who"], "by admin");
    let failure = annotations["validation.policy.admission.k8s.io/validation_failure"].as_str().expect("a text").to_owned();
    assert_eq!(serde_json::from_str::<Value>(&failure).expect("JSON")[0]["message"], "mind this");
}

#[tokio::test]
async fn mutating_policies_change_objects_by_both_kinds_of_patches() {
    let cluster = cluster().await;
    let escaped = "[JSONPatch{op: 'test', path: '/data/key', value: 'value'}, \
                    JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: object.metadata.name}]";
    let untested = "[JSONPatch{op: 'test', path: '/data/key', value: 'other'}, JSONPatch{op: 'remove', path: '/data/key'}]";
    cluster.mutating("p", json!([labelled("made", "here"), patch(escaped), patch(untested)]), json!({})).await;
    let made = cluster.config_map("c", json!({"own": "1"})).await;
    assert_eq!(made["metadata"]["labels"], json!({"own": "1", "made": "here", "a/b": "c"}));
    assert_eq!(made["data"], json!({"key": "value"}), "a patch whose test fails changes nothing");
    let counted = "apiserver_mutating_admission_policy_check_total{error_type=\"no_error\",policy=\"p\",policy_binding=\"p\"} ";
    assert!(cluster.get("/metrics").await.ok().as_str().is_some_and(|text| text.lines().any(|line| line.starts_with(counted))));
}

/// The options of a connection are an object like others, but they have no schema for a merge.
#[tokio::test]
async fn a_patch_changes_what_a_connection_asks_for() {
    let cluster = cluster().await;
    with_pod(&cluster, node().await).await;
    let connecting = |resource: &str| json!({"matchConstraints": {"resourceRules": [{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}]}});
    let longer = "[JSONPatch{op: 'add', path: '/command/-', value: '-l'}, JSONPatch{op: 'remove', path: '/stdin'}]";
    cluster.mutating("exec", json!([patch(longer)]), connecting("pods/exec")).await;
    let (mut stream, head) = upgraded(&cluster, &format!("{PODS}/p/exec?command=ls&stdin=true&stdout=true")).await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    stream.write_all(b"hello").await.expect("written");
    let mut echoed = String::new();
    stream.read_to_string(&mut echoed).await.expect("read");
    assert_eq!(echoed, "/exec/default/p/c?output=1&command=ls&command=-lhello");
    let elsewhere = "[JSONPatch{op: 'replace', path: '/path', value: '/other' + object.path}]";
    cluster.mutating("proxy", json!([patch(elsewhere)]), connecting("nodes/proxy")).await;
    assert_eq!(cluster.get("/api/v1/nodes/n1/proxy/stats?a=b").await.ok(), "/other/stats?a=b");
    cluster.mutating("applies", json!([apply("Object{container: 'c'}")]), connecting("pods/attach")).await;
    let refused = cluster.get(&format!("{PODS}/p/attach?stdout=true")).await;
    let why = "policy 'applies' with binding 'applies' denied request: error applying patch: failed to convert patch object to typed object: \
               no corresponding type for /v1, Kind=PodAttachOptions";
    assert_eq!(refused.refusal(), (403, why));
}

#[tokio::test]
async fn what_a_mutating_policy_makes_goes_by_the_rules() {
    let cluster = cluster().await;
    let deployments = json!({"matchConstraints": matching("apps", "deployments")});
    let sidecar = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{\
                   containers: [Object.spec.template.spec.containers{name: 'sidecar', image: 'i'}]}}}}";
    cluster.mutating("p", json!([apply(sidecar)]), deployments.clone()).await;
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = |name: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}})
    };
    let made = cluster.post(DEPLOYMENTS, deployment("one")).await.ok();
    let containers = &made["spec"]["template"]["spec"]["containers"];
    assert_eq!((&containers[1]["name"], &containers[1]["terminationMessagePolicy"]), (&json!("sidecar"), &json!("File")));
    let atomic = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{\
                  containers: [Object.spec.template.spec.containers{name: 'c', command: ['x']}]}}}}";
    cluster.mutating("q", json!([apply(atomic)]), deployments.clone()).await;
    let refused = cluster.post(DEPLOYMENTS, deployment("two")).await;
    let why = "policy 'q' with binding 'q' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, \
               maps or structs: .spec.template.spec.containers[0].command";
    assert_eq!(refused.refusal(), (403, why));
    cluster.request(Method::DELETE, &format!("{GROUP}/mutatingadmissionpolicybindings/q"), "application/json", "").await.ok();
    cluster.mutating("r", json!([patch("[JSONPatch{op: 'replace', path: '/spec/replicas', value: -1}]")]), deployments).await;
    let invalid = cluster.post(DEPLOYMENTS, deployment("three")).await;
    assert!(invalid.refusal().1.contains("spec.replicas: Invalid value: -1"), "{invalid:?}");
}

/// `a` runs before `b` and depends on a change of `b`, so it runs a second time.
#[tokio::test]
async fn reinvocation_follows_a_change() {
    let cluster = cluster().await;
    let seen = "Object{metadata: Object.metadata{annotations: {'seen': has(object.metadata.labels) && 'late' in object.metadata.labels ? 'yes' : 'no'}}}";
    cluster.mutating("a", json!([apply(seen)]), json!({})).await;
    cluster.mutating("b", json!([labelled("late", "1")]), json!({"reinvocationPolicy": "Never"})).await;
    let made = cluster.config_map("c", json!({})).await;
    assert_eq!(made["metadata"]["annotations"]["seen"], "yes");
    let never = json!({"reinvocationPolicy": "Never"});
    let patch = json!({"spec": never});
    cluster.patch(&format!("{GROUP}/mutatingadmissionpolicies/a"), "merge", patch).await.ok();
    let made = cluster.config_map("d", json!({})).await;
    assert_eq!(made["metadata"]["annotations"]["seen"], "no");
}

#[tokio::test]
async fn policies_do_not_apply_to_policies() {
    let cluster = cluster().await;
    let everything = json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]});
    let spec = json!({"matchConstraints": everything, "validations": [{"expression": "false", "message": "nothing at all"}]});
    cluster.validating("p", spec, json!({})).await;
    let refused = cluster.post(CONFIG_MAPS, config_map("c", json!({}))).await;
    assert!(refused.refusal().1.ends_with("nothing at all"), "{refused:?}");
    cluster.request(Method::DELETE, &format!("{GROUP}/validatingadmissionpolicies/p"), "application/json", "").await.ok();
    cluster.config_map("c", json!({})).await;
}

/// Policies that do not match a request cost almost nothing: the rules are checked before anything else.
#[tokio::test]
async fn a_hundred_policies_about_others_are_passed_by() {
    let cluster = cluster().await;
    let secrets = json!({"matchConstraints": matching("", "secrets"), "validations": [{"expression": "object.nothing == 1"}]});
    for at in 0..100 {
        cluster.validating(&format!("p{at}"), secrets.clone(), json!({})).await;
    }
    cluster.config_map("warm", json!({})).await;
    let app = cluster.server.app();
    let hooks = app.writes.admission.policies.validating_for_tests();
    assert_eq!(hooks.len(), 100);
    assert!(Arc::ptr_eq(&hooks, &app.writes.admission.policies.validating_for_tests()), "nothing is compiled twice");
    cluster.validating("last", secrets, json!({})).await;
    let later = app.writes.admission.policies.validating_for_tests();
    let reused = hooks.iter().filter(|hook| later.iter().any(|other| Arc::ptr_eq(&hook.policy, &other.policy))).count();
    assert_eq!((later.len(), reused), (101, 100), "what did not change is kept");
}
