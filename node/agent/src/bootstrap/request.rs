//! Gets a certificate signed by the cluster: creates a CertificateSigningRequest and watches it until it is issued or denied.

use api_client::error::is_everyday;
use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

use super::identity::Identity;
use super::{CLIENT_SIGNER, Join, JoinError, SERVING_SIGNER, api, bad};

/// How long a request is waited for: an operator may have to approve it.
const WAIT: std::time::Duration = std::time::Duration::from_secs(15 * 60);

/// After this time the log reports that a request waits. A request that needs no administrator is approved within a second.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// The node's certificate as a client.
pub(super) async fn client(client: &kube::Client, join: &Join) -> Result<Identity, JoinError> {
    sign(client, join, CLIENT_SIGNER, &["digital signature", "client auth"], Vec::new()).await
}

/// The node's certificate as a server.
pub(super) async fn serving(client: &kube::Client, join: &Join) -> Result<Identity, JoinError> {
    let dns = join.node_name.clone().try_into().map_err(|error| bad("naming the node in a certificate", error))?;
    let names = vec![SanType::DnsName(dns), SanType::IpAddress(join.node_ip)];
    sign(client, join, SERVING_SIGNER, &["digital signature", "server auth"], names).await
}

/// A server certificate that no client trusts and that is overdue for renewal: a placeholder for the one that the cluster is
/// yet to sign.
pub(super) fn stand_in(join: &Join) -> Result<Identity, JoinError> {
    let failed = |error| bad("making a certificate", error);
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(vec![join.node_name.clone()]).map_err(failed)?;
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(2000, 1, 2);
    let certificate = params.self_signed(&key).map_err(failed)?;
    Identity::new(certificate.pem(), key.serialize_pem())
}

async fn sign(client: &kube::Client, join: &Join, signer: &str, usages: &[&str], names: Vec<SanType>) -> Result<Identity, JoinError> {
    let key = KeyPair::generate().map_err(|error| bad("making a key", error))?;
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "system:nodes");
    subject.push(DnType::CommonName, format!("system:node:{}", join.node_name));
    params.distinguished_name = subject;
    params.subject_alt_names = names;
    let pem =
        params.serialize_request(&key).and_then(|request| request.pem()).map_err(|error| bad("making a certificate request", error))?;
    let request = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: signer.to_owned(),
            usages: Some(usages.iter().map(|&usage| usage.to_owned()).collect()),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let made = requests.create(&PostParams::default(), &request).await.map_err(api("asking for a certificate"))?;
    let name = made.metadata.name.unwrap_or_default();
    let mut issued = std::pin::pin!(issued(requests, &name));
    let certificate = match tokio::time::timeout(PATIENCE, &mut issued).await {
        Ok(certificate) => certificate?,
        Err(_) => {
            tracing::warn!(
                csr = name,
                signer,
                "the certificate request waits for somebody to approve it: kubectl certificate approve {name}"
            );
            let late = || bad("waiting for a certificate", format!("request {name} was neither approved nor denied in time"));
            tokio::time::timeout(WAIT, issued).await.map_err(|_| late())??
        }
    };
    Identity::new(certificate, key.serialize_pem())
}

/// The certificate, as soon as the request has it.
async fn issued(requests: Api<CertificateSigningRequest>, name: &str) -> Result<String, JoinError> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watcher(requests, config).default_backoff());
    while let Some(event) = events.next().await {
        let request = match event {
            Ok(watcher::Event::Apply(request) | watcher::Event::InitApply(request)) => request,
            Ok(watcher::Event::Delete(_)) => return Err(bad("waiting for a certificate", format!("request {name} was deleted"))),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => continue,
            Err(error) if is_everyday(&error) => {
                tracing::debug!(error = crate::error::chain(&error), "the watch of the certificate request ended");
                continue;
            }
            Err(error) => {
                tracing::warn!(error = crate::error::chain(&error), "watching the certificate request failed");
                continue;
            }
        };
        let Some(status) = request.status else { continue };
        let verdict = status.conditions.iter().flatten().find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"));
        if let Some(verdict) = verdict {
            return Err(JoinError::Denied { name: name.to_owned(), message: verdict.message.clone().unwrap_or_default() });
        }
        if let Some(certificate) = status.certificate {
            return String::from_utf8(certificate.0).map_err(|error| bad("reading the issued certificate", error));
        }
    }
    Err(bad("waiting for a certificate", "the watch ended"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_to_a_failing_server_pause() {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let number = count.fetch_add(1, Ordering::SeqCst);
            async move {
                if number > 1_000 {
                    std::future::pending::<()>().await;
                }
                let failed = http::Response::builder().status(500).body(kube::client::Body::empty());
                Ok::<_, Infallible>(failed.expect("a response"))
            }
        });
        let requests = Api::all(kube::Client::new(service, "default"));
        let waited = tokio::time::timeout(Duration::from_secs(60), issued(requests, "csr-1")).await;
        assert!(waited.is_err(), "it is still waited for");
        let sent = sent.load(Ordering::SeqCst);
        assert!((2..60).contains(&sent), "{sent} requests in a minute");
    }
}
