//! Admission policies from the user's view: created, bound, enforced and deleted with kubectl.

use serde_json::Value;
use tests::{Cluster, Kubectl, eventually};

const AUDIT: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: Metadata, resources: [{group: '', resources: [configmaps]}]}\n";

#[test]
fn policies_are_in_force_where_they_are_bound() {
    let directory = tempfile::tempdir().expect("a directory");
    let (policy, log) = (directory.path().join("policy.yaml"), directory.path().join("audit.log"));
    std::fs::write(&policy, AUDIT).expect("written");
    let flags = [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let cluster = Cluster::up_with(&flags.each_ref().map(String::as_str));
    let kubectl = cluster.kubectl();
    mistakes_are_reported_at_once(&kubectl);
    doubts_are_reported_in_the_status(&kubectl);
    denied_until_the_binding_goes(&kubectl);
    warned_and_recorded(&kubectl, &log);
    parameters_by_name_and_by_label(&kubectl);
    parameters_of_a_kind_of_ones_own(&kubectl);
    failures_refuse_or_are_passed_over(&kubectl);
    objects_are_changed(&kubectl);
}

fn matching(group: &str, resource: &str) -> String {
    format!("{{resourceRules: [{{apiGroups: ['{group}'], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [{resource}]}}]}}")
}

fn policy(name: &str, spec: &str) -> String {
    let matched = matching("", "configmaps");
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: {name}}}\n\
         spec: {{matchConstraints: {matched}, {spec}}}\n"
    )
}

fn binding(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: {name}}}\n\
         spec: {{policyName: {name}, {spec}}}\n"
    )
}

fn end(kubectl: &Kubectl<'_>, name: &str) {
    kubectl.ok(&format!("delete validatingadmissionpolicybinding {name}"));
    kubectl.ok(&format!("delete validatingadmissionpolicy {name}"));
}

fn mistakes_are_reported_at_once(kubectl: &Kubectl<'_>) {
    let complaint = kubectl.apply(&policy("bad", "validations: [{expression: 'object.data.'}, {expression: nothing == 1}]")).fails();
    assert!(
        complaint.contains("spec.validations[0].expression: Invalid value: \"object.data.\": compilation failed: ERROR: <input>:1:"),
        "{complaint}"
    );
    assert!(complaint.contains("undeclared reference to 'nothing' (in container '')"), "{complaint}");
    let complaint = kubectl.apply(&binding("bad", "validationActions: [Deny, Warn]")).fails();
    assert!(complaint.contains("must not contain both Deny and Warn"), "{complaint}");
}

fn doubts_are_reported_in_the_status(kubectl: &Kubectl<'_>) {
    kubectl.apply(&policy("doubtful", "validations: [{expression: object.date.size() < 3}, {expression: object.data.size() < 3}]")).ok();
    kubectl.until("validatingadmissionpolicy/doubtful", "/status/observedGeneration", 1);
    let warnings = kubectl.field("validatingadmissionpolicy/doubtful", "/status/typeChecking/expressionWarnings");
    let warning = "/v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'date'\n | object.date.size() < 3\n | ......^\n";
    assert_eq!(warnings, serde_json::json!([{"fieldRef": "spec.validations[0].expression", "warning": warning}]));
    let described = kubectl.ok("describe validatingadmissionpolicy doubtful");
    assert!(described.contains("Expression Warnings:") && described.contains("undefined field 'date'"), "{described}");
    kubectl.ok("delete validatingadmissionpolicy doubtful");
}

