//! Creates keys and issues certificates (RFC 5280): for the authority itself, the server, users, and certificate requests.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use api_clock::rand::Rng as _;
use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData, SigningKey};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{Any, BitString, GeneralizedTime, Ia5String, OctetString, SetOfVec, UtcTime};
use x509_cert::der::oid::db::{rfc4519, rfc5912, rfc8410};
use x509_cert::der::oid::{AssociatedOid, ObjectIdentifier};
use x509_cert::der::pem::LineEnding;
use x509_cert::der::{self, Decode, Encode, EncodePem, Tag};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName, SubjectKeyIdentifier,
};
use x509_cert::name::{RdnSequence, RelativeDistinguishedName};
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::time::{Time, Validity};
use x509_cert::{Certificate, TbsCertificate, Version};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::prelude::{FromDer, X509Certificate, parse_x509_pem};

use super::read::{CertificateInfo, read_certificate, read_request};
use super::usage::{self, Usages};
use super::{PkiConfig, PkiError};

/// Upstream's backdate: certificates are valid this much earlier, for clocks that are behind.
const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// The purpose of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Client authentication.
    Client,
    /// A TLS server.
    Server,
}

/// The subject of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Common name.
    pub common_name: String,
    /// Organizations.
    pub organizations: Vec<String>,
    /// DNS names.
    pub names: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Client or server.
    pub purpose: Purpose,
}

impl Subject {
    /// A client: the common name is the user, the organizations are the groups.
    pub fn client(common_name: &str, organizations: &[&str]) -> Self {
        let organizations = organizations.iter().map(|&o| o.to_owned()).collect();
        Self { common_name: common_name.to_owned(), organizations, names: Vec::new(), addresses: Vec::new(), purpose: Purpose::Client }
    }

    /// A server with those names and addresses.
    pub fn server(common_name: &str, reached_by: &PkiConfig) -> Self {
        Self {
            common_name: common_name.to_owned(),
            organizations: Vec::new(),
            names: reached_by.names.iter().cloned().collect(),
            addresses: reached_by.addresses.iter().copied().collect(),
            purpose: Purpose::Server,
        }
    }
}

/// A certificate authority.
pub struct Authority {
    key: KeyPair,
    /// Its certificate, PEM.
    pub certificate_pem: String,
    subject: RdnSequence,
    key_id: Option<OctetString>,
    not_after: Timestamp,
}

impl Authority {
    /// Issues a self-signed certificate for an authority.
    pub fn new_certificate(key: &KeyPair, common_name: &str, now: Timestamp, validity: Duration) -> Result<String, PkiError> {
        let subject = name(common_name, &[])?;
        let usages = KeyUsages::DigitalSignature | KeyUsages::KeyEncipherment | KeyUsages::KeyCertSign;
        let template = Template {
            issuer: subject.clone(),
            subject,
            public_key: SubjectPublicKeyInfoOwned::from_der(&key.subject_public_key_info())?,
            not_after: now.saturating_add(validity).unwrap_or(Timestamp::MAX),
            extensions: vec![
                extension(true, &KeyUsage(usages))?,
                extension(true, &BasicConstraints { ca: true, path_len_constraint: None })?,
                extension(false, &SubjectKeyIdentifier(OctetString::new(key_id(key))?))?,
            ],
        };
        template.sign(key, now)
    }

