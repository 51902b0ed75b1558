//! The bytes of issued certificates. Programs of other makers read them, and each reads a different part (RFC 5280).

use rcgen::KeyPair;
use x509_parser::prelude::{FromDer, X509Certificate, parse_x509_pem};

use super::*;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn at(year: i16) -> Timestamp {
    format!("{year}-06-01T00:00:00Z").parse().expect("a time")
}

fn authority(now: Timestamp) -> Authority {
    let key = new_key().expect("a key");
    let pem = Authority::new_certificate(&key, "kubernetes", now, YEAR * 10).expect("a certificate");
    Authority::new(pem, key).expect("an authority")
}

/// The extensions in order: identifier, whether it is critical, the value's bytes.
fn extensions(pem: &str) -> Vec<(String, bool, Vec<u8>)> {
    let der = pem_content(pem, "certificate").expect("PEM");
    let (_, certificate) = X509Certificate::from_der(&der).expect("DER");
    certificate.extensions().iter().map(|e| (e.oid.to_id_string(), e.critical, e.value.to_vec())).collect()
}

fn expected(rows: &[(&str, bool, &[u8])]) -> Vec<(String, bool, Vec<u8>)> {
    rows.iter().map(|(oid, critical, value)| ((*oid).to_owned(), *critical, value.to_vec())).collect()
}

#[test]
fn an_authority_may_sign_certificates() {
    let authority = authority(at(2026));
    let id = authority.key_id.clone().expect("an identifier").to_der().expect("DER");
    let wanted = expected(&[
        // Bits 0, 2 and 5: digital signature, key encipherment, certificate signing.
        ("2.5.29.15", true, &[0x03, 0x02, 0x02, 0xa4]),
        ("2.5.29.19", true, &[0x30, 0x03, 0x01, 0x01, 0xff]),
        ("2.5.29.14", false, &id),
    ]);
    assert_eq!(extensions(&authority.certificate_pem), wanted);
}

#[test]
fn a_leaf_may_do_what_its_purpose_needs_and_no_more() {
    let authority = authority(at(2026));
    let key = new_key().expect("a key");
    let mut subject = Subject::client("jane", &["b", "a"]);
    let client = authority.certificate(&key, &subject, at(2026), YEAR).expect("a certificate");
    let own_id = authority.key_id.clone().expect("an identifier");
    let mut authority_id = vec![0x30, 0x16, 0x80, 0x14];
    authority_id.extend(own_id.as_bytes());
    let mut wanted = expected(&[
        // Bits 0 and 2: digital signature, key encipherment.
        ("2.5.29.15", true, &[0x03, 0x02, 0x05, 0xa0]),
        ("2.5.29.37", false, &[0x30, 0x0a, 0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02]),
        ("2.5.29.19", true, &[0x30, 0x00]),
        ("2.5.29.35", false, &authority_id),
    ]);
    assert_eq!(extensions(&client), wanted);

    subject.purpose = Purpose::Server;
    subject.names = vec!["a.b".to_owned()];
    subject.addresses = vec![[10, 0, 0, 1].into()];
    let server = authority.certificate(&key, &subject, at(2026), YEAR).expect("a certificate");
    *wanted[1].2.last_mut().expect("bytes") = 0x01;
    wanted.extend(expected(&[("2.5.29.17", false, &[0x30, 0x0b, 0x82, 0x03, b'a', b'.', b'b', 0x87, 0x04, 10, 0, 0, 1])]));
    assert_eq!(extensions(&server), wanted);
}

#[test]
fn organizations_come_before_the_common_name_in_the_callers_order() {
    let authority = authority(at(2026));
    let pem = authority.certificate(&new_key().expect("a key"), &Subject::client("jane", &["b", "a"]), at(2026), YEAR).expect("issues");
    let (_, block) = parse_x509_pem(pem.as_bytes()).expect("PEM");
    let (_, certificate) = X509Certificate::from_der(&block.contents).expect("DER");
    let organization = |name: u8| [0x31, 0x0a, 0x30, 0x08, 0x06, 0x03, 0x55, 0x04, 0x0a, 0x0c, 0x01, name];
    let common_name = [0x31, 0x0d, 0x30, 0x0b, 0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x04, b'j', b'a', b'n', b'e'];
    let wanted = [&[0x30, 0x27][..], &organization(b'b'), &organization(b'a'), &common_name].concat();
    assert_eq!(certificate.subject().as_raw(), wanted);
}

/// RFC 5280, 4.1.2.5: years through 2049 have two digits, later ones four.
#[test]
fn years_have_four_digits_from_2050() {
    let form = |pem: &str| {
        let der = pem_content(pem, "certificate").expect("PEM");
        let (_, certificate) = X509Certificate::from_der(&der).expect("DER");
        let validity = certificate.validity();
        (validity.not_before.is_utctime(), validity.not_after.is_utctime())
    };
    let form_in = |year| form(&authority(at(year)).certificate_pem);
    assert_eq!(form_in(2026), (true, true));
    assert_eq!(form_in(2045), (true, false));
    assert_eq!(form_in(2050), (false, false));
}

#[test]
fn a_request_without_a_common_name_has_critical_names() {
    let authority = authority(at(2026));
    let key = KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(["a.b".to_owned()]).expect("params");
    let mut sign = |common_name: Option<&str>| {
        params.distinguished_name = rcgen::DistinguishedName::new();
        common_name.into_iter().for_each(|name| params.distinguished_name.push(rcgen::DnType::CommonName, name));
        let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
        let pem = authority.sign_request(&request, &["server auth".to_owned()], at(2026), YEAR).expect("signs");
        extensions(&pem).into_iter().find(|(oid, ..)| oid == "2.5.29.17").expect("names")
    };
    let names = vec![0x30, 0x05, 0x82, 0x03, b'a', b'.', b'b'];
    assert_eq!(sign(Some("n1")), ("2.5.29.17".to_owned(), false, names.clone()));
    assert_eq!(sign(None), ("2.5.29.17".to_owned(), true, names));
}
