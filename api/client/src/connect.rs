//! Making a client: from an admin or component kubeconfig's values over TLS, or from the server's
//! own service in one process.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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

/// A user of a kubeconfig whose certificate and key stand in the file itself. It cannot be shown: a key does not belong in
/// a log.
pub struct InlineUser {
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// How certificate and key are written.
    written: [String; 2],
}

/// The users of a kubeconfig whose certificates and keys stand in its text; none where it is no kubeconfig.
pub fn inline_users(content: &str) -> Vec<InlineUser> {
    let users = Kubeconfig::from_yaml(content).map(|kubeconfig| kubeconfig.auth_infos).unwrap_or_default();
    users.into_iter().filter_map(|named| InlineUser::of(&named.auth_info?)).collect()
}

impl InlineUser {
    fn of(user: &AuthInfo) -> Option<Self> {
        let user = serde_json::to_value(user).ok()?;
        let data = |field: &str| Some(user.get(field)?.as_str()?.trim().to_owned()).filter(|data| !data.is_empty());
        let written = [data("client-certificate-data")?, data("client-key-data")?];
        let [certificate, _] = &written;
        let certificate_pem = String::from_utf8(STANDARD.decode(certificate).ok()?).ok()?;
        Some(Self { certificate_pem, written })
    }

    /// The text in which this user was found, with another certificate and key (PEM); every other letter of it is as it
    /// was. None where they are written so that they cannot be found in the text.
    pub fn replaced_in(&self, content: &str, certificate_pem: &str, key_pem: &str) -> Option<String> {
        let written = [certificate_pem, key_pem].map(|pem| STANDARD.encode(pem));
        let content = self.written.iter().zip(&written).fold(content.to_owned(), |content, (old, new)| content.replace(old, new));
        inline_users(&content).iter().any(|user| user.written == written).then_some(content)
    }
}

/// The kubeconfig of one cluster and one user known by certificate; all data inline.
pub fn kubeconfig(server: &str, user: &str, ca_pem: &str, certificate_pem: &str, key_pem: &str) -> Kubeconfig {
    let inline = |pem: &str| STANDARD.encode(pem);
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
