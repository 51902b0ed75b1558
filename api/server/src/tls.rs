//! TLS: what the server shows and whom it believes.
//!
//! A client may show a certificate or none. One that the cluster's authority did not sign does not
//! end the handshake: as upstream, the request gets its 401, or goes by its token.

use std::sync::Arc;

use api_auth::{Identity, Pki};
use arc_swap::ArcSwap;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme, SupportedCipherSuite,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use thiserror::Error;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Why TLS could not be set up.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A certificate or key of the cluster is no PEM.
    #[error("cannot read {0}")]
    Pem(&'static str, #[source] rustls_pki_types::pem::Error),
    /// The library refuses a certificate or key.
    #[error("cannot use {0}")]
    Unusable(&'static str, #[source] rustls::Error),
    /// There is no authority to believe.
    #[error("no certificate authorities in {0}")]
    NoRoots(&'static str),
    /// The authority's certificate cannot verify others.
    #[error("cannot verify client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

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

/// The cryptography that all TLS here is made with.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The same, with AES-128 before AES-256: as strong for all that is known, and a quarter cheaper. Go's
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

fn roots(pki: &Pki) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pki.ca_pem().as_bytes()) {
        let certificate = certificate.map_err(|error| TlsError::Pem("the cluster's certificate authority", error))?;
        roots.add(certificate).map_err(|error| TlsError::Unusable("the cluster's certificate authority", error))?;
    }
    Ok(roots)
}

type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn chain(identity: &Identity, what: &'static str) -> Result<Chain, TlsError> {
    let failed = |error| TlsError::Pem(what, error);
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(failed)?;
    Ok((certificates.map_err(failed)?, key))
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
pub(crate) struct Shown(ArcSwap<CertifiedKey>);

impl Shown {
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
impl Shown {
    /// The certificate, DER.
    pub(crate) fn certificate(&self) -> Vec<u8> {
        self.0.load().cert.first().expect("a certificate").to_vec()
    }
}

impl ResolvesServerCert for Shown {
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
pub(crate) fn acceptor(pki: &Pki, shown: Arc<Shown>) -> Result<(TlsAcceptor, Verifier), TlsError> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(pki)?), provider()).allow_unauthenticated().build()?;
    let what = "the server's certificate";
    let mut config = ServerConfig::builder_with_provider(serving_provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(what, error))?
        .with_client_cert_verifier(Arc::new(Lenient(Arc::clone(&verifier))))
        .with_cert_resolver(shown);
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    config.ignore_client_order = true;
    Ok((TlsAcceptor::from(Arc::new(config)), Verifier(verifier)))
}

/// What the server connects to nodes with.
pub(crate) fn node_connector(pki: &Pki) -> Result<TlsConnector, TlsError> {
    let what = "the server's client certificate";
    let (certificates, key) = chain(pki.kubelet_client(), what)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(what, error))?
        .with_root_certificates(roots(pki)?)
        .with_client_auth_cert(certificates, key)
        .map_err(|error| TlsError::Unusable(what, error))?;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// What reaches servers elsewhere, for whom the server is nobody in particular: an OpenID Connect provider, webhooks.
/// Believes the given authorities, of which `what` tells, or this machine's.
pub(crate) fn connector(ca_pem: Option<&[u8]>, what: &'static str) -> Result<TlsConnector, TlsError> {
    let roots = bundle_roots(ca_pem, what)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(what, error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// What the server connects to Pods and Services with, for whom it proxies.
pub(crate) fn proxy_connector() -> Result<TlsConnector, TlsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable("the protocols of TLS", error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified(provider())))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// What the server connects to an aggregated server with: the front proxy's certificate. Believes the given
/// authorities, this machine's where none are given, or anybody.
pub(crate) fn aggregator_connector(pki: &Pki, ca_bundle: Option<&[u8]>, insecure: bool) -> Result<TlsConnector, TlsError> {
    let what = "the front proxy's certificate";
    let (certificates, key) = chain(pki.front_proxy_client(), what)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(what, error))?;
    let config = match insecure {
        true => config.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider()))),
        false => config.with_root_certificates(bundle_roots(ca_bundle, "caBundle")?),
    };
    let config = config.with_client_auth_cert(certificates, key).map_err(|error| TlsError::Unusable(what, error))?;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The authorities in a PEM text, or this machine's.
fn bundle_roots(pem: Option<&[u8]>, what: &'static str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let Some(pem) = pem else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() { Err(TlsError::NoRoots("this machine's store")) } else { Ok(roots) };
    };
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| TlsError::Pem(what, error))?;
        roots.add(certificate).map_err(|error| TlsError::Unusable(what, error))?;
    }
    if roots.is_empty() { Err(TlsError::NoRoots(what)) } else { Ok(roots) }
}

/// Takes any certificate whose key the backend has: it is spoken to by address, and no authority of
/// ours has signed for it. Upstream's proxy does the same.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
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
