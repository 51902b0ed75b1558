use serde_json::{Value, json};

use crate::tests::row;

#[test]
fn roles_show_when_they_were_made() {
    assert_eq!(row("rbac.authorization.k8s.io", "Role", json!({})), "x | 2024-01-02T10:30:00Z");
    assert_eq!(row("rbac.authorization.k8s.io", "ClusterRole", json!({})), "x | 2024-01-02T10:30:00Z");
}

#[test]
fn bindings_list_their_subjects_by_kind() {
    let binding = json!({
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"kind": "User", "name": "ann"}, {"kind": "Group", "name": "devs"}, {"kind": "User", "name": "bob"},
            {"kind": "ServiceAccount", "namespace": "kube-system", "name": "dns"},
        ],
    });
    let wanted = "x | ClusterRole/view | 90m | ann, bob | devs | kube-system/dns";
    assert_eq!(row("rbac.authorization.k8s.io", "RoleBinding", binding.clone()), wanted);
    assert_eq!(row("rbac.authorization.k8s.io", "ClusterRoleBinding", binding), wanted);
}

#[test]
fn signing_requests_tell_what_became_of_them() {
    let request = |conditions: &[&str], certificate: &str| {
        let conditions: Vec<Value> = conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let object = json!({
            "spec": {"signerName": "kubernetes.io/kubelet-serving", "username": "node", "expirationSeconds": 86400},
            "status": {"conditions": conditions, "certificate": certificate},
        });
        row("certificates.k8s.io", "CertificateSigningRequest", object)
    };
    let with = |condition: &str| format!("x | 90m | kubernetes.io/kubelet-serving | node | 24h | {condition}");
    assert_eq!(request(&[], ""), with("Pending"));
    assert_eq!(request(&["Approved"], "LS0t"), with("Approved,Issued"));
    assert_eq!(request(&["Approved", "Denied"], ""), with("Denied"));
    assert_eq!(request(&["Approved", "Failed"], ""), with("Approved,Failed"));
    assert_eq!(row("certificates.k8s.io", "ClusterTrustBundle", json!({})), "x | <none>");
}
