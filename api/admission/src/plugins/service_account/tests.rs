use super::*;
use crate::testing::{Ask, Objects, verdict};

fn account(name: &str, extra: Value) -> Value {
    let mut account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": "ns" } });
    account.as_object_mut().expect("map").extend(extra.as_object().expect("map").clone());
    account
}

fn view() -> Objects {
    Objects::new([
        account("default", json!({ "imagePullSecrets": [{ "name": "pull" }] })),
        account("quiet", json!({ "automountServiceAccountToken": false })),
        account(
            "strict",
            json!({ "secrets": [{ "name": "mine" }], "metadata": { "name": "strict", "namespace": "ns", "annotations": { ENFORCE_SECRETS: "true" } } }),
        ),
    ])
}

fn pod(spec: Value) -> Value {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{ "name": "c" }]);
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "ns" }, "spec": spec })
}

fn admitted(spec: Value) -> Value {
    Ask::create(pod(spec)).admit(&ServiceAccount, &view()).expect("admitted").object["spec"].clone()
}

#[test]
fn a_pod_gets_an_account_a_token_and_pull_secrets() {
    let mut spec = admitted(json!({ "initContainers": [{ "name": "i" }] }));
    let name = spec["volumes"][0]["name"].as_str().expect("a volume").to_owned();
    assert!(name.starts_with("kube-api-access-") && name.len() == "kube-api-access-".len() + 5, "{name}");
    for path in ["/volumes/0/name", "/containers/0/volumeMounts/0/name", "/initContainers/0/volumeMounts/0/name"] {
        assert_eq!(spec.pointer(path), Some(&json!(name)), "{path}");
        *spec.pointer_mut(path).expect("there") = "NAME".into();
    }
    insta::assert_json_snapshot!(spec);
}

#[test]
fn who_wants_no_token_gets_none() {
    let mount = json!([{ "name": "mine", "mountPath": MOUNT_PATH }]);
    for (what, spec, wanted) in [
        ("by default", json!({}), 1),
        ("the Pod says no", json!({ "automountServiceAccountToken": false }), 0),
        ("the account says no", json!({ "serviceAccountName": "quiet" }), 0),
        ("the Pod's word wins", json!({ "serviceAccountName": "quiet", "automountServiceAccountToken": true }), 1),
        ("something else is mounted there", json!({ "containers": [{ "name": "c", "volumeMounts": mount }] }), 0),
    ] {
        assert_eq!(json::list(&admitted(spec), "volumes").len(), wanted, "{what}");
    }
}

#[test]
fn a_second_pass_adds_nothing() {
    let once = admitted(json!({}));
    assert_eq!(admitted(once.clone()), once);
}

#[test]
fn the_older_field_is_heeded() {
    assert_eq!(admitted(json!({ "serviceAccount": "quiet" }))["serviceAccountName"], "quiet");
}

#[test]
fn an_unknown_account_is_rejected() {
    let verdict = verdict(Ask::create(pod(json!({ "serviceAccountName": "foo" }))).admit(&ServiceAccount, &view()));
    assert_eq!(verdict, "pods \"p\" is forbidden: error looking up service account ns/foo: serviceaccount \"foo\" not found");
}

#[test]
fn only_the_default_account_is_worth_a_wait() {
    let refused =
        |name: &str| Ask::create(pod(json!({ "serviceAccountName": name }))).admit(&ServiceAccount, &Objects::default()).expect_err("none");
    let awaited = Awaited { resource: GroupResource::new("", "serviceaccounts"), namespace: "ns".to_owned(), name: "default".to_owned() };
    assert_eq!(refused("default").awaits(), Some(&awaited));
    assert_eq!(refused("other").awaits(), None);
}

