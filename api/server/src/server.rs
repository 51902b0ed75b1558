//! The server as a whole: its start on a store, clients in the same process, connections, its end.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api_admission::UnknownPlugin;
use api_auth::tokens::KeyError;
use api_auth::{Authenticator, Oidc, Tokens};
use api_model::kind::GroupResource;
use api_model::request::UserInfo;
use api_model::view::View as _;
use api_store::{Store, StoreError};
use api_tasks::{TaskFailure, Tasks};
use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use serde_json::Value;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::aggregation::keeper::Keeper;
use crate::aggregation::{self, Aggregation};
use crate::app::App;
use crate::audit::Audit;
use crate::authenticate::Identity;
use crate::bootstrap::{self, PUBLISHED_AUTHORITY};
use crate::config::Config;
use crate::connect::Connector;
use crate::core::Core;
use crate::definitions::Definitions;
use crate::documents::Documents;
use crate::expire;
use crate::fairness::{Gate, keeper};
use crate::fence::{Fence, LeaderLease};
use crate::handle::handle;
use crate::loopback::{BootstrapError, Loopback};
use crate::metrics::Metrics;
use crate::metrics_demand::MetricsDemand;
use crate::oidc::{Follower, OidcStartError};
use crate::presence::Presence;
use crate::quota;
use crate::registry::Registry;
use crate::renewal;
use crate::resource_metrics::scrape::Scraper;
use crate::serve;
use api_upstream::backend::Driver;
use api_upstream::tls::TlsError;

use crate::tls;
use crate::verbs::WritePath;
use api_cache::Cache;

