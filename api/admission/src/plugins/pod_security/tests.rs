use serde_json::json;

use super::*;
use crate::testing::{Ask, Objects, verdict};

fn one(context: Value) -> Value {
    json!({ "containers": [{ "name": "c", "securityContext": context }] })
}

/// A spec that passes the strictest level, with some fields replaced.
fn good(change: Value) -> Value {
    let mut spec = json!({
        "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": "c", "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } } }],
    });
    spec.as_object_mut().expect("map").extend(change.as_object().expect("map").clone());
    spec
}

fn broken(level: Level, spec: &Value) -> String {
    checks::broken(level, None, spec).to_string()
}

#[test]
fn baseline_refuses_what_leads_out_of_the_container() {
    let add = |list: Value| one(json!({ "capabilities": { "add": list } }));
    let two = json!({ "initContainers": [{ "name": "i", "securityContext": { "privileged": true } }], "containers": [{ "name": "c", "securityContext": { "privileged": true } }] });
    let ports = json!({ "containers": [{ "name": "a", "ports": [{ "hostPort": 80 }, { "containerPort": 1 }] }, { "name": "b", "ports": [{ "hostPort": 81 }] }] });
    for (spec, wanted) in [
        (one(json!({})), ""),
        (add(json!(["CHOWN", "NET_BIND_SERVICE"])), ""),
        (
            add(json!(["NET_ADMIN", "BPF"])),
            "non-default capabilities (container \"c\" must not include \"BPF\", \"NET_ADMIN\" in securityContext.capabilities.add)",
        ),
        (json!({ "hostNetwork": true, "hostIPC": true }), "host namespaces (hostNetwork=true, hostIPC=true)"),
        (json!({ "volumes": [{ "name": "v", "hostPath": { "path": "/" } }] }), "hostPath volumes (volume \"v\")"),
        (ports, "hostPort (containers \"a\", \"b\" use hostPorts 80, 81)"),
        (
            json!({ "containers": [{ "name": "a", "livenessProbe": { "httpGet": { "host": "10.0.0.1", "port": 1 } } }, { "name": "b", "lifecycle": { "preStop": { "tcpSocket": { "host": "x", "port": 1 } } } }] }),
            "probe or lifecycle host (containers \"a\", \"b\" use probe or lifecycle hosts \"10.0.0.1\", \"x\")",
        ),
        (two, "privileged (containers \"i\", \"c\" must not set securityContext.privileged=true)"),
        (one(json!({ "procMount": "Unmasked" })), "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")"),
        (
            one(json!({ "seLinuxOptions": { "type": "x", "user": "u" } })),
            "seLinuxOptions (container \"c\" set forbidden securityContext.seLinuxOptions: type \"x\"; user may not be set)",
        ),
        (
            json!({ "securityContext": { "seccompProfile": { "type": "Unconfined" } } }),
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            json!({ "securityContext": { "sysctls": [{ "name": "kernel.msgmax" }, { "name": "net.ipv4.tcp_syncookies" }] } }),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            one(json!({ "windowsOptions": { "hostProcess": true } })),
            "hostProcess (container \"c\" must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            one(json!({ "appArmorProfile": { "type": "Unconfined" } })),
            "forbidden AppArmor profile (container \"c\" must not set securityContext.appArmorProfile.type to \"Unconfined\")",
        ),
    ] {
        assert_eq!(broken(Level::Baseline, &spec), wanted);
        assert_eq!(broken(Level::Privileged, &spec), "");
    }
}

#[test]
fn restricted_asks_for_more() {
    assert_eq!(broken(Level::Restricted, &good(json!({}))), "");
    let context = |change: Value| {
        let mut spec = good(json!({}));
        let context = spec.pointer_mut("/containers/0/securityContext").and_then(Value::as_object_mut).expect("context");
        context.extend(change.as_object().expect("map").clone());
        spec
    };
    for (spec, wanted) in [
        (
            one(json!({})),
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false), \
             unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), \
             runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true), \
             seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        ),
        (context(json!({ "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] } })), ""),
        (
            context(json!({ "capabilities": { "drop": ["ALL"], "add": ["CHOWN"] } })),
            "unrestricted capabilities (container \"c\" must not include \"CHOWN\" in securityContext.capabilities.add)",
        ),
        (context(json!({ "runAsUser": 0 })), "runAsUser=0 (container \"c\" must not set runAsUser=0)"),
        (
            context(json!({ "runAsNonRoot": false })),
            "runAsNonRoot != true (container \"c\" must not set securityContext.runAsNonRoot=false)",
        ),
        (
            context(json!({ "seccompProfile": { "type": "Unconfined" } })),
            "seccompProfile (container \"c\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            good(
                json!({ "volumes": [{ "name": "v", "hostPath": { "path": "/" } }, { "name": "w", "nfs": {} }, { "name": "ok", "emptyDir": {} }] }),
            ),
            "restricted volume types (volumes \"v\", \"w\" use restricted volume types \"hostPath\", \"nfs\")",
        ),
        (
            good(json!({ "hostNetwork": true, "volumes": [{ "name": "v", "hostPath": { "path": "/" } }] })),
            "host namespaces (hostNetwork=true), restricted volume types (volume \"v\" uses restricted volume type \"hostPath\")",
        ),
    ] {
        assert_eq!(broken(Level::Restricted, &spec), wanted);
    }
}

fn namespace(labels: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "ns", "labels": labels } })
}

