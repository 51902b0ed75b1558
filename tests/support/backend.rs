//! A small HTTPS server in a story's namespace. It plays a webhook or an aggregated API server.

use std::convert::Infallible;
use std::sync::{Arc, mpsc};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::net::Net;

/// A response of such a server.
pub type Answer = Response<Full<Bytes>>;

/// Serves under a DNS name and a port until the test ends; returns the certificate of its authority. If `clients` (PEM)
/// is given, the server accepts only clients whose certificate that authority signed.
pub fn serve_in<A>(net: &Net, name: &str, port: u16, clients: Option<&str>, answer: A) -> String
where
    A: AsyncFn(Request<Incoming>) -> Answer + Clone + Send + 'static,
{
    let key = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let pem = key.cert.pem();
    let acceptor = acceptor(key.cert.der().clone(), key.signing_key.serialize_der(), clients);
    let (ready, is_ready) = mpsc::channel();
    // The thread ends with the test's process.
    drop(net.enter(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let serving = tokio::task::LocalSet::new();
        serving.block_on(&runtime, async {
            let listener = TcpListener::bind(("0.0.0.0", port)).await.expect("the port is free");
            ready.send(()).expect("the test waits");
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                tokio::task::spawn_local(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let answer = &answer;
                    let service = service_fn(move |request| async move { Ok::<_, Infallible>(answer(request).await) });
                    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    // A client may go away at any time.
                    let _ended = serving.with_upgrades().await;
                });
            }
        });
    }));
    is_ready.recv().expect("the server listens");
    pem
}

fn acceptor(certificate: CertificateDer<'static>, key: Vec<u8>, clients: Option<&str>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().expect("versions");
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            CertificateDer::pem_slice_iter(pem.as_bytes()).for_each(|root| roots.add(root.expect("PEM")).expect("an authority"));
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().expect("a verifier");
            config.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
    TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).expect("a certificate")))
}

/// A Service in `default` with one endpoint, which is the address of such a server.
pub fn service(name: &str, ip: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{name: https, port: 443, targetPort: {port}}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\n\
         endpoints: [{{addresses: [{ip}], conditions: {{ready: true}}}}]\nports: [{{name: https, port: {port}}}]\n"
    )
}

/// The registration of such a server for a group version, behind its Service in `default`.
pub fn api_service(group: &str, version: &str, service: &str, authority: &str) -> String {
    format!(
        "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {{name: {version}.{group}}}\nspec:\n  \
         group: {group}\n  version: {version}\n  groupPriorityMinimum: 100\n  versionPriority: 100\n  \
         service: {{name: {service}, namespace: default}}\n  caBundle: {}\n",
        STANDARD.encode(authority)
    )
}
