//! Signs approved requests of upstream's own signers.
//!
//! Watches CertificateSigningRequests; writes `status.certificate`, or the condition `Failed` when
//! a request does not fit its signer. The key is the binary's business: see
//! [`Signer`](crate::Signer).

use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Change, Informer, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use serde_json::{Value, json};

use super::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, certificate, condition, request};
use crate::config::{Signer, SigningError, SigningRequest};
use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};

/// The shortest validity that a request may have, upstream's.
const DURATION_MIN: Duration = Duration::from_secs(600);

/// The controller; its keys are requests' names.
pub struct Signing {
    client: kube::Client,
    signer: Arc<dyn Signer>,
    duration_max: Duration,
    requests: Informer<CertificateSigningRequest>,
}

/// Registers the controller, if there is an authority to sign with.
pub fn build(context: &mut ControllerContext) {
    let Some(signer) = context.config.signer.clone() else { return };
    let queue = Arc::new(WorkQueue::new("certificate_sign"));
    let requests = context.feed(&queue, |change: &Change<CertificateSigningRequest>| {
        change.new.iter().map(|csr| meta::name(&csr.metadata).to_owned()).collect()
    });
    let duration_max = context.config.certificate_duration;
    context.run(Arc::new(Signing { client: context.client(), signer, duration_max, requests }), queue);
}

#[derive(Debug, PartialEq)]
enum Action {
    Nothing,
    Sign(SigningRequest),
    Fail(String),
}

fn plan(csr: &CertificateSigningRequest, duration_max: Duration) -> Action {
    let ours = [KUBELET_CLIENT, KUBELET_SERVING, CLIENT, LEGACY].contains(&csr.spec.signer_name.as_str());
    let wanted = condition(csr, "Approved").is_some() && condition(csr, "Denied").is_none() && condition(csr, "Failed").is_none();
    if !ours || !wanted || !certificate(csr).is_empty() {
        return Action::Nothing;
    }
    let usages = csr.spec.usages.clone().unwrap_or_default();
    let checked = request::parse(&csr.spec.request.0).and_then(|request| request::check(&csr.spec.signer_name, &request, &usages));
    if let Err(refusal) = checked {
        return Action::Fail(refusal.to_string());
    }
    let requested = csr.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let duration = requested.map_or(duration_max, |requested| requested.max(DURATION_MIN).min(duration_max));
    Action::Sign(SigningRequest { request_pem: String::from_utf8_lossy(&csr.spec.request.0).into_owned(), usages, duration })
}

fn failed(csr: &CertificateSigningRequest, message: String, now: Timestamp) -> Value {
    let mut conditions = csr.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let now = Some(meta::whole_seconds(now));
    conditions.push(CertificateSigningRequestCondition {
        type_: "Failed".to_owned(),
        status: "True".to_owned(),
        reason: Some("SignerValidationFailure".to_owned()),
        message: Some(message),
        last_update_time: now.clone(),
        last_transition_time: now,
    });
    json!({"conditions": conditions})
}

/// The status after an attempt to sign. A request of which no certificate can be made has failed for good; when the authority
/// fails, the controller tries again.
fn answered(csr: &CertificateSigningRequest, signed: Result<String, SigningError>, now: Timestamp) -> Result<Value, SigningError> {
    match signed {
        Ok(certificate) => Ok(json!({"certificate": ByteString(certificate.into_bytes())})),
        Err(SigningError::Unfit(problem)) => Ok(failed(csr, problem.to_string(), now)),
        Err(failure @ SigningError::Failed(_)) => Err(failure),
    }
}

impl Controller for Signing {
    const NAME: &'static str = "certificatesigningrequest-signing-controller";
    const WORKERS: usize = 2;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(csr) = self.requests.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        let status = match plan(&csr, self.duration_max) {
            Action::Nothing => return Ok(Next::OnChange),
            Action::Fail(message) => failed(&csr, message, api_clock::now()),
            Action::Sign(request) => answered(&csr, self.signer.sign(&request), api_clock::now())?,
        };
        writes::patch_status(&self.client, csr.as_ref(), status).await?;
        tracing::info!(csr = key, signer = csr.spec.signer_name, "certificate signing request answered");
        Ok(Next::OnChange)
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::tests::csr as pem;
    use super::*;

    fn csr(organization: &str, conditions: Value, expiration: Option<i32>) -> CertificateSigningRequest {
        let mut csr: CertificateSigningRequest = serde_json::from_value(json!({
            "metadata": {"name": "r"}, "status": {"conditions": conditions},
            "spec": {"signerName": KUBELET_CLIENT, "usages": ["digital signature", "client auth"], "request": "", "expirationSeconds": expiration},
        }))
        .expect("a request");
        csr.spec.request = ByteString(pem("system:node:n", organization, &[], &[], false).into_bytes());
        csr
    }

    #[test]
    fn only_what_is_approved_and_fits_is_signed() {
        let year = Duration::from_secs(365 * 86_400);
        let approved = json!([{"type": "Approved", "status": "True"}]);
        assert_eq!(plan(&csr("system:nodes", json!([]), None), year), Action::Nothing);
        let Action::Sign(request) = plan(&csr("system:nodes", approved.clone(), None), year) else { panic!("not signed") };
        assert_eq!(request.duration, year);
        for (requested, got) in [(1, 600), (3_600, 3_600), (i32::MAX, 365 * 86_400)] {
            let Action::Sign(request) = plan(&csr("system:nodes", approved.clone(), Some(requested)), year) else { panic!("not signed") };
            assert_eq!(request.duration.as_secs(), got);
        }
        let Action::Fail(why) = plan(&csr("system:masters", approved.clone(), None), year) else { panic!("not refused") };
        assert_eq!(why, "subject organization is not system:nodes");
        let mut done = csr("system:nodes", approved, None);
        done.status.get_or_insert_default().certificate = Some(ByteString(vec![1]));
        assert_eq!(plan(&done, year), Action::Nothing);
        let both = json!([{"type": "Approved", "status": "True"}, {"type": "Failed", "status": "True"}]);
        assert_eq!(plan(&csr("system:nodes", both, None), year), Action::Nothing);
    }

    #[test]
    fn a_request_that_cannot_be_signed_fails_and_an_authority_that_fails_is_tried_again() {
        let csr = csr("system:nodes", json!([{"type": "Approved", "status": "True"}]), None);
        let answer = |signed| answered(&csr, signed, Timestamp::UNIX_EPOCH);
        assert_eq!(answer(Ok("PEM".to_owned())).expect("signed"), json!({"certificate": "UEVN"}));
        let unfit = answer(Err(SigningError::Unfit("a bad name".into()))).expect("failed");
        assert_eq!(unfit["conditions"][1]["type"], "Failed");
        assert_eq!(unfit["conditions"][1]["message"], "a bad name");
        assert!(answer(Err(SigningError::Failed("no room".into()))).is_err());
    }
}
