//! Audit: who did what when, as `audit.k8s.io/v1` events in a log.
//!
//! Each request has a [`Trail`], which records the user, the request and its result. When the user is known, the policy decides
//! how much of that the log gets. A thread of its own writes the events to a file (see [`log`]). Without a policy there are no
//! trails, and requests pay nothing.

mod event;
mod log;
mod policy;

use std::future::Future;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api_model::request::{Attributes, UserInfo};
use api_tasks::Tasks;
use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt as _;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::event::{Event, ObjectReference, without_managed_fields};
pub use self::log::AuditLog;
use self::log::Writer;
pub use self::policy::{AuditPolicy, AuditPolicyError};
use self::policy::{Level, Stage, Verdict};
use api_wire::holding::Holding;
use api_wire::path::is_connection;
use api_wire::protobuf;
use api_wire::status::{ApiError, Own};

/// Bytes of the longest error that is read when a request for a connection is rejected.
const STATUS_BYTES_MAX: u64 = 64 * 1024;

/// What to record and where.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// Decides which requests are recorded, and how much of them.
    pub policy: AuditPolicy,
    /// The file.
    pub log: AuditLog,
}

/// The policy and the log.
pub(crate) struct Audit {
    policy: AuditPolicy,
    writer: Writer,
    /// Ends of long requests that wait for room in the buffer.
    late: Tasks,
}

/// The address that a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The record of one request.
pub(crate) struct Trail {
    audit: Arc<Audit>,
    state: Mutex<State>,
}

struct State {
    verdict: Verdict,
    event: Event,
    /// The answer is a stream: a watch, a log, a tunnel.
    long_running: bool,
    /// The kind of credentials that were rejected.
    refused: Option<String>,
}

impl Audit {
    /// Opens the log; the thread that writes it belongs to `tasks`.
    pub(crate) fn open(config: &AuditConfig, tasks: &Tasks) -> std::io::Result<Self> {
        let late = Tasks::new(CancellationToken::new());
        Ok(Self { policy: config.policy.clone(), writer: Writer::open(&config.log, tasks)?, late })
    }

    /// Waits until everything recorded so far is written.
    pub(crate) async fn flush(&self) {
        self.late.wait().await;
        self.writer.flush().await;
    }

    /// Events written, and how often writing failed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let counts = &self.writer.counts;
        (counts.events.load(Ordering::Relaxed), counts.errors.load(Ordering::Relaxed))
    }
}

/// Begins a request's trail, where audit is on, and leaves it in the request's extensions.
pub(crate) fn start(audit: Option<&Arc<Audit>>, parts: &mut Parts, audit_id: Option<&HeaderValue>) -> Option<Arc<Trail>> {
    let audit = Arc::clone(audit?);
    let audit_id = audit_id.and_then(|id| id.to_str().ok()).unwrap_or_default();
    let mut event = Event::new(Level::None, audit_id, api_clock::now());
    event.request_uri = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    event.user_agent = text(&parts.headers, header::USER_AGENT.as_str()).to_owned();
    event.source_ips = source_ips(parts);
    let state = State { verdict: Verdict::default(), event, long_running: false, refused: None };
    let trail = Arc::new(Trail { audit, state: Mutex::new(state) });
    parts.extensions.insert(Arc::clone(&trail));
    Some(trail)
}

/// The trail of a request, where it has one.
pub(crate) fn trail(parts: &Parts) -> Option<&Arc<Trail>> {
    parts.extensions.get::<Arc<Trail>>()
}

/// Records the end of a request whose connection becomes a tunnel, when dropped.
pub(crate) fn completion(parts: &Parts) -> Option<Completion> {
    completion_of(trail(parts))
}

/// [`completion`] of a trail.
pub(crate) fn completion_of(trail: Option<&Arc<Trail>>) -> Option<Completion> {
    trail.filter(|trail| trail.level() > Level::None).map(|trail| Completion(Arc::clone(trail)))
}

/// Runs a request; a panic in it is recorded before it goes on.
pub(crate) async fn watched<T>(trail: Option<&Arc<Trail>>, request: impl Future<Output = T>) -> T {
    let Some(trail) = trail else { return request.await };
    match AssertUnwindSafe(request).catch_unwind().await {
        Ok(answer) => answer,
        Err(panic) => {
            let status =
                event::status(StatusCode::INTERNAL_SERVER_ERROR.as_u16(), Some(&ApiError::internal("the server panicked").to_value()));
            trail.state.lock().event.response_status = Some(status);
            trail.record(Stage::Panic).await;
            std::panic::resume_unwind(panic)
        }
    }
}

