//! TLS of incoming connections: the certificate that the server presents and the client certificates that it accepts.
//!
//! A client may present a certificate or none. A certificate that the cluster's authority did not sign does not end the handshake. As
//! upstream, the request then gets a 401, or is authenticated by its token.

use std::sync::Arc;

#[cfg(test)]
use api_auth::Identity;
use api_auth::Pki;
use api_upstream::tls::{TlsError, chain, provider, roots};
use arc_swap::ArcSwap;
#[cfg(test)]
use rustls::ClientConfig;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme, SupportedCipherSuite};
#[cfg(test)]
use rustls_pki_types::PrivateKeyDer;
#[cfg(test)]
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio_rustls::TlsAcceptor;
#[cfg(test)]
use tokio_rustls::TlsConnector;

/// Whether a connection's client certificate was signed by the cluster's authority.
#[derive(Clone)]
pub(crate) struct Verifier(Arc<dyn ClientCertVerifier>);

impl Verifier {
    /// Whether a chain, leaf first, is good now.
    pub(crate) fn is_good(&self, chain: &[CertificateDer<'_>]) -> bool {
        chain.split_first().is_some_and(|(leaf, rest)| self.0.verify_client_cert(leaf, rest, UnixTime::now()).is_ok())
    }
}

/// What HTTP/2 is called in a handshake.
pub(crate) const HTTP2: &[u8] = b"h2";

/// [`provider`] with AES-128 before AES-256: as strong for all that is known, and a quarter cheaper. Go's
/// servers choose alike.
fn serving_provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    let has_long_key = |suite: &SupportedCipherSuite| {
        matches!(
            suite.suite(),
            CipherSuite::TLS13_AES_256_GCM_SHA384
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
        )
    };
    provider.cipher_suites.sort_by_key(has_long_key);
    Arc::new(provider)
}

/// What stands for a node in tests: serves with an identity, takes certificates of the cluster.
#[cfg(test)]
pub(crate) fn tests_acceptor(pki: &Pki, identity: &Identity) -> TlsAcceptor {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pki).expect("roots")), provider()).build().expect("a verifier");
    let (certificates, key) = chain(identity, "the node's certificate").expect("PEM");
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_client_cert_verifier(verifier).with_single_cert(certificates, key).expect("a certificate");
    TlsAcceptor::from(Arc::new(config))
}

/// What stands for any other server in tests.
#[cfg(test)]
pub(crate) fn tests_server(certificate_pem: &str, key_pem: &str) -> TlsAcceptor {
    let certificates = CertificateDer::pem_slice_iter(certificate_pem.as_bytes()).collect::<Result<Vec<_>, _>>().expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).expect("PEM");
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("versions");
    TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(certificates, key).expect("a certificate")))
}

/// A client in tests, with any certificate or none.
#[cfg(test)]
pub(crate) fn tests_connector(pki: &Pki, identity: Option<&Identity>) -> TlsConnector {
    tests_connector_speaking(pki, identity, &[])
}

/// [`tests_connector`] that offers these protocols.
#[cfg(test)]
pub(crate) fn tests_connector_speaking(pki: &Pki, identity: Option<&Identity>, protocols: &[&[u8]]) -> TlsConnector {
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_root_certificates(roots(pki).expect("roots"));
    let mut config = match identity.map(|identity| chain(identity, "a certificate").expect("PEM")) {
        Some((certificates, key)) => config.with_client_auth_cert(certificates, key).expect("a certificate"),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// What the server shows of itself, which changes when a certificate is renewed. Connections that are open live on.
#[derive(Debug)]
pub(crate) struct ServingCertificate(ArcSwap<CertifiedKey>);

impl ServingCertificate {
    pub(crate) fn of(pki: &Pki) -> Result<Self, TlsError> {
        Ok(Self(ArcSwap::from_pointee(certified(pki)?)))
    }

    /// Shows a renewed certificate from now on.
    pub(crate) fn take_up(&self, pki: &Pki) -> Result<(), TlsError> {
        self.0.store(Arc::new(certified(pki)?));
        Ok(())
    }
}

#[cfg(test)]
impl ServingCertificate {
    /// The certificate, DER.
    pub(crate) fn certificate(&self) -> Vec<u8> {
        self.0.load().cert.first().expect("a certificate").to_vec()
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

fn certified(pki: &Pki) -> Result<CertifiedKey, TlsError> {
    let what = "the server's certificate";
    let (certificates, key) = chain(pki.serving(), what)?;
    CertifiedKey::from_der(certificates, key, &provider()).map_err(|error| TlsError::Unusable(what, error))
}

/// What the server accepts connections with, and what tells good client certificates from others.
pub(crate) fn acceptor(pki: &Pki, serving_certificate: Arc<ServingCertificate>) -> Result<(TlsAcceptor, Verifier), TlsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pki)?), provider()).allow_unauthenticated().build()?;
    let what = "the server's certificate";
    let mut config = ServerConfig::builder_with_provider(serving_provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(what, error))?
        .with_client_cert_verifier(Arc::new(Lenient(Arc::clone(&verifier))))
        .with_cert_resolver(serving_certificate);
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    config.ignore_client_order = true;
    Ok((TlsAcceptor::from(Arc::new(config)), Verifier(verifier)))
}

/// Lets any certificate through whose key the client has. Whether it counts is asked later.
#[derive(Debug)]
struct Lenient(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Lenient {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
