//! Approves the requests with which nodes join.
//!
//! Watches CertificateSigningRequests, Nodes, their Leases and the API servers' endpoints; writes `Approved` conditions, and
//! events on requests that an administrator must approve. It approves a kubelet's client certificate when the requester has the
//! permission for it (a SubjectAccessReview on `selfnodeclient` or `nodeclient`), as upstream, and the name is free
//! ([`newcomer`]). It approves a kubelet's serving certificate when its own Node requests it and every name in it is proven to
//! be the Node's ([`serving`]); upstream leaves serving certificates to others. It denies nothing.

pub mod newcomer;
pub mod serving;

use std::sync::Arc;
use std::time::Duration;

use api_client::events::{Recorder, reference};
use api_client::informer::{Change, Informer, ObjectKey};
use api_client::lease::NODE_LEASE_NAMESPACE;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{Patch, PostParams};
use serde_json::json;
use thiserror::Error;

use self::newcomer::Present;
use super::request::{self, Request, remote_address};
use super::{KUBELET_CLIENT, KUBELET_SERVING, certificate, is_pending};
use crate::config::Reserved;
use crate::context::ControllerContext;
use crate::failure::{During, Failure};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, slices, writes};

/// The period in which a request is checked again whose name another request got: that request is removed after an hour.
const GIVEN_AGAIN: Duration = Duration::from_secs(300);

/// The controller; its keys are requests' names.
pub struct Approver {
    client: kube::Client,
    recorder: Recorder,
    requests: Informer<CertificateSigningRequest>,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    slices: Informer<EndpointSlice>,
    reserved: Reserved,
    grace_period: Duration,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("certificate_approve"));
    let requests = context.feed(&queue, |change: &Change<CertificateSigningRequest>| {
        change.new.iter().map(|csr| meta::name(&csr.metadata).to_owned()).collect()
    });
    let request_cache = requests.clone();
    let nodes = context.feed(&queue, move |change: &Change<Node>| {
        let addresses = |node: Option<&Arc<Node>>| node.map(|node| node.status.as_ref().and_then(|status| status.addresses.clone()));
        if addresses(change.old.as_ref()) == addresses(change.new.as_ref()) {
            return Vec::new();
        }
        request_cache.list().into_iter().filter(|csr| is_pending(csr)).map(|csr| meta::name(&csr.metadata).to_owned()).collect()
    });
    let mut reserved = context.config.reserved.clone();
    reserved.ranges.extend(context.config.service_cidr.into_iter().chain([context.config.cluster_cidr]));
    let approver = Approver {
        client: context.client(),
        recorder: context.recorder(Approver::NAME),
        requests,
        nodes,
        leases: context.selected(crate::nodes::LEASES),
        slices: context.informer(),
        reserved,
        grace_period: context.config.nodes.grace_period,
    };
    context.run(Arc::new(approver), queue);
}

