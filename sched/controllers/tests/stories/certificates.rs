//! How a node gets its certificates.

use api_model::request::UserInfo;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
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

/// Waits for the event about a request that a person must approve.
async fn left(cluster: &Cluster, name: &str, why: &str) {
    until(&format!("{name} is left to a person"), cluster.api::<Event>(), |all| {
        let about = |event: &&Event| event.involved_object.name.as_deref() == Some(name);
        all.values().filter(about).any(|event| {
            event.reason.as_deref() == Some("ApprovalRequired") && event.message.as_ref().is_some_and(|message| message.contains(why))
        })
    })
    .await;
    let csr = cluster.all::<CertificateSigningRequest>().get(name).await.expect("there");
    assert!(csr.status.is_none_or(|status| status.conditions.is_none() && status.certificate.is_none()), "{name}");
}

/// Waits for the certificate.
async fn signed(cluster: &Cluster, name: &str) {
    let all = until(&format!("{name} is signed"), cluster.all::<CertificateSigningRequest>(), |all| {
        all.get(name).and_then(|csr| csr.status.as_ref()?.certificate.as_ref()).is_some()
    })
    .await;
    let pem = all[name].status.as_ref().and_then(|s| s.certificate.clone()).map(|c| String::from_utf8(c.0).expect("text"));
    assert!(pem.expect("signed").starts_with("-----BEGIN CERTIFICATE-----"));
}

async fn approve(cluster: &Cluster, name: &str) {
    let condition = json!({"type": "Approved", "status": "True", "reason": "ByHand"});
    let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    let requests = cluster.all::<CertificateSigningRequest>();
    requests.patch_subresource("approval", name, &PatchParams::default(), &patch).await.expect("approved");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_gets_its_client_and_serving_certificates() {
    let cluster = Cluster::start(|_| {}).await;
    cluster.node("n1").await;
    let joining = "system:bootstrappers:kubeadm:default-node-token";
    let bootstrap = UserInfo::new("system:bootstrap:abcdef", &["system:bootstrappers", joining, "system:authenticated"]);
    let other_token = UserInfo::new("system:bootstrap:fedcba", &["system:bootstrappers", joining, "system:authenticated"]);
    let node = UserInfo::new("system:node:n1", &["system:nodes", "system:authenticated"]);
    let ask = async |user: &UserInfo, name: &str, signer: &str, usage: &str, request: Vec<u8>| {
        let requests: Api<CertificateSigningRequest> = Api::all(Client::new(cluster.server.client(user.clone()), "default"));
        requests.create(&PostParams::default(), &csr(name, signer, usage, request)).await.expect("a request");
    };
    let (client, serving) = ("kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving");
    ask(&bootstrap, "new", client, "client auth", request("system:node:n2", None)).await;
    signed(&cluster, "new").await;
    ask(&other_token, "second", client, "client auth", request("system:node:n2", None)).await;
    left(&cluster, "second", "n2 was given to another by request new").await;
    // For the name of an existing Node, only a person or the node itself gets a certificate.
    ask(&bootstrap, "again", client, "client auth", request("system:node:n1", None)).await;
    left(&cluster, "again", "there is a Node n1").await;
    ask(&node, "renewed", client, "client auth", request("system:node:n1", None)).await;
    signed(&cluster, "renewed").await;
    // A client in this process has no address.
    ask(&node, "unproven", serving, "server auth", request("system:node:n1", Some("10.0.0.1"))).await;
    left(&cluster, "unproven", "10.0.0.1 is not proven: the request came from nowhere").await;
    approve(&cluster, "unproven").await;
    signed(&cluster, "unproven").await;
    ask(&node, "service", serving, "server auth", request("system:node:n1", Some("10.244.0.1"))).await;
    left(&cluster, "service", "10.244.0.1 is an address of the cluster's own").await;
    cluster.stop().await;
}