fn denied_until_the_binding_goes(kubectl: &Kubectl<'_>) {
    kubectl.ok("create namespace strict");
    kubectl.ok("label namespace strict strict=yes");
    kubectl.apply(&policy("colours", "validations: [{expression: \"object.data.colour != 'red'\", message: red is taken}]")).ok();
    kubectl.ok("create configmap unbound --from-literal=colour=red -n strict");
    let bound = "validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {strict: 'yes'}}}";
    kubectl.apply(&binding("colours", bound)).ok();
    let refused = kubectl.fails("create configmap rust --from-literal=colour=red -n strict");
    let wanted = "ValidatingAdmissionPolicy 'colours' with binding 'colours' denied request: red is taken";
    assert!(refused.contains(wanted), "{refused}");
    let dry = kubectl.fails("create configmap rust --from-literal=colour=red -n strict --dry-run=server");
    assert!(dry.contains(wanted), "{dry}");
    let patched = kubectl.fails("patch configmap unbound -n strict -p {\"data\":{\"more\":\"1\"}}");
    assert!(patched.contains(wanted), "{patched}");
    kubectl.ok("create configmap rust --from-literal=colour=red");
    kubectl.ok("create configmap sky --from-literal=colour=blue -n strict");
    let row = kubectl.ok("get validatingadmissionpolicy colours --no-headers");
    assert_eq!(row.split_whitespace().take(3).collect::<Vec<_>>(), ["colours", "1", "<unset>"], "{row}");
    kubectl.until("validatingadmissionpolicy/colours", "/status/observedGeneration", 1);
    kubectl.ok("delete validatingadmissionpolicybinding colours");
    kubectl.ok("create configmap rust --from-literal=colour=red -n strict");
    kubectl.ok("delete validatingadmissionpolicy colours");
}

fn warned_and_recorded(kubectl: &Kubectl<'_>, log: &std::path::Path) {
    let spec = "validations: [{expression: 'false', messageExpression: \"'mind ' + object.metadata.name\"}], \
                auditAnnotations: [{key: who, valueExpression: request.userInfo.username}]";
    kubectl.apply(&format!("{}{}", policy("warns", spec), binding("warns", "validationActions: [Warn, Audit]"))).ok();
    let made = kubectl.run(&["create", "configmap", "warned"]);
    let warning = "Warning: Validation failed for ValidatingAdmissionPolicy 'warns' with binding 'warns': mind warned\n";
    assert_eq!((made.code, made.stderr.as_str()), (0, warning));
    let annotations = eventually("the creation in the audit log", || {
        let text = std::fs::read_to_string(log).expect("the audit log");
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is_it = |event: &Value| event["objectRef"]["name"] == "warned" && event["stage"] == "ResponseComplete";
        let found = events.map(|event| (is_it(&event), event)).find(|(is_it, _)| *is_it);
        found.map(|(_, event)| event["annotations"].clone()).ok_or_else(|| text.clone())
    });
    assert!(annotations["warns/who"].as_str().is_some_and(|who| !who.is_empty()), "{annotations}");
    let failure = annotations["validation.policy.admission.k8s.io/validation_failure"].as_str().expect("a text");
    let failure: Value = serde_json::from_str(failure).expect("JSON");
    assert_eq!(failure[0]["message"], "mind warned");
    assert_eq!(failure[0]["binding"], "warns");
    end(kubectl, "warns");
}

fn parameters_by_name_and_by_label(kubectl: &Kubectl<'_>) {
    let limit = |name: &str, max: u32| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{limits: 'yes'}}}}\ndata: {{max: '{max}'}}\n")
    };
    kubectl.apply(&format!("{}{}", limit("wide", 5), limit("narrow", 2))).ok();
    let spec = "paramKind: {apiVersion: v1, kind: ConfigMap}, variables: [{name: count, expression: size(object.data)}], \
                validations: [{expression: variables.count <= int(params.data.max), messageExpression: \"'at most ' + params.data.max\"}]";
    let by_name = "validationActions: [Deny], paramRef: {name: wide, namespace: default, parameterNotFoundAction: Deny}";
    kubectl.apply(&format!("{}{}", policy("limits", spec), binding("limits", by_name))).ok();
    let three = "--from-literal=a=1 --from-literal=b=1 --from-literal=c=1";
    kubectl.ok(&format!("create configmap three {three}"));
    let by_label = "validationActions: [Deny], \
                    paramRef: {selector: {matchLabels: {limits: 'yes'}}, namespace: default, parameterNotFoundAction: Allow}";
    kubectl.apply(&binding("limits", by_label)).ok();
    let refused = kubectl.fails(&format!("create configmap more {three}"));
    assert!(refused.contains("denied request: at most 2"), "{refused}");
    let missing = "validationActions: [Deny], paramRef: {name: nowhere, namespace: default, parameterNotFoundAction: Deny}";
    kubectl.apply(&binding("limits", missing)).ok();
    let refused = kubectl.fails("create configmap more");
    let why = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert!(refused.contains(why), "{refused}");
    end(kubectl, "limits");
}

