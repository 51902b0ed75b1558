//! `httpGet` probes and hooks: a request from the node to the Pod's address; 200 to 399 is success, after
//! redirections on the same host were followed.

mod url;

use std::sync::Arc;

use api_tls::AnyCertificate;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use runtimes_contract::PROBE_HEADER;

use super::{ActionError, HttpError, Target, port};
use url::{Next, RequestUrl};

/// Requests that redirections may lead to; upstream's.
const REDIRECTS_MAX: usize = 10;
/// Statuses whose `Location` is followed, as Go's client does.
const REDIRECTIONS: [u16; 5] = [301, 302, 303, 307, 308];
/// Bytes of an answer that are read; upstream's.
const BODY_LEN_MAX: usize = 10 * 1_024;

pub(crate) async fn probe(target: &Target<'_>, action: &HTTPGetAction) -> Result<(), ActionError> {
    let (url, own) = first(target, action)?;
    // The token is for the container only.
    let token = target.token().filter(|_| url.host == own);
    let status = walk(url, action, "kube-probe/1.37", token.as_deref()).await?;
    if (200..400).contains(&status) { Ok(()) } else { Err(ActionError::ProbeStatus(status)) }
}

/// Sends the request, follows redirections on the same host, and returns the status code.
pub(crate) async fn get(target: &Target<'_>, action: &HTTPGetAction, agent: &str) -> Result<u16, ActionError> {
    let (url, _) = first(target, action)?;
    walk(url, action, agent, None).await
}

/// The first URL of the request, and the Pod's own address.
fn first(target: &Target<'_>, action: &HTTPGetAction) -> Result<(RequestUrl, String), ActionError> {
    let own = target.ip.to_string();
    let path = action.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
    let url = RequestUrl {
        secure: action.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
        host: action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| own.clone()),
        port: port(target.container, &action.port)?,
        path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
    };
    Ok((url, own))
}

async fn walk(mut url: RequestUrl, action: &HTTPGetAction, agent: &str, token: Option<&str>) -> Result<u16, ActionError> {
    let mut named_host = true;
    for _ in 0..REDIRECTS_MAX {
        let answer = async { ask(&url, request(action, agent, &url, named_host, token)?).await };
        let answer = answer.await.map_err(|error| ActionError::Get { url: url.to_string(), error })?;
        let Some(location) = answer.location else { return Ok(answer.status) };
        match url.follow(&location) {
            Next::Here { url: next, relative } => (url, named_host) = (next, named_host && relative),
            Next::Elsewhere => return Ok(answer.status),
        }
    }
    Err(ActionError::Get { url: url.to_string(), error: HttpError::Redirects(REDIRECTS_MAX) })
}

/// The request with the probe's own headers. The probe's `Host` header is sent only to URLs that the probe itself names.
fn request(
    action: &HTTPGetAction,
    agent: &str,
    url: &RequestUrl,
    named_host: bool,
    token: Option<&str>,
) -> Result<http::Request<Empty<Bytes>>, HttpError> {
    let mut request = http::Request::get(&url.path).header("connection", "close");
    let given = |name: &str| action.http_headers.iter().flatten().any(|header| header.name.eq_ignore_ascii_case(name));
    for (name, value) in [("user-agent", agent), ("accept", "*/*")] {
        if !given(name) {
            request = request.header(name, value);
        }
    }
    let mut host = format!("{}:{}", url.host, url.port);
    for header in action.http_headers.iter().flatten() {
        if !header.name.eq_ignore_ascii_case("host") {
            request = request.header(&header.name, &header.value);
        } else if named_host {
            host.clone_from(&header.value);
        }
    }
    if let Some(token) = token {
        request = request.header(PROBE_HEADER, token);
    }
    request.header("host", host).body(Empty::new()).map_err(HttpError::Request)
}

/// The parts of an answer that count.
struct Answer {
    status: u16,
    /// The target of a redirection.
    location: Option<String>,
}

