//! A device plugin, as its author would write it: it serves `v1beta1.DevicePlugin` on a socket of its own and registers with the node. What
//! it answers is a script. Also the tests of `node-device-plugins` use it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use hyper_util::rt::{TokioExecutor, TokioIo};
use node_device_plugins::wire::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DeviceIds, DevicePluginOptions, Empty, HEALTHY, KUBELET_SOCKET,
    ListAndWatchResponse, PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest, VERSION, path,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The future of an answer.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;

/// What a plugin answers.
#[derive(Clone)]
pub struct Script {
    /// Its options.
    pub options: DevicePluginOptions,
    /// What a container gets with these devices.
    pub allocate: Arc<dyn Fn(Vec<String>) -> Answer<ContainerAllocateResponse> + Send + Sync>,
    /// The devices that it prefers.
    pub preferred: Vec<String>,
    /// Whether the call before each start succeeds.
    pub pre_start: Result<(), Status>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            options: DevicePluginOptions::default(),
            allocate: Arc::new(|devices| {
                let envs = BTreeMap::from([("THINGS".to_owned(), devices.join(","))]);
                Box::pin(async move { Ok(ContainerAllocateResponse { envs, ..ContainerAllocateResponse::default() }) })
            }),
            preferred: Vec::new(),
            pre_start: Ok(()),
        }
    }
}

/// A running plugin; dropped, it is gone as if it was killed.
pub struct DevicePlugin {
    /// The devices that it lists.
    pub devices: watch::Sender<Vec<Device>>,
    /// The calls that it got, as `Allocate a,b`.
    pub calls: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

/// Devices by name; a `!` before the name is for a broken one.
pub fn devices(text: &str) -> Vec<Device> {
    let device = |word: &str| match word.strip_prefix('!') {
        Some(id) => Device { id: id.to_owned(), health: "Unhealthy".to_owned() },
        None => Device { id: word.to_owned(), health: HEALTHY.to_owned() },
    };
    text.split_whitespace().map(device).collect()
}

impl DevicePlugin {
    /// Serves a plugin on a socket of that name.
    pub fn serve(dir: &Path, endpoint: &str, listed: &str, script: Script) -> Self {
        let listener = UnixListener::bind(dir.join(endpoint)).expect("the plugin's socket");
        let (listed, calls) = (watch::Sender::new(devices(listed)), Arc::default());
        let served = Served { devices: listed.clone(), calls: Arc::clone(&calls), script };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let served = served.clone();
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let served = served.clone();
                        async move { Ok::<_, Infallible>(served.answer(request).await) }
                    });
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    // A client that has gone is no failure of the plugin.
                    let _ended = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { devices: listed, calls, _tasks: tasks }
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("the calls").clone()
    }
}

/// Registers a plugin with the node of that directory.
pub async fn register(dir: &Path, endpoint: &str, resource: &str) -> Result<(), Status> {
    let request =
        RegisterRequest { version: VERSION.to_owned(), endpoint: endpoint.to_owned(), resource_name: resource.to_owned(), options: None };
    register_with(dir, request).await
}

/// Registers with any request.
pub async fn register_with(dir: &Path, request: RegisterRequest) -> Result<(), Status> {
    let socket: PathBuf = dir.join(KUBELET_SOCKET);
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let channel = tonic::transport::Endpoint::from_static("http://localhost").connect_with_connector(connector).await;
    let mut client = tonic::client::Grpc::new(channel.map_err(|error| Status::unavailable(error.to_string()))?);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<RegisterRequest, Empty>::default();
    let path = hyper::http::uri::PathAndQuery::from_static(path::REGISTER);
    client.unary(Request::new(request), path, codec).await.map(|_| ())
}

#[derive(Clone)]
struct Served {
    devices: watch::Sender<Vec<Device>>,
    calls: Arc<Mutex<Vec<String>>>,
    script: Script,
}

impl Served {
    async fn answer(self, request: hyper::Request<hyper::body::Incoming>) -> hyper::Response<tonic::body::Body> {
        match request.uri().path() {
            path::OPTIONS => {
                let options = self.script.options;
                unary(request, move |_: Empty| Box::pin(async move { Ok(options) })).await
            }
            path::LIST_AND_WATCH => {
                let service = tower::service_fn(move |_: Request<Empty>| {
                    let lists: Pin<Box<dyn tokio_stream::Stream<Item = Result<ListAndWatchResponse, Status>> + Send>> =
                        Box::pin(WatchStream::new(self.devices.subscribe()).map(|devices| Ok(ListAndWatchResponse { devices })));
                    async move { Ok::<_, Status>(Response::new(lists)) }
                });
                let codec = ProstCodec::<ListAndWatchResponse, Empty>::default();
                tonic::server::Grpc::new(codec).server_streaming(service, request).await
            }
            path::PREFERRED_ALLOCATION => {
                let served = self.clone();
                unary(request, move |request: PreferredAllocationRequest| {
                    for one in &request.container_requests {
                        let (available, must) = (one.available_device_ids.join(","), one.must_include_device_ids.join(","));
                        served.note(format!("GetPreferredAllocation {} of {available} with {must}", one.allocation_size));
                    }
                    let preferred = DeviceIds { devices_ids: served.script.preferred.clone() };
                    Box::pin(async move { Ok(PreferredAllocationResponse { container_responses: vec![preferred] }) })
                })
                .await
            }
            path::ALLOCATE => {
                let served = self.clone();
                unary(request, move |request: AllocateRequest| {
                    let devices = request.container_requests.into_iter().next().unwrap_or_default().devices_ids;
                    served.note(format!("Allocate {}", devices.join(",")));
                    let answer = (served.script.allocate)(devices);
                    Box::pin(async move { Ok(AllocateResponse { container_responses: vec![answer.await?] }) })
                })
                .await
            }
            path::PRE_START => {
                let served = self.clone();
                unary(request, move |request: DeviceIds| {
                    served.note(format!("PreStartContainer {}", request.devices_ids.join(",")));
                    let answer = served.script.pre_start.clone();
                    Box::pin(async move { answer.map(|()| Empty {}) })
                })
                .await
            }
            other => Status::unimplemented(other.to_owned()).into_http(),
        }
    }

    fn note(&self, call: String) {
        self.calls.lock().expect("the calls").push(call);
    }
}

async fn unary<M, R>(
    request: hyper::Request<hyper::body::Incoming>,
    answer: impl Fn(M) -> Answer<R> + Send,
) -> hyper::Response<tonic::body::Body>
where
    M: prost::Message + Default + 'static,
    R: prost::Message + 'static,
{
    let service = tower::service_fn(|request: Request<M>| {
        let answer = answer(request.into_inner());
        async move { answer.await.map(Response::new) }
    });
    tonic::server::Grpc::new(ProstCodec::<R, M>::default()).unary(service, request).await
}
