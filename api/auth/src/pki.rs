//! The cluster's keys and certificates, in a directory with kubeadm's file names.
//!
//! `ca.crt` and `ca.key` are the root of trust. `apiserver.*` is the API server's serving certificate.
//! `apiserver-kubelet-client.*` is its client certificate for nodes. `sa.key` and `sa.pub` sign and verify ServiceAccount
//! tokens. `front-proxy-ca.*` is a separate root, which signs `front-proxy-client.*`: the API server's client certificate
//! for aggregated servers, which trust the user names in its requests. [`Pki::open`] creates missing files and renews
//! certificates that no longer fit, so it can open a directory after a kill at any moment. A certificate authority
//! whose key is missing or does not match is never replaced: all nodes and kubeconfigs would lose access.

mod files;
mod issue;
mod read;
mod usage;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData};
use thiserror::Error;

use issue::Authority;
pub use issue::{Purpose, Subject};
pub use read::{CertificateInfo, RequestInfo, read_certificate, read_certificate_der, read_request};

/// Validity of the certificate authority: kubeadm's ten years.
const CA_VALIDITY: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Validity of the API server's own certificates: kubeadm's year.
const LEAF_VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);
/// A certificate that expires sooner than this is issued again.
const RENEW_BEFORE: Duration = Duration::from_secs(90 * 24 * 3600);

/// The common name of the API server's client certificate for nodes.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";
/// The common name of the front proxy's certificate.
pub const FRONT_PROXY: &str = "front-proxy-client";

/// An error with the directory of keys or with a certificate.
#[derive(Debug, Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// `read`, `write`, …
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The content of a file is not usable.
    #[error("{} is not usable: {problem}", path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The certificate authority has a certificate but no key.
    #[error("{} is missing while its certificate exists: restore it, or remove the certificate to start a new cluster identity", path.display())]
    CaKeyMissing {
        /// Where the key should be.
        path: PathBuf,
    },
    /// A certificate or signing request could not be parsed.
    #[error("cannot parse {what}: {problem}")]
    Parse {
        /// `certificate` or `certificate request`.
        what: &'static str,
        /// The problem.
        problem: String,
    },
    /// A requested key usage does not exist.
    #[error("unrecognized usages: {0}")]
    UnknownUsage(String),
    /// A name or an address has no place in a certificate.
    #[error("cannot encode the certificate")]
    Encode(#[from] x509_cert::der::Error),
    /// Making a key or signing failed.
    #[error("cannot make {what}")]
    Issue {
        /// What was to be made.
        what: &'static str,
        /// The error of the library.
        source: rcgen::Error,
    },
}

/// The names and addresses of the serving certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PkiConfig {
    /// DNS names, for example `kubernetes.default.svc` and the host's name.
    pub names: BTreeSet<String>,
    /// Addresses: the `kubernetes` Service's, loopback, and those the server listens on.
    pub addresses: BTreeSet<IpAddr>,
}

impl PkiConfig {
    /// The names of every API server in a cluster of that DNS domain, `localhost` and the loopback addresses. The caller
    /// adds those of the host.
    pub fn for_cluster(cluster_domain: &str) -> Self {
        let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"];
        let mut names: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
        names.insert(format!("kubernetes.default.svc.{cluster_domain}"));
        let addresses = [IpAddr::from([127, 0, 0, 1]), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)];
        Self { names, addresses: addresses.into() }
    }
}

/// A certificate and its private key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate.
    pub certificate_pem: String,
    /// The key, PKCS#8.
    pub key_pem: String,
}

/// Prints only the certificate: a key must not be logged.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

/// The opened directory.
pub struct Pki {
    directory: PathBuf,
    config: PkiConfig,
    ca: Authority,
    serving: Identity,
    kubelet_client: Identity,
    front_proxy_ca_pem: String,
    front_proxy_client: Identity,
    service_account_key_pem: String,
}

impl Pki {
    /// Opens the directory at the current time and creates missing files.
    pub fn open(directory: &Path, config: &PkiConfig) -> Result<Self, PkiError> {
        Self::open_at(directory, config, api_clock::now())
    }

