//! TLS of outgoing connections: the authorities that the server trusts and the certificates that it presents.

use std::sync::Arc;

use api_auth::{Identity, Pki};
use api_tls::AnyCertificate;
pub use api_tls::provider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio_rustls::TlsConnector;

/// Why the setup of TLS failed.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A certificate or key of the cluster is no PEM.
    #[error("cannot read {0}")]
    Pem(&'static str, #[source] rustls_pki_types::pem::Error),
    /// The TLS library rejects a certificate or key.
    #[error("cannot use {0}")]
    Unusable(&'static str, #[source] rustls::Error),
    /// There is no trusted authority.
    #[error("no certificate authorities in {0}")]
    NoRoots(&'static str),
    /// The authority's certificate cannot verify others.
    #[error("cannot verify client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The cluster's authority, as root certificates.
///
/// # Errors
/// The certificate of the authority is unusable.
pub fn roots(pki: &Pki) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pki.ca_pem().as_bytes()) {
        let certificate = certificate.map_err(|error| TlsError::Pem("the cluster's certificate authority", error))?;
        roots.add(certificate).map_err(|error| TlsError::Unusable("the cluster's certificate authority", error))?;
    }
    Ok(roots)
}

/// A certificate chain, leaf first, and the key of the leaf.
pub type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The certificate chain of an identity. `what` names the identity in errors.
///
/// # Errors
/// The identity is no PEM.
pub fn chain(identity: &Identity, what: &'static str) -> Result<Chain, TlsError> {
    let failed = |error| TlsError::Pem(what, error);
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(identity.certificate_pem.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(failed)?;
    Ok((certificates.map_err(failed)?, key))
}

/// The connector for nodes.
pub fn node_connector(pki: &Pki) -> Result<TlsConnector, TlsError> {
    client_connector(pki, pki.kubelet_client(), "the server's client certificate")
}

/// A connector for servers of the cluster, with that client certificate. `what` names the certificate in errors.
///
/// # Errors
/// The certificate or the cluster's authority is unusable.
pub fn client_connector(pki: &Pki, identity: &Identity, what: &'static str) -> Result<TlsConnector, TlsError> {
    let (certificates, key) = chain(identity, what)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(what, error))?
        .with_root_certificates(roots(pki)?)
        .with_client_auth_cert(certificates, key)
        .map_err(|error| TlsError::Unusable(what, error))?;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The connector for servers that do not authenticate the API server by TLS: an OpenID Connect provider, webhooks. It
/// trusts the given authorities or those of this machine. `what` names the authorities in errors.
pub fn connector(ca_pem: Option<&[u8]>, what: &'static str) -> Result<TlsConnector, TlsError> {
    let roots = bundle_roots(ca_pem, what)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(what, error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The connector for Pods and Services behind the proxy.
pub fn proxy_connector() -> Result<TlsConnector, TlsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable("the protocols of TLS", error))?
        .dangerous()
        .with_custom_certificate_verifier(AnyCertificate::verifier())
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The connector for an aggregated server, with the front proxy's certificate. It trusts the given authorities or,
/// without any, those of this machine. With `insecure` it trusts every server.
pub fn aggregator_connector(pki: &Pki, ca_bundle: Option<&[u8]>, insecure: bool) -> Result<TlsConnector, TlsError> {
    let what = "the front proxy's certificate";
    let (certificates, key) = chain(pki.front_proxy_client(), what)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Unusable(what, error))?;
    let config = match insecure {
        true => config.dangerous().with_custom_certificate_verifier(AnyCertificate::verifier()),
        false => config.with_root_certificates(bundle_roots(ca_bundle, "caBundle")?),
    };
    let config = config.with_client_auth_cert(certificates, key).map_err(|error| TlsError::Unusable(what, error))?;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The authorities in a PEM text; without a text those of this machine.
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
