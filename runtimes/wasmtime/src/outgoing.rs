//! HTTP requests that a guest sends through `wasi:http/outgoing-handler`: plain HTTP/1.1 over the
//! Pod's network. TLS is not offered; a guest that needs it speaks it over `wasi:sockets`.

use std::time::Duration;

use http::uri::Scheme;
use http_body_util::BodyExt as _;
use hyper::client::conn::http1;
use tokio::net::TcpStream;
use tokio::time::timeout;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// How long each step may take when the guest sets no limit, as in wasmtime.
const STEP_TIMEOUT: Duration = Duration::from_secs(600);

/// The most bytes of a body of WASI 0.3 that the host copies and holds until they are sent.
const BODY_CHUNK_LEN: usize = 64 << 10;

/// Ends when the connection behind a response has ended.
type Connection = Box<dyn Future<Output = Result<(), Error>> + Send>;
type Sent = Result<(http::Response<WasiBody>, Connection), Error>;

/// Sends the request of a guest.
pub struct Outgoing;

impl WasiHttpHooks for Outgoing {
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
        Box::new(send(request, options))
    }
}

async fn send(mut request: http::Request<WasiBody>, options: Option<RequestOptions>) -> Sent {
    let authority = request.uri().authority().ok_or(Error::HttpRequestUriInvalid)?;
    let address = if authority.port().is_some() { authority.to_string() } else { format!("{authority}:80") };
    let connect_within = options.as_ref().and_then(|options| options.connect_timeout).unwrap_or(STEP_TIMEOUT);
    let answer_within = options.as_ref().and_then(|options| options.first_byte_timeout).unwrap_or(STEP_TIMEOUT);

    let stream = timeout(connect_within, TcpStream::connect(&address)).await.map_err(|_| Error::ConnectionTimeout)?;
    let stream = stream.map_err(Error::Connect)?;
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
