//! Joining a cluster with a server's URL and a join token, as `kubeadm join` and the kubelet's TLS bootstrapping do. The node
//! fetches the cluster's CA and checks it against the hash in the token. It requests a client certificate with the bootstrap
//! token, and then, with that certificate, a serving certificate. Keys are made on the node and never leave it. Certificates
//! are stored and renewed before they expire; the client stays the same.

mod identity;
mod request;
mod token;

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api_client::connect::client;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::config::{AuthInfo, Kubeconfig};
use parking_lot::RwLock;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::certificates::Certificates;
use crate::config::Serving;
use identity::Identity;

pub use token::{JoinToken, ca_hash};

/// The user agent of the node's requests: upstream's name, by which `managedFields` shows what a node wrote.
pub const USER_AGENT: &str = "kubelet";
/// The signers of upstream's kubelet certificates.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// The longest time between two checks of what is due: a suspended machine stops the clock of the timer, but not the clock by
/// which certificates expire.
const LOOK_PERIOD: Duration = Duration::from_secs(3_600);
/// Wait after a failed renewal; the old certificate is good for long yet.
const RENEW_RETRY: Duration = Duration::from_secs(60);

/// How long a join tries to reach the server before it fails, as `kubeadm join` does: the machine's network or the server may
/// start later than the node.
const REACHED_WITHIN: Duration = Duration::from_secs(300);
/// Pause between two tries.
const REACHED_RETRY: Duration = Duration::from_secs(1);

/// Settings for joining a cluster.
#[derive(Clone, Debug)]
pub struct Join {
    /// The API server's URL.
    pub server: String,
    /// The join token; not needed any more once the node has its certificates.
    pub token: Option<JoinToken>,
    /// The node's name.
    pub node_name: String,
    /// The node's address, for its serving certificate.
    pub node_ip: IpAddr,
    /// The directory of CA, certificates and keys: `<data_dir>/pki`.
    pub data_dir: PathBuf,
}

/// The credentials of a node that has joined.
pub struct Joined {
    /// Sends requests as the node. The client uses renewed certificates without being replaced.
    pub client: kube::Client,
    /// The serving identity, for [`crate::Config::serving`]. After a first join it is a placeholder that no client trusts,
    /// until the renewal gets the real one.
    pub serving: watch::Receiver<Serving>,
    /// The cluster's CA.
    pub ca_pem: String,
    /// The state of the certificates, for [`crate::Config::certificates`].
    pub certificates: Arc<Certificates>,
    /// To be run for as long as the node runs.
    pub renewal: Renewal,
}

