//! Creates clients: from the values of an administrator's or component's kubeconfig over TLS, or from the server's own service
//! in one process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use kube::client::retry::RetryPolicy;
use kube::config::{AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext};
use thiserror::Error;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

/// A silent server is probed after this time, at this interval, so many times: the server's own values for its clients.
const PROBE_AFTER: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_secs(15);
const PROBES: u32 = 3;
/// Data that the server does not acknowledge for this time ends the connection.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(75);

/// Why no client could be created.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("reading the kubeconfig {path}")]
    Kubeconfig {
        /// The path of the file.
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
    client(config).map_err(ConnectError::Client)
}

/// A client for a configuration. It is kube's own, with connections that detect a silent server: otherwise a watch on a
/// connection that the server dropped during an outage would get nothing until its read times out.
pub fn client(config: kube::Config) -> Result<kube::Client, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(PROBE_AFTER));
    connector.set_keepalive_interval(Some(PROBE_EVERY));
    connector.set_keepalive_retries(Some(PROBES));
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector));
    Ok(kube::Client::new(service, config.default_namespace))
}

/// A user of a kubeconfig whose certificate and key stand in the file itself. It cannot be shown: a key does not belong in
/// a log.
pub struct InlineUser {
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// How certificate and key are written.
    written: [String; 2],
}

/// The users of a kubeconfig whose certificates and keys are inline; empty when the text is not a kubeconfig.
pub fn inline_users(content: &str) -> Vec<InlineUser> {
    let users = Kubeconfig::from_yaml(content).map(|kubeconfig| kubeconfig.auth_infos).unwrap_or_default();
    users.into_iter().filter_map(|named| InlineUser::from_auth_info(&named.auth_info?)).collect()
}

impl InlineUser {
    fn from_auth_info(user: &AuthInfo) -> Option<Self> {
        let user = serde_json::to_value(user).ok()?;
        let data = |field: &str| Some(user.get(field)?.as_str()?.trim().to_owned()).filter(|data| !data.is_empty());
        let written = [data("client-certificate-data")?, data("client-key-data")?];
        let [certificate, _] = &written;
        let certificate_pem = String::from_utf8(STANDARD.decode(certificate).ok()?).ok()?;
        Some(Self { certificate_pem, written })
    }

    /// The kubeconfig text of this user with another certificate and key (PEM); everything else stays byte for byte. `None`
    /// when the old values cannot be found in the text.
    pub fn replaced_in(&self, content: &str, certificate_pem: &str, key_pem: &str) -> Option<String> {
        let written = [certificate_pem, key_pem].map(|pem| STANDARD.encode(pem));
        let content = self.written.iter().zip(&written).fold(content.to_owned(), |content, (old, new)| content.replace(old, new));
        inline_users(&content).iter().any(|user| user.written == written).then_some(content)
    }
}

/// The kubeconfig of one cluster and one user with a certificate; all data inline.
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// The timer of this process' socket with that local port, from the kernel's table; 2 is the one that probes.
    fn timer(port: u16) -> Option<String> {
        let sockets = std::fs::read_to_string("/proc/self/net/tcp").expect("Linux");
        let local = format!("0100007F:{port:04X}");
        let line = sockets.lines().find(|line| line.split_whitespace().nth(1) == Some(&local))?;
        Some(line.split_whitespace().nth(5)?.split(':').next()?.to_owned())
    }

    #[tokio::test]
    async fn a_silent_server_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let client = client(kube::Config::new(url.parse().expect("a URL"))).expect("a client");
        let asking = tokio::spawn(async move { client.apiserver_version().await });
        let (_connection, from) = listener.accept().await.expect("it connects");
        let probed = async {
            // A request is acknowledged first, and has a timer of its own until then.
            while timer(from.port()).as_deref() != Some("02") {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), probed).await.expect("the system looks whether the server is there");
        asking.abort();
    }
}
