//! Reads certificates and certificate requests into plain values.

use std::net::IpAddr;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_PKCS9_EXTENSION_REQUEST;
use x509_parser::prelude::{FromDer, X509Certificate, parse_x509_pem};
use x509_parser::x509::X509Name;

use super::PkiError;

/// The fields of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// Common name of the subject; empty if absent.
    pub common_name: String,
    /// Subject's organizations.
    pub organizations: Vec<String>,
    /// DNS names.
    pub names: Vec<String>,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Valid from.
    pub not_before: Timestamp,
    /// Valid until.
    pub not_after: Timestamp,
    /// Whether it is an authority.
    pub is_ca: bool,
    /// SubjectPublicKeyInfo, DER.
    pub public_key_der: Vec<u8>,
    /// SHA-256 of the whole certificate.
    pub fingerprint: [u8; 32],
}

/// The fields of a certificate request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Common name of the subject; empty if absent.
    pub common_name: String,
    /// Subject's organizations.
    pub organizations: Vec<String>,
    /// Requested DNS names.
    pub names: Vec<String>,
    /// Requested IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Requested e-mail addresses.
    pub emails: Vec<String>,
    /// Requested URIs.
    pub uris: Vec<String>,
    /// SubjectPublicKeyInfo, DER.
    pub public_key_der: Vec<u8>,
}

/// Reads the first certificate of a PEM text.
pub fn read_certificate(pem: &str) -> Result<CertificateInfo, PkiError> {
    let (_, block) = parse_x509_pem(pem.as_bytes()).map_err(|e| parse("certificate", &e))?;
    if block.label != "CERTIFICATE" {
        return Err(parse("certificate", &format!("the PEM block is labelled {:?}", block.label)));
    }
    read_certificate_der(&block.contents)
}

/// Reads a DER certificate.
pub fn read_certificate_der(der: &[u8]) -> Result<CertificateInfo, PkiError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|e| parse("certificate", &e))?;
    let names = certificate.subject_alternative_name().map_err(|e| parse("certificate", &e))?;
    let names = names.map(|extension| Names::from(extension.value.general_names.as_slice())).unwrap_or_default();
    let time = |t: x509_parser::time::ASN1Time| Timestamp::from_second(t.timestamp()).map_err(|e| parse("certificate", &e));
    Ok(CertificateInfo {
        common_name: common_name(certificate.subject()),
        organizations: organizations(certificate.subject()),
        names: names.dns,
        addresses: names.addresses,
        not_before: time(certificate.validity().not_before)?,
        not_after: time(certificate.validity().not_after)?,
        is_ca: certificate.is_ca(),
        public_key_der: certificate.public_key().raw.to_vec(),
        fingerprint: Sha256::digest(der).into(),
    })
}

/// Reads a PEM certificate request and checks that its own key signed it.
pub fn read_request(pem: &str) -> Result<RequestInfo, PkiError> {
    let what = "certificate request";
    let (_, block) = parse_x509_pem(pem.as_bytes()).map_err(|_| parse(what, &"PEM block type must be CERTIFICATE REQUEST"))?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(parse(what, &"PEM block type must be CERTIFICATE REQUEST"));
    }
    let (_, request) = X509CertificationRequest::from_der(&block.contents).map_err(|e| parse(what, &e))?;
    request.verify_signature().map_err(|e| parse(what, &e))?;
    let info = &request.certification_request_info;
    // Of several, a reader takes the first, the last or none.
    let extension_requests = info.iter_attributes().filter(|attribute| attribute.oid == OID_PKCS9_EXTENSION_REQUEST).count();
    let alternative_names = |extension: &&ParsedExtension<'_>| matches!(extension, ParsedExtension::SubjectAlternativeName(_));
    let names = request.requested_extensions().into_iter().flatten().filter(alternative_names).count();
    if extension_requests > 1 || names > 1 {
        return Err(parse(what, &"it has more than one list of extensions or of subject alternative names"));
    }
    let mut names = Names::default();
    for extension in request.requested_extensions().into_iter().flatten() {
        if let ParsedExtension::SubjectAlternativeName(found) = extension {
            names = Names::from(found.general_names.as_slice());
        }
    }
    Ok(RequestInfo {
        common_name: common_name(&info.subject),
        organizations: organizations(&info.subject),
        names: names.dns,
        addresses: names.addresses,
        emails: names.emails,
        uris: names.uris,
        public_key_der: info.subject_pki.raw.to_vec(),
    })
}

#[derive(Default)]
struct Names {
    dns: Vec<String>,
    addresses: Vec<IpAddr>,
    emails: Vec<String>,
    uris: Vec<String>,
}

impl From<&[GeneralName<'_>]> for Names {
    fn from(general: &[GeneralName<'_>]) -> Self {
        let mut names = Self::default();
        for name in general {
            match name {
                GeneralName::DNSName(dns) => names.dns.push((*dns).to_owned()),
                GeneralName::RFC822Name(email) => names.emails.push((*email).to_owned()),
                GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
                GeneralName::IPAddress(bytes) => names.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        names
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

fn common_name(name: &X509Name<'_>) -> String {
    name.iter_common_name().next().and_then(|n| n.as_str().ok()).unwrap_or_default().to_owned()
}

fn organizations(name: &X509Name<'_>) -> Vec<String> {
    name.iter_organization().filter_map(|n| n.as_str().ok()).map(str::to_owned).collect()
}

fn parse(what: &'static str, problem: &dyn std::fmt::Display) -> PkiError {
    PkiError::Parse { what, problem: problem.to_string() }
}