#[test]
fn mirror_pods_refer_to_nothing() {
    let mirror = |spec: Value| {
        let mut pod = pod(spec);
        pod["metadata"]["annotations"] = json!({ pods::MIRROR: "x" });
        verdict(Ask::create(pod).admit(&ServiceAccount, &view()))
    };
    assert_eq!(mirror(json!({})), "ok");
    let refused = |what: &str| format!("pods \"p\" is forbidden: a mirror pod may not {what}");
    assert_eq!(mirror(json!({ "serviceAccountName": "default" })), refused("reference service accounts"));
    assert_eq!(mirror(json!({ "volumes": [{ "name": "v", "secret": { "secretName": "s" } }] })), refused("reference secrets"));
    assert_eq!(mirror(json!({ "volumes": [{ "name": "v", "configMap": { "name": "s" } }] })), refused("reference configmaps"));
    let token = json!({ "volumes": [{ "name": "v", "projected": { "sources": [{ "serviceAccountToken": { "path": "t" } }] } }] });
    assert_eq!(mirror(token), refused("use ServiceAccountToken volume projections"));
}

#[test]
fn a_strict_account_limits_secrets() {
    let ask = |mut spec: Value| {
        spec["serviceAccountName"] = "strict".into();
        verdict(Ask::create(pod(spec)).admit(&ServiceAccount, &view()))
    };
    assert_eq!(ask(json!({ "volumes": [{ "name": "v", "secret": { "secretName": "mine" } }] })), "ok");
    assert_eq!(
        ask(json!({ "volumes": [{ "name": "v", "secret": { "secretName": "other" } }] })),
        "pods \"p\" is forbidden: volume with secret.secretName=\"other\" is not allowed because service account strict does not reference that secret"
    );
    assert_eq!(
        ask(json!({ "imagePullSecrets": [{ "name": "x" }] })),
        "pods \"p\" is forbidden: imagePullSecrets[0].name=\"x\" is not allowed because service account strict does not reference that imagePullSecret"
    );
}

/// CVE-2024-3177 (`envFrom`), CVE-2023-2728 (ephemeral containers), and every other field that references a Secret.
#[test]
fn a_strict_accounts_secrets_cannot_be_used_by_a_detour() {
    let reference = |secret: &str| json!({ "name": "c", "envFrom": [{ "secretRef": { "name": secret } }] });
    let variable =
        |secret: &str| json!({ "name": "c", "env": [{ "name": "V", "valueFrom": { "secretKeyRef": { "name": secret, "key": "k" } } }] });
    let not_referenced = "is not allowed because service account strict does not reference that secret";
    let ask = |mut spec: Value| {
        spec["serviceAccountName"] = "strict".into();
        verdict(Ask::create(pod(spec)).validate(&ServiceAccount, &view()))
    };
    for (field, what) in [("initContainers", "init container"), ("containers", "container")] {
        assert_eq!(ask(json!({ field: [reference("mine"), variable("mine")] })), "ok");
        let wanted = format!("pods \"p\" is forbidden: {what} c with envFrom referencing secret.secretName=\"other\" {not_referenced}");
        assert_eq!(ask(json!({ field: [reference("other")] })), wanted);
    }
    let projected = |secret: &str| json!({ "volumes": [{ "name": "v", "projected": { "sources": [{ "secret": { "name": secret } }] } }] });
    assert_eq!(ask(projected("mine")), "ok");
    for volume in
        [projected("other"), json!({ "volumes": [{ "name": "v", "csi": { "driver": "d", "nodePublishSecretRef": { "name": "other" } } }] })]
    {
        assert_eq!(ask(volume), format!("pods \"p\" is forbidden: volume with secret.secretName=\"other\" {not_referenced}"));
    }
    let old = pod(json!({ "serviceAccountName": "strict" }));
    let later = |container: Value| {
        let new = pod(json!({ "serviceAccountName": "strict", "ephemeralContainers": [container] }));
        verdict(Ask::update(&old, new).sub("ephemeralcontainers").validate(&ServiceAccount, &view()))
    };
    assert_eq!((later(reference("mine")), later(variable("mine"))), ("ok".to_owned(), "ok".to_owned()));
    let refused = |how: &str| {
        format!("pods \"p\" is forbidden: ephemeral container c with {how} referencing secret.secretName=\"other\" {not_referenced}")
    };
    assert_eq!((later(reference("other")), later(variable("other"))), (refused("envFrom"), refused("envVar V")));
}
