//! Creates keys and issues certificates (RFC 5280): for the authority itself, the server, users, and certificate requests.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData, SigningKey};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::prelude::{FromDer, X509Certificate, parse_x509_pem};

use super::der::{self, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, SET};
use super::read::{CertificateInfo, read_certificate, read_request};
use super::usage::{self, Usages};
use super::{PkiConfig, PkiError};

/// Upstream's backdate: certificates are valid this much earlier, for clocks that are behind.
const BACKDATE: Duration = Duration::from_secs(5 * 60);
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];
const SUBJECT_KEY_ID: u8 = 14;
const KEY_USAGE: u8 = 15;
const ALTERNATIVE_NAME: u8 = 17;
const BASIC_CONSTRAINTS: u8 = 19;
const AUTHORITY_KEY_ID: u8 = 35;
const EXTENDED_KEY_USAGE: u8 = 37;

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
    subject_der: Vec<u8>,
    key_id: Option<Vec<u8>>,
    not_after: Timestamp,
}

impl Authority {
    /// Issues a self-signed certificate for an authority.
    pub fn new_certificate(key: &KeyPair, common_name: &str, now: Timestamp, validity: Duration) -> Result<String, PkiError> {
        let subject = name(common_name, &[]);
        let template = Template {
            issuer: subject.clone(),
            subject,
            public_key: key.subject_public_key_info(),
            not_after: now.saturating_add(validity).unwrap_or(Timestamp::MAX),
            extensions: vec![
                extension(KEY_USAGE, true, &der::flags(&[0, 2, 5])),
                extension(BASIC_CONSTRAINTS, true, &der::constructed(SEQUENCE, &[der::tlv(der::BOOLEAN, &[0xff])])),
                extension(SUBJECT_KEY_ID, false, &der::tlv(OCTET_STRING, &key_id(key))),
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
            x509_parser::extensions::ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let not_after = Timestamp::from_second(certificate.validity().not_after.timestamp()).map_err(|e| parse(e.to_string()))?;
        let subject_der = certificate.subject().as_raw().to_vec();
        Ok(Self { key, subject_der, key_id, not_after, certificate_pem })
    }

    /// Issues a certificate for the key of a subject.
    pub fn certificate(&self, key: &KeyPair, subject: &Subject, now: Timestamp, validity: Duration) -> Result<String, PkiError> {
        let usages = match subject.purpose {
            Purpose::Client => Usages::client(),
            Purpose::Server => Usages::server(),
        };
        let mut extensions = self.leaf_extensions(&usages);
        if !subject.names.is_empty() || !subject.addresses.is_empty() {
            extensions.push(extension(ALTERNATIVE_NAME, false, &alternative_names(subject)));
        }
        let template = Template {
            issuer: self.subject_der.clone(),
            subject: name(&subject.common_name, &subject.organizations),
            public_key: key.subject_public_key_info(),
            not_after: self.until(now, validity),
            extensions,
        };
        template.sign(&self.key, now)
    }

    /// Issues the certificate of a request, with usages from the caller.
    pub fn sign_request(&self, csr_pem: &str, usages: &[String], now: Timestamp, validity: Duration) -> Result<String, PkiError> {
        let asked = read_request(csr_pem)?;
        let der = pem_content(csr_pem, "certificate request")?;
        let (_, request) = X509CertificationRequest::from_der(&der)
            .map_err(|e| PkiError::Parse { what: "certificate request", problem: e.to_string() })?;
        let mut extensions = self.leaf_extensions(&usage::parse(usages)?);
        for found in request.certification_request_info.iter_attributes().flat_map(requested) {
            if found.oid == OID_X509_EXT_SUBJECT_ALT_NAME {
                extensions.push(extension(ALTERNATIVE_NAME, asked.common_name.is_empty(), found.value));
            }
        }
        let template = Template {
            issuer: self.subject_der.clone(),
            subject: request.certification_request_info.subject.as_raw().to_vec(),
            public_key: asked.public_key_der,
            not_after: self.until(now, validity),
            extensions,
        };
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

    fn leaf_extensions(&self, usages: &Usages) -> Vec<Vec<u8>> {
        let mut extensions = Vec::new();
        if !usages.flags.is_empty() {
            extensions.push(extension(KEY_USAGE, true, &der::flags(&usages.flags)));
        }
        if !usages.extended.is_empty() {
            let ids: Vec<Vec<u8>> = usages.extended.iter().map(|id| der::tlv(OBJECT_IDENTIFIER, id)).collect();
            extensions.push(extension(EXTENDED_KEY_USAGE, false, &der::constructed(SEQUENCE, &ids)));
        }
        extensions.push(extension(BASIC_CONSTRAINTS, true, &der::constructed(SEQUENCE, &[])));
        if let Some(id) = &self.key_id {
            let id = der::tlv(der::context_primitive(0), id);
            extensions.push(extension(AUTHORITY_KEY_ID, false, &der::constructed(SEQUENCE, &[id])));
        }
        extensions
    }

    /// No certificate outlives its issuer.
    fn until(&self, now: Timestamp, validity: Duration) -> Timestamp {
        now.saturating_add(validity).unwrap_or(Timestamp::MAX).min(self.not_after)
    }
}

/// The content of a certificate to sign.
struct Template {
    issuer: Vec<u8>,
    subject: Vec<u8>,
    public_key: Vec<u8>,
    not_after: Timestamp,
    extensions: Vec<Vec<u8>>,
}

impl Template {
    fn sign(self, key: &KeyPair, now: Timestamp) -> Result<String, PkiError> {
        let not_before = now.saturating_sub(BACKDATE).unwrap_or(Timestamp::MIN);
        let algorithm = signature_algorithm(key)?;
        let serial: [u8; 16] = rand::random();
        let unsigned = der::constructed(
            SEQUENCE,
            &[
                der::tlv(der::context(0), &der::positive_integer(&[2])),
                der::positive_integer(&serial),
                algorithm.clone(),
                self.issuer,
                der::constructed(SEQUENCE, &[time(not_before), time(self.not_after)]),
                self.subject,
                self.public_key,
                der::tlv(der::context(3), &der::constructed(SEQUENCE, &self.extensions)),
            ],
        );
        let signature = key.sign(&unsigned).map_err(|source| PkiError::Issue { what: "certificate", source })?;
        Ok(to_pem("CERTIFICATE", &der::constructed(SEQUENCE, &[unsigned, algorithm, der::bit_string(&signature)])))
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

fn signature_algorithm(key: &KeyPair) -> Result<Vec<u8>, PkiError> {
    let own = PublicKeyData::algorithm(key);
    let (id, parameters): (&[u8], Vec<u8>) = if own == &rcgen::PKCS_ECDSA_P256_SHA256 {
        (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], Vec::new())
    } else if own == &rcgen::PKCS_ECDSA_P384_SHA384 {
        (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], Vec::new())
    } else if own == &rcgen::PKCS_RSA_SHA256 {
        (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], der::tlv(der::NULL, &[]))
    } else if own == &rcgen::PKCS_ED25519 {
        (&[0x2b, 0x65, 0x70], Vec::new())
    } else {
        return Err(PkiError::Issue { what: "certificate", source: rcgen::Error::UnsupportedSignatureAlgorithm });
    };
    Ok(der::constructed(SEQUENCE, &[der::tlv(OBJECT_IDENTIFIER, id), parameters]))
}

/// A key identifier: a truncated SHA-256 (RFC 7093). RFC 5280, 4.2.1.2 has SHA-1 only as an example.
fn key_id(key: &KeyPair) -> Vec<u8> {
    use sha2::Digest;
    sha2::Sha256::digest(key.der_bytes()).iter().copied().take(20).collect()
}

/// A distinguished name: the organizations, then the common name, in Go's order.
fn name(common_name: &str, organizations: &[String]) -> Vec<u8> {
    let attribute = |id: &[u8], value: &str| {
        let pair = der::constructed(SEQUENCE, &[der::tlv(OBJECT_IDENTIFIER, id), der::tlv(der::UTF8_STRING, value.as_bytes())]);
        der::constructed(SET, &[pair])
    };
    let mut parts: Vec<Vec<u8>> = organizations.iter().map(|o| attribute(ORGANIZATION, o)).collect();
    if !common_name.is_empty() {
        parts.push(attribute(COMMON_NAME, common_name));
    }
    der::constructed(SEQUENCE, &parts)
}

fn alternative_names(subject: &Subject) -> Vec<u8> {
    let names = subject.names.iter().map(|n| der::tlv(der::context_primitive(2), n.as_bytes()));
    let addresses = subject.addresses.iter().map(|address| match address {
        IpAddr::V4(v4) => der::tlv(der::context_primitive(7), &v4.octets()),
        IpAddr::V6(v6) => der::tlv(der::context_primitive(7), &v6.octets()),
    });
    der::constructed(SEQUENCE, &names.chain(addresses).collect::<Vec<_>>())
}

/// One extension of the arc 2.5.29.
fn extension(number: u8, critical: bool, value: &[u8]) -> Vec<u8> {
    let mut parts = vec![der::tlv(OBJECT_IDENTIFIER, &[0x55, 0x1d, number])];
    if critical {
        parts.push(der::tlv(der::BOOLEAN, &[0xff]));
    }
    parts.push(der::tlv(OCTET_STRING, value));
    der::constructed(SEQUENCE, &parts)
}

/// RFC 5280, 4.1.2.5: two-digit years through 2049.
fn time(at: Timestamp) -> Vec<u8> {
    let year = at.to_zoned(jiff::tz::TimeZone::UTC).year();
    match year {
        1950..2050 => der::tlv(der::UTC_TIME, at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes()),
        _ => der::tlv(der::GENERALIZED_TIME, at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes()),
    }
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

/// RFC 7468.
pub(super) fn to_pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while let Some((line, after)) = rest.split_at_checked(64) {
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    if !rest.is_empty() {
        out.push_str(rest);
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}
