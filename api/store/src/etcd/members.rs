//! The connection to etcd: to one member at a time. If the connection is lost, the next member is used.
//!
//! A read is repeated at the next member. A write is not repeated: if its response is lost, nobody knows whether the
//! write happened, and the caller gets that error. Both skip a member that could not be reached at all, since nothing
//! was sent to it.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::EtcdConfig;
use super::wire::{WatchCreateRequest, WatchRequest, WatchResponse};
use crate::StoreError;

/// Time limit of a connection attempt; then the next member is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a search that reached no member; calls during the pause fail at once.
const SEARCH_EVERY: Duration = Duration::from_millis(250);
/// Time limit of a call. etcd itself gives up after about seven seconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Upstream's `keepaliveTime` and `keepaliveTimeout`, which detect a vanished member.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Flow-control windows: the pages of a snapshot are large.
const STREAM_BYTES: u32 = 1 << 20;
const CONNECTION_BYTES: u32 = 4 << 20;

/// The methods of etcd's API that the store uses.
pub(super) mod path {
    pub(in super::super) const RANGE: &str = "/etcdserverpb.KV/Range";
    pub(in super::super) const PUT: &str = "/etcdserverpb.KV/Put";
    pub(in super::super) const TXN: &str = "/etcdserverpb.KV/Txn";
    pub(in super::super) const COMPACT: &str = "/etcdserverpb.KV/Compact";
    pub(in super::super) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
    pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";
}

/// The members, and the connection to one of them.
pub(super) struct Members {
    endpoints: Vec<Endpoint>,
    current: Mutex<Current>,
    /// Locked during the search for a member that answers. Concurrent callers wait for its result.
    connecting: tokio::sync::Mutex<()>,
}

struct Current {
    at: usize,
    connection: Option<Connection>,
    made: u64,
    /// The time and the error of the last search that reached no member.
    unreached: Option<(Instant, Status)>,
}

/// A connection with its number, so that each loss counts once.
#[derive(Clone)]
struct Connection {
    channel: Channel,
    number: u64,
}

impl Members {
    pub(super) fn new(config: &EtcdConfig) -> Result<Self, StoreError> {
        let endpoints = config.servers.iter().map(|url| endpoint(url, config)).collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(StoreError::Address { address: String::new(), why: "no etcd server is given".to_owned() });
        }
        let current = Mutex::new(Current { at: 0, connection: None, made: 0, unreached: None });
        Ok(Self { endpoints, current, connecting: tokio::sync::Mutex::default() })
    }

    /// Sends a call that may be repeated.
    pub(super) async fn read<M, R>(&self, path: &'static str, message: M) -> Result<R, Status>
    where
        M: prost::Message + Clone + 'static,
        R: prost::Message + Default + 'static,
    {
        let mut attempts = self.endpoints.len();
        loop {
            match self.write(path, message.clone()).await {
                Err(status) if is_lost(&status) && attempts > 0 => attempts -= 1,
                answer => return answer,
            }
        }
    }

    /// Sends a call that must not be repeated.
    pub(super) async fn write<M, R>(&self, path: &'static str, message: M) -> Result<R, Status>
    where
        M: prost::Message + 'static,
        R: prost::Message + Default + 'static,
    {
        let connection = self.connection().await?;
        let mut client = client(&connection);
        let calling = async {
            client.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            client.unary(Request::new(message), PathAndQuery::from_static(path), ProstCodec::<M, R>::default()).await
        };
        let answer = tokio::time::timeout(CALL_TIMEOUT, calling).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("etcd did not answer in time")));
        answer.map(tonic::Response::into_inner).inspect_err(|status| self.note(&connection, status))
    }

    /// Starts a watch. The watch ends with an error if its member loses the connection to the other members.
    pub(super) async fn watch(&self, create: WatchCreateRequest) -> Result<Watching, Status> {
        let connection = self.connection().await?;
        let mut client = client(&connection);
        let (requests, sent) = tokio::sync::mpsc::channel(1);
        let created = requests.send(WatchRequest { create: Some(create) }).await;
        created.map_err(|_| Status::internal("the watch request was not taken"))?;
        let mut request = Request::new(ReceiverStream::new(sent));
        request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
        let starting = async {
            client.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
            let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
            client.streaming(request, PathAndQuery::from_static(path::WATCH), codec).await
        };
        let started = tokio::time::timeout(CALL_TIMEOUT, starting).await;
        let started = started.unwrap_or_else(|_| Err(Status::deadline_exceeded("etcd did not start the watch in time")));
        let responses = started.inspect_err(|status| self.note(&connection, status))?.into_inner();
        Ok(Watching { responses, connection, _requests: requests })
    }

    /// Moves to another member after a watch ended.
    pub(super) fn watch_ended(&self, watching: &Watching, status: &Status) {
        self.note(&watching.connection, status);
    }

    fn note(&self, connection: &Connection, status: &Status) {
        if !is_lost(status) {
            return;
        }
        let mut current = self.current.lock();
        if current.connection.as_ref().is_some_and(|current| current.number == connection.number) {
            tracing::warn!(code = ?status.code(), message = status.message(), "lost an etcd member");
            current.connection = None;
            current.at += 1;
        }
    }

    async fn connection(&self) -> Result<Connection, Status> {
        let known = || self.current.lock().connection.clone();
        if let Some(connection) = known() {
            return Ok(connection);
        }
        let _searching = self.connecting.lock().await;
        if let Some(connection) = known() {
            return Ok(connection);
        }
        if let Some((_, status)) = self.current.lock().unreached.as_ref().filter(|(when, _)| when.elapsed() < SEARCH_EVERY) {
            return Err(status.clone());
        }
        let mut last = Status::unavailable("no etcd server is given");
        for _ in 0..self.endpoints.len() {
            let at = self.current.lock().at % self.endpoints.len();
            let Some(endpoint) = self.endpoints.get(at) else { break };
            match endpoint.connect().await {
                Ok(channel) => {
                    tracing::debug!(member = %endpoint.uri(), "connected to etcd");
                    let mut current = self.current.lock();
                    current.unreached = None;
                    current.made += 1;
                    let connection = Connection { channel, number: current.made };
                    current.connection = Some(connection.clone());
                    return Ok(connection);
                }
                Err(error) => {
                    tracing::warn!(member = %endpoint.uri(), error = describe(&error), "etcd member not reached");
                    last = Status::unavailable(format!("{}: {}", endpoint.uri(), describe(&error)));
                    self.current.lock().at += 1;
                }
            }
        }
        self.current.lock().unreached = Some((Instant::now(), last.clone()));
        Err(last)
    }
}

