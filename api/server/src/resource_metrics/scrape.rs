//! The task that reads `/metrics/resource` of every ready node.
//!
//! A pass is bounded in time, in nodes at once, and in the bytes of each answer. A node that fails is missing in this pass. Each
//! server of a cluster reads for itself, so that each can answer; they share nothing.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api_auth::{Identity, PkiError};
use api_model::kind::METRICS;
use api_upstream::backend::ConnectError;
use api_upstream::tls::{self, TlsError};
use api_usage::{Answer, AnswerError, NodeReading};
use axum::body::Body;
use futures::StreamExt as _;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use thiserror::Error;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::targets::{Target, Targets};
use crate::aggregation::Aggregation;
use crate::connect::Connector;
use crate::core::Core;

/// The user of the task. Its role lets it read the metrics of nodes and nothing else.
const SCRAPER: &str = api_auth::bootstrap::METRICS_SCRAPER;
/// The validity of its certificate, which lives in memory alone.
const VALIDITY: Duration = Duration::from_secs(365 * 24 * 3_600);
const PATH: &str = "/metrics/resource";
/// Nodes that are read at the same time.
const AT_ONCE: usize = 16;
/// The longest time of one node; the metrics server's `--kubelet-request-timeout`.
const NODE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a node's metrics could not be read.
#[derive(Debug, Error)]
enum ScrapeError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("no answer")]
    Http(#[from] hyper::Error),
    #[error("the request cannot be made")]
    Request(#[from] http::Error),
    #[error("request failed, status: {0}")]
    Status(StatusCode),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

/// Why the task has no identity.
#[derive(Debug, Error)]
enum IdentityError {
    #[error(transparent)]
    Issue(#[from] PkiError),
    #[error(transparent)]
    Use(#[from] TlsError),
}

/// The task's state between two passes.
pub(crate) struct Scraper {
    connector: Arc<Connector>,
    aggregation: Arc<Aggregation>,
    targets: Targets,
    /// With the certificate's text; none before the first node.
    identity: Option<(TlsConnector, Identity)>,
    /// Nodes that failed in the last pass.
    failed: HashSet<Arc<str>>,
}

impl Scraper {
    pub(crate) fn new(connector: &Arc<Connector>, aggregation: &Arc<Aggregation>) -> Self {
        let (connector, aggregation) = (Arc::clone(connector), Arc::clone(aggregation));
        Self { connector, aggregation, targets: Targets::default(), identity: None, failed: HashSet::new() }
    }

    /// Reads all nodes again and again until the server stops.
    pub(crate) async fn run(mut self) {
        let core = Arc::clone(&self.aggregation.core);
        let rounds = async {
            let mut since = core.config.metric_resolution;
            loop {
                let began = Instant::now();
                self.pass(&core, since).await;
                core.metrics_demand.passed(began);
                core.metrics_demand.due(began, || self.targets.are_settled(&core.cache)).await;
                since = began.elapsed();
            }
        };
        tokio::select! {
            () = core.shutdown.cancelled() => {}
            () = rounds => {}
        }
    }

    /// Reads all nodes once. `since` is the time since the start of the pass before.
    async fn pass(&mut self, core: &Core, since: Duration) {
        let resolution = core.config.metric_resolution;
        // Another server answers: nobody would ask for these readings.
        let is_delegated = self.aggregation.remotes.find(METRICS, "v1beta1").is_some();
        let targets = if is_delegated { Vec::new() } else { self.targets.of_pass(&core.cache, &self.failed) };
        if targets.is_empty() {
            if !core.readings.load().is_empty() {
                core.readings.store(Arc::default());
            }
            return;
        }
        let tls = match self.identity(core) {
            Ok(tls) => tls,
            Err(error) => return tracing::error!(%error, "nodes' metrics cannot be read"),
        };
        let readings = self.read_all(core, targets, &tls, resolution * 9 / 10).await;
        let since_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let next = core.readings.load().followed_by(readings, since_ms);
        core.readings.store(Arc::new(next));
    }

    /// Reads the nodes until the limit is over.
    async fn read_all(&mut self, core: &Core, targets: Vec<Target>, tls: &TlsConnector, limit: Duration) -> Vec<NodeReading> {
        let (until, node_limit) = (Instant::now() + limit, NODE_TIMEOUT.min(limit));
        let mut missing: HashSet<Arc<str>> = targets.iter().map(|target| Arc::clone(&target.node)).collect();
        let connector = &self.connector;
        let reading = futures::stream::iter(targets).map(|target| async move {
            let node = Arc::clone(&target.node);
            let read = tokio::time::timeout(node_limit, read(connector, target, tls)).await;
            (node, read.unwrap_or(Err(ScrapeError::TimedOut(node_limit))))
        });
        let mut reading = std::pin::pin!(reading.buffer_unordered(AT_ONCE));
        let mut readings = Vec::new();
        while let Ok(Some((node, read))) = tokio::time::timeout_at(until, reading.next()).await {
            core.metrics.scrapes.count(read.is_ok());
            match read {
                Ok(read) => {
                    missing.remove(&node);
                    readings.push(read);
                }
                // The same failure again is no news.
                Err(error) if self.failed.contains(&node) => tracing::debug!(%node, %error, "a node's metrics are not read"),
                Err(error) => tracing::warn!(%node, %error, "a node's metrics are not read"),
            }
        }
        if Instant::now() >= until && !missing.is_empty() {
            tracing::warn!(nodes = missing.len(), "the time for the nodes' metrics is over, some are not read");
        }
        self.failed = missing;
        readings
    }

    /// TLS with the task's own certificate, which is issued when the first node is there and when it is due.
    fn identity(&mut self, core: &Core) -> Result<TlsConnector, IdentityError> {
        let pki = &core.config.pki;
        let present = self.identity.as_ref().filter(|(_, identity)| !pki.is_due(&identity.certificate_pem, api_clock::now()));
        if let Some((tls, _)) = present {
            return Ok(tls.clone());
        }
        let identity = pki.issue_client(SCRAPER, &[], VALIDITY)?;
        let tls = tls::client_connector(pki, &identity, "the certificate for nodes' metrics")?;
        self.identity = Some((tls.clone(), identity));
        Ok(tls)
    }
}

/// Reads one node. Nothing of a faulty answer counts.
async fn read(connector: &Connector, target: Target, tls: &TlsConnector) -> Result<NodeReading, ScrapeError> {
    let Target { node, kubelet, pods } = target;
    let mut answer = Answer::new(node, pods, api_clock::now().as_millisecond());
    let request = Request::builder().uri(PATH).header(header::HOST, kubelet.authority()).body(Body::empty())?;
    let response = connector.to_node(&kubelet, tls).await?.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(ScrapeError::Status(response.status()));
    }
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            answer.read(&piece)?;
        }
    }
    Ok(answer.end()?)
}
