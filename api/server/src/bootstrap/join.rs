//! What a node needs to join: the cluster's certificate authority where anybody can read it, as
//! kubeadm has it; and where the client authority is for aggregated servers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::config::Config;

/// The ConfigMap in `kube-system` that says who signs clients' certificates.
pub(crate) const PUBLISHED_AUTHORITY: &str = "extension-apiserver-authentication";

/// `kube-public/cluster-info` with the permission to read it, and
/// `kube-system/extension-apiserver-authentication`.
pub(super) fn objects(config: &Config) -> Vec<Value> {
    let ca = config.pki.ca_pem();
    let role = "kubeadm:bootstrap-signer-clusterinfo";
    let group = "rbac.authorization.k8s.io";
    vec![
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
            "data": {"kubeconfig": kubeconfig(config, ca)},
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": role, "namespace": "kube-public"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}],
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": role, "namespace": "kube-public"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "system:anonymous"}],
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": PUBLISHED_AUTHORITY, "namespace": "kube-system"},
            "data": {"client-ca-file": ca},
        }),
    ]
}

/// A kubeconfig that knows the server and its authority but no user.
fn kubeconfig(config: &Config, ca: &str) -> String {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {}, "contexts": null, "current-context": "", "users": null,
        "clusters": [{
            "name": "",
            "cluster": {"certificate-authority-data": STANDARD.encode(ca), "server": format!("https://{}", config.advertise_address)},
        }],
    });
    serde_yaml::to_string(&kubeconfig).unwrap_or_default()
}
