//! Certificate signing requests: one controller approves the requests with which nodes join, one signs approved requests, one
//! removes old requests. Three controllers on one kind, as upstream.

pub mod approve;
pub mod clean;
mod request;
pub mod sign;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};

/// Client certificates of kubelets.
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Serving certificates of kubelets.
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Client certificates of anybody.
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Whatever an administrator approved.
const LEGACY: &str = "kubernetes.io/legacy-unknown";

fn condition<'a>(csr: &'a CertificateSigningRequest, kind: &str) -> Option<&'a CertificateSigningRequestCondition> {
    csr.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

fn is_pending(csr: &CertificateSigningRequest) -> bool {
    condition(csr, "Approved").is_none() && condition(csr, "Denied").is_none()
}

fn certificate(csr: &CertificateSigningRequest) -> &[u8] {
    csr.status.as_ref().and_then(|status| status.certificate.as_ref()).map_or(&[], |certificate| certificate.0.as_slice())
}
