//! CertificateSigningRequests: whether they are approved, and how long the certificate is. Never the certificate.

use api_model::k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, named};
use crate::read::{list, or_empty};
use crate::series::{Label, Series};

impl Kind for CertificateSigningRequest {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        let mut labels = named("certificatesigningrequest", self);
        labels.push(("signer_name", &self.spec.signer_name));
        labels
    }
}

const FAMILIES: &[Family<CertificateSigningRequest>] = &[
    gauge("kube_certificatesigningrequest_created", "When the request was created, in Unix seconds.", created),
    gauge("kube_certificatesigningrequest_condition", "How many conditions approve or deny the request.", conditions),
    gauge("kube_certificatesigningrequest_cert_length", "Bytes of the issued certificate; 0 before there is one.", |request, series| {
        series.len(or_empty(&request.status).certificate.as_ref().map_or(0, |certificate| certificate.0.len()));
    }),
];

fn conditions(request: &CertificateSigningRequest, series: &mut Series<'_>) {
    let status = or_empty(&request.status);
    for (kind, label) in [("Approved", "approved"), ("Denied", "denied")] {
        let count = list(&status.conditions).iter().filter(|condition| condition.type_ == kind).count();
        series.sample(&[("condition", label)], count as f64);
    }
}
