//! HTTP requests that a guest sends through `wasi:http/outgoing-handler`: plain HTTP/1.1 over the
//! Pod's network. TLS is not offered; a guest that needs it speaks it over `wasi:sockets`.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::uri::{Authority, Scheme};
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use tokio::net::TcpStream;
use tokio::time::timeout;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{DEFAULT_FORBIDDEN_HEADERS, Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks};

use crate::outbound::Outbound;

/// Of an authority without one.
const HTTP_PORT: u16 = 80;

/// How long each step may take when the guest sets no limit, as in wasmtime.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);

/// The most bytes of a body that the host copies at once and holds until they are sent.
const BODY_CHUNK_LEN: usize = 64 << 10;
/// The chunks of a body of WASI 0.2 that a guest may write before one of them is sent: by wasmtime's defaults two, of a MiB each. A short
/// answer is then complete when the guest has run once, and is sent at once.
const BODY_CHUNKS_MAX: usize = 8;
/// The chunks for which wasmtime adds room by itself.
const BODY_CHUNKS_ADDED: usize = 1;

/// The headers that a guest neither sees nor sends, which are those of wasmtime. The constant itself would be built anew at each look, and
/// there is one for each header of a request.
static FORBIDDEN_HEADERS: [HeaderName; 9] = DEFAULT_FORBIDDEN_HEADERS;

/// Ends when the connection behind a response has ended.
type Connection = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sent = Result<(http::Response<WasiBody>, Connection), Error>;

/// Sends the request of a guest, to those alone to whom it may, if there is a list.
pub struct Outgoing(pub Option<Arc<Outbound>>);

impl WasiHttpHooks for Outgoing {
    fn is_forbidden_header(&mut self, name: &HeaderName) -> bool {
        FORBIDDEN_HEADERS.contains(name)
    }

    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(|name| FORBIDDEN_HEADERS.contains(name))
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK_LEN
    }

    fn p2_outgoing_body_buffer_chunks(&mut self) -> usize {
        BODY_CHUNKS_MAX - BODY_CHUNKS_ADDED
    }

    fn p3_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK_LEN
    }

    fn is_supported_scheme(&mut self, scheme: &Scheme) -> bool {
        *scheme == Scheme::HTTP
    }

    fn default_scheme(&mut self) -> Option<Scheme> {
        Some(Scheme::HTTP)
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _response_processed: Connection,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        Box::new(send(request, options, self.0.clone()))
    }
}

async fn connect(authority: &Authority, outbound: Option<Arc<Outbound>>) -> Result<TcpStream, Error> {
    let (host, port) = (authority.host(), authority.port_u16().unwrap_or(HTTP_PORT));
    let stream = match outbound {
        None => TcpStream::connect((host.trim_start_matches('[').trim_end_matches(']'), port)).await,
        Some(outbound) => match outbound.allowed(host, port).await {
            Ok(allowed) if allowed.is_empty() => return Err(Error::HttpRequestDenied),
            Ok(allowed) => TcpStream::connect(allowed.as_slice()).await,
            Err(error) => Err(error),
        },
    };
    stream.map_err(Error::Connect)
}

async fn send(mut request: http::Request<WasiBody>, options: Option<RequestOptions>, outbound: Option<Arc<Outbound>>) -> Sent {
    let authority = request.uri().authority().ok_or(Error::HttpRequestUriInvalid)?;
    let connect_within = options.as_ref().and_then(|options| options.connect_timeout).unwrap_or(STEP_TIMEOUT);
    let answer_within = options.as_ref().and_then(|options| options.first_byte_timeout).unwrap_or(STEP_TIMEOUT);

    let stream = timeout(connect_within, connect(authority, outbound)).await.map_err(|_| Error::ConnectionTimeout)??;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Error::Hyper)?;
    let connection = wasmtime_wasi::runtime::spawn(connection);

    // Only a proxy wants to see scheme and host in the request line.
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|_| Error::HttpRequestUriInvalid)?;
    let response = timeout(answer_within, sender.send_request(request)).await.map_err(|_| Error::ConnectionReadTimeout)?;
    let response = response.map_err(Error::Hyper)?.map(|body| body.map_err(Error::Hyper).boxed_unsync());
    let ended: Connection = Box::new(async move {
        // The sender keeps the connection open; dropping the sender closes it.
        let _sender = sender;
        connection.await.map_err(Error::Hyper)
    });
    Ok((response, ended))
}