impl Trail {
    /// Asks the policy and records the first event, once the user is known or rejected.
    pub(crate) async fn begin(&self, user: Option<&UserInfo>, attributes: &Attributes, parts: &Parts) {
        let verdict = self.audit.policy.verdict(user, attributes);
        {
            let mut state = self.state.lock();
            state.event.level = verdict.level;
            state.event.verb.clone_from(&attributes.verb);
            state.event.object_ref = ObjectReference::of(attributes);
            state.event.user = user.cloned().unwrap_or_default();
            state.long_running = attributes.verb == "watch" || (attributes.is_resource() && is_connection(&attributes.subresource));
            state.refused = user.is_none().then(|| attempted(parts));
            state.verdict = verdict;
        }
        if user.is_some() {
            self.record(Stage::RequestReceived).await;
        }
    }

    /// Records that the user acts as another.
    pub(crate) fn impersonated(&self, user: &UserInfo) {
        self.state.lock().event.impersonated_user = Some(user.clone());
    }

    /// Records the authorizer's decision.
    pub(crate) fn decided(&self, decision: &str, reason: &str) {
        let mut state = self.state.lock();
        for (name, value) in [("decision", decision), ("reason", reason)] {
            state.event.annotations.insert(format!("authorization.k8s.io/{name}"), value.to_owned());
        }
    }

    /// Records a text of admission. Of two texts under one name the first counts.
    pub(crate) fn annotate(&self, name: String, text: String) {
        self.state.lock().event.annotations.entry(name).or_insert(text);
    }

    /// Whether the answer's body will be read. Such a body must not be compressed.
    pub(crate) fn keeps_answer(&self) -> bool {
        self.level() >= Level::RequestResponse && !self.state.lock().long_running
    }

    /// Records the request's body.
    pub(crate) fn request(&self, headers: &HeaderMap, bytes: &Bytes) {
        if self.level() < Level::Metadata || bytes.is_empty() {
            return;
        }
        let verb = self.state.lock().event.verb.clone();
        let object = match verb.as_str() {
            // Bounded like every other body: an apply may be YAML with aliases.
            "patch" => api_model::decode::decode(bytes, true).ok().map(|decoded| decoded.value),
            // A body that cannot be read is the client's error, which the answer states.
            _ => api_wire::body::decode(headers, bytes).ok().map(|decoded| decoded.value),
        };
        let Some(object) = object else { return };
        let mut state = self.state.lock();
        if let ("create" | "update", Some(reference)) = (verb.as_str(), &mut state.event.object_ref) {
            reference.complete(&object);
        }
        if state.event.level >= Level::Request {
            let object = if state.verdict.omit_managed_fields { without_managed_fields(object) } else { object };
            state.event.request_object = Some(object);
        }
    }

    /// Records the answer, or its beginning. Returns the answer that the client gets.
    pub(crate) async fn finish(self: Arc<Self>, response: Response<Body>) -> Response<Body> {
        if self.level() == Level::None {
            return response;
        }
        let code = response.status();
        let (response, answered) = self.look_at(response).await;
        let (long_running, refused) = {
            let mut state = self.state.lock();
            let mut status = event::status(code.as_u16(), answered.as_ref());
            if let (Some(refused), Some(status)) = (&state.refused, status.as_object_mut()) {
                status.insert("message".to_owned(), refused.as_str().into());
            }
            state.event.response_status = Some(status);
            let keeps = state.event.level >= Level::RequestResponse && state.event.object_ref.is_some();
            if let Some(object) = answered.filter(|_| keeps) {
                let object = if state.verdict.omit_managed_fields { without_managed_fields(object) } else { object };
                state.event.response_object = Some(object);
            }
            (state.long_running, state.refused.is_some())
        };
        if refused {
            self.record(Stage::ResponseStarted).await;
            return response;
        }
        if !long_running {
            self.record(Stage::ResponseComplete).await;
            return response;
        }
        self.record(Stage::ResponseStarted).await;
        // A tunnel records its own end.
        if code == StatusCode::SWITCHING_PROTOCOLS {
            response
        } else {
            response.map(|body| Body::new(Holding::new(body, Completion(self))))
        }
    }

