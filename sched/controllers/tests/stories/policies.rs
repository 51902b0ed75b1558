//! What a policy's status reports about its expressions.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::support::{Cluster, from, until};

fn policy(expressions: &[&str]) -> ValidatingAdmissionPolicy {
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments", "daemonsets"]});
    let validations: Vec<Value> = expressions.iter().map(|expression| json!({"expression": expression})).collect();
    from(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "validations": validations,
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        },
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_are_checked_against_the_kinds_that_a_policy_matches() {
    let cluster = Cluster::start(|_| {}).await;
    let policies: Api<ValidatingAdmissionPolicy> = cluster.all();
    let first = policy(&["object.spec.replicas > 1", "params.data['x'] == object.metadata.name", "params.nothing == 1"]);
    policies.create(&PostParams::default(), &first).await.expect("a policy");
    let observed = async |generation: i64| {
        let all = until("the policy to be looked at", cluster.all::<ValidatingAdmissionPolicy>(), |all| {
            let status = all.get("p").and_then(|policy| policy.status.as_ref());
            status.is_some_and(|status| status.observed_generation == Some(generation))
        })
        .await;
        all["p"].clone()
    };
    let checked = observed(1).await;
    let warnings = checked.status.clone().and_then(|status| status.type_checking?.expression_warnings).expect("warnings");
    let written: Vec<(&str, &str)> = warnings.iter().map(|warning| (warning.field_ref.as_str(), warning.warning.as_str())).collect();
    assert_eq!(
        written[0],
        (
            "spec.validations[0].expression",
            "apps/v1, Kind=DaemonSet: ERROR: <input>:1:12: undefined field 'replicas'\n | object.spec.replicas > 1\n | ...........^\n"
        )
    );
    assert_eq!((written.len(), written[1].0), (2, "spec.validations[2].expression"));
    assert!(written[1].1.contains("/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'nothing'"), "{}", written[1].1);
    let owner = checked.managed_fields().iter().find(|entry| entry.subresource.as_deref() == Some("status")).expect("an owner");
    assert_eq!((owner.manager.as_deref(), owner.operation.as_deref()), (Some("validatingadmissionpolicy-status"), Some("Apply")));
    let better = json!({"spec": {"validations": [{"expression": "has(object.spec.selector)"}]}});
    policies.patch("p", &PatchParams::default(), &Patch::Merge(better)).await.expect("a better policy");
    let checked = observed(2).await;
    assert_eq!(checked.status.and_then(|status| status.type_checking?.expression_warnings), None);
    cluster.stop().await;
}