    /// Opens the directory at the given time.
    pub fn open_at(directory: &Path, config: &PkiConfig, now: Timestamp) -> Result<Self, PkiError> {
        files::make_directory(directory)?;
        let ca = open_ca(directory, "ca", "kubernetes", now)?;
        let serving = leaf(directory, "apiserver", &ca, &Subject::server("kube-apiserver", config), now)?;
        // The certificate has no group: a binding grants its rights at nodes, and it has no other rights.
        let client = Subject::client(KUBELET_CLIENT, &[]);
        let kubelet_client = leaf(directory, "apiserver-kubelet-client", &ca, &client, now)?;
        let front_proxy_ca = open_ca(directory, "front-proxy-ca", "front-proxy-ca", now)?;
        let client = Subject::client(FRONT_PROXY, &[]);
        let front_proxy_client = leaf(directory, "front-proxy-client", &front_proxy_ca, &client, now)?;
        let front_proxy_ca_pem = front_proxy_ca.certificate_pem;
        let service_account_key_pem = open_service_account_key(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
            config: config.clone(),
            ca,
            serving,
            kubelet_client,
            front_proxy_ca_pem,
            front_proxy_client,
            service_account_key_pem,
        })
    }

    /// Opens the same directory again and renews certificates that expire soon at that time. The authority must be the
    /// same as before; a missing one is not created.
    pub fn reopened_at(&self, now: Timestamp) -> Result<Self, PkiError> {
        for (name, own) in [("ca.crt", self.ca_pem()), ("front-proxy-ca.crt", self.front_proxy_ca_pem.as_str())] {
            let path = self.directory.join(name);
            if files::read(&path)?.as_deref() != Some(own) {
                return Err(PkiError::Unusable { path, problem: "it is not what this process started with".to_owned() });
            }
        }
        Self::open_at(&self.directory, &self.config, now)
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The certificate of the authority, PEM, for clients and for the ConfigMap `kube-root-ca.crt`.
    pub fn ca_pem(&self) -> &str {
        &self.ca.certificate_pem
    }

    /// The API server's serving certificate.
    pub fn serving(&self) -> &Identity {
        &self.serving
    }

    /// The API server's client certificate for nodes.
    pub fn kubelet_client(&self) -> &Identity {
        &self.kubelet_client
    }

    /// The authority of front proxies, which name the user of a request; PEM.
    pub fn front_proxy_ca_pem(&self) -> &str {
        &self.front_proxy_ca_pem
    }

    /// The API server's client certificate for aggregated servers.
    pub fn front_proxy_client(&self) -> &Identity {
        &self.front_proxy_client
    }

    /// The key that signs ServiceAccount tokens: PKCS#8 PEM, NIST P-256.
    pub fn service_account_key_pem(&self) -> &str {
        &self.service_account_key_pem
    }

    /// Issues a client certificate with a new key: the common name is the user, the organizations are the groups.
    pub fn issue_client(&self, common_name: &str, organizations: &[&str], validity: Duration) -> Result<Identity, PkiError> {
        self.issue(&Subject::client(common_name, organizations), validity)
    }

    /// Issues a certificate with a new key for a subject.
    pub fn issue(&self, subject: &Subject, validity: Duration) -> Result<Identity, PkiError> {
        self.issue_at(subject, validity, api_clock::now())
    }

    /// [`Pki::issue`] at the given time.
    pub fn issue_at(&self, subject: &Subject, validity: Duration, now: Timestamp) -> Result<Identity, PkiError> {
        let key = issue::new_key()?;
        let certificate_pem = self.ca.certificate(&key, subject, now, validity)?;
        Ok(Identity { certificate_pem, key_pem: key.serialize_pem() })
    }

    /// Whether a certificate (PEM) of [`Pki::issue`] with a validity of a year is due for renewal at that time. Text that
    /// is no certificate is due.
    pub fn is_due(&self, certificate_pem: &str, now: Timestamp) -> bool {
        !read_certificate(certificate_pem).is_ok_and(|info| self.ca.lasts(&info, renew_from(now)))
    }

    /// Whether this cluster's authority signed that certificate (PEM) for that subject.
    pub fn has_issued(&self, certificate_pem: &str, subject: &Subject) -> bool {
        let is_named = |info: CertificateInfo| info.common_name == subject.common_name && info.organizations == subject.organizations;
        self.ca.signed(certificate_pem) && read_certificate(certificate_pem).is_ok_and(is_named)
    }

    /// Signs a certificate request (PEM) as `certificates.k8s.io` does: the subject and alternative names come from the
    /// request, the usages from the caller (upstream's words of `spec.usages`), and the certificate is no authority.
    /// Returns the certificate, PEM.
    pub fn sign_csr(&self, csr_pem: &str, usages: &[String], validity: Duration) -> Result<String, PkiError> {
        self.ca.sign_request(csr_pem, usages, api_clock::now(), validity)
    }
}

