//! One HTTP request, one instance: created, called, dropped, unless the container allows that instances handle further requests. Each
//! step has a time limit, so that neither a client nor a guest that never ends blocks an instance for others.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::body::{Body as _, Incoming};
use parking_lot::Mutex;
use runtimes_shim::requests::{InFlight, RequestCounters};
use tokio::sync::oneshot;
use tokio::time::timeout;
use wasmtime::{Engine, Store};
use wasmtime_wasi_http::{Error, WasiBody};

use super::authority;
use super::capacity::{Busy, Capacity, Instance};
use super::guest::Guest;
use super::handler::{Handler, Linked, Progress, Reply};
use super::idle::{IdleBody, Writer};
use super::instances::{Instances, Reusable};
use super::leaving::PortUse;
use super::ticker::Ticker;
use super::workers::{Begun, Workers};

/// The largest request body. Bodies are streamed; this limits what a client can make a guest read.
const BODY_LEN_MAX: usize = 1 << 30;
/// How long a client may take to send the next part of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a guest may take to begin its answer, and from one part of it to the next, in s.
const ANSWER_TIMEOUT_S: u32 = 300;
/// How long a request may take in all, in s.
const REQUEST_TIMEOUT_S: u32 = 3_600;
/// How long an instance that may handle another request waits for it, in s.
const INSTANCE_IDLE_S: u32 = 10;
/// When a client that found no room may retry, in seconds.
const RETRY_AFTER: &str = "1";
/// The time between two lines of the log about rejected requests.
const REJECTIONS_EVERY: Duration = Duration::from_secs(60);
/// Open connections.
pub const CONNECTIONS_MAX: usize = 1024;

/// What a request's connection says about it.
#[derive(Clone, Copy)]
pub struct Arrival {
    /// The address that the client connected to.
    pub local: Option<SocketAddr>,
    /// The connection is one more than there may be.
    pub is_spare: bool,
}

/// The state that all requests share.
pub struct Server {
    engine: Engine,
    component: Linked,
    guest: Arc<Guest>,
    /// Instances for further requests.
    instances: Arc<Instances<Handler>>,
    answer_timeout: Duration,
    request_timeout: Duration,
    /// The pool's own limit is an error, this one is a queue.
    capacity: Capacity,
    /// The counters of requests; probes of the node are not counted.
    requests: RequestCounters,
    ticker: Ticker,
    workers: Workers,
    /// When the log has the next line about rejected requests.
    rejections: Rarely,
    use_of_port: PortUse,
}

/// Limits the lines about something that clients cause.
struct Rarely(Mutex<Option<Instant>>);

impl Rarely {
    /// Whether the last line is old enough for the next one, which is due now.
    fn is_due(&self, now: Instant) -> bool {
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|last| now.duration_since(last) >= REJECTIONS_EVERY);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

impl Server {
    /// For a linked component.
    pub fn new(engine: &Engine, component: Linked, guest: Arc<Guest>, requests: RequestCounters) -> Self {
        let seconds = |value: Option<u32>, default| Duration::from_secs(value.unwrap_or(default).into());
        let http = guest.http();
        Self {
            engine: engine.clone(),
            component,
            instances: Arc::new(Instances::new(http.instance_requests.unwrap_or(1), seconds(http.instance_idle_s, INSTANCE_IDLE_S))),
            answer_timeout: seconds(http.answer_timeout_s, ANSWER_TIMEOUT_S),
            request_timeout: seconds(http.request_timeout_s, REQUEST_TIMEOUT_S),
            capacity: Capacity::new(guest.probe_token(), guest.http_concurrency()),
            requests,
            ticker: Ticker::new(engine),
            workers: Workers::new(guest.resources()),
            rejections: Rarely(Mutex::new(None)),
            use_of_port: PortUse::default(),
            guest,
        }
    }

    /// Waits until the clients of a server that ends have left.
    pub async fn until_left(&self) {
        self.use_of_port.until_left().await;
    }

