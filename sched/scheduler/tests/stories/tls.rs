//! Extenders over TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::ready;
use rcgen::{CertificateParams, CertifiedKey, DistinguishedName, DnType, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};

use crate::extender::{Extender, Reply};
use crate::support::Cluster;

/// An authority that signs servers and clients.
struct Authority {
    pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().expect("a key");
        let cert = params.self_signed(&key).expect("a certificate");
        Self { pem: cert.pem(), der: cert.der().clone(), issuer: Issuer::new(params, key) }
    }

    fn sign(&self, name: &str) -> CertifiedKey<KeyPair> {
        let signing_key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        CertifiedKey { cert: params.signed_by(&signing_key, &self.issuer).expect("a certificate"), signing_key }
    }

    /// A server for clients with certificates of this authority.
    async fn extender(&self, name: &str, verifies_clients: bool) -> Extender {
        let CertifiedKey { cert, signing_key } = self.sign(name);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().expect("versions");
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).expect("an authority");
        let builder = match verifies_clients {
            true => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().expect("a verifier");
                builder.with_client_cert_verifier(verifier)
            }
            false => builder.with_no_client_auth(),
        };
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let config = builder.with_single_cert(vec![cert.der().clone()], key).expect("a certificate");
        Extender::serve(Some(config), |_, _| ready(Reply::Json(json!({"NodeNames": ["a"]}))).boxed()).await
    }
}

fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

/// The message of a Pod of a scheduler whose extender has these settings; empty when the Pod got a node.
async fn outcome(extender: &Extender, settings: Value) -> String {
    let mut config =
        json!({"urlPrefix": format!("https://127.0.0.1:{}/scheduler", extender.port), "filterVerb": "filter", "nodeCacheCapable": true});
    config.as_object_mut().expect("fields").extend(settings.as_object().expect("fields").clone());
    let cluster = Cluster::start(&["a"], json!([config])).await;
    cluster.pod("p", json!({})).await;
    let message = |pod: &k8s_openapi::api::core::v1::Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|one| one.status == "False").and_then(|one| one.message)
    };
    let pod = cluster.until("p", |pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) || message(pod).is_some()).await;
    cluster.stop().await;
    message(&pod).unwrap_or_default()
}

#[tokio::test]
async fn the_settings_decide_who_is_trusted() {
    let (authority, other, dir) = (Authority::new(), Authority::new(), tempfile::tempdir().expect("a directory"));
    let extender = authority.extender("127.0.0.1", false).await;
    let ca = |of: &Authority, name: &str| json!({"tlsConfig": {"caFile": file(dir.path(), name, &of.pem)}});
    assert_eq!(outcome(&extender, ca(&authority, "ca")).await, "");
    let message = outcome(&extender, ca(&other, "other")).await;
    assert!(message.contains("invalid peer certificate"), "{message}");
    assert_eq!(outcome(&extender, json!({"tlsConfig": {"insecure": true}})).await, "");
    assert_eq!(outcome(&extender, json!({"enableHTTPS": true})).await, "", "as upstream, without an authority nobody is checked");
}

#[tokio::test]
async fn the_name_and_the_clients_certificate_are_those_of_the_settings() {
    let (authority, dir) = (Authority::new(), tempfile::tempdir().expect("a directory"));
    let extender = authority.extender("extender.example", true).await;
    let CertifiedKey { cert, signing_key } = authority.sign("scheduler");
    let (cert, key) = (file(dir.path(), "cert", &cert.pem()), file(dir.path(), "key", &signing_key.serialize_pem()));
    let ca = file(dir.path(), "ca", &authority.pem);
    let whole = json!({"caFile": ca, "certFile": cert, "keyFile": key, "serverName": "extender.example"});
    assert_eq!(outcome(&extender, json!({"enableHTTPS": true, "tlsConfig": whole.clone()})).await, "");
    for (missing, wanted) in [(&["serverName"][..], "invalid peer certificate"), (&["certFile", "keyFile"], "")] {
        let mut tls = whole.clone();
        missing.iter().for_each(|field| drop(tls.as_object_mut().expect("fields").remove(*field)));
        let message = outcome(&extender, json!({"tlsConfig": tls})).await;
        assert!(!message.is_empty() && message.contains(wanted), "{missing:?}: {message}");
    }
}