    /// From a certificate and its key; the caller has checked that they match.
    pub fn new(certificate_pem: String, key: KeyPair) -> Result<Self, PkiError> {
        let der = pem_content(&certificate_pem, "certificate")?;
        let parse = |problem: String| PkiError::Parse { what: "certificate", problem };
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|e| parse(e.to_string()))?;
        let key_id = certificate.extensions().iter().find_map(|e| match e.parsed_extension() {
            x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id) => Some(OctetString::new(id.0)),
            _ => None,
        });
        let not_after = Timestamp::from_second(certificate.validity().not_after.timestamp()).map_err(|e| parse(e.to_string()))?;
        let subject = RdnSequence::from_der(certificate.subject().as_raw()).map_err(|e| parse(e.to_string()))?;
        Ok(Self { key, subject, key_id: key_id.transpose()?, not_after, certificate_pem })
    }

    /// Issues a certificate for the key of a subject.
    pub fn certificate(&self, key: &KeyPair, subject: &Subject, now: Timestamp, validity: Duration) -> Result<String, PkiError> {
        let usages = match subject.purpose {
            Purpose::Client => Usages::client(),
            Purpose::Server => Usages::server(),
        };
        let mut extensions = self.leaf_extensions(&usages)?;
        if !subject.names.is_empty() || !subject.addresses.is_empty() {
            extensions.push(extension(false, &alternative_names(subject)?)?);
        }
        let template = Template {
            issuer: self.subject.clone(),
            subject: name(&subject.common_name, &subject.organizations)?,
            public_key: SubjectPublicKeyInfoOwned::from_der(&key.subject_public_key_info())?,
            not_after: self.until(now, validity),
            extensions,
        };
        template.sign(&self.key, now)
    }

    /// Issues the certificate of a request, with usages from the caller.
    pub fn sign_request(&self, csr_pem: &str, usages: &[String], now: Timestamp, validity: Duration) -> Result<String, PkiError> {
        let requested_subject = read_request(csr_pem)?;
        let der = pem_content(csr_pem, "certificate request")?;
        let unreadable = |e: &dyn std::fmt::Display| PkiError::Parse { what: "certificate request", problem: e.to_string() };
        let (_, request) = X509CertificationRequest::from_der(&der).map_err(|e| unreadable(&e))?;
        let subject = RdnSequence::from_der(request.certification_request_info.subject.as_raw()).map_err(|e| unreadable(&e))?;
        let public_key = SubjectPublicKeyInfoOwned::from_der(&requested_subject.public_key_der).map_err(|e| unreadable(&e))?;
        let mut extensions = self.leaf_extensions(&usage::parse(usages)?)?;
        for requested_extension in request.certification_request_info.iter_attributes().flat_map(requested) {
            if requested_extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME {
                let (extn_id, critical) = (SubjectAltName::OID, requested_subject.common_name.is_empty());
                extensions.push(Extension { extn_id, critical, extn_value: OctetString::new(requested_extension.value)? });
            }
        }
        let template = Template { issuer: self.subject.clone(), subject, public_key, not_after: self.until(now, validity), extensions };
        template.sign(&self.key, now)
    }

    /// Whether [`Authority::certificate`] would issue the same certificate, and it does not expire too soon.
    pub fn still_fits(&self, pem: &str, key: &KeyPair, subject: &Subject, renew_from: Timestamp) -> bool {
        let Ok(info) = read_certificate(pem) else { return false };
        let lasts = self.lasts(&info, renew_from);
        let sorted = |mut list: Vec<String>| {
            list.sort();
            list
        };
        let (mut have, mut want) = (info.addresses, subject.addresses.clone());
        have.sort();
        want.sort();
        lasts
            && info.public_key_der == key.subject_public_key_info()
            && info.common_name == subject.common_name
            && info.organizations == subject.organizations
            && sorted(info.names) == sorted(subject.names.clone())
            && have == want
            && self.signed(pem)
    }

    /// Whether a certificate is valid until then, or until the authority itself expires.
    pub fn lasts(&self, info: &CertificateInfo, until: Timestamp) -> bool {
        info.not_after >= until.min(self.not_after)
    }

    /// Whether this authority signed that certificate.
    pub fn signed(&self, pem: &str) -> bool {
        let (Ok(leaf), Ok(own)) = (pem_content(pem, "certificate"), pem_content(&self.certificate_pem, "certificate")) else {
            return false;
        };
        match (X509Certificate::from_der(&leaf), X509Certificate::from_der(&own)) {
            (Ok((_, leaf)), Ok((_, own))) => leaf.verify_signature(Some(own.public_key())).is_ok(),
            _ => false,
        }
    }

    fn leaf_extensions(&self, usages: &Usages) -> Result<Vec<Extension>, PkiError> {
        let mut extensions = Vec::new();
        if !usages.flags.is_empty() {
            extensions.push(extension(true, &KeyUsage(usages.flags))?);
        }
        if !usages.extended.is_empty() {
            extensions.push(extension(false, &ExtendedKeyUsage(usages.extended.clone()))?);
        }
        extensions.push(extension(true, &BasicConstraints { ca: false, path_len_constraint: None })?);
        if let Some(id) = self.key_id.clone() {
            let authority = AuthorityKeyIdentifier { key_identifier: Some(id), ..AuthorityKeyIdentifier::default() };
            extensions.push(extension(false, &authority)?);
        }
        Ok(extensions)
    }

    /// No certificate outlives its issuer.
    fn until(&self, now: Timestamp, validity: Duration) -> Timestamp {
        now.saturating_add(validity).unwrap_or(Timestamp::MAX).min(self.not_after)
    }
}

/// The content of a certificate to sign.
struct Template {
    issuer: RdnSequence,
    subject: RdnSequence,
    public_key: SubjectPublicKeyInfoOwned,
    not_after: Timestamp,
    extensions: Vec<Extension>,
}

impl Template {
    /// The signed certificate, PEM.
    fn sign(self, key: &KeyPair, now: Timestamp) -> Result<String, PkiError> {
        let not_before = now.saturating_sub(BACKDATE).unwrap_or(Timestamp::MIN);
        let signature_algorithm = signature_algorithm(key)?;
        let tbs_certificate = TbsCertificate {
            version: Version::V3,
            serial_number: SerialNumber::new(&api_clock::rng().random::<[u8; 16]>())?,
            signature: signature_algorithm.clone(),
            issuer: self.issuer,
            validity: Validity { not_before: time(not_before)?, not_after: time(self.not_after)? },
            subject: self.subject,
            subject_public_key_info: self.public_key,
            issuer_unique_id: None,
            subject_unique_id: None,
            extensions: Some(self.extensions),
        };
        let signature = key.sign(&tbs_certificate.to_der()?).map_err(|source| PkiError::Issue { what: "certificate", source })?;
        let certificate = Certificate { tbs_certificate, signature_algorithm, signature: BitString::from_bytes(&signature)? };
        Ok(certificate.to_pem(LineEnding::LF)?)
    }
}