    /// The threads.
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// The guest's answer, or an error page without details; the reason is in the container's log.
    pub async fn answer(self: Arc<Self>, mut request: Request<Incoming>, arrival: Arrival) -> Result<Response<WasiBody>, Infallible> {
        let is_probe = self.capacity.take_probe(request.headers_mut());
        let in_flight = (!is_probe).then(|| {
            self.use_of_port.request();
            self.requests.begin()
        });
        if let Err(complaint) = authority::complete(&mut request, arrival.local) {
            return Ok(plain(StatusCode::BAD_REQUEST, complaint));
        }
        if request.body().size_hint().lower() > u64::try_from(BODY_LEN_MAX).unwrap_or(u64::MAX) {
            return Ok(plain(StatusCode::PAYLOAD_TOO_LARGE, "request body too large\n"));
        }
        if arrival.is_spare && !is_probe {
            return Ok(self.reject(Busy::Connections { max: CONNECTIONS_MAX }, is_probe));
        }
        let instance = match self.capacity.instance(is_probe).await {
            Ok(instance) => instance,
            Err(busy) => return Ok(self.reject(busy, is_probe)),
        };
        let (send, mut receive) = oneshot::channel();
        let progress = Arc::<Progress>::default();
        let reply = Reply::new(send, progress.clone());
        let running = Box::pin(self.clone().run_in_time(request.map(limited), reply, progress.clone(), instance));
        let (answer, guest) = match self.workers.begin(running, is_probe).await {
            Begun::Ended(ended) => (receive.try_recv().map_err(|_| ended), AbortOnDrop(None)),
            Begun::Running(running) => {
                // When the client disconnects before the answer, or the time is over, the guest is dropped.
                let guest = AbortOnDrop(Some(running.abort_handle()));
                let Ok(answer) = timeout(self.answer_timeout, receive).await else {
                    self.say("the guest did not answer in time");
                    return Ok(plain(StatusCode::GATEWAY_TIMEOUT, "the guest did not answer in time\n"));
                };
                match answer {
                    Ok(answer) => (Ok(answer), guest),
                    Err(_) => (Err(running.await.unwrap_or_else(|error| Err(wasmtime::Error::new(error)))), guest),
                }
            }
        };
        let problem = match answer {
            // From here on the guest streams its body, or does its remaining work.
            Ok(Ok(response)) => return Ok(self.answered(response, progress, guest, in_flight)),
            Ok(Err(error)) => {
                guest.release();
                format!("the guest answered with an error: {error}")
            }
            Err(Ok(())) => "the guest ended without an answer".into(),
            Err(Err(error)) => format!("{error:?}"),
        };
        self.say(&problem);
        Ok(plain(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n"))
    }

    /// There is no room now. The log says so now and then.
    fn reject(&self, busy: Busy, is_probe: bool) -> Response<WasiBody> {
        if !is_probe {
            self.requests.reject();
        }
        if self.rejections.is_due(Instant::now()) {
            self.guest.say(&format!("request rejected: {busy}\n"));
        }
        let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, format!("{busy}\n"));
        response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static(RETRY_AFTER));
        response
    }

    fn say(&self, problem: &str) {
        self.guest.say(&format!("request failed: {}\n", problem.trim_end()));
    }

    /// Runs the guest of a request. A failure after the response has begun is written to the log here: nobody waits for it then.
    async fn run_in_time(
        self: Arc<Self>,
        request: Request<WasiBody>,
        reply: Reply,
        progress: Arc<Progress>,
        _until_ended: Instance,
    ) -> wasmtime::Result<()> {
        let running = timeout(self.request_timeout, self.run(request, reply)).await;
        let ended = running.unwrap_or_else(|_| Err(wasmtime::Error::msg("the request took too long")));
        if let Err(error) = &ended
            && progress.has_begun()
        {
            self.say(&format!("after its answer had begun: {error:?}"));
        }
        ended
    }

    async fn run(&self, request: Request<WasiBody>, reply: Reply) -> wasmtime::Result<()> {
        let _ticking = self.ticker.run();
        self.handle(request, reply).await.map_err(|error| self.guest.explained(error))
    }

    /// The fuel of a request pays also for a new instance.
    async fn handle(&self, request: Request<WasiBody>, reply: Reply) -> wasmtime::Result<()> {
        let mut handler = match self.instances.take() {
            Some(mut handler) => {
                handler.instance.set_fuel(&self.guest)?;
                handler
            }
            None => Reusable::new(self.instantiate().await?),
        };
        if handler.instance.handle(request, reply).await? {
            self.instances.put(handler);
        }
        Ok(())
    }

    async fn instantiate(&self) -> wasmtime::Result<Handler> {
        let mut store = Store::new(&self.engine, self.guest.component_host()?);
        store.limiter(|host| &mut host.limits);
        self.guest.set_fuel(&mut store)?;
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        self.component.instantiate(store).await
    }

    /// The answer of the guest; the request is in flight until its last byte is passed on.
    fn answered(
        &self,
        response: Response<WasiBody>,
        progress: Arc<Progress>,
        guest: AbortOnDrop,
        in_flight: Option<InFlight>,
    ) -> Response<WasiBody> {
        let declared = response.headers().get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let guest = guest.release();
        response.map(|body| {
            let writer = Writer { progress, task: guest };
            IdleBody::of_guest(body, self.answer_timeout, declared, writer, in_flight).boxed_unsync()
        })
    }
}

fn limited(body: Incoming) -> WasiBody {
    if body.is_end_stream() {
        return Empty::new().map_err(|never| match never {}).boxed_unsync();
    }
    let too_long = |_| Error::HttpRequestBodySize(None);
    let body = Limited::new(body, BODY_LEN_MAX).map_err(too_long).boxed_unsync();
    IdleBody::of_client(body, BODY_TIMEOUT).boxed_unsync()
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<WasiBody> {
    let body = Full::new(text.into()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
    response
}

/// Ends a task unless released.
struct AbortOnDrop(Option<tokio::task::AbortHandle>);

impl AbortOnDrop {
    fn release(mut self) -> Option<tokio::task::AbortHandle> {
        self.0.take()
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
