//! What a node needs to join: the cluster's certificate authority, readable for everybody as in kubeadm. Also the
//! client authority, published for aggregated servers.

use api_auth::pki::FRONT_PROXY;
use api_model::kind::GroupResource;
use api_model::view::View as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::config::Config;
use crate::core::Core;
use api_wire::json;

/// The ConfigMap in `kube-system` with the authority of client certificates.
pub(crate) const PUBLISHED_AUTHORITY: &str = "extension-apiserver-authentication";

/// `kube-public/cluster-info` with the permission to read it.
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
    ]
}

/// `kube-system/extension-apiserver-authentication`: an aggregated server needs it to authenticate users, by a client
/// certificate or by the front proxy's headers. Authorities that other servers added stay.
pub(super) fn published_authority(core: &Core) -> Option<Value> {
    let pki = &core.config.pki;
    let stored = core.cache.get(&GroupResource::new("", "configmaps"), Some("kube-system"), PUBLISHED_AUTHORITY);
    let mut wanted = stored.as_deref().cloned().unwrap_or_else(
        || json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PUBLISHED_AUTHORITY, "namespace": "kube-system"}}),
    );
    let list = |text: &str| json!([text]).to_string();
    for (field, value) in [
        ("client-ca-file", pki.ca_pem().to_owned()),
        ("requestheader-allowed-names", list(FRONT_PROXY)),
        ("requestheader-client-ca-file", pki.front_proxy_ca_pem().to_owned()),
        ("requestheader-extra-headers-prefix", list("X-Remote-Extra-")),
        ("requestheader-group-headers", list("X-Remote-Group")),
        ("requestheader-uid-headers", list("X-Remote-Uid")),
        ("requestheader-username-headers", list("X-Remote-User")),
    ] {
        let known = json::text(&wanted, &["data", field]).to_owned();
        // Another server of this cluster may have its own authority for its front proxy.
        let value = match field.ends_with("-ca-file") && !known.is_empty() && !known.contains(value.trim()) {
            true => format!("{}\n{value}", known.trim_end()),
            false if field.ends_with("-ca-file") && !known.is_empty() => known,
            false => value,
        };
        json::set(&mut wanted, &["data", field], value);
    }
    (stored.as_deref() != Some(&wanted)).then_some(wanted)
}

/// A kubeconfig with the server and its authority, without a user.
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
