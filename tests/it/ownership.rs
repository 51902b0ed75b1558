//! Owners of fields, as the real kubectl shows and uses them: server-side apply, its conflicts, and the ways to take
//! over fields.

use serde_json::Value;
use tests::{Cluster, Kubectl, Net, Ran};

const SERVER_SIDE: &str = "apply --server-side -f -";

#[test]
fn fields_are_owned() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    what_is_applied_is_owned(&kubectl);
    what_others_own_is_rejected_or_forced(&kubectl);
    client_side_apply_is_taken_over(&kubectl);
    a_scaled_deployment_has_another_owner(&kubectl);
}

fn config_map(name: &str, data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{{data}}}\n")
}

/// `MANAGER OPERATION/SUBRESOURCE` of each entry in `managedFields`.
fn owners(kubectl: &Kubectl<'_>, object: &str) -> Vec<String> {
    let entries = kubectl.json(&format!("get {object} --show-managed-fields"))["metadata"]["managedFields"].clone();
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let line = |entry: &Value| format!("{} {}/{}", text(entry, "manager"), text(entry, "operation"), text(entry, "subresource"));
    entries.as_array().map(|entries| entries.iter().map(line).collect()).unwrap_or_default()
}

#[track_caller]
fn refused(ran: &Ran, conflict: &str) {
    assert_eq!(ran.code, 1, "{ran}");
    assert!(
        ran.stderr.starts_with(&format!("error: {conflict}\nPlease review the fields above--they currently have other managers.")),
        "{ran}"
    );
}

fn what_is_applied_is_owned(kubectl: &Kubectl<'_>) {
    let applied = kubectl.with_input(SERVER_SIDE, &config_map("settings", "a: '1', b: '1'")).ok();
    assert_eq!(applied, "configmap/settings serverside-applied\n");
    assert_eq!(owners(kubectl, "configmap/settings"), ["kubectl Apply/"]);
    assert!(!kubectl.ok("get configmap settings -o yaml").contains("managedFields"));
    assert!(
        kubectl.ok("get configmap settings -o yaml --show-managed-fields").contains("      f:data:\n        f:a: {}\n        f:b: {}\n")
    );
    let version = kubectl.field("configmap/settings", "/metadata/resourceVersion");
    kubectl.with_input(SERVER_SIDE, &config_map("settings", "a: '1', b: '1'")).ok();
    assert_eq!(kubectl.field("configmap/settings", "/metadata/resourceVersion"), version);
    // A field that the manager leaves out is removed.
    kubectl.with_input(SERVER_SIDE, &config_map("settings", "a: '1'")).ok();
    assert_eq!(kubectl.field("configmap/settings", "/data"), serde_json::json!({"a": "1"}));
    let misspelt = kubectl.with_input(SERVER_SIDE, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndaat: {}\n").fails();
    let wanted = "Error from server: failed to create typed patch object (default/settings; /v1, Kind=ConfigMap): .daat: field not declared in schema\n";
    assert_eq!(misspelt, wanted);
}

fn what_others_own_is_rejected_or_forced(kubectl: &Kubectl<'_>) {
    let by_ci =
        |words: &str, data: &str| kubectl.with_input(&format!("{SERVER_SIDE} --field-manager=ci {words}"), &config_map("settings", data));
    refused(&by_ci("", "a: '2'"), "Apply failed with 1 conflict: conflict with \"kubectl\": .data.a");
    assert_eq!(kubectl.field("configmap/settings", "/data/a"), "1");
    by_ci("--force-conflicts", "a: '2'").ok();
    assert_eq!(owners(kubectl, "configmap/settings"), ["ci Apply/"]);
    kubectl.ok("patch configmap settings --type=merge -p {\"data\":{\"a\":\"3\",\"c\":\"3\"}}");
    assert_eq!(owners(kubectl, "configmap/settings"), ["kubectl-patch Update/"]);
    let both = "Apply failed with 2 conflicts: conflicts with \"kubectl-patch\" using v1:\n- .data.a\n- .data.c";
    refused(&by_ci("", "a: '4', c: '4'"), both);
}

fn client_side_apply_is_taken_over(kubectl: &Kubectl<'_>) {
    kubectl.apply(&config_map("moved", "a: '1', b: '1'")).ok();
    assert_eq!(owners(kubectl, "configmap/moved"), ["kubectl-client-side-apply Update/"]);
    let by_other = kubectl.with_input(&format!("{SERVER_SIDE} --field-manager=ci"), &config_map("moved", "a: '2'"));
    refused(&by_other, "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.a");
    kubectl.with_input(SERVER_SIDE, &config_map("moved", "a: '2', b: '1'")).ok();
    let owners = owners(kubectl, "configmap/moved");
    assert!(
        owners.contains(&"kubectl Apply/".to_owned()) && !owners.iter().any(|owner| owner.starts_with("kubectl-client-side")),
        "{owners:?}"
    );
    // So a field that the manager leaves out is removed, although client-side apply had set it.
    kubectl.with_input(SERVER_SIDE, &config_map("moved", "a: '2'")).ok();
    assert_eq!(kubectl.field("configmap/moved", "/data"), serde_json::json!({"a": "2"}));
}

/// Its Pods cannot run and need not.
const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: scaled}
spec:
  replicas: 1
  selector: {matchLabels: {app: scaled}}
  template:
    metadata: {labels: {app: scaled}}
    spec:
      nodeSelector: {no: where}
      containers: [{name: c, image: i}]
"#;

fn a_scaled_deployment_has_another_owner(kubectl: &Kubectl<'_>) {
    kubectl.with_input(SERVER_SIDE, DEPLOYMENT).ok();
    kubectl.until("deployment/scaled", "/status/replicas", 1);
    let owned = owners(kubectl, "deployment/scaled");
    assert!(owned.contains(&"kube-controller-manager Update/status".to_owned()), "{owned:?}");
    kubectl.ok("scale deployment/scaled --replicas=2");
    let owned = owners(kubectl, "deployment/scaled");
    let scaler = owned.iter().find_map(|owner| owner.strip_suffix(" Update/scale")).unwrap_or_else(|| panic!("{owned:?}"));
    let conflict =
        format!("Apply failed with 1 conflict: conflict with \"{scaler}\" with subresource \"scale\" using apps/v1: .spec.replicas");
    refused(&kubectl.with_input(SERVER_SIDE, DEPLOYMENT), &conflict);
    // When the manager no longer sets the number of replicas, the scaler's number stays.
    kubectl.with_input(SERVER_SIDE, &DEPLOYMENT.replace("  replicas: 1\n", "")).ok();
    assert_eq!(kubectl.field("deployment/scaled", "/spec/replicas"), 2);
    kubectl.with_input(&format!("{SERVER_SIDE} --force-conflicts"), DEPLOYMENT).ok();
    assert_eq!(kubectl.field("deployment/scaled", "/spec/replicas"), 1);
}
