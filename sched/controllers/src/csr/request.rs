//! What a certificate signing request contains, and whether a signer may grant it.

use std::net::IpAddr;

use api_model::request::REMOTE_ADDRESS;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use thiserror::Error;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::OID_PKCS9_EXTENSION_REQUEST;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::AttributeTypeAndValue;

use super::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY};

/// Why a request is rejected, in upstream's words.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// It is no PKCS #10 request in PEM.
    #[error("unable to parse csr: {0}")]
    Unreadable(String),
    /// Subject, names or usages do not fit the signer.
    #[error("{0}")]
    Unfit(&'static str),
}

/// Subject and names of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Subject CN.
    pub common_name: String,
    /// Subject O.
    pub organizations: Vec<String>,
    /// DNS names.
    pub dns: Vec<String>,
    /// Addresses.
    pub ips: Vec<IpAddr>,
    /// Whether it has names of other sorts.
    pub others: bool,
}

/// Reads a request in PEM.
pub fn parse(pem: &[u8]) -> Result<Request, Refusal> {
    let unreadable = |error: &dyn std::fmt::Display| Refusal::Unreadable(error.to_string());
    let block = Pem::iter_from_buffer(pem).next().ok_or_else(|| Refusal::Unreadable("no PEM block".to_owned()))?;
    let block = block.map_err(|error| unreadable(&error))?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(Refusal::Unreadable(format!("PEM block type must be CERTIFICATE REQUEST, not {}", block.label)));
    }
    let (_, csr) = X509CertificationRequest::from_der(&block.contents).map_err(|error| unreadable(&error))?;
    let subject = &csr.certification_request_info.subject;
    let common_names = texts(subject.iter_common_name())?;
    // Of several, readers of certificates take the first or the last.
    let common_name = match common_names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        _ => return Err(Refusal::Unfit("subject has more than one common name")),
    };
    let attributes = csr.certification_request_info.iter_attributes();
    if attributes.filter(|attribute| attribute.oid == OID_PKCS9_EXTENSION_REQUEST).count() > 1 {
        return Err(Refusal::Unfit("request has more than one list of extensions"));
    }
    let mut request = Request { common_name, organizations: texts(subject.iter_organization())?, ..Request::default() };
    let mut lists = 0;
    for extension in csr.requested_extensions().into_iter().flatten() {
        if let ParsedExtension::SubjectAlternativeName(names) = extension {
            lists += 1;
            names.general_names.iter().for_each(|name| request.add(name));
        }
    }
    if lists > 1 {
        return Err(Refusal::Unfit("request has more than one list of subject alternative names"));
    }
    Ok(request)
}

/// The texts of attributes. An attribute in an encoding that is not parsed here could be read by others, so no attribute is
/// left out.
fn texts<'a>(attributes: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> Result<Vec<String>, Refusal> {
    let read = attributes.map(|attribute| attribute.as_str().map(str::to_owned).map_err(|error| Refusal::Unreadable(error.to_string())));
    read.collect()
}

/// The address that a request came from, as the server recorded it.
pub fn remote_address(csr: &CertificateSigningRequest) -> Option<IpAddr> {
    csr.spec.extra.as_ref()?.get(REMOTE_ADDRESS)?.first()?.parse().ok()
}

impl Request {
    fn add(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(name) => self.dns.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
                (Ok(v4), _) => self.ips.push(IpAddr::from(v4)),
                (_, Ok(v6)) => self.ips.push(IpAddr::from(v6)),
                _ => self.others = true,
            },
            _ => self.others = true,
        }
    }

    /// The Node whose identity the subject is.
    pub fn node_name(&self) -> Option<&str> {
        let of_nodes = self.organizations.as_slice() == ["system:nodes"];
        self.common_name.strip_prefix("system:node:").filter(|name| of_nodes && !name.is_empty())
    }
}

/// Whether usages are those of one purpose: all required usages, and no others but the optional ones.
fn usages_are(usages: &[String], required: &[&str], optional: &[&str]) -> bool {
    let has = |wanted: &str| usages.iter().any(|usage| usage == wanted);
    required.iter().all(|usage| has(usage))
        && usages.iter().all(|usage| required.contains(&usage.as_str()) || optional.contains(&usage.as_str()))
}

/// Checks a request against the rules of its signer.
pub fn check(signer: &str, request: &Request, usages: &[String]) -> Result<(), Refusal> {
    let refuse = |when: bool, why: &'static str| if when { Err(Refusal::Unfit(why)) } else { Ok(()) };
    match signer {
        KUBELET_CLIENT => {
            check_node(request)?;
            refuse(!request.dns.is_empty(), "DNS subjectAltNames are not allowed")?;
            refuse(!request.ips.is_empty(), "IP subjectAltNames are not allowed")?;
            let fit = usages_are(usages, &["digital signature", "client auth"], &["key encipherment"]);
            refuse(!fit, "usages did not match [\"client auth\" \"digital signature\" \"key encipherment\"]")
        }
        KUBELET_SERVING => {
            check_node(request)?;
            refuse(request.dns.is_empty() && request.ips.is_empty(), "DNS or IP subjectAltName is required")?;
            let fit = usages_are(usages, &["digital signature", "server auth"], &["key encipherment"]);
            refuse(!fit, "usages did not match [\"digital signature\" \"key encipherment\" \"server auth\"]")
        }
        CLIENT => {
            let fit = usages_are(usages, &["client auth"], &["digital signature", "key encipherment"]);
            refuse(!fit, "usages did not match [\"client auth\" \"digital signature\" \"key encipherment\"]")
        }
        LEGACY => Ok(()),
        _ => Err(Refusal::Unfit("unrecognized signer")),
    }
}

