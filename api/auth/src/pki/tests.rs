use std::fs;
use std::os::unix::fs::PermissionsExt;

use x509_cert::der::asn1::{Ia5String, OctetString};
use x509_cert::der::oid::AssociatedOid as _;
use x509_cert::der::pem;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate, parse_x509_pem};

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn config() -> PkiConfig {
    let mut config = PkiConfig::for_cluster("cluster.local");
    config.addresses.insert([10, 96, 0, 1].into());
    config.names.insert("host.example".to_owned());
    config
}

fn now() -> Timestamp {
    Timestamp::now()
}

/// Whether the authority signed the certificate.
fn signed_by(leaf: &str, ca: &str) -> bool {
    let (leaf, ca) = (parse_x509_pem(leaf.as_bytes()).expect("pem").1, parse_x509_pem(ca.as_bytes()).expect("pem").1);
    let (_, leaf) = X509Certificate::from_der(&leaf.contents).expect("der");
    let (_, ca) = X509Certificate::from_der(&ca.contents).expect("der");
    leaf.issuer() == ca.subject() && leaf.verify_signature(Some(ca.public_key())).is_ok()
}

#[test]
fn a_new_directory_has_kubeadms_files_and_keys_only_for_the_owner() {
    let dir = tempfile::tempdir().expect("dir");
    let pki = Pki::open(dir.path(), &config()).expect("opens");
    let mut files: Vec<String> = fs::read_dir(dir.path())
        .expect("dir")
        .map(|entry| {
            let entry = entry.expect("entry");
            let mode = entry.metadata().expect("metadata").permissions().mode() & 0o777;
            format!("{} {mode:o}", entry.file_name().to_string_lossy())
        })
        .collect();
    files.sort();
    let wanted = [
        "apiserver-kubelet-client.crt 644",
        "apiserver-kubelet-client.key 600",
        "apiserver.crt 644",
        "apiserver.key 600",
        "ca.crt 644",
        "ca.key 600",
        "front-proxy-ca.crt 644",
        "front-proxy-ca.key 600",
        "front-proxy-client.crt 644",
        "front-proxy-client.key 600",
        "sa.key 600",
        "sa.pub 644",
    ];
    assert_eq!(files, wanted);

    let serving = read_certificate(&pki.serving().certificate_pem).expect("serving");
    assert_eq!(serving.names, config().names.into_iter().collect::<Vec<_>>());
    assert_eq!(serving.addresses, config().addresses.into_iter().collect::<Vec<_>>());
    assert!(!serving.is_ca);
    assert!(signed_by(&pki.serving().certificate_pem, pki.ca_pem()));
    let client = read_certificate(&pki.kubelet_client().certificate_pem).expect("client");
    assert_eq!((client.common_name.as_str(), client.organizations.len()), (KUBELET_CLIENT, 0), "to other servers it is nobody");
    let proxy = read_certificate(&pki.front_proxy_client().certificate_pem).expect("client");
    assert_eq!((proxy.common_name.as_str(), proxy.organizations.len()), (FRONT_PROXY, 0));
    assert!(signed_by(&pki.front_proxy_client().certificate_pem, pki.front_proxy_ca_pem()));
    assert!(!signed_by(&pki.front_proxy_client().certificate_pem, pki.ca_pem()), "it is no user of the cluster");
    let ca = read_certificate(pki.ca_pem()).expect("ca");
    assert!(ca.is_ca && ca.common_name == "kubernetes");
}

/// Directories of earlier versions have a client certificate in the group of administrators. Whoever takes over a
/// node's address could use it to become any user.
#[test]
fn a_client_certificate_of_administrators_is_replaced() {
    let dir = tempfile::tempdir().expect("dir");
    let first = Pki::open(dir.path(), &config()).expect("opens");
    let key = issue::parse_key(Path::new("key"), &first.kubelet_client().key_pem).expect("a key");
    let subject = Subject::client(KUBELET_CLIENT, &["system:masters"]);
    let old = first.ca.certificate(&key, &subject, now(), LEAF_VALIDITY).expect("a certificate");
    fs::write(dir.path().join("apiserver-kubelet-client.crt"), &old).expect("writes");
    let opened = Pki::open(dir.path(), &config()).expect("opens again");
    let client = read_certificate(&opened.kubelet_client().certificate_pem).expect("client");
    assert_eq!((client.common_name.as_str(), client.organizations.len()), (KUBELET_CLIENT, 0));
    let stored = fs::read_to_string(dir.path().join("apiserver-kubelet-client.crt")).expect("reads");
    assert_eq!(stored, opened.kubelet_client().certificate_pem);
}

