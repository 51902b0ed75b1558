//! How a node gets its certificates.

use api_model::request::UserInfo;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::PostParams;
use kube::{Api, Client};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

use crate::support::{Cluster, from, until};

fn request(common_name: &str, ip: Option<&str>) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.subject_alt_names = ip.into_iter().map(|ip| rcgen::SanType::IpAddress(ip.parse().expect("an address"))).collect();
    let key = KeyPair::generate().expect("a key");
    params.serialize_request(&key).expect("a request").pem().expect("PEM").into_bytes()
}

fn csr(name: &str, signer: &str, usage: &str, request: Vec<u8>) -> CertificateSigningRequest {
    let mut csr: CertificateSigningRequest =
        from(json!({"metadata": {"name": name}, "spec": {"signerName": signer, "usages": ["digital signature", usage], "request": ""}}));
    csr.spec.request = ByteString(request);
    csr
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_gets_its_client_and_serving_certificates() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.node("n1").await;
    let bootstrap = UserInfo::new("system:bootstrap:abcdef", &["system:bootstrappers", "system:authenticated"]);
    let node = UserInfo::new("system:node:n1", &["system:nodes", "system:authenticated"]);
    let requests = |user: UserInfo| -> Api<CertificateSigningRequest> { Api::all(Client::new(cluster.server.client(user), "default")) };
    let client = csr("client", "kubernetes.io/kube-apiserver-client-kubelet", "client auth", request("system:node:n1", None));
    requests(bootstrap.clone()).create(&PostParams::default(), &client).await.expect("a request");
    let serving = csr("serving", "kubernetes.io/kubelet-serving", "server auth", request("system:node:n1", Some("10.0.0.1")));
    requests(node.clone()).create(&PostParams::default(), &serving).await.expect("a request");
    let foreign = csr("foreign", "kubernetes.io/kubelet-serving", "server auth", request("system:node:n1", Some("10.66.66.66")));
    requests(node).create(&PostParams::default(), &foreign).await.expect("a request");
    let answered = until("both signed", cluster.all::<CertificateSigningRequest>(), |all| {
        let signed = |name: &str| all.get(name).and_then(|csr| csr.status.as_ref()?.certificate.as_ref()).is_some();
        signed("client") && signed("serving")
    })
    .await;
    let pem = |name: &str| {
        answered[name].status.as_ref().and_then(|s| s.certificate.clone()).map(|c| String::from_utf8(c.0).expect("text")).expect("signed")
    };
    assert!(pem("client").starts_with("-----BEGIN CERTIFICATE-----") && pem("serving").starts_with("-----BEGIN CERTIFICATE-----"));
    let foreign = cluster.all::<CertificateSigningRequest>().get("foreign").await.expect("there");
    assert!(foreign.status.is_none_or(|status| status.conditions.is_none() && status.certificate.is_none()));
    cluster.stop().await;
}
