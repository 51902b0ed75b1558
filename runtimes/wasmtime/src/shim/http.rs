//! One HTTP request, one instance: made, called, thrown away.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use tokio::sync::{Semaphore, oneshot};
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, Store};
use wasmtime_wasi_http::p2::bindings::ProxyPre;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::{Error, WasiBody, WasiHttpCtx, WasiHttpView as _};

use super::guest::Guest;
use super::ticker::Ticker;
use crate::host::ComponentHost;
use crate::outgoing::Outgoing;
use crate::settings::HTTP_INSTANCES_MAX;

/// Largest request body. Bodies are streamed; this bounds what a client can make a guest read.
const BODY_LEN_MAX: usize = 1 << 30;

type Answer = Result<Response<HyperOutgoingBody>, ErrorCode>;

/// What all requests share.
pub struct Server {
    engine: Engine,
    proxy: ProxyPre<ComponentHost>,
    guest: Arc<Guest>,
    /// One permit an instance: the pool's own limit is an error, this one is a queue.
    instances: Arc<Semaphore>,
    ticker: Ticker,
}

impl Server {
    /// For a linked component.
    pub fn new(engine: &Engine, proxy: ProxyPre<ComponentHost>, guest: Arc<Guest>) -> Self {
        let instances = usize::try_from(HTTP_INSTANCES_MAX).unwrap_or(1);
        Self { engine: engine.clone(), proxy, guest, instances: Arc::new(Semaphore::new(instances)), ticker: Ticker::new(engine) }
    }

    /// The guest's answer, or an error of ours that says as little as an error page should; the
    /// reason is in the container's log.
    pub async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<WasiBody>, Infallible> {
        if request.body().size_hint().lower() > u64::try_from(BODY_LEN_MAX).unwrap_or(u64::MAX) {
            return Ok(plain(StatusCode::PAYLOAD_TOO_LARGE, "request body too large\n"));
        }
        let (send, receive) = oneshot::channel();
        let running = tokio::spawn(self.clone().run(request.map(limited), send));
        // A client that hangs up before the answer takes the guest with it.
        let guard = AbortOnDrop(Some(running.abort_handle()));
        let answer = receive.await;
        guard.release();
        let problem = match answer {
            // From here on the guest streams its body, or does what is left to do.
            Ok(Ok(response)) => return Ok(response.map(|body| body.map_err(Error::from).boxed_unsync())),
            Ok(Err(error)) => format!("the guest answered with an error: {error}"),
            Err(_) => match running.await {
                Ok(Ok(())) => "the guest ended without an answer".into(),
                Ok(Err(error)) => format!("{error:?}"),
                Err(error) => error.to_string(),
            },
        };
        self.guest.stderr().say(&format!("request failed: {}\n", problem.trim_end()));
        Ok(plain(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n"))
    }

    async fn run(self: Arc<Self>, request: Request<WasiBody>, answer: oneshot::Sender<Answer>) -> wasmtime::Result<()> {
        let _instance = self.instances.acquire().await?;
        let _ticking = self.ticker.run();
        let host = ComponentHost {
            wasi: self.guest.wasi()?.build(),
            table: ResourceTable::new(),
            http: WasiHttpCtx::new(),
            outgoing: Outgoing,
            limits: self.guest.limits(),
        };
        let mut store = Store::new(&self.engine, host);
        store.limiter(|host| &mut host.limits);
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        let request = store.data_mut().http().new_incoming_request(Scheme::Http, request)?;
        let answer = store.data_mut().http().new_response_outparam(answer)?;
        let proxy = self.proxy.instantiate_async(&mut store).await?;
        proxy.wasi_http_incoming_handler().call_handle(&mut store, request, answer).await
    }
}

fn limited(body: Incoming) -> WasiBody {
    let too_long = |_| Error::HttpRequestBodySize(None);
    Limited::new(body, BODY_LEN_MAX).map_err(too_long).boxed_unsync()
}

fn plain(status: StatusCode, text: &'static str) -> Response<WasiBody> {
    let body = Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
    response
}

/// Ends a task unless released.
struct AbortOnDrop(Option<tokio::task::AbortHandle>);

impl AbortOnDrop {
    fn release(mut self) {
        self.0 = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// tokio's clock for hyper.
#[derive(Clone, Copy, Debug)]
pub struct Timer;

struct Sleep(Pin<Box<tokio::time::Sleep>>);

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep(Box::pin(tokio::time::sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep(Box::pin(tokio::time::sleep_until(deadline.into()))))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(mut ours) => ours.0.as_mut().reset(deadline.into()),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl hyper::rt::Sleep for Sleep {}