/// What an approval depends on.
#[derive(Debug, PartialEq, Eq)]
enum Approval {
    /// Only an administrator approves the request.
    NotOurs,
    /// It depends on the permission to create one of these subresources of CertificateSigningRequests.
    Permission(&'static [(&'static str, &'static str)]),
    /// On nothing more.
    Now(&'static str),
    /// It depends on an administrator, or on objects that may exist later.
    Open(Objection),
}

/// Why a request is left to a person.
#[derive(Debug, Error, PartialEq, Eq)]
enum Objection {
    #[error(transparent)]
    Serving(#[from] serving::Objection),
    #[error(transparent)]
    Newcomer(#[from] newcomer::Objection),
}

/// What is checked apart from the request.
trait Cluster {
    fn serving(&self, csr: &CertificateSigningRequest, request: &Request) -> Result<(), serving::Objection>;
    fn newcomer(&self, csr: &CertificateSigningRequest, request: &Request) -> Result<(), newcomer::Objection>;
}

const SELF: (&str, &str) = ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.");
const OTHER: (&str, &str) = ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.");

fn plan(csr: &CertificateSigningRequest, cluster: &dyn Cluster) -> Approval {
    if !is_pending(csr) || !certificate(csr).is_empty() {
        return Approval::NotOurs;
    }
    let Ok(request) = request::parse(&csr.spec.request.0) else { return Approval::NotOurs };
    let usages = csr.spec.usages.clone().unwrap_or_default();
    if request::check(&csr.spec.signer_name, &request, &usages).is_err() {
        return Approval::NotOurs;
    }
    let own = csr.spec.username.as_deref() == Some(&request.common_name);
    match csr.spec.signer_name.as_str() {
        KUBELET_CLIENT if own => Approval::Permission(&[SELF, OTHER]),
        KUBELET_CLIENT => match cluster.newcomer(csr, &request) {
            Ok(()) => Approval::Permission(&[OTHER]),
            Err(objection) => Approval::Open(objection.into()),
        },
        KUBELET_SERVING if own => match cluster.serving(csr, &request) {
            Ok(()) => Approval::Now("Auto approving kubelet serving certificate of the node's own name and proven address."),
            Err(objection) => Approval::Open(objection.into()),
        },
        _ => Approval::NotOurs,
    }
}

impl Controller for Approver {
    const NAME: &'static str = "certificatesigningrequest-approving-controller";
    const WORKERS: usize = 2;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(csr) = self.requests.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        match plan(&csr, self) {
            Approval::NotOurs => {}
            Approval::Open(objection) => return Ok(self.leave(&csr, &objection)),
            Approval::Now(message) => self.approve(&csr, message).await?,
            Approval::Permission(ways) => {
                for (subresource, message) in ways {
                    if self.may(&csr, subresource).await? {
                        self.approve(&csr, message).await?;
                        break;
                    }
                }
            }
        }
        Ok(Next::OnChange)
    }
}

impl Cluster for Approver {
    fn serving(&self, csr: &CertificateSigningRequest, request: &Request) -> Result<(), serving::Objection> {
        let mut reserved = self.reserved.clone();
        reserved
            .addresses
            .extend(self.slices.list().iter().filter(|slice| slices::is_of_servers(slice)).flat_map(|slice| slices::addresses(slice)));
        serving::check(request, remote_address(csr), &self.nodes.list(), &reserved)
    }

    fn newcomer(&self, csr: &CertificateSigningRequest, request: &Request) -> Result<(), newcomer::Objection> {
        let name = request.node_name().unwrap_or_default();
        let present = Present {
            node: self.nodes.get(&ObjectKey::new("", name)),
            lease: self.leases.get(&ObjectKey::new(NODE_LEASE_NAMESPACE, name)),
            requests: &self.requests.list(),
            grace_period: self.grace_period,
            now: api_clock::now(),
        };
        newcomer::check(csr, name, &present)
    }
}

/// The result for a request that is not approved.
#[derive(Debug, PartialEq, Eq)]
struct Unapproved {
    /// Why a person must approve the request; None if the objection passes by itself.
    why: Option<String>,
    /// When to check the request again.
    next: Next,
}

/// Changes of requests and Nodes cause a new check. A Lease that ends and a request that is removed do not.
fn unapproved(objection: &Objection, grace_period: Duration) -> Unapproved {
    let is_passing = matches!(objection, Objection::Serving(objection) if objection.is_passing());
    let next = match objection {
        Objection::Newcomer(newcomer::Objection::Alive(_)) => Next::After(grace_period),
        Objection::Newcomer(newcomer::Objection::Given(..)) => Next::After(GIVEN_AGAIN),
        _ => Next::OnChange,
    };
    Unapproved { why: (!is_passing).then(|| objection.to_string()), next }
}

impl Approver {
    /// Records in an event why the request is not approved, and returns when to check again.
    fn leave(&self, csr: &CertificateSigningRequest, objection: &Objection) -> Next {
        let Unapproved { why, next } = unapproved(objection, self.grace_period);
        if let Some(why) = why {
            let name = meta::name(&csr.metadata);
            tracing::warn!(csr = name, signer = csr.spec.signer_name, why, "certificate signing request is left to a person");
            let message = format!("Not approved automatically: {why}. If the request is good: kubectl certificate approve {name}");
            self.recorder.warning(&reference(csr), "ApprovalRequired", message);
        }
        next
    }

    /// Whether the requester may create that subresource.
    async fn may(&self, csr: &CertificateSigningRequest, subresource: &str) -> Result<bool, Failure> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: csr.spec.username.clone(),
                uid: csr.spec.uid.clone(),
                groups: csr.spec.groups.clone(),
                extra: csr.spec.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    group: Some("certificates.k8s.io".to_owned()),
                    resource: Some("certificatesigningrequests".to_owned()),
                    verb: Some("create".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    version: Some("*".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api
            .create(&PostParams::default(), &review)
            .await
            .during("reviewing access of", csr.spec.username.as_deref().unwrap_or_default())?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    async fn approve(&self, csr: &CertificateSigningRequest, message: &str) -> Result<(), Failure> {
        let mut conditions = csr.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        let now = Some(meta::whole_seconds(api_clock::now()));
        conditions.push(CertificateSigningRequestCondition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("AutoApproved".to_owned()),
            message: Some(message.to_owned()),
            last_update_time: now.clone(),
            last_transition_time: now,
        });
        let name = meta::name(&csr.metadata);
        let patch = json!({"metadata": {"resourceVersion": csr.metadata.resource_version}, "status": {"conditions": conditions}});
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        api.patch_subresource("approval", name, &writes::patching(), &Patch::Merge(&patch))
            .await
            .during("approving", format!("CertificateSigningRequest {name}"))?;
        tracing::info!(csr = name, signer = csr.spec.signer_name, "certificate signing request approved");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::tests::csr as pem;
    use super::*;
    use k8s_openapi::ByteString;

    fn csr(signer: &str, user: &str, request: String, usages: &[&str]) -> CertificateSigningRequest {
        let mut csr: CertificateSigningRequest = serde_json::from_value(
            json!({"metadata": {"name": "r"}, "spec": {"signerName": signer, "username": user, "usages": usages, "request": ""}}),
        )
        .expect("a request");
        csr.spec.request = ByteString(request.into_bytes());
        csr
    }

    /// A cluster with these two answers.
    struct Objections(Result<(), serving::Objection>, Result<(), newcomer::Objection>);

    impl Cluster for Objections {
        fn serving(&self, _: &CertificateSigningRequest, _: &Request) -> Result<(), serving::Objection> {
            self.0.clone()
        }

        fn newcomer(&self, _: &CertificateSigningRequest, _: &Request) -> Result<(), newcomer::Objection> {
            self.1.clone()
        }
    }

    #[test]
    fn nodes_get_their_own_certificates_and_nothing_else() {
        let client = ["digital signature", "client auth"];
        let server = ["digital signature", "server auth"];
        let of_node = |dns: &[&str], ips: &[&str]| pem("system:node:n1", "system:nodes", dns, ips, false);
        let cases = [
            (csr(KUBELET_CLIENT, "system:node:n1", of_node(&[], &[]), &client), Approval::Permission(&[SELF, OTHER])),
            (csr(KUBELET_CLIENT, "system:bootstrap:abc", of_node(&[], &[]), &client), Approval::Permission(&[OTHER])),
            (csr(KUBELET_CLIENT, "x", pem("system:node:n1", "system:masters", &[], &[], false), &client), Approval::NotOurs),
            (csr(super::super::CLIENT, "x", pem("x", "y", &[], &[], false), &["client auth"]), Approval::NotOurs),
            (csr(KUBELET_SERVING, "system:node:n2", of_node(&["n1"], &[]), &server), Approval::NotOurs),
            (csr(KUBELET_SERVING, "system:bootstrap:abc", of_node(&["n1"], &[]), &server), Approval::NotOurs),
        ];
        for (csr, expected) in cases {
            assert_eq!(plan(&csr, &Objections(Ok(()), Ok(()))), expected, "{csr:?}");
        }
        let good = csr(KUBELET_SERVING, "system:node:n1", of_node(&["n1"], &["10.0.0.1"]), &server);
        assert!(matches!(plan(&good, &Objections(Ok(()), Ok(()))), Approval::Now(_)));
        let mut denied = good;
        denied.status = serde_json::from_value(json!({"conditions": [{"type": "Denied", "status": "True"}]})).expect("a status");
        assert_eq!(plan(&denied, &Objections(Ok(()), Ok(()))), Approval::NotOurs);
    }

    #[test]
    fn what_is_in_doubt_is_left_to_a_person() {
        let (serving, newcomer) = (serving::Objection::NoNode("n1".to_owned()), newcomer::Objection::Exists("n1".to_owned()));
        let objections = Objections(Err(serving.clone()), Err(newcomer.clone()));
        let client = |user: &str| {
            csr(KUBELET_CLIENT, user, pem("system:node:n1", "system:nodes", &[], &[], false), &["digital signature", "client auth"])
        };
        assert_eq!(plan(&client("system:bootstrap:abc"), &objections), Approval::Open(newcomer.into()));
        assert_eq!(plan(&client("system:node:n1"), &objections), Approval::Permission(&[SELF, OTHER]), "the node itself");
        let request = pem("system:node:n1", "system:nodes", &["n1"], &[], false);
        let server = csr(KUBELET_SERVING, "system:node:n1", request, &["digital signature", "server auth"]);
        assert_eq!(plan(&server, &objections), Approval::Open(serving.into()));
    }

    /// An objection that no change of a watched object can remove is checked again after a time. Others are not checked
    /// again: they would repeat their event for ever.
    #[test]
    fn a_request_that_was_left_is_looked_at_again_when_that_can_help() {
        let node = || "n1".to_owned();
        let grace_period = Duration::from_secs(40);
        let cases: [(Objection, Option<&str>, Next); 5] = [
            (newcomer::Objection::Alive(node()).into(), Some("the Lease of n1 is being renewed"), Next::After(grace_period)),
            (
                newcomer::Objection::Given(node(), "csr-1".to_owned()).into(),
                Some("n1 was given to another by request csr-1"),
                Next::After(Duration::from_secs(300)),
            ),
            (
                newcomer::Objection::Exists(node()).into(),
                Some("there is a Node n1: whoever has taken its place has to be approved, or the Node deleted first"),
                Next::OnChange,
            ),
            (serving::Objection::NoNode(node()).into(), None, Next::OnChange),
            (serving::Objection::OtherName("x".to_owned()).into(), Some("\"x\" is not the name of the Node"), Next::OnChange),
        ];
        for (objection, why, next) in cases {
            assert_eq!(unapproved(&objection, grace_period), Unapproved { why: why.map(str::to_owned), next }, "{objection:?}");
        }
    }
}