fn parameters_of_a_kind_of_ones_own(kubectl: &Kubectl<'_>) {
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: rules.example.com}\n\
        spec: {group: example.com, scope: Cluster, names: {plural: rules, kind: Rule}, versions: [{name: v1, served: true, storage: true, \
        schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {prefix: {type: string}}}}}}}]}\n";
    kubectl.apply(definition).ok();
    kubectl.ok("wait --for=condition=Established crd/rules.example.com --timeout=30s");
    let rule = "apiVersion: example.com/v1\nkind: Rule\nmetadata: {name: names}\nspec: {prefix: team-}\n";
    eventually("the new kind to be served", || {
        let applied = kubectl.apply(rule);
        if applied.succeeded() { Ok(()) } else { Err(applied.stderr) }
    });
    let spec = "paramKind: {apiVersion: example.com/v1, kind: Rule}, \
                validations: [{expression: object.metadata.name.startsWith(params.spec.prefix)}]";
    let bound = "validationActions: [Deny], paramRef: {name: names, parameterNotFoundAction: Deny}";
    kubectl.apply(&format!("{}{}", policy("names", spec), binding("names", bound))).ok();
    let refused = kubectl.fails("create configmap other");
    assert!(refused.contains("failed expression: object.metadata.name.startsWith(params.spec.prefix)"), "{refused}");
    kubectl.ok("create configmap team-map");
    end(kubectl, "names");
}

fn failures_refuse_or_are_passed_over(kubectl: &Kubectl<'_>) {
    let spec = |failure_policy: &str| format!("failurePolicy: {failure_policy}, validations: [{{expression: object.spec.size == 1}}]");
    kubectl.apply(&format!("{}{}", policy("fails", &spec("Ignore")), binding("fails", "validationActions: [Deny]"))).ok();
    kubectl.ok("create configmap passed");
    kubectl.apply(&policy("fails", &spec("Fail"))).ok();
    let refused = kubectl.fails("create configmap stopped");
    assert!(refused.contains("expression 'object.spec.size == 1' resulted in error: no such key: spec"), "{refused}");
    end(kubectl, "fails");
}

fn objects_are_changed(kubectl: &Kubectl<'_>) {
    let matched = matching("", "configmaps");
    let policy = |name: &str, mutation: &str| {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {{name: {name}}}\n\
             spec:\n  matchConstraints: {matched}\n  reinvocationPolicy: IfNeeded\n  mutations:\n{mutation}\
             ---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {{name: {name}}}\n\
             spec: {{policyName: {name}}}\n"
        )
    };
    let labels = "  - patchType: ApplyConfiguration\n    applyConfiguration:\n      expression: >-\n        \
                  Object{metadata: Object.metadata{labels: {\"made-by\": request.userInfo.username.split(\":\")[0]}}}\n";
    let data = "  - patchType: JSONPatch\n    jsonPatch:\n      expression: >-\n        \
                has(object.data) ? [JSONPatch{op: \"add\", path: \"/data/\" + jsonpatch.escapeKey(\"more\"), value: \"c\"}] : []\n";
    kubectl.apply(&format!("{}---\n{}", policy("labels", labels), policy("data", data))).ok();
    kubectl.ok("create configmap changed --from-literal=x=y");
    assert!(kubectl.field("configmap/changed", "/metadata/labels/made-by").as_str().is_some_and(|who| !who.is_empty()));
    assert_eq!(kubectl.field("configmap/changed", "/data/more"), "c");
    kubectl.ok("delete mutatingadmissionpolicybinding labels data");
    kubectl.ok("create configmap as-it-was --from-literal=x=y");
    assert_eq!(kubectl.field("configmap/as-it-was", "/metadata/labels"), Value::Null);
}
