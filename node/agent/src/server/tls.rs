//! The server's TLS settings, which are built again when its certificate is renewed.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::config::Serving;
use crate::error::AgentError;

/// The acceptor for the present certificate.
pub(super) struct Acceptors {
    serving: watch::Receiver<Serving>,
    current: TlsAcceptor,
}

impl Acceptors {
    pub(super) fn new(mut serving: watch::Receiver<Serving>) -> Result<Self, AgentError> {
        let current = acceptor(&serving.borrow_and_update().clone())?;
        Ok(Self { serving, current })
    }

    /// Uses a renewed certificate; an unusable one is logged and the old one stays.
    pub(super) fn current(&mut self) -> TlsAcceptor {
        if self.serving.has_changed().unwrap_or(false) {
            match acceptor(&self.serving.borrow_and_update().clone()) {
                Ok(renewed) => self.current = renewed,
                Err(error) => tracing::error!(error = crate::error::chain(&error), "renewed serving certificate not taken up"),
            }
        }
        self.current.clone()
    }
}

fn acceptor(serving: &Serving) -> Result<TlsAcceptor, AgentError> {
    let bad = |error: &dyn std::fmt::Display| AgentError::Certificate(error.to_string());
    let provider = api_tls::provider();
    let certificates =
        |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(|error| bad(&error));
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&serving.client_ca_pem)? {
        roots.add(certificate).map_err(|error| bad(&error))?;
    }
    // A client without a certificate may have a token.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).allow_unauthenticated();
    let verifier = verifier.build().map_err(|error| bad(&error))?;
    let key = PrivateKeyDer::from_pem_slice(serving.key_pem.as_bytes()).map_err(|error| bad(&error))?;
    let builder =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(|error| bad(&error))?;
    let builder = builder.with_client_cert_verifier(verifier);
    let mut config = builder.with_single_cert(certificates(&serving.certificate_pem)?, key).map_err(|error| bad(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