/// Creates a NIST P-256 key.
pub fn new_key() -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|source| PkiError::Issue { what: "key", source })
}

/// Parses the key of a file.
pub fn parse_key(path: &Path, pem: &str) -> Result<KeyPair, PkiError> {
    let hint = "an unencrypted PKCS#8 key is needed (`openssl pkcs8 -topk8 -nocrypt` makes one of another form)";
    KeyPair::from_pem(pem).map_err(|e| PkiError::Unusable { path: path.to_owned(), problem: format!("{e}: {hint}") })
}

fn signature_algorithm(key: &KeyPair) -> Result<AlgorithmIdentifierOwned, PkiError> {
    let own = PublicKeyData::algorithm(key);
    let (oid, parameters) = if own == &rcgen::PKCS_ECDSA_P256_SHA256 {
        (rfc5912::ECDSA_WITH_SHA_256, None)
    } else if own == &rcgen::PKCS_ECDSA_P384_SHA384 {
        (rfc5912::ECDSA_WITH_SHA_384, None)
    } else if own == &rcgen::PKCS_RSA_SHA256 {
        (rfc5912::SHA_256_WITH_RSA_ENCRYPTION, Some(Any::null()))
    } else if own == &rcgen::PKCS_ED25519 {
        (rfc8410::ID_ED_25519, None)
    } else {
        return Err(PkiError::Issue { what: "certificate", source: rcgen::Error::UnsupportedSignatureAlgorithm });
    };
    Ok(AlgorithmIdentifierOwned { oid, parameters })
}

/// A key identifier: a truncated SHA-256 (RFC 7093). RFC 5280, 4.2.1.2 has SHA-1 only as an example.
fn key_id(key: &KeyPair) -> Vec<u8> {
    use sha2::Digest;
    sha2::Sha256::digest(key.der_bytes()).iter().copied().take(20).collect()
}

/// A distinguished name: the organizations, then the common name, in Go's order.
fn name(common_name: &str, organizations: &[String]) -> der::Result<RdnSequence> {
    let organizations = organizations.iter().map(|organization| (rfc4519::ORGANIZATION_NAME, organization.as_str()));
    let common_name = Some(common_name).filter(|name| !name.is_empty()).map(|name| (rfc4519::COMMON_NAME, name));
    let attribute = |(oid, value): (ObjectIdentifier, &str)| {
        let value = Any::new(Tag::Utf8String, value.as_bytes())?;
        SetOfVec::try_from([AttributeTypeAndValue { oid, value }]).map(RelativeDistinguishedName)
    };
    organizations.chain(common_name).map(attribute).collect::<der::Result<_>>().map(RdnSequence)
}

fn alternative_names(subject: &Subject) -> der::Result<SubjectAltName> {
    let names = subject.names.iter().map(|name| Ia5String::new(name).map(GeneralName::DnsName));
    let addresses = subject.addresses.iter().map(|address| Ok(GeneralName::from(*address)));
    names.chain(addresses).collect::<der::Result<_>>().map(SubjectAltName)
}

fn extension<T: AssociatedOid + Encode>(critical: bool, value: &T) -> der::Result<Extension> {
    Ok(Extension { extn_id: T::OID, critical, extn_value: OctetString::new(value.to_der()?)? })
}

/// RFC 5280, 4.1.2.5: two-digit years through 2049.
fn time(at: Timestamp) -> der::Result<Time> {
    let since_epoch = Duration::from_secs(at.as_second().try_into().unwrap_or_default());
    let two_digits = UtcTime::from_unix_duration(since_epoch).map(Time::UtcTime);
    two_digits.or_else(|_| GeneralizedTime::from_unix_duration(since_epoch).map(Time::GeneralTime))
}

fn requested<'a>(attribute: &'a x509_parser::prelude::X509CriAttribute<'a>) -> Vec<&'a x509_parser::extensions::X509Extension<'a>> {
    match attribute.parsed_attribute() {
        x509_parser::cri_attributes::ParsedCriAttribute::ExtensionRequest(request) => request.extensions.iter().collect(),
        _ => Vec::new(),
    }
}

fn pem_content(pem: &str, what: &'static str) -> Result<Vec<u8>, PkiError> {
    let (_, block) = parse_x509_pem(pem.as_bytes()).map_err(|e| PkiError::Parse { what, problem: e.to_string() })?;
    Ok(block.contents)
}

#[cfg(test)]
mod tests;
