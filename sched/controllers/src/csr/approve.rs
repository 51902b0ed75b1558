//! Approves the requests by which nodes join.
//!
//! Watches CertificateSigningRequests and Nodes; writes `Approved` conditions. A kubelet's client
//! certificate is approved when the requester may ask for it (a SubjectAccessReview on
//! `selfnodeclient` or `nodeclient`), as upstream. A kubelet's serving certificate is approved when
//! its own Node asks and every name in it is the Node's, which upstream leaves to others. Denies nothing.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PostParams};
use serde_json::json;

use super::request::{self, Request};
use super::{KUBELET_CLIENT, KUBELET_SERVING, certificate, is_pending};
use crate::failure::{During, Failure};
use crate::parts::Parts;
use crate::work::{Change, Controller, Next, ObjectKey, Queue, Store};
use crate::{meta, writes};

/// The controller; its keys are requests' names.
pub struct Approver {
    client: kube::Client,
    requests: Arc<Store<CertificateSigningRequest>>,
    nodes: Arc<Store<Node>>,
}

/// Sets the controller up.
pub fn build(parts: &mut Parts) {
    let queue = Arc::new(Queue::default());
    let requests = parts.feed(&queue, |change: &Change<CertificateSigningRequest>| {
        change.new.iter().map(|csr| meta::name(&csr.metadata).to_owned()).collect()
    });
    let known = Arc::clone(&requests);
    let nodes = parts.feed(&queue, move |change: &Change<Node>| {
        let addresses = |node: Option<&Arc<Node>>| node.and_then(|node| node.status.as_ref()?.addresses.clone());
        if addresses(change.old.as_ref()) == addresses(change.new.as_ref()) {
            return Vec::new();
        }
        let waiting = known.list().into_iter().filter(|csr| is_pending(csr) && csr.spec.signer_name == KUBELET_SERVING);
        waiting.map(|csr| meta::name(&csr.metadata).to_owned()).collect()
    });
    parts.run(Arc::new(Approver { client: parts.client(), requests, nodes }), queue);
}

/// On what an approval depends.
#[derive(Debug, PartialEq, Eq)]
enum Approval {
    /// Nobody but an administrator approves it.
    NotOurs,
    /// On the permission to create this subresource of CertificateSigningRequests, one of them.
    Permission(&'static [(&'static str, &'static str)]),
    /// On nothing more.
    Now(&'static str),
}

const SELF: (&str, &str) = ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.");
const OTHER: (&str, &str) = ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.");

fn plan(csr: &CertificateSigningRequest, node: impl Fn(&str) -> Option<Arc<Node>>) -> Approval {
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
        KUBELET_CLIENT => Approval::Permission(&[OTHER]),
        KUBELET_SERVING if own && names_are_the_nodes(&request, node) => {
            Approval::Now("Auto approving kubelet serving certificate of the node's own names.")
        }
        _ => Approval::NotOurs,
    }
}

fn names_are_the_nodes(request: &Request, node: impl Fn(&str) -> Option<Arc<Node>>) -> bool {
    let Some((name, node)) = request.node_name().and_then(|name| Some((name, node(name)?))) else { return false };
    let known: Vec<String> = node.status.iter().flat_map(|status| status.addresses.iter().flatten()).map(|a| a.address.clone()).collect();
    let dns = request.dns.iter().all(|asked| asked == name || known.contains(asked));
    let ips = request.ips.iter().all(|asked| known.iter().any(|address| address.parse() == Ok(*asked)));
    dns && ips
}

impl Controller for Approver {
    const NAME: &'static str = "certificatesigningrequest-approving-controller";
    const WORKERS: usize = 2;
    type Key = String;

    async fn reconcile(&self, key: &String) -> Result<Next, Failure> {
        let Some(csr) = self.requests.get(&ObjectKey::new("", key)) else { return Ok(Next::OnChange) };
        match plan(&csr, |name| self.nodes.get(&ObjectKey::new("", name))) {
            Approval::NotOurs => {}
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

impl Approver {
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
        let now = Some(meta::whole_seconds(Timestamp::now()));
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

    fn node(name: &str) -> Option<Arc<Node>> {
        let addresses = json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "host1"}]);
        (name == "n1").then(|| {
            Arc::new(serde_json::from_value(json!({"metadata": {"name": "n1"}, "status": {"addresses": addresses}})).expect("a Node"))
        })
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
            (csr(KUBELET_SERVING, "system:node:n1", of_node(&["evil.example"], &[]), &server), Approval::NotOurs),
            (csr(KUBELET_SERVING, "system:node:n1", of_node(&["n1"], &["10.9.9.9"]), &server), Approval::NotOurs),
        ];
        for (csr, expected) in cases {
            assert_eq!(plan(&csr, node), expected, "{csr:?}");
        }
        let good = csr(KUBELET_SERVING, "system:node:n1", of_node(&["n1", "host1"], &["10.0.0.1"]), &server);
        assert!(matches!(plan(&good, node), Approval::Now(_)));
        assert_eq!(plan(&good, |_| None), Approval::NotOurs, "not before the Node is there");
        let mut denied = good;
        denied.status = serde_json::from_value(json!({"conditions": [{"type": "Denied", "status": "True"}]})).expect("a status");
        assert_eq!(plan(&denied, node), Approval::NotOurs);
    }
}
