//! `httpGet` probes and hooks: a request from the node to the Pod's address; 200 to 399 is success.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::{Target, port};

/// Bytes of an answer that are read; upstream's.
const BODY_LEN_MAX: usize = 10 * 1_024;

pub(super) async fn look(target: &Target<'_>, action: &HTTPGetAction) -> Result<(), String> {
    let status = get(target, action, "kube-probe/1.37").await?;
    if (200..400).contains(&status) { Ok(()) } else { Err(format!("HTTP probe failed with statuscode: {status}")) }
}

/// Sends the request and answers the status code.
pub(crate) async fn get(target: &Target<'_>, action: &HTTPGetAction, agent: &str) -> Result<u16, String> {
    let port = port(target.container, &action.port)?;
    let own = target.ip.to_string();
    let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(&own);
    let secure = action.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let path = action.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let url = format!("{}://{host}:{port}{path}", if secure { "https" } else { "http" });
    let failed = |what: String| format!("Get \"{url}\": {what}");
    let mut request = http::Request::get(&path).header("user-agent", agent).header("accept", "*/*").header("connection", "close");
    let mut named_host = None;
    for header in action.http_headers.iter().flatten() {
        if header.name.eq_ignore_ascii_case("host") {
            named_host = Some(header.value.clone());
        } else {
            request = request.header(&header.name, &header.value);
        }
    }
    let authority = named_host.unwrap_or_else(|| format!("{host}:{port}"));
    let request = request.header("host", authority).body(Empty::<Bytes>::new()).map_err(|error| failed(error.to_string()))?;
    let stream = TcpStream::connect((host, port)).await.map_err(|error| failed(format!("dial tcp {host}:{port}: {error}")))?;
    if secure {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
        let stream = unverified().connect(name, stream).await.map_err(|error| failed(error.to_string()))?;
        send(stream, request).await.map_err(failed)
    } else {
        send(stream, request).await.map_err(failed)
    }
}

async fn send<S>(stream: S, request: http::Request<Empty<Bytes>>) -> Result<u16, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let mut connection = std::pin::pin!(connection);
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        // The answer is read, so that the server does not see a broken pipe, but no more than a page.
        if let Err(error) = Limited::new(answer.into_body(), BODY_LEN_MAX).collect().await {
            tracing::trace!(error, "rest of a probe's answer left unread");
        }
        Ok(status)
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = &mut connection => match ended {
            Ok(()) => exchange.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Upstream does not check the certificates that Pods show to probes, and neither do we: a probe
/// carries nothing secret and its answer is one bit.
fn unverified() -> tokio_rustls::TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    #[expect(clippy::expect_used, reason = "the ring provider has the default protocol versions")]
    let builder = builder.expect("protocol versions");
    let config = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider))).with_no_client_auth();
    tokio_rustls::TlsConnector::from(Arc::new(config))
}

#[derive(Debug)]
struct Anyone(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