/// Why a node could not join.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The token is not `<ca sha256 hex>.<token id>.<token secret>`.
    #[error("the join token is malformed: it should read <sha256 of the CA>.<token id>.<token secret>")]
    Token,
    /// There are neither certificates of an earlier join nor a token.
    #[error("this node has not joined a cluster yet: a join token is needed")]
    NoToken,
    /// The server's CA does not have the hash in the token.
    #[error("the CA of {server} has the hash {found}, but the join token says {wanted}: this is another cluster, or someone in between")]
    OtherCa {
        /// The server's URL.
        server: String,
        /// The hash of the server's CA.
        found: String,
        /// The hash in the token.
        wanted: String,
    },
    /// The server has no usable `cluster-info`.
    #[error("{server} offers no usable kube-public/cluster-info: {reason}")]
    ClusterInfo {
        /// The server's URL.
        server: String,
        /// What is wrong.
        reason: String,
    },
    /// A request failed.
    #[error("{doing}")]
    Api {
        /// What was attempted.
        doing: &'static str,
        /// What went wrong.
        #[source]
        source: Box<kube::Error>,
    },
    /// The request for a certificate was turned down.
    #[error("the certificate request {name} was denied: {message}")]
    Denied {
        /// The CertificateSigningRequest.
        name: String,
        /// Its condition's message.
        message: String,
    },
    /// A certificate, key or URL that cannot be used.
    #[error("{doing}: {reason}")]
    Bad {
        /// What was attempted.
        doing: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A file of the node.
    #[error("{doing} {}", .path.display())]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

impl JoinError {
    /// Whether the server may be reachable later: no connection was established, or it broke.
    fn is_of_the_network(&self) -> bool {
        matches!(self, Self::Api { source, .. } if comes_from_the_network(&**source))
    }
}

fn comes_from_the_network(error: &(dyn std::error::Error + 'static)) -> bool {
    let Some(io) = error.downcast_ref::<std::io::Error>() else { return error.source().is_some_and(comes_from_the_network) };
    // An error of the system within another is not the other's source.
    OF_THE_NETWORK.contains(&io.kind()) || io.get_ref().is_some_and(|inner| comes_from_the_network(inner))
}

/// The system's error for a network that does not reach a server.
const OF_THE_NETWORK: [ErrorKind; 9] = [
    ErrorKind::BrokenPipe,
    ErrorKind::ConnectionAborted,
    ErrorKind::ConnectionRefused,
    ErrorKind::ConnectionReset,
    ErrorKind::HostUnreachable,
    ErrorKind::NetworkDown,
    ErrorKind::NetworkUnreachable,
    ErrorKind::TimedOut,
    ErrorKind::UnexpectedEof,
];

/// Joins, or loads an earlier join; idempotent. The join tries for five minutes to reach the server.
pub async fn join(join: &Join) -> Result<Joined, JoinError> {
    let began = tokio::time::Instant::now();
    let mut is_said = false;
    loop {
        match try_join(join).await {
            Err(error) if error.is_of_the_network() && began.elapsed() < REACHED_WITHIN => {
                if !std::mem::replace(&mut is_said, true) {
                    tracing::warn!(server = join.server, error = crate::error::chain(&error), "the server cannot be reached yet");
                }
                tokio::time::sleep(REACHED_RETRY).await;
            }
            done => return done,
        }
    }
}

async fn try_join(join: &Join) -> Result<Joined, JoinError> {
    let dir = join.data_dir.join("pki");
    let ca_pem = cluster_ca(join, &dir).await?;
    let stored = Identity::load(&dir, "kubelet-client")?;
    let client_identity = match stored.filter(Identity::is_good) {
        Some(identity) => identity,
        None => {
            let token = join.token.as_ref().ok_or(JoinError::NoToken)?;
            let client = connect(&join.server, &ca_pem, auth_by_token(token))?;
            request::client(&client, join).await?.keep(&dir, "kubelet-client")?
        }
    };
    let current = Arc::new(RwLock::new(connect(&join.server, &ca_pem, auth_by(&client_identity))?));
    let client = following(current.clone());
    let stored = Identity::load(&dir, "kubelet-serving")?;
    // A serving certificate is only signed for a Node that is registered with these names. So the renewal, which runs beside
    // the node, requests it.
    let serving_identity = match stored.filter(|identity| identity.is_good() && identity.names(join.node_ip)) {
        Some(identity) => identity,
        None => request::stand_in(join)?,
    };
    let (serving_tx, serving) = watch::channel(serving_identity.serving(&ca_pem));
    let certificates = Arc::new(Certificates::new(client_identity.not_after()));
    let renewal = Renewal {
        join: join.clone(),
        ca_pem: ca_pem.clone(),
        current,
        client: client.clone(),
        serving_tx,
        certificates: certificates.clone(),
        client_identity,
        serving_identity,
    };
    Ok(Joined { client, serving, ca_pem, certificates, renewal })
}

/// Renews certificates before they expire, and requests the first serving certificate.
pub struct Renewal {
    join: Join,
    ca_pem: String,
    current: Arc<RwLock<kube::Client>>,
    client: kube::Client,
    serving_tx: watch::Sender<Serving>,
    certificates: Arc<Certificates>,
    client_identity: Identity,
    serving_identity: Identity,
}

impl Renewal {
    /// Runs until cancelled.
    pub async fn run(mut self, cancel: CancellationToken) {
        loop {
            let due = self.client_identity.renew_at().min(self.serving_identity.renew_at());
            let wait = api_clock::between(api_clock::now(), due);
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(wait.min(LOOK_PERIOD)) => {}
            }
            if let Err(error) = self.renew().await {
                tracing::warn!(error = crate::error::chain(&error), "certificate not renewed");
                tokio::select! {
                    () = cancel.cancelled() => return,
                    () = tokio::time::sleep(RENEW_RETRY) => {}
                }
            }
        }
    }

    /// Renews what is due.
    async fn renew(&mut self) -> Result<(), JoinError> {
        let now = api_clock::now();
        if self.client_identity.renew_at() <= now {
            self.renew_client().await.inspect_err(|_| self.certificates.count_client_error())?;
        }
        if self.serving_identity.renew_at() <= now {
            self.renew_serving().await.inspect_err(|_| self.certificates.count_serving_error())?;
        }
        Ok(())
    }

    async fn renew_client(&mut self) -> Result<(), JoinError> {
        self.client_identity = request::client(&self.client, &self.join).await?.keep(&self.dir(), "kubelet-client")?;
        self.certificates.set_client(self.client_identity.not_after());
        let renewed = connect(&self.join.server, &self.ca_pem, auth_by(&self.client_identity))?;
        *self.current.write() = renewed;
        tracing::info!("client certificate renewed");
        Ok(())
    }

    async fn renew_serving(&mut self) -> Result<(), JoinError> {
        self.serving_identity = request::serving(&self.client, &self.join).await?.keep(&self.dir(), "kubelet-serving")?;
        self.serving_tx.send_replace(self.serving_identity.serving(&self.ca_pem));
        tracing::info!("serving certificate renewed");
        Ok(())
    }

    fn dir(&self) -> PathBuf {
        self.join.data_dir.join("pki")
    }
}

/// The CA, from an earlier join or from the server, checked against the token.
async fn cluster_ca(join: &Join, dir: &Path) -> Result<String, JoinError> {
    let path = dir.join("ca.crt");
    let stored = match std::fs::read_to_string(&path) {
        Ok(pem) => Some(pem),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(source) => return Err(JoinError::Io { doing: "reading", path, source }),
    };
    if let Some(pem) = stored {
        // A token of another cluster means that the node joins another cluster: the stored certificates are useless then.
        if join.token.as_ref().is_none_or(|token| ca_hash(&pem).is_ok_and(|hash| hash == token.ca_hash)) {
            return Ok(pem);
        }
        identity::forget(dir)?;
    }
    let token = join.token.as_ref().ok_or(JoinError::NoToken)?;
    let pem = fetch_ca(&join.server).await?;
    let found = ca_hash(&pem)?;
    if found != token.ca_hash {
        return Err(JoinError::OtherCa { server: join.server.clone(), found, wanted: token.ca_hash.clone() });
    }
    identity::write_private(&path, &pem)?;
    Ok(pem)
}

/// Requests `cluster-info` from an unverified server: the answer is not used before the hash is checked, and the request
/// contains no secret.
async fn fetch_ca(server: &str) -> Result<String, JoinError> {
    let mut config = kube::Config::new(server.parse().map_err(|_| bad("reading the server's URL", server))?);
    config.accept_invalid_certs = true;
    let client = client(config).map_err(api("making a client"))?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "kube-public");
    let info = maps.get("cluster-info").await.map_err(api("reading kube-public/cluster-info"))?;
    let unusable = |reason: &str| JoinError::ClusterInfo { server: server.to_owned(), reason: reason.to_owned() };
    let text = info.data.and_then(|data| data.get("kubeconfig").cloned()).ok_or_else(|| unusable("it has no kubeconfig"))?;
    let kubeconfig = Kubeconfig::from_yaml(&text).map_err(|error| unusable(&error.to_string()))?;
    let cluster = kubeconfig.clusters.into_iter().find_map(|named| named.cluster);
    let encoded = cluster.and_then(|cluster| cluster.certificate_authority_data).ok_or_else(|| unusable("its kubeconfig has no CA"))?;
    let pem = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    pem.ok_or_else(|| unusable("its CA is not base64 of PEM"))
}