/// Opens or creates the authority. The key is written before the certificate, so that a certificate without a key means
/// that the key was removed.
fn open_ca(directory: &Path, file: &str, common_name: &str, now: Timestamp) -> Result<Authority, PkiError> {
    let (key_path, certificate_path) = (directory.join(format!("{file}.key")), directory.join(format!("{file}.crt")));
    let certificate = files::read(&certificate_path)?;
    let key = match (files::read(&key_path)?, &certificate) {
        (Some(pem), _) => issue::parse_key(&key_path, &pem)?,
        (None, Some(_)) => return Err(PkiError::CaKeyMissing { path: key_path }),
        (None, None) => write_new_key(&key_path)?,
    };
    let certificate_pem = match certificate {
        Some(pem) => {
            check_ca(&certificate_path, &pem, &key, now)?;
            pem
        }
        None => {
            let pem = Authority::new_certificate(&key, common_name, now, CA_VALIDITY)?;
            files::write(&certificate_path, &pem, files::Mode::Public)?;
            pem
        }
    };
    Authority::new(certificate_pem, key)
}

fn check_ca(path: &Path, pem: &str, key: &KeyPair, now: Timestamp) -> Result<(), PkiError> {
    let unusable = |problem: &str| PkiError::Unusable { path: path.to_owned(), problem: problem.to_owned() };
    let info = read_certificate(pem)?;
    if info.public_key_der != key.subject_public_key_info() {
        return Err(unusable("it does not belong to its key"));
    }
    if info.not_after <= now {
        return Err(unusable("it has expired"));
    }
    if info.is_ca { Ok(()) } else { Err(unusable("it is not a certificate authority")) }
}

/// Opens a certificate of the server, or issues it again when it does not fit. The key is kept where possible, so that a
/// renewal replaces one file only.
fn leaf(directory: &Path, name: &str, ca: &Authority, subject: &Subject, now: Timestamp) -> Result<Identity, PkiError> {
    let (key_path, certificate_path) = (directory.join(format!("{name}.key")), directory.join(format!("{name}.crt")));
    let key = match files::read(&key_path)? {
        Some(pem) => issue::parse_key(&key_path, &pem)?,
        None => write_new_key(&key_path)?,
    };
    let fitting = files::read(&certificate_path)?.filter(|pem| ca.still_fits(pem, &key, subject, renew_from(now)));
    let certificate_pem = match fitting {
        Some(pem) => pem,
        None => {
            let pem = ca.certificate(&key, subject, now, LEAF_VALIDITY)?;
            files::write(&certificate_path, &pem, files::Mode::Public)?;
            pem
        }
    };
    Ok(Identity { certificate_pem, key_pem: key.serialize_pem() })
}

/// The time up to which a certificate must be valid; one that expires earlier is issued again.
fn renew_from(now: Timestamp) -> Timestamp {
    now.saturating_add(RENEW_BEFORE).unwrap_or(Timestamp::MAX)
}

fn open_service_account_key(directory: &Path) -> Result<String, PkiError> {
    let (key_path, public_path) = (directory.join("sa.key"), directory.join("sa.pub"));
    let key = match files::read(&key_path)? {
        Some(pem) => issue::parse_key(&key_path, &pem)?,
        None => write_new_key(&key_path)?,
    };
    if !key.is_compatible(&rcgen::PKCS_ECDSA_P256_SHA256) {
        return Err(PkiError::Unusable { path: key_path, problem: "a NIST P-256 key is needed".to_owned() });
    }
    let public = key.public_key_pem();
    if files::read(&public_path)?.as_deref() != Some(public.as_str()) {
        files::write(&public_path, &public, files::Mode::Public)?;
    }
    Ok(key.serialize_pem())
}

fn write_new_key(path: &Path) -> Result<KeyPair, PkiError> {
    let key = issue::new_key()?;
    files::write(path, &key.serialize_pem(), files::Mode::Secret)?;
    Ok(key)
}

#[cfg(test)]
mod tests;