#[test]
fn opening_again_changes_nothing() {
    let dir = tempfile::tempdir().expect("dir");
    let first = Pki::open(dir.path(), &config()).expect("opens");
    let second = Pki::open(dir.path(), &config()).expect("opens again");
    assert_eq!(first.ca_pem(), second.ca_pem());
    assert_eq!(first.serving(), second.serving());
    assert_eq!(first.kubelet_client(), second.kubelet_client());
    assert_eq!(first.service_account_key_pem(), second.service_account_key_pem());
}

#[test]
fn the_serving_certificate_follows_the_names_and_the_time() {
    let dir = tempfile::tempdir().expect("dir");
    let first = Pki::open(dir.path(), &config()).expect("opens");
    let mut more = config();
    more.addresses.insert([192, 0, 2, 7].into());
    let second = Pki::open(dir.path(), &more).expect("opens");
    assert_ne!(first.serving().certificate_pem, second.serving().certificate_pem);
    assert_eq!(first.serving().key_pem, second.serving().key_pem, "the key stays");
    assert_eq!(first.kubelet_client(), second.kubelet_client());

    let soon = now().saturating_add(DAY * 100).expect("in range");
    let third = Pki::open_at(dir.path(), &more, soon).expect("opens");
    assert_eq!(second.serving(), third.serving(), "plenty of time left");
    let late = now().saturating_add(DAY * 300).expect("in range");
    let fourth = Pki::open_at(dir.path(), &more, late).expect("opens");
    assert_ne!(third.serving(), fourth.serving(), "renewed");
    assert_ne!(third.kubelet_client(), fourth.kubelet_client(), "renewed");
}

/// A kill between any two steps leaves the files of the previous steps, and perhaps a temporary file.
#[test]
fn any_prefix_of_the_steps_opens() {
    let whole = tempfile::tempdir().expect("dir");
    Pki::open(whole.path(), &config()).expect("opens");
    let steps = [
        "ca.key",
        "ca.crt",
        "apiserver.key",
        "apiserver.crt",
        "apiserver-kubelet-client.key",
        "apiserver-kubelet-client.crt",
        "sa.key",
        "sa.pub",
    ];
    for done in 0..=steps.len() {
        let dir = tempfile::tempdir().expect("dir");
        for name in steps.iter().take(done) {
            fs::copy(whole.path().join(name), dir.path().join(name)).expect("copy");
        }
        fs::write(dir.path().join("ca.key.new"), "half a k").expect("write");
        let pki = Pki::open(dir.path(), &config()).unwrap_or_else(|e| panic!("after {done} steps: {e}"));
        assert!(signed_by(&pki.serving().certificate_pem, pki.ca_pem()), "after {done} steps");
        let again = Pki::open(dir.path(), &config()).expect("opens again");
        assert_eq!(pki.serving(), again.serving());
        if done >= 2 {
            assert_eq!(pki.ca_pem(), fs::read_to_string(whole.path().join("ca.crt")).expect("ca"), "the authority is kept");
        }
    }
}

#[test]
fn an_authority_without_its_key_is_not_replaced() {
    let dir = tempfile::tempdir().expect("dir");
    Pki::open(dir.path(), &config()).expect("opens");
    fs::remove_file(dir.path().join("ca.key")).expect("remove");
    assert!(matches!(Pki::open(dir.path(), &config()), Err(PkiError::CaKeyMissing { .. })));

    let other = tempfile::tempdir().expect("dir");
    Pki::open(other.path(), &config()).expect("opens");
    fs::copy(other.path().join("ca.key"), dir.path().join("ca.key")).expect("copy");
    let error = Pki::open(dir.path(), &config()).err().expect("foreign key").to_string();
    assert!(error.ends_with("ca.crt is not usable: it does not belong to its key"), "{error}");
}

#[test]
fn a_leaf_of_another_authority_is_issued_again() {
    let (dir, other) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
    Pki::open(dir.path(), &config()).expect("opens");
    Pki::open(other.path(), &config()).expect("opens");
    for name in ["apiserver.crt", "apiserver.key"] {
        fs::copy(other.path().join(name), dir.path().join(name)).expect("copy");
    }
    let pki = Pki::open(dir.path(), &config()).expect("opens");
    assert!(signed_by(&pki.serving().certificate_pem, pki.ca_pem()));
}

#[test]
fn clients_carry_every_group() {
    let dir = tempfile::tempdir().expect("dir");
    let pki = Pki::open(dir.path(), &config()).expect("opens");
    let identity = pki.issue_client("jane", &["a", "b", "c"], DAY).expect("issues");
    let info = read_certificate(&identity.certificate_pem).expect("reads");
    assert_eq!(info.organizations, ["a", "b", "c"]);
    assert!(info.not_after <= now().saturating_add(DAY).expect("in range"));
    assert!(!format!("{identity:?}").contains("PRIVATE"));
    let forever = pki.issue_client("jane", &[], DAY * 36500).expect("issues");
    let ca = read_certificate(pki.ca_pem()).expect("ca");
    assert_eq!(read_certificate(&forever.certificate_pem).expect("reads").not_after, ca.not_after, "nothing outlives its issuer");
}