fn connect(server: &str, ca_pem: &str, auth: AuthInfo) -> Result<kube::Client, JoinError> {
    let mut config = kube::Config::new(server.parse().map_err(|_| bad("reading the server's URL", server))?);
    config.root_cert = Some(vec![token::der(ca_pem)?]);
    config.auth_info = auth;
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT)));
    client(config).map_err(api("making a client"))
}

fn auth_by_token(token: &JoinToken) -> AuthInfo {
    AuthInfo { token: Some(token.bearer().into()), ..AuthInfo::default() }
}

fn auth_by(identity: &Identity) -> AuthInfo {
    AuthInfo {
        client_certificate_data: Some(STANDARD.encode(&identity.certificate_pem)),
        client_key_data: Some(STANDARD.encode(&identity.key_pem).into()),
        ..AuthInfo::default()
    }
}

/// A client that sends each request through whichever client is current.
fn following(current: Arc<RwLock<kube::Client>>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let client = current.read().clone();
        async move { client.send(request).await }
    });
    kube::Client::new(service, "default")
}

fn api(doing: &'static str) -> impl FnOnce(kube::Error) -> JoinError {
    move |source| JoinError::Api { doing, source: Box::new(source) }
}

fn bad(doing: &'static str, reason: impl std::fmt::Display) -> JoinError {
    JoinError::Bad { doing, reason: reason.to_string() }
}
