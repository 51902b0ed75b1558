//! Policies and bindings with their errors.

use crate::testing::{create_problems, kind, table, update_problems};

const GROUP: &str = "admissionregistration.k8s.io";
const RULES: &str = "resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]";

fn spec(fields: &str) -> String {
    format!("spec: {{matchConstraints: {{{RULES}}}, {fields}}}")
}

fn refused(plural: &str, cases: &[String]) {
    let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    insta::assert_snapshot!(format!("refused-{plural}"), table(&cases, |case| create_problems(kind(GROUP, plural), case)));
}

#[test]
fn validating_policies() {
    let rule = |validation: &str| spec(&format!("validations: [{validation}]"));
    let valid = "validations: [{expression: 'true'}]";
    let conditions = (0..65).map(|at| format!("{{name: c{at}, expression: 'true'}}")).collect::<Vec<_>>().join(", ");
    refused(
        "validatingadmissionpolicies",
        &[
            "spec: {}".to_owned(),
            format!("spec: {{matchConstraints: {{}}, failurePolicy: Sometimes, {valid}}}"),
            format!("spec: {{matchConstraints: {{matchPolicy: Some, {RULES}, objectSelector: {{matchLabels: {{'a b': c}}}}}}, {valid}}}"),
            "spec: {matchConstraints: {resourceRules: [{operations: [GET], apiGroups: [''], apiVersions: [v1], resources: [pods], resourceNames: [a, a, b/c]}]}, validations: [{expression: 'true'}]}".to_owned(),
            rule("{}"),
            rule("{expression: 'object.spec.'}"),
            rule("{expression: 'nothing > 1'}"),
            rule("{expression: 'object.spec.paused'}"),
            rule("{expression: 'variables.a == 1'}"),
            rule("{expression: 'params.a == 1'}"),
            rule("{expression: 'true', message: \"a\\nb\", reason: NotFound}"),
            rule("{expression: 'true', message: ' ', messageExpression: ' '}"),
            rule("{expression: 'true', messageExpression: '1'}"),
            rule("{expression: 'true', messageExpression: 'authorizer.path(\"/x\").check(\"get\").reason()'}"),
            spec(&format!("{valid}, paramKind: {{}}")),
            spec(&format!("{valid}, paramKind: {{apiVersion: a/b/c, kind: 1A}}")),
            spec(&format!("{valid}, paramKind: {{apiVersion: A_/1, kind: ConfigMap}}")),
            spec(&format!("{valid}, matchConditions: [{conditions}]")),
            spec(&format!("{valid}, matchConditions: [{{}}, {{name: a b, expression: '1'}}, {{name: c, expression: 'true'}}, {{name: c, expression: variables.x}}]")),
            spec(&format!("{valid}, variables: [{{}}, {{name: for, expression: '1'}}, {{name: a, expression: variables.b}}, {{name: b, expression: '1 +'}}]")),
            spec("auditAnnotations: [{key: a b, valueExpression: ' '}, {key: c, valueExpression: '1'}, {key: c, valueExpression: 'null'}]"),
        ],
    );
}

#[test]
fn mutating_policies() {
    let with = |mutation: &str| spec(&format!("reinvocationPolicy: Never, mutations: [{mutation}]"));
    refused(
        "mutatingadmissionpolicies",
        &[
            "spec: {}".to_owned(),
            spec("reinvocationPolicy: Often, mutations: [{}]"),
            with("{patchType: Merge}"),
            with("{patchType: JSONPatch, applyConfiguration: {expression: 'Object{}'}}"),
            with("{patchType: ApplyConfiguration, applyConfiguration: {}}"),
            with("{patchType: ApplyConfiguration, applyConfiguration: {expression: '1'}}"),
            with("{patchType: JSONPatch, jsonPatch: {expression: 'Object{}'}}"),
            "spec: {reinvocationPolicy: Never, matchConstraints: {resourceRules: [{operations: [DELETE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}, mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/a\"}]'}}]}".to_owned(),
        ],
    );
}

#[test]
fn bindings() {
    refused(
        "validatingadmissionpolicybindings",
        &[
            "spec: {}".to_owned(),
            "spec: {policyName: A, validationActions: [Deny, Warn, Deny, Shout]}".to_owned(),
            "spec: {policyName: a, validationActions: [Deny], paramRef: {}}".to_owned(),
            "spec: {policyName: a, validationActions: [Deny], paramRef: {name: a/b, selector: {}, parameterNotFoundAction: Maybe}}"
                .to_owned(),
            "spec: {policyName: a, validationActions: [Deny], matchResources: {matchPolicy: Some, resourceRules: [{}]}}".to_owned(),
            "spec: {policyName: a, validationActions: [Audit, Warn], paramRef: {name: p, parameterNotFoundAction: Allow}}".to_owned(),
        ],
    );
    assert_eq!(create_problems(kind(GROUP, "mutatingadmissionpolicybindings"), "spec: {policyName: a}"), "ok");
}

#[test]
fn conditions_that_do_not_change_are_not_looked_at_again() {
    let policies = kind(GROUP, "validatingadmissionpolicies");
    let bad = spec("validations: [{expression: 'true'}], matchConditions: [{name: a, expression: 'nothing'}]");
    let more = spec("validations: [{expression: 'false'}], matchConditions: [{name: a, expression: 'nothing'}]");
    assert_eq!(update_problems(policies, None, &bad, &more), "ok");
    let other = spec("validations: [{expression: 'true'}], matchConditions: [{name: a, expression: 'nobody'}]");
    assert!(update_problems(policies, None, &bad, &other).contains("undeclared reference to 'nobody'"));
}
