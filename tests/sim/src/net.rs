//! The network between the parts and the API server: a tower layer around the server's in-process service. It delays requests
//! and answers, refuses requests, loses answers to requests that were served, ends watches and delays what they deliver, cuts a
//! process off, and stops it.

mod watch;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use api_clock::rand::Rng as _;
use api_clock::rand::rngs::StdRng;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;
use tower::{BoxError, Service};

use crate::entropy;
use crate::history::History;
use crate::leaders::{Leader, writing_as};

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;
type Answer = Response<AnswerBody>;

/// How a client notices that it cannot connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How bad the network is.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    /// The share of writes that are refused with a 5xx answer.
    pub refused: f64,
    /// The share of changes that are answered with a conflict.
    pub conflicts: f64,
    /// The share of writes that are served and whose answer is lost.
    pub lost: f64,
    /// The longest delay of a request, and of an answer.
    pub delay_max: Duration,
    /// The longest delay of what a watch delivers.
    pub lag_max: Duration,
    /// How long a watch lasts on average; zero, as long as its client wants.
    pub watch_mean: Duration,
}

impl Weather {
    /// The weather of a run.
    pub fn draw(rng: &mut StdRng) -> Self {
        let mut choose = |choices: [f64; 4]| choices[rng.random_range(0..4)];
        Self {
            refused: choose([0.0, 0.01, 0.05, 0.15]),
            conflicts: choose([0.0, 0.01, 0.05, 0.15]),
            lost: choose([0.0, 0.0, 0.02, 0.1]),
            delay_max: Duration::from_secs_f64(choose([0.005, 0.02, 0.2, 1.0])),
            lag_max: Duration::from_secs_f64(choose([0.005, 0.1, 1.0, 4.0])),
            watch_mean: Duration::from_secs_f64(choose([0.0, 300.0, 60.0, 15.0])),
        }
    }

    /// No faults, and the small delays of a network that works.
    pub fn calm() -> Self {
        Self { delay_max: Duration::from_millis(5), lag_max: Duration::from_millis(5), ..Self::default() }
    }
}

/// The network of a run.
pub struct Net {
    rng: Mutex<StdRng>,
    weather: Mutex<Weather>,
    history: Arc<History>,
}

impl Net {
    pub fn new(history: Arc<History>) -> Arc<Self> {
        Arc::new(Self { rng: Mutex::new(entropy::stream("net")), weather: Mutex::new(Weather::calm()), history })
    }

    pub fn set_weather(&self, weather: Weather) {
        *self.weather.lock() = weather;
    }

    fn delay(&self, max: impl FnOnce(&Weather) -> Duration) -> Duration {
        let max = max(&self.weather.lock());
        // Most are short, few are long.
        max.mul_f64(self.rng.lock().random::<f64>().powi(4))
    }

    fn happens(&self, share: f64) -> bool {
        share > 0.0 && self.rng.lock().random::<f64>() < share
    }

    /// What the network answers in place of the server.
    fn refusal(&self, request: &Request<Body>) -> Option<StatusCode> {
        if request.method() == Method::GET {
            return None;
        }
        let Weather { refused, conflicts, .. } = self.weather.lock().clone();
        let may_conflict = [Method::PUT, Method::PATCH].contains(request.method()) || request.uri().path().ends_with("/binding");
        if may_conflict && self.happens(conflicts) {
            return Some(StatusCode::CONFLICT);
        }
        let codes = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
        self.happens(refused).then(|| codes[self.rng.lock().random_range(0..codes.len())])
    }

    fn loses_answer(&self) -> bool {
        let lost = self.weather.lock().lost;
        self.happens(lost)
    }

    fn note_lost(&self, process: &Process, method: &Method, path: &str) {
        let what = format!("! {} loses the answer to {method} {path}", process.name);
        self.history.incident(&what, |incidents, now| {
            if method == Method::POST {
                incidents.lost_creation(path, now);
            }
        });
    }

    /// When a watch that begins now ends.
    fn watch_lasts(&self) -> Option<Duration> {
        let mean = self.weather.lock().watch_mean;
        (!mean.is_zero()).then(|| mean.mul_f64(-self.rng.lock().random_range(f64::EPSILON..1.0).ln()))
    }
}

/// One process among the parts, from its start to its crash.
pub struct Process {
    /// The name in the trace.
    pub name: String,
    is_dead: AtomicBool,
    cut: tokio::sync::watch::Sender<bool>,
    suspended: tokio::sync::watch::Sender<bool>,
}

impl Process {
    pub fn new(name: impl Into<String>) -> Arc<Self> {
        let (cut, suspended) = (tokio::sync::watch::Sender::new(false), tokio::sync::watch::Sender::new(false));
        Arc::new(Self { name: name.into(), is_dead: AtomicBool::new(false), cut, suspended })
    }

    /// Nothing leaves or reaches the process any more.
    pub fn kill(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    /// Cuts the process off from the server, or connects it again.
    pub fn cut(&self, is_cut: bool) {
        self.cut.send_replace(is_cut);
    }

    /// Stops the process, or lets it go on: what it sends, and what is sent to it, arrives after the stop. Its timers go on.
    pub fn suspend(&self, is_suspended: bool) {
        self.suspended.send_replace(is_suspended);
    }

    fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    /// Fails when the process is cut off; never returns when it is dead.
    async fn check_connection(&self) -> Result<(), BoxError> {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
        if !self.is_cut() {
            return Ok(());
        }
        tokio::time::sleep(CONNECT_TIMEOUT).await;
        Err("connection timed out".into())
    }

    async fn resumed(&self) {
        let _ = self.suspended.subscribe().wait_for(|is_suspended| !is_suspended).await;
    }

    async fn connected(&self) {
        let _ = self.cut.subscribe().wait_for(|is_cut| !is_cut).await;
    }
}

/// The way of one process to the server, as one user.
#[derive(Clone)]
pub struct Link<S> {
    pub net: Arc<Net>,
    pub process: Arc<Process>,
    pub server: S,
    /// What the process is as the leader of a Lease.
    pub leader: Option<Leader>,
}

impl<S, B> Service<Request<Body>> for Link<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError> + Send> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let link = self.clone();
        Box::pin(async move { link.carry(request).await })
    }
}

impl<S, B> Link<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError> + Send> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    async fn carry(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let Self { net, process, mut server, leader } = self;
        tokio::time::sleep(net.delay(|weather| weather.delay_max)).await;
        process.resumed().await;
        process.check_connection().await?;
        if let Some(code) = net.refusal(&request) {
            return Ok(refusal(code));
        }
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        // The server goes on with a request whose client went away.
        let serving = tokio::spawn(writing_as(leader, server.call(request)));
        drop(server);
        let answer = serving.await?.map_err(Into::into)?;
        let answer = answer.map(|body| body.map_err(Into::into).boxed_unsync());
        let is_done = method != Method::GET && answer.status().is_success();
        let is_lost = is_done && net.loses_answer();
        tokio::time::sleep(net.delay(|weather| weather.delay_max)).await;
        process.resumed().await;
        if is_lost || (is_done && (process.is_cut() || process.is_dead())) {
            net.note_lost(&process, &method, &path);
        }
        process.check_connection().await?;
        if is_lost {
            return Err("connection reset by peer".into());
        }
        Ok(if is_watch { answer.map(|body| watch::through(net, process, body)) } else { answer })
    }
}

fn refusal(code: StatusCode) -> Answer {
    let reason = match code {
        StatusCode::CONFLICT => "Conflict",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "InternalError",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code.as_u16(),
        "message": "the network says so"});
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}
