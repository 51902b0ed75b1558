//! Requests to a server over TLS, and to one that says nothing.

use std::convert::Infallible;
use std::sync::Arc;

use ::http::{HeaderMap, Response};
use api_client::informer::Informer;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

fn http() -> Http {
    let allowed = vec!["127.0.0.0/8".parse().expect("a range")];
    Http::new(Addresses::new(Informer::detached(), Informer::detached(), "cluster.local", Default::default(), allowed))
}

/// A server whose certificate for `localhost` is also the authority of its clients. Answers with the header `x-echo`.
async fn serve(needs_client: bool) -> (u16, String, String) {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (certificate, private) = (key.cert.pem(), key.signing_key.serialize_pem());
    let mut roots = RootCertStore::empty();
    roots.add(key.cert.der().clone()).expect("an authority");
    let builder = ServerConfig::builder_with_provider(api_tls::provider()).with_safe_default_protocol_versions().expect("versions");
    let builder = match needs_client {
        true => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), api_tls::provider()).build().expect("a verifier"),
        ),
        false => builder.with_no_client_auth(),
    };
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.signing_key.serialize_der()));
    let config = builder.with_single_cert(vec![key.cert.der().clone()], der).expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let echo = |headers: &HeaderMap| headers.get("x-echo").map(|value| value.as_bytes().to_vec()).unwrap_or_default();
                let service = service_fn(|request: ::http::Request<Incoming>| {
                    let body = Full::new(Bytes::from(echo(request.headers())));
                    async { Ok::<_, Infallible>(Response::new(body)) }
                });
                // A client may go away at any time.
                let _ended = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (port, certificate, private)
}

async fn ask(port: u16, tls: ClientTls, unsafe_ssl: bool) -> Result<Vec<u8>, String> {
    let mut request = Request::get(&format!("https://localhost:{port}/")).expect("a request");
    (request.tls, request.unsafe_ssl) = (tls, unsafe_ssl);
    request.header("X-Echo", "hello".to_owned());
    http().send(request).await.map(|answer| answer.body).map_err(|error| error.to_string())
}

fn authority(certificate: &str) -> ClientTls {
    ClientTls { client: None, authority: Some(certificate.to_owned()) }
}

#[tokio::test]
async fn a_server_needs_an_authority() {
    let (port, certificate, _) = serve(false).await;
    assert_eq!(ask(port, ClientTls::default(), false).await, Err("the connection failed".to_owned()));
    assert_eq!(ask(port, authority(&certificate), false).await, Ok(b"hello".to_vec()));
    assert_eq!(ask(port, ClientTls::default(), true).await, Ok(b"hello".to_vec()));
    let broken = ask(port, authority("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), false).await;
    assert_eq!(broken, Err("error creating the TLS config: the authority is invalid".to_owned()));
}

#[tokio::test]
async fn a_client_shows_its_certificate() {
    let (port, certificate, key) = serve(true).await;
    assert!(ask(port, authority(&certificate), false).await.is_err());
    let client = ClientTls { client: Some((certificate.clone(), key)), ..authority(&certificate) };
    assert_eq!(ask(port, client, false).await, Ok(b"hello".to_vec()));
    let client = ClientTls { client: Some((certificate.clone(), "no key".to_owned())), ..authority(&certificate) };
    assert_eq!(ask(port, client, false).await, Err("error creating the TLS config: the key is no PEM".to_owned()));
}

#[tokio::test]
async fn a_request_has_a_time_and_no_reserved_headers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let url = format!("http://127.0.0.1:{}/", listener.local_addr().expect("an address").port());
    let mut request = Request::get(&url).expect("a request");
    request.timeout(Some(Duration::from_millis(50)));
    let error = http().send(request).await.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.starts_with("context deadline exceeded"), "{error}");
    for name in ["Host", "Transfer-Encoding", "bad name"] {
        let mut request = Request::get(&url).expect("a request");
        request.header(name, "a".to_owned());
        let error = http().send(request).await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with("a header has an invalid name or value, or is one of [\"host\""), "{name}: {error}");
    }
    let mut long = Request::get(&url).expect("a request");
    long.timeout(Some(Duration::from_secs(3_600)));
    assert_eq!(long.timeout, TIMEOUT_MAX);
}
