//! The join token: the hash of the cluster's CA, and the right to request a node's certificate.

use std::fmt;
use std::str::FromStr;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest, Sha256};

use super::{JoinError, bad};

/// `<sha256 of the CA certificate, hex>.<bootstrap token id>.<bootstrap token secret>`.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Hash of the cluster's CA; see [`ca_hash`].
    pub ca_hash: String,
    /// The bootstrap token's id, six characters.
    pub id: String,
    /// Its secret, sixteen characters.
    pub secret: String,
}

impl JoinToken {
    /// The bearer token: upstream's `id.secret`.
    pub(super) fn bearer(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

impl FromStr for JoinToken {
    type Err = JoinError;

    fn from_str(text: &str) -> Result<Self, JoinError> {
        let mut parts = text.trim().split('.');
        let (Some(hash), Some(id), Some(secret), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(JoinError::Token);
        };
        let plain =
            |text: &str, len: usize| text.len() == len && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) || !plain(id, 6) || !plain(secret, 16) {
            return Err(JoinError::Token);
        }
        Ok(Self { ca_hash: hash.to_ascii_lowercase(), id: id.to_owned(), secret: secret.to_owned() })
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.ca_hash, self.id, self.secret)
    }
}

/// The secret stays out of logs.
impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinToken").field("ca_hash", &self.ca_hash).field("id", &self.id).finish_non_exhaustive()
    }
}

/// SHA-256 of the first certificate of a PEM file, in DER, as lower-case hex.
///
/// # Errors
/// When the text holds no certificate.
pub fn ca_hash(ca_pem: &str) -> Result<String, JoinError> {
    Ok(Sha256::digest(der(ca_pem)?).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The first certificate of a PEM file.
pub(super) fn der(pem: &str) -> Result<Vec<u8>, JoinError> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map(|der| der.to_vec())
        .map_err(|error| bad("reading a certificate", format!("{error:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_checked() {
        let hash = "ab".repeat(32);
        let good = format!("{hash}.abcdef.0123456789abcdef");
        let token: JoinToken = good.parse().expect("a token");
        assert_eq!((token.bearer().as_str(), token.to_string()), ("abcdef.0123456789abcdef", good));
        assert!(!format!("{token:?}").contains("0123456789abcdef"));
        for bad in [
            "",
            "x.abcdef.0123456789abcdef",
            &format!("{hash}.abcdef"),
            &format!("{hash}.ABCDEF.0123456789abcdef"),
            &format!("{hash}.abcdef.0.1"),
        ] {
            assert!(bad.parse::<JoinToken>().is_err(), "{bad}");
        }
    }
}
