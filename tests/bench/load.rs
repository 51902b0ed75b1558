//! A client over one HTTP/2 connection with TLS. It is cheap, so that the benches measure the server and not the
//! client.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;

/// A connection; clones share it.
#[derive(Clone)]
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    authority: Arc<str>,
}

impl Client {
    /// Connects as the user of a kubeconfig.
    pub async fn connect(kubeconfig: &str) -> Self {
        let _first = rustls::crypto::ring::default_provider().install_default();
        // skiff writes its kubeconfigs as JSON, which is YAML too.
        let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        let config: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let (cluster, user) = (&config["clusters"][0]["cluster"], &config["users"][0]["user"]);
        let pem = |data: &serde_json::Value| STANDARD.decode(data.as_str().expect("inline data")).expect("base64");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem(&cluster["certificate-authority-data"])).expect("a CA")).expect("a CA");
        let chain = vec![CertificateDer::from_pem_slice(&pem(&user["client-certificate-data"])).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(&pem(&user["client-key-data"])).expect("a key");
        let mut tls =
            rustls::ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(chain, key).expect("a client certificate");
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let authority: Arc<str> = cluster["server"].as_str().expect("a server").trim_start_matches("https://").into();
        let stream = TcpStream::connect(&*authority).await.expect("connects");
        stream.set_nodelay(true).expect("a socket");
        let host = authority.rsplit_once(':').expect("a port").0.to_owned();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(tls))
            .connect(ServerName::try_from(host).expect("a name"), stream)
            .await
            .expect("TLS");
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_connection_window_size(16 << 20)
            .initial_stream_window_size(4 << 20)
            .handshake(TokioIo::new(stream))
            .await
            .expect("HTTP/2");
        tokio::spawn(connection);
        Self { sender, authority }
    }

    /// Sends a request and returns its response with an unread body.
    pub async fn send(&self, method: Method, path: &str, content_type: &str, body: Bytes) -> Response<hyper::body::Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(body))
            .expect("a request");
        let mut sender = self.sender.clone();
        sender.ready().await.expect("the connection stands");
        sender.send_request(request).await.expect("an answer")
    }

    /// Sends a request and reads its answer, which must be a success.
    pub async fn call(&self, method: Method, path: &str, content_type: &str, body: Bytes) -> Bytes {
        let response = self.send(method, path, content_type, body).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        assert!(status == StatusCode::OK || status == StatusCode::CREATED, "{path}: {status} {}", String::from_utf8_lossy(&bytes));
        bytes
    }

    /// A GET.
    pub async fn get(&self, path: &str) -> Bytes {
        self.call(Method::GET, path, "application/json", Bytes::new()).await
    }
}

/// Runs `work` for `0..count`, at most `at_once` at the same time.
pub async fn in_flight<F: Future<Output = ()> + Send + 'static>(count: usize, at_once: usize, mut work: impl FnMut(usize) -> F) {
    let mut running = tokio::task::JoinSet::new();
    for n in 0..count {
        if running.len() == at_once {
            running.join_next().await.expect("some run").expect("no panic");
        }
        running.spawn(work(n));
    }
    while let Some(done) = running.join_next().await {
        done.expect("no panic");
    }
}
