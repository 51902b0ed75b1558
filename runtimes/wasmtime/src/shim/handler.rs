//! The component that answers requests, of either version of `wasi:http`, and its instances.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response};
use tokio::sync::oneshot;
use wasmtime::component::{Component, ResourceTable};
use wasmtime::{Engine, Store};
use wasmtime_wasi_http::p2::bindings::http::types::{self as types_0_2, ErrorCode};
use wasmtime_wasi_http::p2::bindings::{Proxy, ProxyPre};
use wasmtime_wasi_http::p2::body::HostOutgoingBody;
use wasmtime_wasi_http::p2::types::HostResponseOutparam;
use wasmtime_wasi_http::p3;
use wasmtime_wasi_http::p3::bindings::{Service, ServicePre};
use wasmtime_wasi_http::{Error, WasiBody, WasiHttpView as _};

use super::guest::Guest;
use crate::host::{ComponentHost, KeyValueBackend, component_linker};
use crate::kind::{Abi, Kind};

/// What a guest answers: the beginning of a response whose body is still to come, or its error.
pub type Answer = Result<Response<WasiBody>, String>;

/// Ends when a request has been received whole.
type Received = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A component whose imports are linked.
pub enum Linked {
    /// Of WASI 0.2.
    Http(ProxyPre<ComponentHost>),
    /// Of WASI 0.3.
    Service(ServicePre<ComponentHost>),
}

/// An instance with its state.
pub struct Handler {
    store: Store<ComponentHost>,
    exports: Exports,
}

enum Exports {
    Http(Proxy),
    Service(Service),
}

/// How far a guest has come with the answer to one request.
#[derive(Default)]
pub struct Progress {
    has_begun: AtomicBool,
    has_failed: AtomicBool,
}

/// Takes the answer of a guest.
pub struct Reply {
    answer: oneshot::Sender<Answer>,
    progress: Arc<Progress>,
}

/// Counts the guest as failed when it is dropped, unless the guest has returned. An instance outlives it: what reads the instance's
/// answer then sees the failure before it sees the end.
struct Unfinished<'a>(Option<&'a Progress>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(progress) = self.0 {
            progress.fail();
        }
    }
}

impl Progress {
    /// Whether there is a response, whose body may still be incomplete.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// The guest ends before it has returned.
    pub fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
    }

    /// Whether the guest ended before it had returned.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }
}

impl Reply {
    /// For one request.
    pub fn new(answer: oneshot::Sender<Answer>, progress: Arc<Progress>) -> Self {
        Self { answer, progress }
    }

    fn send(self, answer: Answer) {
        self.progress.has_begun.store(answer.is_ok(), Ordering::Release);
        // The client may have left.
        let _sent = self.answer.send(answer);
    }
}

impl Linked {
    /// Links the imports of a component.
    pub fn new(engine: &Engine, component: &Component, (kind, abi): (Kind, Abi), keyvalue: KeyValueBackend) -> wasmtime::Result<Self> {
        let linked = component_linker(engine, abi, keyvalue)?.instantiate_pre(component)?;
        match kind {
            Kind::Service => ServicePre::new(linked).map(Self::Service),
            Kind::Module | Kind::Command | Kind::AsyncCommand | Kind::Http | Kind::Plugin => ProxyPre::new(linked).map(Self::Http),
        }
    }

    /// Creates an instance in a store of its own.
    pub async fn instantiate(&self, mut store: Store<ComponentHost>) -> wasmtime::Result<Handler> {
        let exports = match self {
            Self::Http(proxy) => Exports::Http(proxy.instantiate_async(&mut store).await?),
            Self::Service(service) => Exports::Service(service.instantiate_async(&mut store).await?),
        };
        store.data_mut().limits.count_all();
        Ok(Handler { store, exports })
    }
}

impl Handler {
    /// Gives an instance that has handled a request the fuel for the next one.
    pub fn set_fuel(&mut self, guest: &Guest) -> wasmtime::Result<()> {
        guest.set_fuel(&mut self.store)
    }

    /// Handles one request until the guest has nothing left to do for it. Whether the instance may handle another one.
    pub async fn handle(&mut self, request: Request<WasiBody>, reply: Reply) -> wasmtime::Result<bool> {
        let Self { store, exports } = self;
        store.set_epoch_deadline(1);
        let progress = reply.progress.clone();
        let mut unfinished = Unfinished(Some(&progress));
        let may_handle_another = match exports {
            Exports::Http(proxy) => handle_0_2(store, proxy, request, reply).await?,
            Exports::Service(service) => handle_0_3(store, service, request, reply).await?,
        };
        unfinished.0 = None;
        Ok(may_handle_another)
    }
}

async fn handle_0_2(store: &mut Store<ComponentHost>, proxy: &Proxy, request: Request<WasiBody>, reply: Reply) -> wasmtime::Result<bool> {
    let request = store.data_mut().http().new_incoming_request(types_0_2::Scheme::Http, request)?;
    let answer = |answer: Result<_, _>| reply.send(answer.map_err(|code: ErrorCode| code.to_string()));
    let answer = store.data_mut().http().new_response_outparam_from_callback(answer)?;
    proxy.wasi_http_incoming_handler().call_handle(&mut *store, request, answer).await?;
    Ok(!has_unfinished_answer(&mut store.data_mut().table))
}

/// Whether a guest that has returned did not answer, or did not end its answer. Its client waits until the instance is dropped.
fn has_unfinished_answer(table: &mut ResourceTable) -> bool {
    table.iter_mut().any(|entry| entry.is::<HostResponseOutparam>() || entry.is::<HostOutgoingBody>())
}

async fn handle_0_3(
    store: &mut Store<ComponentHost>,
    service: &Service,
    request: Request<WasiBody>,
    reply: Reply,
) -> wasmtime::Result<bool> {
    // A guest does not see the header.
    let host = request.headers().get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let handling = store.run_concurrent(async |accessor| {
        let (mut request, received) = accessor.with(|mut store| {
            let (request, received) = p3::Request::from_http(store.get().http().hooks, request);
            (request, Box::pin(received) as Received)
        });
        request.scheme.get_or_insert(Scheme::HTTP);
        request.authority = request.authority.or(host);
        let answer = match service.handle(accessor, request).await? {
            Ok(response) => Ok(accessor.with(|store| response.into_http(store, received))?),
            Err(code) => Err(code.to_string()),
        };
        reply.send(answer);
        // It writes the body now, and does what is left to do.
        poll_fn(|context| accessor.poll_no_interesting_tasks(context)).await;
        Ok(true)
    });
    handling.await?
}