async fn ask(url: &RequestUrl, request: http::Request<Empty<Bytes>>) -> Result<Answer, HttpError> {
    let (host, port) = (url.host.as_str(), url.port);
    let stream = TcpStream::connect((host, port)).await.map_err(|error| HttpError::Dial { address: format!("{host}:{port}"), error })?;
    if url.secure {
        let name = ServerName::try_from(host.to_owned()).map_err(HttpError::ServerName)?;
        let stream = unverified().connect(name, stream).await.map_err(HttpError::Tls)?;
        send(stream, request).await
    } else {
        send(stream, request).await
    }
}

async fn send<S>(stream: S, request: http::Request<Empty<Bytes>>) -> Result<Answer, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(HttpError::Exchange)?;
    let mut connection = std::pin::pin!(connection);
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(HttpError::Exchange)?;
        let status = answer.status().as_u16();
        let location = answer.headers().get("location").and_then(|location| location.to_str().ok()).map(str::to_owned);
        // At most this much of the answer is read, so that the server does not see a broken pipe.
        if let Err(error) = Limited::new(answer.into_body(), BODY_LEN_MAX).collect().await {
            tracing::trace!(error, "rest of a probe's answer left unread");
        }
        Ok(Answer { status, location: location.filter(|_| REDIRECTIONS.contains(&status)) })
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = &mut connection => match ended {
            Ok(()) => exchange.await,
            Err(error) => Err(HttpError::Exchange(error)),
        },
    }
}

/// Upstream does not verify the certificates of Pods under probes either: a probe carries no secret, and its result is one bit.
fn unverified() -> tokio_rustls::TlsConnector {
    let builder = rustls::ClientConfig::builder_with_provider(api_tls::provider()).with_safe_default_protocol_versions();
    #[expect(clippy::expect_used, reason = "the ring provider has the default protocol versions")]
    let builder = builder.expect("protocol versions");
    let config = builder.dangerous().with_custom_certificate_verifier(AnyCertificate::verifier()).with_no_client_auth();
    tokio_rustls::TlsConnector::from(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers each request by its path: `/to/X` redirects to `X`, a number is a status.
    async fn server() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; 4_096];
                let len = stream.read(&mut bytes).await.expect("a request");
                let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
                let path = text.split(' ').nth(1).expect("a path");
                let head = match path.strip_prefix("/to/") {
                    Some(to) => format!("302 Found\r\nlocation: {to}"),
                    None => format!("{} Whatever", path.trim_start_matches('/')),
                };
                let answer = format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.expect("an answer");
            }
        });
        port
    }

    #[tokio::test]
    async fn redirections_are_followed_as_far_as_they_stay() {
        let port = server().await;
        let ask = async |path: &str| {
            let url = RequestUrl { secure: false, host: "127.0.0.1".to_owned(), port, path: path.to_owned() };
            walk(url, &HTTPGetAction::default(), "test", None).await.map_err(|error| error.to_string())
        };
        assert_eq!(ask("/200").await, Ok(200));
        assert_eq!(ask("/to//500").await, Ok(500), "what it leads to counts");
        assert_eq!(ask("/to//to//204").await, Ok(204));
        assert_eq!(ask("/to/http://example.org/500").await, Ok(302), "nobody is asked elsewhere");
        assert_eq!(ask("/302").await, Ok(302), "it leads nowhere");
        let round = format!("Get \"http://127.0.0.1:{port}/to/?\": stopped after 10 redirects");
        assert_eq!(ask("/to/?").await, Err(round), "round and round");
    }

    #[test]
    fn a_header_of_the_probe_replaces_ours() {
        let headers = serde_json::json!([{"name": "Host", "value": "web.test"}, {"name": "User-Agent", "value": "mine"}]);
        let action: HTTPGetAction = serde_json::from_value(serde_json::json!({"port": 80, "httpHeaders": headers})).expect("an action");
        let url = RequestUrl { secure: false, host: "10.0.0.5".to_owned(), port: 80, path: "/".to_owned() };
        let headers = |named_host: bool| {
            let request = request(&action, "kube-probe", &url, named_host, None).expect("a request");
            let all = |name: &str| request.headers().get_all(name).iter().map(|value| value.to_str().expect("text").to_owned()).collect();
            let both: [Vec<String>; 2] = [all("host"), all("user-agent")];
            both
        };
        assert_eq!(headers(true), [["web.test"], ["mine"]]);
        assert_eq!(headers(false), [["10.0.0.5:80"], ["mine"]]);
    }
}
