//! Whether the owner of a bootstrap token gets a client certificate of a node without an administrator. Pure.
//!
//! A token does not say which machine has it. The name of a node that exists, or that was given to another request a short time
//! ago, is therefore not given again: the certificate can read the Secrets of all Pods that are bound to the node.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use thiserror::Error;

use crate::csr::request::{self, remote_address};
use crate::csr::{KUBELET_CLIENT, condition};
use crate::meta;

/// Why a name is not given.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Objection {
    /// The Node exists, ready or not.
    #[error("there is a Node {0}: whoever has taken its place has to be approved, or the Node deleted first")]
    Exists(String),
    /// The Node is gone, but the owner of its certificate still renews its Lease.
    #[error("the Lease of {0} is being renewed")]
    Alive(String),
    /// The name was given to another machine, which may not have registered yet.
    #[error("{0} was given to another by request {1}")]
    Given(String, String),
}

/// The present objects of the node.
pub struct Present<'p> {
    /// The Node of the name.
    pub node: Option<Arc<Node>>,
    /// Its Lease.
    pub lease: Option<Arc<Lease>>,
    /// All requests.
    pub requests: &'p [Arc<CertificateSigningRequest>],
    /// How long a Lease lives that is not renewed.
    pub grace_period: Duration,
    /// The time.
    pub now: Timestamp,
}

/// Checks a request for a name that the requester does not have.
pub fn check(csr: &CertificateSigningRequest, name: &str, present: &Present<'_>) -> Result<(), Objection> {
    if present.node.is_some() {
        return Err(Objection::Exists(name.to_owned()));
    }
    let renewed = present.lease.as_ref().and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref()).map(|time| time.0);
    let is_fresh = |renewed: Timestamp| {
        let age = Duration::try_from(present.now.duration_since(renewed)).unwrap_or_default();
        age < present.grace_period
    };
    if renewed.is_some_and(is_fresh) {
        return Err(Objection::Alive(name.to_owned()));
    }
    let given = present.requests.iter().find(|other| is_given(other, name) && !is_same_requester(other, csr));
    match given {
        Some(other) => Err(Objection::Given(name.to_owned(), meta::name(&other.metadata).to_owned())),
        None => Ok(()),
    }
}

/// Whether a request for that name was approved.
fn is_given(csr: &CertificateSigningRequest, name: &str) -> bool {
    let is_named = || request::parse(&csr.spec.request.0).is_ok_and(|request| request.node_name() == Some(name));
    csr.spec.signer_name == KUBELET_CLIENT && condition(csr, "Approved").is_some() && condition(csr, "Denied").is_none() && is_named()
}

/// A machine that was interrupted before it stored its certificate, or that was set up again, requests again from the same
/// address.
fn is_same_requester(one: &CertificateSigningRequest, other: &CertificateSigningRequest) -> bool {
    match (remote_address(one), remote_address(other)) {
        (None, None) => one.spec.username == other.spec.username,
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use api_model::request::REMOTE_ADDRESS;
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::super::super::request::tests::csr as pem;
    use super::*;

    fn csr(name: &str, node: &str, from: &str, approved: bool) -> Arc<CertificateSigningRequest> {
        let conditions = if approved { json!([{"type": "Approved", "status": "True"}]) } else { json!([]) };
        let mut csr: CertificateSigningRequest = serde_json::from_value(json!({
            "metadata": {"name": name}, "status": {"conditions": conditions},
            "spec": {"signerName": KUBELET_CLIENT, "request": "", "username": "system:bootstrap:abcdef", "extra": {(REMOTE_ADDRESS): [from]}},
        }))
        .expect("a request");
        csr.spec.request = ByteString(pem(&format!("system:node:{node}"), "system:nodes", &[], &[], false).into_bytes());
        Arc::new(csr)
    }

    #[test]
    fn a_name_is_given_once() {
        let now = Timestamp::now();
        let node = || Some(Arc::new(serde_json::from_value(json!({"metadata": {"name": "n1"}})).expect("a Node")));
        let lease = |age: i64| {
            let renewed = now - jiff::SignedDuration::from_secs(age);
            Some(Arc::new(
                serde_json::from_value(json!({"metadata": {}, "spec": {"renewTime": format!("{renewed:.6}")}})).expect("a Lease"),
            ))
        };
        let asking = csr("asking", "n1", "192.0.2.7", false);
        let checked = |node, lease, requests: &[Arc<CertificateSigningRequest>]| {
            check(&asking, "n1", &Present { node, lease, requests, grace_period: Duration::from_secs(40), now })
        };
        assert_eq!(checked(None, None, &[Arc::clone(&asking)]), Ok(()));
        assert_eq!(checked(node(), None, &[]), Err(Objection::Exists("n1".to_owned())), "also one that is not ready");
        assert_eq!(checked(None, lease(10), &[]), Err(Objection::Alive("n1".to_owned())));
        assert_eq!(checked(None, lease(-10), &[]), Err(Objection::Alive("n1".to_owned())), "by a clock that is ahead");
        assert_eq!(checked(None, lease(60), &[]), Ok(()));
        let given = Err(Objection::Given("n1".to_owned(), "r".to_owned()));
        assert_eq!(checked(None, None, &[csr("r", "n1", "192.0.2.9", true)]), given);
        assert_eq!(checked(None, None, &[csr("r", "n1", "192.0.2.7", true)]), Ok(()), "it asks again");
        assert_eq!(checked(None, None, &[csr("r", "n1", "192.0.2.9", false)]), Ok(()));
        assert_eq!(checked(None, None, &[csr("r", "n2", "192.0.2.9", true)]), Ok(()));
    }
}