/// A running watch. Dropping it ends the watch.
pub(super) struct Watching {
    pub(super) responses: Streaming<WatchResponse>,
    connection: Connection,
    /// If the sender were dropped, the watch would end.
    _requests: tokio::sync::mpsc::Sender<WatchRequest>,
}

fn client(connection: &Connection) -> tonic::client::Grpc<Channel> {
    // etcd limits the size of a value; a response may hold many values.
    tonic::client::Grpc::new(connection.channel.clone()).max_decoding_message_size(usize::MAX)
}

/// Whether the member or its response is lost, so that another member may answer.
pub(super) fn is_lost(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal)
}

fn endpoint(url: &str, config: &EtcdConfig) -> Result<Endpoint, StoreError> {
    let refused = |why: String| StoreError::Address { address: url.to_owned(), why };
    let endpoint = Endpoint::from_shared(url.trim_end_matches('/').to_owned()).map_err(|error| refused(describe(&error)))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE_EVERY)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .initial_stream_window_size(STREAM_BYTES)
        .initial_connection_window_size(CONNECTION_BYTES)
        .tcp_nodelay(true);
    let is_tls = match endpoint.uri().scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(refused("it must begin with http:// or https://".to_owned())),
    };
    if !is_tls {
        return Ok(endpoint);
    }
    let mut tls = ClientTlsConfig::new();
    if let Some(ca) = &config.tls.ca_pem {
        tls = tls.ca_certificate(Certificate::from_pem(ca));
    }
    if let Some((certificate, key)) = &config.tls.client_pem {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    endpoint.tls_config(tls).map_err(|error| refused(describe(&error)))
}

/// An error with its causes: tonic's own text is only "transport error".
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// The message of etcd, without the text that gRPC adds.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Said(String);

/// The store's error for a failed call.
pub(super) fn failed(doing: &str, status: &Status) -> StoreError {
    match status.code() {
        Code::ResourceExhausted if status.message().contains("space exceeded") => StoreError::SpaceExceeded,
        _ => StoreError::Backend { doing: format!("{doing} etcd"), source: Arc::new(Said(status.message().to_owned())) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reached_quota_differs_from_other_failures() {
        let said = |code, text: &str| failed("writing to", &Status::new(code, text)).to_string();
        let words = "etcdserver: mvcc: database space exceeded";
        assert_eq!(said(Code::ResourceExhausted, words), words);
        assert_eq!(said(Code::ResourceExhausted, "etcdserver: too many requests"), "writing to etcd");
    }
}