fn check_node(request: &Request) -> Result<(), Refusal> {
    if request.organizations.as_slice() != ["system:nodes"] {
        return Err(Refusal::Unfit("subject organization is not system:nodes"));
    }
    if request.node_name().is_none() {
        return Err(Refusal::Unfit("subject common name does not begin with 'system:node:'"));
    }
    if request.others {
        return Err(Refusal::Unfit("only DNS and IP subjectAltNames are allowed"));
    }
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    /// A request in PEM.
    pub fn csr(common_name: &str, organization: &str, dns: &[&str], ips: &[&str], email: bool) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.distinguished_name.push(DnType::OrganizationName, organization);
        let mut names: Vec<SanType> = dns.iter().map(|name| SanType::DnsName((*name).try_into().expect("a DNS name"))).collect();
        names.extend(ips.iter().map(|ip| SanType::IpAddress(ip.parse().expect("an address"))));
        if email {
            names.push(SanType::Rfc822Name("a@example.com".try_into().expect("an address")));
        }
        params.subject_alt_names = names;
        let key = KeyPair::generate().expect("a key");
        params.serialize_request(&key).expect("a request").pem().expect("PEM")
    }

    #[test]
    fn a_request_is_read() {
        let request = parse(csr("system:node:n1", "system:nodes", &["n1"], &["10.0.0.1", "fd00::1"], false).as_bytes()).expect("readable");
        assert_eq!(request.node_name(), Some("n1"));
        assert_eq!(request.dns, ["n1"]);
        assert_eq!(request.ips, ["10.0.0.1".parse::<IpAddr>().expect("v4"), "fd00::1".parse().expect("v6")]);
        for garbage in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(parse(garbage.as_bytes()), Err(Refusal::Unreadable(_))), "{garbage}");
        }
    }

    /// Go reads the last of several common names, other readers the first.
    #[test]
    fn a_subject_is_one() {
        let two = include_bytes!("two-names.csr");
        assert_eq!(parse(two), Err(Refusal::Unfit("subject has more than one common name")));
        let hidden = include_bytes!("bmp-organization.csr");
        assert!(matches!(parse(hidden), Err(Refusal::Unreadable(_))), "{:?}", parse(hidden));
    }

    #[test]
    fn each_signer_grants_only_its_own() {
        let client = ["digital signature", "client auth"];
        let server = ["digital signature", "server auth", "key encipherment"];
        let cases: &[(&str, String, &[&str], bool)] = &[
            (KUBELET_CLIENT, csr("system:node:n", "system:nodes", &[], &[], false), &client, true),
            (KUBELET_CLIENT, csr("system:node:n", "system:masters", &[], &[], false), &client, false),
            (KUBELET_CLIENT, csr("admin", "system:nodes", &[], &[], false), &client, false),
            (KUBELET_CLIENT, csr("system:node:", "system:nodes", &[], &[], false), &client, false),
            (KUBELET_CLIENT, csr("system:node:n", "system:nodes", &["x"], &[], false), &client, false),
            (KUBELET_CLIENT, csr("system:node:n", "system:nodes", &[], &[], false), &server, false),
            (KUBELET_SERVING, csr("system:node:n", "system:nodes", &["n"], &[], false), &server, true),
            (KUBELET_SERVING, csr("system:node:n", "system:nodes", &[], &["10.0.0.1"], false), &server, true),
            (KUBELET_SERVING, csr("system:node:n", "system:nodes", &[], &[], false), &server, false),
            (KUBELET_SERVING, csr("system:node:n", "system:nodes", &["n"], &[], true), &server, false),
            (KUBELET_SERVING, csr("system:node:n", "system:nodes", &["n"], &[], false), &client, false),
            (CLIENT, csr("alice", "devs", &[], &[], false), &["client auth"], true),
            (CLIENT, csr("alice", "devs", &[], &[], false), &server, false),
            ("example.com/own", csr("alice", "devs", &[], &[], false), &["client auth"], false),
        ];
        for (signer, pem, usages, expected) in cases {
            let request = parse(pem.as_bytes()).expect("readable");
            let usages: Vec<String> = usages.iter().map(|&usage| usage.to_owned()).collect();
            assert_eq!(check(signer, &request, &usages).is_ok(), *expected, "{signer} {request:?} {usages:?}");
        }
    }
}
