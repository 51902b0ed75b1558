//! `tlsConfig` and `enableHTTPS` of an extender, as settings of an HTTP client. Their meaning is that of upstream's client
//! (client-go's `TLSConfigFor`): data goes before a file, and `enableHTTPS` without an authority trusts every server.

use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use api_model::field::{FieldError, Path};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Uri;
use kube::client::ConfigExt;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{self, PemObject};
use thiserror::Error;

use crate::config::document;

/// Where the connection's certificates and keys are, and what is checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TlsConfig {
    /// Whether every server is trusted.
    insecure: bool,
    /// The name in the server's certificate, if it is not the host of the URL.
    server_name: Option<String>,
    authorities: Option<Pem>,
    certificate: Option<Pem>,
    key: Option<Pem>,
}

/// Text in PEM.
#[derive(Clone, PartialEq)]
enum Pem {
    Data(Vec<u8>),
    File(PathBuf),
}

/// Data may be a key, which stays out of logs.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(_) => f.write_str("Data"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// Why the settings of a connection are unusable.
#[derive(Debug, Error)]
pub(crate) enum TlsError {
    /// A file cannot be read.
    #[error("open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The authorities are no certificates in PEM.
    #[error("unable to load root certificates")]
    Authorities(#[from] pem::Error),
    /// There is no certificate among the authorities.
    #[error("unable to load root certificates: no valid certificate authority data seen")]
    NoAuthority,
    /// The certificates, the key or the name cannot be used.
    #[error("unusable certificate, key or name")]
    Client(#[source] Box<kube::Error>),
}

impl TlsConfig {
    /// Checks the settings of the extender. `path` is that of the extender.
    pub(super) fn new(given: &document::Extender, path: &Path, errors: &mut Vec<FieldError>) -> Self {
        let path = path.child("tlsConfig");
        let tls = given.tls_config.clone().unwrap_or_default();
        let mut pem = |data: &str, file: &str, field: &str| match (data, file) {
            ("", "") => None,
            ("", file) => Some(Pem::File(PathBuf::from(file))),
            (data, _) => match BASE64_STANDARD.decode(data) {
                Ok(data) => Some(Pem::Data(data)),
                Err(_) => {
                    errors.push(FieldError::invalid(&path.child(field), "", "must be base64"));
                    None
                }
            },
        };
        let authorities = pem(&tls.ca_data, &tls.ca_file, "caData");
        let certificate = pem(&tls.cert_data, &tls.cert_file, "certData");
        let key = pem(&tls.key_data, &tls.key_file, "keyData");
        if tls.insecure && authorities.is_some() {
            let detail = "specifying a root certificates file with the insecure flag is not allowed";
            errors.push(FieldError::forbidden(&path.child("insecure"), detail));
        }
        for (missing, other, field) in [(&certificate, &key, "certFile"), (&key, &certificate, "keyFile")] {
            if missing.is_none() && other.is_some() {
                errors.push(FieldError::required(&path.child(field), "certificate and key must be specified together"));
            }
        }
        Self {
            insecure: tls.insecure || given.enable_https && authorities.is_none(),
            server_name: Some(tls.server_name).filter(|name| !name.is_empty()),
            authorities,
            certificate,
            key,
        }
    }

    /// Whether the settings come from files, whose contents may change.
    pub fn has_files(&self) -> bool {
        [&self.authorities, &self.certificate, &self.key].iter().any(|pem| matches!(pem, Some(Pem::File(_))))
    }

    /// The settings of a client of the server at `url`. Reads the files.
    ///
    /// # Errors
    /// When a file cannot be read, or its content or the data cannot be used.
    pub fn client_config(&self, url: &Uri, timeout: Duration) -> Result<kube::Config, TlsError> {
        let mut config = kube::Config::new(url.clone());
        config.connect_timeout = Some(timeout);
        config.write_timeout = Some(timeout);
        // A call that fails is the caller's: the Pod is tried again.
        config.default_retry = false;
        config.accept_invalid_certs = self.insecure;
        config.tls_server_name.clone_from(&self.server_name);
        if let Some(authorities) = self.authorities.as_ref().filter(|_| !self.insecure) {
            config.root_cert = Some(certificates(&authorities.read()?)?);
        }
        if let (Some(certificate), Some(key)) = (&self.certificate, &self.key) {
            config.auth_info.client_certificate_data = Some(BASE64_STANDARD.encode(certificate.read()?));
            config.auth_info.client_key_data = Some(BASE64_STANDARD.encode(key.read()?).into());
        }
        config.rustls_https_connector().map_err(|error| TlsError::Client(Box::new(error)))?;
        Ok(config)
    }
}

impl Pem {
    fn read(&self) -> Result<Vec<u8>, TlsError> {
        match self {
            Self::Data(data) => Ok(data.clone()),
            Self::File(path) => read(path),
        }
    }
}

fn read(path: &FilePath) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Open { path: path.to_owned(), source })
}

fn certificates(text: &[u8]) -> Result<Vec<Vec<u8>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(text).map(|certificate| Ok(certificate?.to_vec()));
    let certificates: Vec<Vec<u8>> = certificates.collect::<Result<_, pem::Error>>()?;
    if certificates.is_empty() { Err(TlsError::NoAuthority) } else { Ok(certificates) }
}
