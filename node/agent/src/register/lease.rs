//! The node's Lease, whose renewal tells the cluster that the node lives.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::watch;

use super::{RETRY, RETRY_MAX};
use crate::error::chain;
use crate::node::Node;

/// The namespace of node Leases.
const LEASES: &str = "kube-node-lease";

/// Renews the Lease for as long as the node lives. `registered` is the UID of the Node, and empty until the Node is registered.
pub(super) async fn renew(node: Arc<Node>, mut registered: watch::Receiver<String>) {
    if registered.wait_for(|uid| !uid.is_empty()).await.is_err() {
        // The registrar has ended.
        return;
    }
    let leases: Api<Lease> = Api::namespaced(node.client.clone(), LEASES);
    let name = &node.config.node_name;
    let mut retry = RETRY;
    loop {
        let now = MicroTime(api_clock::now());
        let patch = json!({"spec": {"holderIdentity": name, "renewTime": now}});
        // A Lease owned by a Node that was deleted would be garbage at once.
        let uid = registered.borrow().clone();
        let renewal = async {
            match leases.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => leases.create(&PostParams::default(), &lease(&node, uid, now)).await,
                other => other,
            }
        };
        // A connection that went silent must not hold up the next heartbeat.
        let failure = match tokio::time::timeout(node.config.lease_renew, renewal).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some("the API server did not answer in time".to_owned()),
        };
        let pause = match failure {
            None => {
                retry = RETRY;
                node.config.lease_renew
            }
            // The node counts as lost when some heartbeats are missing: the next attempt does not wait for its turn.
            Some(error) => {
                tracing::warn!(error, "lease not renewed");
                let pause = retry;
                retry = (retry * 2).min(RETRY_MAX).min(node.config.lease_renew);
                pause
            }
        };
        tokio::time::sleep(pause).await;
    }
}

fn lease(node: &Node, uid: String, now: MicroTime) -> Lease {
    let name = node.config.node_name.clone();
    let owner =
        OwnerReference { api_version: "v1".to_owned(), kind: "Node".to_owned(), name: name.clone(), uid, ..OwnerReference::default() };
    Lease {
        metadata: ObjectMeta { name: Some(name.clone()), owner_references: Some(vec![owner]), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(name),
            lease_duration_seconds: i32::try_from(node.config.lease_duration.as_secs()).ok(),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    }
}
