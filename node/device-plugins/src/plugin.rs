//! A connection to one plugin. It is made once: when it breaks, the plugin has gone, and must register again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::directory::Directory;
use crate::error::{CallError, RegisterError};
use crate::wire::{
    AllocateRequest, ContainerAllocateResponse, ContainerPreferredAllocationRequest, DeviceIds, DevicePluginOptions, Empty,
    ListAndWatchResponse, PreferredAllocationRequest, PreferredAllocationResponse, path,
};
use crate::wire::{AllocateResponse, KUBELET_SOCKET};

/// How long a plugin may take for its options, and for its choice of devices. Upstream waits without end.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take to allocate devices. Upstream waits without end, and the whole node with it.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may take before a start of a container; upstream's.
const PRE_START_TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes of a message, as gRPC's library for Go has them.
const MESSAGE_LEN_MAX: usize = 4 << 20;
const HEADERS_LEN_MAX: u32 = 16 << 10;

/// A plugin.
pub(crate) struct Plugin {
    channel: Channel,
    options: DevicePluginOptions,
    /// Locked while the plugin allocates devices to a container.
    pub(crate) allocating: tokio::sync::Mutex<()>,
}

impl Plugin {
    /// Connects to a plugin that listens in the directory, and asks for its options.
    pub(crate) async fn connect(directory: &Directory, endpoint: &str) -> Result<Self, RegisterError> {
        let stream = directory.dial(endpoint).await?;
        let channel = channel(stream).await.map_err(|error| RegisterError::Dial(error.to_string()))?;
        let mut plugin = Self { channel, options: DevicePluginOptions::default(), allocating: tokio::sync::Mutex::default() };
        plugin.options = plugin.call(path::OPTIONS, Empty {}, CALL_TIMEOUT).await.map_err(RegisterError::Options)?;
        Ok(plugin)
    }

    pub(crate) fn is_started_first(&self) -> bool {
        self.options.pre_start_required
    }

    pub(crate) fn has_preferences(&self) -> bool {
        self.options.get_preferred_allocation_available
    }

    /// Lists of devices, until the plugin has gone.
    pub(crate) async fn list_and_watch(&self) -> Result<Streaming<ListAndWatchResponse>, CallError> {
        let mut client = self.client();
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let codec = ProstCodec::<Empty, ListAndWatchResponse>::default();
        let path = PathAndQuery::from_static(path::LIST_AND_WATCH);
        Ok(client.server_streaming(Request::new(Empty {}), path, codec).await?.into_inner())
    }

    /// The devices that the plugin prefers; none if it has no answer.
    pub(crate) async fn preferred(
        &self,
        available: &BTreeSet<String>,
        must_include: &BTreeSet<String>,
        number: u64,
    ) -> Result<BTreeSet<String>, CallError> {
        let request = ContainerPreferredAllocationRequest {
            available_device_ids: available.iter().cloned().collect(),
            must_include_device_ids: must_include.iter().cloned().collect(),
            allocation_size: i32::try_from(number).unwrap_or(i32::MAX),
        };
        let request = PreferredAllocationRequest { container_requests: vec![request] };
        let response: PreferredAllocationResponse = self.call(path::PREFERRED_ALLOCATION, request, CALL_TIMEOUT).await?;
        Ok(response.container_responses.into_iter().next().map(|first| first.devices_ids.into_iter().collect()).unwrap_or_default())
    }

    /// Has the plugin allocate devices to a container. `None` when its answer is empty.
    pub(crate) async fn allocate(&self, devices: &BTreeSet<String>) -> Result<Option<ContainerAllocateResponse>, CallError> {
        let request = AllocateRequest { container_requests: vec![ids(devices)] };
        let response: AllocateResponse = self.call(path::ALLOCATE, request, ALLOCATE_TIMEOUT).await?;
        Ok(response.container_responses.into_iter().next())
    }

    /// Has the plugin prepare devices for a start of their container.
    pub(crate) async fn pre_start(&self, devices: &BTreeSet<String>) -> Result<(), CallError> {
        let _: Empty = self.call(path::PRE_START, ids(devices), PRE_START_TIMEOUT).await?;
        Ok(())
    }

    async fn call<M, R>(&self, path: &'static str, message: M, timeout: Duration) -> Result<R, CallError>
    where
        M: prost::Message + 'static,
        R: prost::Message + Default + 'static,
    {
        let mut client = self.client();
        let calling = async {
            client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            client.unary(Request::new(message), PathAndQuery::from_static(path), ProstCodec::<M, R>::default()).await
        };
        let answer = tokio::time::timeout(timeout, calling).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded")));
        Ok(answer?.into_inner())
    }

    fn client(&self) -> tonic::client::Grpc<Channel> {
        tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LEN_MAX)
    }
}

fn ids(devices: &BTreeSet<String>) -> DeviceIds {
    DeviceIds { devices_ids: devices.iter().cloned().collect() }
}

/// gRPC over this one connection.
async fn channel(stream: UnixStream) -> Result<Channel, tonic::transport::Error> {
    let only = Arc::new(Mutex::new(Some(TokioIo::new(stream))));
    let connector = tower::service_fn(move |_: http::Uri| {
        let stream = only.lock().take();
        async move { stream.ok_or_else(|| std::io::Error::other(format!("a plugin that has gone registers at {KUBELET_SOCKET} again"))) }
    });
    // The name that upstream's kubelet sends.
    Endpoint::from_static("http://localhost").http2_max_header_list_size(HEADERS_LEN_MAX).connect_with_connector(connector).await
}