fn request(names: &[&str]) -> String {
    let key = rcgen::KeyPair::generate().expect("key");
    let mut params = rcgen::CertificateParams::new(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>()).expect("params");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n1");
    params.serialize_request(&key).expect("request").pem().expect("pem")
}

#[test]
fn requests_are_signed_with_the_callers_usages() {
    let dir = tempfile::tempdir().expect("dir");
    let pki = Pki::open(dir.path(), &config()).expect("opens");
    let csr = request(&["n1.example", "192.0.2.1"]);
    let requested = read_request(&csr).expect("reads");
    assert_eq!((requested.common_name.as_str(), requested.names.as_slice()), ("system:node:n1", ["n1.example".to_owned()].as_slice()));

    let usages = ["digital signature", "key encipherment", "client auth"].map(str::to_owned);
    let pem = pki.sign_csr(&csr, &usages, DAY).expect("signs");
    let info = read_certificate(&pem).expect("reads");
    assert_eq!((info.common_name.as_str(), info.organizations.as_slice()), ("system:node:n1", ["system:nodes".to_owned()].as_slice()));
    assert_eq!((info.names, info.addresses), (requested.names, requested.addresses));
    assert_eq!(info.public_key_der, requested.public_key_der);
    assert!(!info.is_ca && signed_by(&pem, pki.ca_pem()));
    let block = parse_x509_pem(pem.as_bytes()).expect("pem").1;
    let (_, certificate) = X509Certificate::from_der(&block.contents).expect("der");
    let extended = certificate.extended_key_usage().expect("parses").expect("there").value;
    assert!(extended.client_auth && !extended.server_auth);
    let usage = certificate.key_usage().expect("parses").expect("there").value;
    assert!(usage.digital_signature() && usage.key_encipherment() && !usage.key_cert_sign());
}

#[test]
fn bad_requests_are_rejected() {
    let dir = tempfile::tempdir().expect("dir");
    let pki = Pki::open(dir.path(), &config()).expect("opens");
    let csr = request(&[]);
    let error = |csr: &str, usages: &[&str]| {
        let usages: Vec<String> = usages.iter().map(|&u| u.to_owned()).collect();
        pki.sign_csr(csr, &usages, DAY).expect_err("refused").to_string()
    };
    assert_eq!(error(&csr, &["client auth", "juggling"]), "unrecognized usages: \"juggling\"");
    assert_eq!(error("nonsense", &[]), "cannot parse certificate request: PEM block type must be CERTIFICATE REQUEST");
    assert_eq!(error(pki.ca_pem(), &[]), "cannot parse certificate request: PEM block type must be CERTIFICATE REQUEST");

    // One bit of the signature is flipped.
    let block = parse_x509_pem(csr.as_bytes()).expect("pem").1;
    let mut der = block.contents;
    *der.last_mut().expect("bytes") ^= 1;
    let forged = pem::encode_string("CERTIFICATE REQUEST", pem::LineEnding::LF, &der).expect("pem");
    assert!(error(&forged, &[]).starts_with("cannot parse certificate request: "), "a broken signature");
}

/// A request whose second list of extensions has a name beside the harmless first list.
fn request_with_hidden_name() -> String {
    use x509_cert::der::Encode as _;
    use x509_cert::der::asn1::SetOfVec;

    let name = GeneralName::DnsName(Ia5String::new("kubernetes.default.svc").expect("a name"));
    let hidden = Extension {
        extn_id: SubjectAltName::OID,
        critical: false,
        extn_value: OctetString::new(SubjectAltName(vec![name]).to_der().expect("DER")).expect("bytes"),
    };
    let values = SetOfVec::try_from([vec![hidden]]).expect("a set").to_der().expect("DER");
    let extension_request = rcgen::Attribute { oid: &[1, 2, 840, 113_549, 1, 9, 14], values };
    let key = rcgen::KeyPair::generate().expect("key");
    let params = rcgen::CertificateParams::new(["n1.example".to_owned()]).expect("params");
    params.serialize_request_with_attributes(&key, vec![extension_request]).expect("request").pem().expect("pem")
}

#[test]
fn no_name_hides_behind_another_list() {
    let dir = tempfile::tempdir().expect("dir");
    let pki = Pki::open(dir.path(), &config()).expect("opens");
    let refused = pki.sign_csr(&request_with_hidden_name(), &["server auth".to_owned()], DAY).expect_err("refused").to_string();
    assert_eq!(refused, "cannot parse certificate request: it has more than one list of extensions or of subject alternative names");
}