/// The longest time for open requests to end when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the server could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The store could not be read.
    #[error("reading the store")]
    Store(#[from] StoreError),
    /// An admission plugin to be switched off does not exist.
    #[error(transparent)]
    Admission(#[from] UnknownPlugin),
    /// The cluster's keys cannot be used for TLS.
    #[error("setting up TLS")]
    Tls(#[from] TlsError),
    /// The cluster's ServiceAccount key cannot be used.
    #[error("setting up ServiceAccount tokens")]
    Tokens(#[from] KeyError),
    /// The OpenID Connect provider cannot be used.
    #[error("setting up OpenID Connect")]
    Oidc(#[from] OidcStartError),
    /// The audit log cannot be written.
    #[error("opening the audit log")]
    Audit(#[source] std::io::Error),
    /// Another authority signs for the cluster that is stored.
    #[error(
        "the store holds another cluster: to run one more server of it, copy the directory pki from the data directory \
         of its first server"
    )]
    OtherCluster,
    /// This server could not be announced to the others.
    #[error("announcing this server to the others: {0}")]
    Announce(String),
    /// An object that every cluster has could not be made.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
}

/// A running API server.
pub struct Server {
    app: Arc<App>,
    #[cfg(test)]
    serving_certificate: Arc<tls::ServingCertificate>,
    acceptor: tokio_rustls::TlsAcceptor,
    verifier: tls::Verifier,
    /// Stops what feeds the cache; last, since writes under way wait for it.
    stop_feeding: CancellationToken,
    feeding: Tasks,
}

impl Server {
    /// Reads the store, makes what every cluster has, and is ready for clients.
    pub async fn start(mut config: Config, store: Arc<dyn Store>) -> Result<Self, StartError> {
        let serving_certificate = Arc::new(tls::ServingCertificate::of(&config.pki)?);
        let (acceptor, verifier) = tls::acceptor(&config.pki, Arc::clone(&serving_certificate))?;
        let stop_feeding = CancellationToken::new();
        let (cache, feed) = api_cache::start(Arc::clone(&store), std::mem::take(&mut config.encryption), stop_feeding.clone()).await?;
        let feeding = Tasks::new(stop_feeding.clone());
        feeding.own("api-server/cache-feeder", feed);
        if store.is_shared() {
            check_authority(&config, &cache)?;
        }
        let follower = config.oidc.as_ref().map(Follower::new).transpose()?;
        let app = Arc::new(assemble(config, store, cache, follower.as_ref().map(Follower::oidc))?);
        let tasks = &app.core.tasks;
        if let Some(follower) = follower {
            tasks.own("api-server/oidc", follower.run(app.core.shutdown.clone()));
        }
        let handler = Arc::clone(&app);
        let loopback = Loopback::new(&app.core, move |request| Box::pin(handle(Arc::clone(&handler), request)));
        tasks.own("api-server/definitions", Definitions::new(loopback.clone(), &app.writes).keep_up());
        bootstrap::run(&loopback).await?;
        keeper::reconcile(&loopback).await;
        tasks.own("api-server/flow-control", keeper::keep(loopback.clone()));
        tasks.own("api-server/restore", bootstrap::restore(loopback.clone()));
        match app.core.store.is_shared() {
            true => {
                let presence = Presence::announce(&loopback).await.map_err(|error| StartError::Announce(error.message().to_owned()))?;
                tasks.own("api-server/presence", presence.run());
            }
            false => {
                bootstrap::publish(&loopback, &[app.core.config.advertise_address]).await?;
                tasks.own("api-server/own-service", bootstrap::keep(loopback.clone()));
            }
        }
        if !app.core.config.metric_resolution.is_zero() {
            tasks.own("api-server/resource-metrics", Scraper::new(&app.connector, &app.aggregation).run());
        }
        let (aggregation, writes) = (Arc::clone(&app.aggregation), Arc::clone(&app.writes));
        let quotas = Arc::clone(&writes.admission.quotas);
        tasks.own("api-server/aggregation", aggregation::keeper::run(Keeper { aggregation, writes, loopback }));
        tasks.own("api-server/event-expiry", expire::run(Arc::clone(&app.core)));
        tasks.own("api-server/list-expiry", expire::lists(Arc::clone(&app.core)));
        tasks.own("api-server/quota-status", quota::status::keep(quotas));
        tasks.own(
            "api-server/certificates",
            renewal::run(Arc::clone(&app.connector), Arc::clone(&app.aggregation), serving_certificate.clone()),
        );
        Ok(Self {
            app,
            #[cfg(test)]
            serving_certificate,
            acceptor,
            verifier,
            stop_feeding,
            feeding,
        })
    }

    /// A tower service for clients in the same process, such as `kube::Client::new`, that acts as
    /// that user.
    pub fn client(&self, user: UserInfo) -> InProcess {
        InProcess { app: Arc::clone(&self.app), identity: Identity(Arc::new(user)), agent: None, fence: None }
    }

    /// The same as a router, for whoever wants to put layers around it.
    pub fn router(&self, user: UserInfo) -> Router {
        Router::new().fallback_service(self.client(user))
    }

    /// Accepts HTTPS connections until [`Server::shutdown`].
    ///
    /// # Errors
    /// When the listener cannot be used any more, or when [`Server::failed`].
    pub async fn serve(&self, listener: TcpListener) -> std::io::Result<()> {
        self.serving(listener).await
    }

    /// [`Server::serve`] as a future that can be spawned.
    pub fn serving(&self, listener: TcpListener) -> impl Future<Output = std::io::Result<()>> + Send + use<> {
        let failed = self.failed();
        let app = Arc::clone(&self.app);
        let handler = move |request| handle(Arc::clone(&app), request);
        let serving = serve::serve(Arc::clone(&self.app.core), handler, listener, self.acceptor.clone(), self.verifier.clone());
        async move {
            tokio::select! {
                served = serving => served,
                failure = failed => Err(std::io::Error::other(failure)),
            }
        }
    }

    /// Waits for the failure of a background task of the server or of its store: what it answers is not to be trusted
    /// after that. For ever where there is none.
    pub fn failed(&self) -> impl Future<Output = TaskFailure> + Send + use<> {
        let (tasks, feeding, store) = (self.app.core.tasks.clone(), self.feeding.clone(), Arc::clone(&self.app.core.store));
        async move {
            tokio::select! {
                failure = tasks.failed() => failure,
                failure = feeding.failed() => failure,
                failure = store.failed() => failure,
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn app(&self) -> &Arc<App> {
        &self.app
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Core {
        &self.app.core
    }

    /// The certificate that clients are shown.
    #[cfg(test)]
    pub(crate) fn serving_certificate(&self) -> &tls::ServingCertificate {
        &self.serving_certificate
    }

    /// A read-only view of what is stored.
    pub fn view(&self) -> Arc<dyn api_model::view::View> {
        Arc::clone(&self.app.core.cache) as Arc<dyn api_model::view::View>
    }

    /// Takes no new connections, ends watches and tunnels, lets requests under way finish, and
    /// stops following the store. The store itself stays open.
    pub async fn shutdown(&self) {
        let core = &self.app.core;
        core.shutdown.cancel();
        core.cache.end_watches();
        if tokio::time::timeout(DRAIN_TIMEOUT, core.tasks.wait()).await.is_err() {
            tracing::warn!(connections = core.tasks.len(), "stopping with requests under way");
        }
        if let Some(audit) = &self.app.audit {
            audit.flush().await;
        }
        self.stop_feeding.cancel();
        self.feeding.wait().await;
    }
}

/// Servers that share a store have to share their keys, or what one issues is refused by the others. The
/// first one published its authority.
fn check_authority(config: &Config, cache: &Cache) -> Result<(), StartError> {
    let published = cache.get(&GroupResource::new("", "configmaps"), Some("kube-system"), PUBLISHED_AUTHORITY);
    let published = published.as_ref().and_then(|object| object.pointer("/data/client-ca-file")).and_then(Value::as_str);
    match published {
        Some(authority) if authority.trim() != config.pki.ca_pem().trim() => Err(StartError::OtherCluster),
        _ => Ok(()),
    }
}

fn assemble(mut config: Config, store: Arc<dyn Store>, cache: Arc<Cache>, oidc: Option<Arc<Oidc>>) -> Result<App, StartError> {
    let tokens = Arc::new(Tokens::new(config.pki.service_account_key_pem(), config.tokens())?);
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(shutdown.clone());
    let audit = config.audit.as_ref().map(|audit| Audit::open(audit, &tasks)).transpose().map_err(StartError::Audit)?.map(Arc::new);
    let core = Arc::new(Core {
        authenticator: Authenticator::new(std::mem::take(&mut config.token_auth_file), tokens, config.anonymous_auth).with_oidc(oidc),
        authorizer: Arc::default(),
        registry: Registry::new(&cache),
        driver: Driver { tasks: tasks.clone(), shutdown: shutdown.clone() },
        metrics: Metrics::default(),
        readings: ArcSwap::default(),
        metrics_demand: MetricsDemand::new(config.metric_resolution),
        shutdown,
        tasks,
        cache,
        store,
        config,
    });
    let writes = Arc::new(WritePath::new(&core)?);
    Ok(App {
        connector: Arc::new(Connector::new(&core, &writes)?),
        aggregation: Aggregation::new(&core),
        gate: Gate::new(&core),
        documents: Documents::default(),
        audit,
        writes,
        core,
        state_metrics_lock: Arc::default(),
    })
}

/// A client's way to the server without a socket. The identity and a leader's Lease travel beside the request, never in
/// its headers.
#[derive(Clone)]
pub struct InProcess {
    app: Arc<App>,
    identity: Identity,
    agent: Option<HeaderValue>,
    fence: Option<Arc<Fence>>,
}

impl InProcess {
    /// The same, with requests that bear this `User-Agent` unless they have one: what is written counts as that
    /// program's in `managedFields`.
    #[must_use]
    pub fn with_agent(mut self, agent: &'static str) -> Self {
        self.agent = Some(HeaderValue::from_static(agent));
        self
    }

    /// The same for the leader of a Lease: what it writes is stored only while the Lease is of that term, and is Forbidden after that.
    #[must_use]
    pub fn under_lease(mut self, lease: LeaderLease) -> Self {
        self.fence = Some(Arc::new(Fence::new(&self.app.core.cache, lease)));
        self
    }
}

impl<B> tower::Service<Request<B>> for InProcess
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let app = Arc::clone(&self.app);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(self.identity.clone());
        if let Some(fence) = &self.fence {
            request.extensions_mut().insert(Arc::clone(fence));
        }
        if let Some(agent) = &self.agent {
            request.headers_mut().entry(header::USER_AGENT).or_insert_with(|| agent.clone());
        }
        Box::pin(async move { Ok(handle(app, request).await) })
    }
}
