//! A certificate with its key, as one private file.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use jiff::Timestamp;
use runtimes_host::files::{PRIVATE, write_atomic};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;

use super::{JoinError, bad};
use crate::config::Serving;

/// The share of a certificate's lifetime after which it is renewed, in percent.
const RENEW_AFTER_PERCENT: i64 = 70;

/// A certificate with its key.
pub(super) struct Identity {
    pub certificate_pem: String,
    pub key_pem: String,
    not_before: Timestamp,
    not_after: Timestamp,
    addresses: Vec<IpAddr>,
}

impl Identity {
    /// From PEM texts.
    pub fn new(certificate_pem: String, key_pem: String) -> Result<Self, JoinError> {
        let doing = "reading a certificate";
        let (_, pem) = parse_x509_pem(certificate_pem.as_bytes()).map_err(|error| bad(doing, error))?;
        let certificate = pem.parse_x509().map_err(|error| bad(doing, error))?;
        let time = |seconds: i64| Timestamp::from_second(seconds).map_err(|error| bad(doing, error));
        let not_before = time(certificate.validity().not_before.timestamp())?;
        let not_after = time(certificate.validity().not_after.timestamp())?;
        let names = certificate.subject_alternative_name().map_err(|error| bad(doing, error))?;
        let addresses = names.iter().flat_map(|names| &names.value.general_names).filter_map(address).collect();
        Ok(Self { certificate_pem, key_pem, not_before, not_after, addresses })
    }

    /// The identity stored under that name, if there is one.
    pub fn load(dir: &Path, name: &str) -> Result<Option<Self>, JoinError> {
        let path = dir.join(format!("{name}.pem"));
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|source| JoinError::Io { doing: "reading", path: path.clone(), source })?,
        };
        let Some((certificate, key)) = text.find("-----BEGIN PRIVATE KEY").and_then(|at| text.split_at_checked(at)) else {
            return Err(bad("reading a certificate", format!("{} holds no key", path.display())));
        };
        Self::new(certificate.to_owned(), key.to_owned()).map(Some)
    }

    /// Stores the identity under that name, for this user alone.
    pub fn keep(self, dir: &Path, name: &str) -> Result<Self, JoinError> {
        write_private(&dir.join(format!("{name}.pem")), &format!("{}\n{}", self.certificate_pem.trim_end(), self.key_pem))?;
        Ok(self)
    }

    /// Whether it can be used now.
    pub fn is_good(&self) -> bool {
        api_clock::now() < self.not_after
    }

    /// The end of its time.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Whether the certificate is for that address.
    pub fn names(&self, ip: IpAddr) -> bool {
        self.addresses.contains(&ip)
    }

    /// When to request the next one.
    pub fn renew_at(&self) -> Timestamp {
        let (from, to) = (self.not_before.as_second(), self.not_after.as_second());
        Timestamp::from_second(from + (to - from) * RENEW_AFTER_PERCENT / 100).unwrap_or(self.not_after)
    }

    /// The identity in the form that the node's server takes.
    pub fn serving(&self, ca_pem: &str) -> Serving {
        Serving { certificate_pem: self.certificate_pem.clone(), key_pem: self.key_pem.clone(), client_ca_pem: ca_pem.to_owned() }
    }
}

fn address(name: &GeneralName<'_>) -> Option<IpAddr> {
    let GeneralName::IPAddress(bytes) = name else { return None };
    let four: Option<IpAddr> = <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from);
    four.or_else(|| <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from))
}

/// Writes a file that only its owner may read, whole or not at all.
pub(super) fn write_private(path: &Path, text: &str) -> Result<(), JoinError> {
    let failed = |source| JoinError::Io { doing: "writing", path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    write_atomic(path, text.as_bytes(), PRIVATE).map_err(failed)
}

/// Removes the identities of an earlier join to another cluster.
pub(super) fn forget(dir: &Path) -> Result<(), JoinError> {
    for name in ["ca.crt", "kubelet-client.pem", "kubelet-serving.pem"] {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(JoinError::Io { doing: "removing", path, source }),
            _ => {}
        }
    }
    Ok(())
}