fn pod(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "ns" }, "spec": spec })
}

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const WARN: &str = "pod-security.kubernetes.io/warn";

#[test]
fn namespaces_say_what_holds() {
    let host = json!({ "hostNetwork": true });
    let ask = |labels: Value| Ask::create(pod("p", host.clone())).validate(&PodSecurity, &Objects::new([namespace(labels)]));
    assert_eq!(verdict(ask(json!({}))), "ok");
    let refused = "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    assert_eq!(verdict(ask(json!({ ENFORCE: "baseline" }))), refused);
    let versioned = verdict(ask(json!({ ENFORCE: "baseline", "pod-security.kubernetes.io/enforce-version": "v1.30" })));
    assert_eq!(versioned, refused.replace("latest", "v1.30"));
    let warned = ask(json!({ WARN: "baseline" })).expect("admitted");
    assert_eq!(warned.warnings, ["would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"]);
}

#[test]
fn templates_are_warned_of_only() {
    let view = Objects::new([namespace(json!({ ENFORCE: "baseline", WARN: "baseline" }))]);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d", "namespace": "ns" },
        "spec": { "template": { "spec": { "hostPID": true } } },
    });
    let outcome = Ask::create(deployment).validate(&PodSecurity, &view).expect("admitted");
    assert_eq!(outcome.warnings, ["would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"]);

    let template = json!({
        "metadata": { "annotations": { "container.apparmor.security.beta.kubernetes.io/c": "unconfined" } },
        "spec": { "containers": [{ "name": "c" }] },
    });
    let wrongs = "would violate PodSecurity \"baseline:latest\": forbidden AppArmor profile \
                  (container.apparmor.security.beta.kubernetes.io/c=\"unconfined\")";
    for (api_version, kind, body) in [
        ("v1", "PodTemplate", json!({ "template": template })),
        ("apps/v1", "ReplicaSet", json!({ "spec": { "template": template } })),
        ("batch/v1", "CronJob", json!({ "spec": { "jobTemplate": { "spec": { "template": template } } } })),
    ] {
        let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "x", "namespace": "ns" } });
        object.as_object_mut().expect("a map").extend(body.as_object().expect("a map").clone());
        let outcome = Ask::create(object).validate(&PodSecurity, &view).expect("admitted");
        assert_eq!(outcome.warnings, [wrongs], "{kind}");
    }
}

#[test]
fn a_running_pod_is_checked_again_only_when_what_runs_changes() {
    let view = Objects::new([namespace(json!({ ENFORCE: "baseline" }))]);
    let with = |image: &str, labels: Value| {
        let mut pod = pod("p", json!({ "hostPID": true, "containers": [{ "name": "c", "image": image }] }));
        pod["metadata"]["labels"] = labels;
        pod
    };
    let old = with("a", json!({}));
    assert_eq!(verdict(Ask::update(&old, with("a", json!({ "x": "y" }))).validate(&PodSecurity, &view)), "ok");
    assert!(verdict(Ask::update(&old, with("b", json!({}))).validate(&PodSecurity, &view)).contains("violates"));
    assert_eq!(verdict(Ask::update(&old, with("b", json!({}))).sub("status").validate(&PodSecurity, &view)), "ok");
}

#[test]
fn labels_are_checked() {
    let ask = |labels: Value| verdict(Ask::create(namespace(labels)).validate(&PodSecurity, &Objects::default()));
    assert_eq!(ask(json!({ ENFORCE: "restricted", "pod-security.kubernetes.io/enforce-version": "v1.25" })), "ok");
    assert_eq!(
        ask(json!({ ENFORCE: "loose" })),
        "Namespace \"ns\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"loose\": must be one of privileged, baseline, restricted"
    );
    assert!(ask(json!({ "pod-security.kubernetes.io/warn-version": "1.25" })).contains("must be \"latest\" or \"v1.x\""));
}

#[test]
fn raising_the_level_tells_of_pods_that_are_there() {
    let view = Objects::new([
        pod("a", json!({ "hostPID": true })),
        pod("b", json!({ "hostPID": true })),
        pod("c", json!({ "hostPID": true })),
        pod("d", one(json!({ "privileged": true }))),
        pod("fine", one(json!({}))),
    ]);
    let (old, new) = (namespace(json!({})), namespace(json!({ ENFORCE: "baseline" })));
    let outcome = Ask::update(&old, new.clone()).validate(&PodSecurity, &view).expect("admitted");
    let wanted = [
        "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\"",
        "a (and 2 other pods): host namespaces",
        "d: privileged",
    ];
    assert_eq!(outcome.warnings, wanted);
    assert!(Ask::update(&new, old).validate(&PodSecurity, &view).expect("admitted").warnings.is_empty(), "lowered");
}