    /// The answer's body as a value, where it is needed: an error's Status, what a deletion
    /// answers, and at the highest level everything.
    async fn look_at(&self, response: Response<Body>) -> (Response<Body>, Option<Value>) {
        let (verb, keeps, long_running) = {
            let state = self.state.lock();
            (state.event.verb.clone(), state.event.level >= Level::RequestResponse, state.long_running)
        };
        // The answer of a backend through a proxy may never end. Only the server's own answers are read.
        let is_own = !long_running || response.extensions().get::<Own>().is_some();
        let fails = is_own && (response.status().is_client_error() || response.status().is_server_error());
        let media = text(response.headers(), header::CONTENT_TYPE.as_str()).to_owned();
        // An error that comes through a proxy may be of any length.
        let is_short = http_body::Body::size_hint(response.body()).exact().is_some_and(|len| len <= STATUS_BYTES_MAX);
        let is_needed =
            (fails && (!long_running || is_short)) || (!long_running && (keeps || verb == "delete" || verb == "deletecollection"));
        if !is_needed || response.headers().contains_key(header::CONTENT_ENCODING) {
            return (response, None);
        }
        let (parts, body) = response.into_parts();
        // All other bodies are in memory already, or are lists of objects in memory.
        let Ok(collected) = body.collect().await else {
            return (ApiError::internal("the answer broke off").into_response(), None);
        };
        let bytes = collected.to_bytes();
        let value = match media.as_str() {
            protobuf::MEDIA => protobuf::decode(&bytes).ok().map(|decoded| decoded.value),
            media if media.contains("yaml") => serde_yaml::from_slice(&bytes).ok(),
            _ => serde_json::from_slice(&bytes).ok(),
        };
        (Response::from_parts(parts, Body::from(bytes)), value)
    }

    fn level(&self) -> Level {
        self.state.lock().event.level
    }

    /// The event of a stage; none: the policy leaves it out.
    fn line(&self, stage: Stage) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        if state.event.level == Level::None || state.verdict.omit_stages.contains(&stage) {
            return None;
        }
        state.event.stage = stage;
        // The time of the first event is that at which the request came.
        if stage != Stage::RequestReceived {
            state.event.stage_timestamp = api_clock::now();
        }
        Some(state.event.line())
    }

    async fn record(&self, stage: Stage) {
        if let Some(line) = self.line(stage) {
            self.audit.writer.put(line).await;
        }
    }

    /// [`Trail::record`] where nobody can wait.
    fn record_late(self: &Arc<Self>, stage: Stage) {
        let Some(line) = self.line(stage) else { return };
        let Err(line) = self.audit.writer.try_put(line) else { return };
        let audit = Arc::clone(&self.audit);
        if tokio::runtime::Handle::try_current().is_ok() {
            self.audit.late.request("api-server/late-audit", async move { audit.writer.put(line).await });
        }
    }
}

/// Records the end of a long request when dropped.
pub(crate) struct Completion(Arc<Trail>);

impl Drop for Completion {
    fn drop(&mut self) {
        self.0.record_late(Stage::ResponseComplete);
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The addresses that a request comes from: those that proxies state, then the connection's other end.
fn source_ips(parts: &Parts) -> Vec<String> {
    let mut ips: Vec<IpAddr> = text(&parts.headers, "x-forwarded-for").split(',').filter_map(|ip| ip.trim().parse().ok()).collect();
    if ips.is_empty() {
        ips.extend(text(&parts.headers, "x-real-ip").trim().parse::<IpAddr>());
    }
    if let Some(Peer(ip)) = parts.extensions.get::<Peer>()
        && ips.last() != Some(ip)
    {
        ips.push(*ip);
    }
    ips.iter().map(ToString::to_string).collect()
}

/// The kind of credentials of a request that was rejected.
fn attempted(parts: &Parts) -> String {
    let scheme = text(&parts.headers, header::AUTHORIZATION.as_str()).split(' ').next().unwrap_or_default().to_ascii_lowercase();
    let mut methods: Vec<&str> = ["basic", "bearer"].into_iter().filter(|method| *method == scheme).collect();
    if parts.extensions.get::<crate::authenticate::UnknownCertificate>().is_some() {
        methods.push("x509");
    }
    match methods.is_empty() {
        true => "Authentication failed, no credentials provided".to_owned(),
        false => format!("Authentication failed, attempted: {}", methods.join(", ")),
    }
}
