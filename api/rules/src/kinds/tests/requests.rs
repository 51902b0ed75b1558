//! Kinds that configure how the server handles requests.

use super::*;

#[test]
fn webhook_configurations() {
    let hook = |fields: &str| format!("webhooks: [{{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], {fields}}}]");
    let at = |address: &str| hook(&format!("clientConfig: {{{address}}}"));
    let rule = |rule: &str| hook(&format!("clientConfig: {{url: 'https://a'}}, rules: [{rule}]"));
    let resources = |list: &str| rule(&format!("{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [{list}]}}"));
    let owned = [
        "webhooks: [{}]".to_owned(),
        "webhooks: [{name: a.b, sideEffects: Some, admissionReviewVersions: [v2, v2], failurePolicy: Maybe, matchPolicy: x, timeoutSeconds: 31, reinvocationPolicy: Often, clientConfig: {url: 'https://a/b'}}]".to_owned(),
        format!("{}, {}", at("url: 'https://a'").trim_end_matches(']'), at("url: 'https://a'").trim_start_matches("webhooks: [")),
        at("url: 'https://a', service: {name: s, namespace: n}"),
        at("url: 'http://me@/x?y#z'"),
        at("url: nowhere"),
        at("service: {port: 0, path: x}"),
        at("service: {name: s, namespace: n, port: 70000, path: /a//B/}"),
        hook("clientConfig: {url: 'https://a'}, matchConditions: [{name: x, expression: 'object.spec.a == 1'}]"),
        hook("clientConfig: {url: 'https://a'}, matchConditions: [{name: x, expression: 'object.'}, {name: x, expression: \"'a'\"}, {name: 'y z'}, {expression: params.a == 1}]"),
        hook(&format!("clientConfig: {{url: 'https://a'}}, matchConditions: [{}]", (0..65).map(|index| format!("{{name: c{index}, expression: 'true'}}")).collect::<Vec<_>>().join(", "))),
        hook("clientConfig: {url: 'https://a'}, objectSelector: {matchExpressions: [{key: a, operator: Is}]}"),
        rule("{}"),
        rule("{operations: ['*', CREATE, GET], apiGroups: ['*', ''], apiVersions: ['', '*'], resources: ['*', pods], scope: Everywhere}"),
        resources("'*/*', pods"),
        resources("pods/*, pods/status"),
        resources("'*/scale', deployments/scale"),
        resources("'*', pods/status"),
        resources("''"),
    ];
    let cases: Vec<&str> = owned.iter().map(String::as_str).collect();
    refused("admissionregistration.k8s.io", "mutatingwebhookconfigurations", &cases);
}

#[test]
fn flow_schemas() {
    let rules = |rules: &str| format!("spec: {{priorityLevelConfiguration: {{name: a}}, rules: [{rules}]}}");
    let subject =
        |subject: &str| rules(&format!("{{subjects: [{subject}], nonResourceRules: [{{verbs: ['*'], nonResourceURLs: ['*']}}]}}"));
    let user = "subjects: [{kind: User, user: {name: u}}]";
    let owned = [
        "spec: {}".to_owned(),
        "metadata: {name: exempt}\nspec: {priorityLevelConfiguration: {name: exempt}, matchingPrecedence: 1}".to_owned(),
        "spec: {priorityLevelConfiguration: {name: A}, matchingPrecedence: 1, distinguisherMethod: {type: ByMood}}".to_owned(),
        "spec: {priorityLevelConfiguration: {name: a}, matchingPrecedence: 10001}".to_owned(),
        rules("{}"),
        subject("{kind: Robot}"),
        subject("{kind: User, group: {name: g}}"),
        subject("{kind: ServiceAccount, serviceAccount: {name: '', namespace: N}}"),
        rules(&format!("{{{user}, resourceRules: [{{}}]}}")),
        rules(&format!("{{{user}, resourceRules: [{{verbs: [exec], apiGroups: ['*', ''], resources: ['*', pods], namespaces: [A]}}]}}")),
        rules(&format!("{{{user}, nonResourceRules: [{{verbs: ['*', get], nonResourceURLs: [a, /a//b, '/a*', '/a b', /]}}]}}")),
    ];
    refused("flowcontrol.apiserver.k8s.io", "flowschemas", &owned.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn priority_levels() {
    let queuing = |fields: &str| format!("spec: {{type: Limited, limited: {{limitResponse: {{type: Queue, queuing: {{{fields}}}}}}}}}");
    let owned = [
        "spec: {}".to_owned(),
        "spec: {type: Exempt}".to_owned(),
        "spec: {type: Limited, exempt: {}}".to_owned(),
        "metadata: {name: exempt}\nspec: {type: Exempt, limited: {}, exempt: {nominalConcurrencyShares: -1, lendablePercent: 101}}"
            .to_owned(),
        "metadata: {name: catch-all}\nspec: {type: Limited, limited: {nominalConcurrencyShares: 7, limitResponse: {type: Reject}}}"
            .to_owned(),
        "spec: {type: Limited, limited: {borrowingLimitPercent: -1, limitResponse: {type: Drop}}}".to_owned(),
        "spec: {type: Limited, limited: {limitResponse: {type: Queue}}}".to_owned(),
        "spec: {type: Limited, limited: {limitResponse: {type: Reject, queuing: {}}}}".to_owned(),
        queuing("queues: -1, handSize: -1, queueLengthLimit: -1"),
        queuing("queues: 4, handSize: 5"),
        queuing("queues: 10000001, handSize: 1"),
        queuing("queues: 512, handSize: 8"),
    ];
    refused("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", &owned.iter().map(String::as_str).collect::<Vec<_>>());
}
