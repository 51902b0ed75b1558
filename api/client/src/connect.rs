//! Making a client: from an admin or component kubeconfig's values over TLS, or from the server's
//! own service in one process.

use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use thiserror::Error;

/// Why no client could be made.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("reading the kubeconfig {path}")]
    Kubeconfig {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// The client could not be built.
    #[error("building a client")]
    Client(#[source] kube::Error),
}

/// A client from a kubeconfig file, with its current context.
pub async fn from_kubeconfig(path: &Path) -> Result<kube::Client, ConnectError> {
    let failed = |source| ConnectError::Kubeconfig { path: path.to_owned(), source };
    let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)?;
    kube::Client::try_from(config).map_err(ConnectError::Client)
}

/// The certificate (PEM) by which a user is known in a kubeconfig file; none where there is no such file, user or
/// certificate in it.
pub fn certificate_in(path: &Path, user: &str) -> Option<String> {
    use base64::Engine as _;
    let kubeconfig = Kubeconfig::read_from(path).ok()?;
    let named = kubeconfig.auth_infos.into_iter().find(|named| named.name == user)?;
    let inline = named.auth_info?.client_certificate_data?;
    let pem = base64::engine::general_purpose::STANDARD.decode(inline).ok()?;
    String::from_utf8(pem).ok()
}

/// The kubeconfig of one cluster and one user known by certificate; all data inline.
pub fn kubeconfig(server: &str, user: &str, ca_pem: &str, certificate_pem: &str, key_pem: &str) -> Kubeconfig {
    let inline = |pem: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(pem)
    };
    let cluster = Cluster { server: Some(server.to_owned()), certificate_authority_data: Some(inline(ca_pem)), ..Cluster::default() };
    let auth = AuthInfo {
        client_certificate_data: Some(inline(certificate_pem)),
        client_key_data: Some(inline(key_pem).into()),
        ..AuthInfo::default()
    };
    let context = Context { cluster: "skiff".to_owned(), user: Some(user.to_owned()), ..Context::default() };
    Kubeconfig {
        clusters: vec![NamedCluster { name: "skiff".to_owned(), cluster: Some(cluster), other: Default::default() }],
        auth_infos: vec![NamedAuthInfo { name: user.to_owned(), auth_info: Some(auth), other: Default::default() }],
        contexts: vec![NamedContext { name: "skiff".to_owned(), context: Some(context), other: Default::default() }],
        current_context: Some("skiff".to_owned()),
        kind: Some("Config".to_owned()),
        api_version: Some("v1".to_owned()),
        ..Kubeconfig::default()
    }
}
