//! Removes old CertificateSigningRequests: an hour after they were approved, denied or failed, a day after their creation when
//! they were not, and when their certificate has expired.

use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Change, Informer, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::DeleteParams;
use x509_parser::pem::Pem;

use super::{certificate, condition};
use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};

/// How long an answered request stays, upstream's.
const ANSWERED: Duration = Duration::from_secs(3_600);
/// How long an unanswered request stays, upstream's.
const PENDING: Duration = Duration::from_secs(24 * 3_600);

/// The controller; its keys are requests' names.
pub struct Cleaner {
    client: kube::Client,
    requests: Informer<CertificateSigningRequest>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("certificate_clean"));
    let requests = context.feed(&queue, |change: &Change<CertificateSigningRequest>| {
        change.new.iter().map(|csr| meta::name(&csr.metadata).to_owned()).collect()
    });
    context.run(Arc::new(Cleaner { client: context.client(), requests }), queue);
}

/// How long the request may stay.
fn stays(csr: &CertificateSigningRequest, now: Timestamp) -> Duration {
    let answers = ["Approved", "Denied", "Failed"].into_iter().filter_map(|kind| condition(csr, kind));
    let answered = answers.filter_map(|condition| meta::instant(condition.last_update_time.as_ref())).min();
    let created = meta::instant(csr.metadata.creation_timestamp.as_ref()).unwrap_or(now);
    let (since, term) = answered.map_or((created, PENDING), |answered| (answered, ANSWERED));
    let left = term.saturating_sub(Duration::try_from(now.duration_since(since)).unwrap_or_default());
    expires_in(csr, now).map_or(left, |expiry| expiry.min(left))
}

fn expires_in(csr: &CertificateSigningRequest, now: Timestamp) -> Option<Duration> {
    let pem = Pem::iter_from_buffer(certificate(csr)).next()?.ok()?;
    let end = pem.parse_x509().ok()?.validity().not_after.timestamp();
    Some(Duration::from_secs(u64::try_from(end.saturating_sub(now.as_second())).unwrap_or(0)))
}

impl Controller for Cleaner {
    const NAME: &'static str = "certificatesigningrequest-cleaner-controller";
    const WORKERS: usize = 1;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(csr) = self.requests.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        let left = stays(&csr, api_clock::now());
        if !left.is_zero() {
            return Ok(Next::After(left));
        }
        writes::delete(&self.client, csr.as_ref(), DeleteParams::default()).await?;
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn requests_go_when_they_are_done_with() {
        let csr = |conditions: Value| -> CertificateSigningRequest {
            let spec = json!({"request": "", "signerName": "s"});
            let metadata = json!({"name": "r", "creationTimestamp": "2024-01-01T00:00:00Z"});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}})).expect("a request")
        };
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let answered = |kind: &str| csr(json!([{"type": kind, "status": "True", "lastUpdateTime": "2024-01-01T02:00:00Z"}]));
        assert_eq!(stays(&csr(json!([])), at("2024-01-01T23:00:00Z")), Duration::from_secs(3_600));
        assert_eq!(stays(&csr(json!([])), at("2024-01-02T00:00:00Z")), Duration::ZERO);
        for kind in ["Approved", "Denied", "Failed"] {
            assert_eq!(stays(&answered(kind), at("2024-01-01T02:30:00Z")), Duration::from_secs(1_800));
            assert_eq!(stays(&answered(kind), at("2024-01-01T03:00:00Z")), Duration::ZERO);
        }
    }
}
