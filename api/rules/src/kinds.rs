//! The table: which rules hold for which kind. A kind that is not in it has metadata rules alone.

use api_model::kind::Kind;
use serde_json::Value;

use crate::at::At;
use crate::checks::Checks;

/// What a kind's file offers, always in this order.
pub struct Rules {
    /// Fills in defaults.
    pub default: fn(&mut Value),
    /// Adjusts a new object beyond what all kinds share.
    pub prepare_create: fn(&mut Value),
    /// Adjusts a changed object; the old one is the last argument.
    pub prepare_update: fn(Option<&str>, &mut Value, &Value),
    /// Checks a new object.
    pub validate_create: fn(&At<'_>, &mut Checks),
    /// Checks a change from the third argument to the second.
    pub validate_update: fn(Option<&str>, &At<'_>, &At<'_>, &mut Checks),
    /// Warnings about an object.
    pub warnings: fn(&At<'_>) -> Vec<String>,
}

impl Rules {
    /// Rules of a kind that has defaults and checks and nothing else.
    const fn new(
        default: fn(&mut Value),
        validate_create: fn(&At<'_>, &mut Checks),
        validate_update: fn(Option<&str>, &At<'_>, &At<'_>, &mut Checks),
    ) -> Self {
        Self { default, prepare_create: |_| {}, prepare_update: |_, _, _| {}, validate_create, validate_update, warnings: |_| Vec::new() }
    }
}

/// The rules of a kind.
pub fn rules(kind: &Kind) -> Option<&'static Rules> {
    Some(match (kind.group.as_str(), kind.kind.as_str()) {
        _ => return None,
    })
}

/// Field selectors beside `metadata.name` and `metadata.namespace`.
pub fn field_selectors(kind: &Kind) -> &'static [&'static str] {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => &[
            "metadata.name",
            "metadata.namespace",
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "Event") => &[
            "metadata.name",
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "metadata.name",
            "metadata.namespace",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "Secret") => &["metadata.name", "metadata.namespace", "type"],
        ("", "Namespace") => &["metadata.name", "metadata.namespace", "status.phase", "name"],
        ("", "Node") => &["metadata.name", "metadata.namespace", "spec.unschedulable"],
        ("", "Service") => &["metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"],
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &["metadata.name", "metadata.namespace", "status.replicas"],
        ("batch", "Job") => &["metadata.name", "metadata.namespace", "status.successful"],
        ("certificates.k8s.io", "CertificateSigningRequest") => &["metadata.name", "metadata.namespace", "spec.signerName"],
        _ => &["metadata.name", "metadata.namespace"],
    }
}
