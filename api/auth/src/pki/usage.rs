//! The values of `spec.usages` of a CertificateSigningRequest as key usages of a certificate.

use x509_cert::der::flagset::FlagSet;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc5280;
use x509_cert::ext::pkix::KeyUsages;

use super::PkiError;

const FLAGS: &[(&str, KeyUsages)] = &[
    ("signing", KeyUsages::DigitalSignature),
    ("digital signature", KeyUsages::DigitalSignature),
    ("content commitment", KeyUsages::NonRepudiation),
    ("key encipherment", KeyUsages::KeyEncipherment),
    ("data encipherment", KeyUsages::DataEncipherment),
    ("key agreement", KeyUsages::KeyAgreement),
    ("cert sign", KeyUsages::KeyCertSign),
    ("crl sign", KeyUsages::CRLSign),
    ("encipher only", KeyUsages::EncipherOnly),
    ("decipher only", KeyUsages::DecipherOnly),
];

const EXTENDED: &[(&str, ObjectIdentifier)] = &[
    ("any", rfc5280::ANY_EXTENDED_KEY_USAGE),
    ("server auth", rfc5280::ID_KP_SERVER_AUTH),
    ("client auth", rfc5280::ID_KP_CLIENT_AUTH),
    ("code signing", rfc5280::ID_KP_CODE_SIGNING),
    ("email protection", rfc5280::ID_KP_EMAIL_PROTECTION),
    ("s/mime", rfc5280::ID_KP_EMAIL_PROTECTION),
    ("ipsec end system", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.5")),
    ("ipsec tunnel", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.6")),
    ("ipsec user", ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.7")),
    ("timestamping", rfc5280::ID_KP_TIME_STAMPING),
    ("ocsp signing", rfc5280::ID_KP_OCSP_SIGNING),
    ("microsoft sgc", ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.10.3.3")),
    ("netscape sgc", ObjectIdentifier::new_unwrap("2.16.840.1.113730.4.1")),
];

/// The key usages of a certificate (RFC 5280, 4.2.1.3 and 4.2.1.12).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usages {
    /// The key usage.
    pub flags: FlagSet<KeyUsages>,
    /// The extended key usage.
    pub extended: Vec<ObjectIdentifier>,
}

impl Usages {
    /// The usages of a client.
    pub fn client() -> Self {
        Self::tls(rfc5280::ID_KP_CLIENT_AUTH)
    }

    /// The usages of a server.
    pub fn server() -> Self {
        Self::tls(rfc5280::ID_KP_SERVER_AUTH)
    }

    fn tls(side: ObjectIdentifier) -> Self {
        Self { flags: KeyUsages::DigitalSignature | KeyUsages::KeyEncipherment, extended: vec![side] }
    }
}

/// Parses upstream's values. The error names all unknown ones.
pub fn parse(words: &[String]) -> Result<Usages, PkiError> {
    let mut usages = Usages::default();
    let mut unknown = Vec::new();
    for word in words {
        if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| name == word) {
            usages.flags |= *flag;
        } else if let Some((_, id)) = EXTENDED.iter().find(|(name, _)| name == word) {
            if !usages.extended.contains(id) {
                usages.extended.push(*id);
            }
        } else {
            unknown.push(format!("{word:?}"));
        }
    }
    if unknown.is_empty() { Ok(usages) } else { Err(PkiError::UnknownUsage(unknown.join(", "))) }
}
