//! Plugins for certificates. CertificateApproval checks who approves requests for a signer. CertificateSigning checks
//! who signs for it. ClusterTrustBundleAttest checks who publishes its trust bundles. CertificateSubjectRestriction
//! rejects requests to the client signer for the group `system:masters`.

mod subject;

use api_model::request::Attributes;
use api_model::view::View;
use serde_json::Value;

pub use subject::Subject;

use crate::denied::Denied;
use crate::json;
use crate::plugin::{Allows, Plugin};
use crate::request::{Operation, Request};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const POD_REQUESTS: &str = "podcertificaterequests";
const BUNDLES: &str = "clustertrustbundles";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// Checks that the user may approve for the signer.
pub struct CertificateApproval {
    /// The authorizer.
    pub allows: Allows,
}

/// Checks that the user may sign for the signer.
pub struct CertificateSigning {
    /// The authorizer.
    pub allows: Allows,
}

/// Checks that the user may publish trust bundles for the signer.
pub struct ClusterTrustBundleAttest {
    /// The authorizer.
    pub allows: Allows,
}

/// Rejects requests for the group `system:masters`.
pub struct CertificateSubjectRestriction;

impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn validate(&self, request: &Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if request.operation != Operation::Update || !request.is_sub(GROUP, REQUESTS, "approval") {
            return Ok(());
        }
        // The check uses the signer of the stored request: an update cannot change the signer.
        let signer = request.old.map(signer).unwrap_or_default();
        if allowed(&self.allows, request, view, "approve", signer) {
            return Ok(());
        }
        Err(Denied::forbidden(request, format!("user not permitted to approve requests with signerName {signer:?}")))
    }
}

impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn validate(&self, request: &Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        let is_status = |resource| request.operation == Operation::Update && request.is_sub(GROUP, resource, "status");
        let (Some(old), Some(new)) = (request.old, request.object()) else { return Ok(()) };
        let certificate = |of: &Value| json::text_at(of, "/status/certificate").to_owned();
        let signs_request = is_status(REQUESTS) && (certificate(old) != certificate(new) || failed(old) != failed(new));
        // The signer owns the whole status of a PodCertificateRequest.
        let signs_for_pod = is_status(POD_REQUESTS) && old.get("status") != new.get("status");
        if !signs_request && !signs_for_pod {
            return Ok(());
        }
        let signer = signer(old);
        if allowed(&self.allows, request, view, "sign", signer) {
            return Ok(());
        }
        Err(Denied::forbidden(request, format!("user not permitted to sign requests with signerName {signer:?}")))
    }
}

impl Plugin for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn validate(&self, request: &Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        let Some(object) = request.object().filter(|_| request.is(GROUP, BUNDLES)) else { return Ok(()) };
        let unchanged = request.old.is_some_and(|old| old.get("spec") == object.get("spec"));
        let signer = signer(object);
        if unchanged || signer.is_empty() || allowed(&self.allows, request, view, "attest", signer) {
            return Ok(());
        }
        Err(Denied::forbidden(request, format!("user not permitted to attest for signerName {signer:?}")))
    }
}

impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn validate(&self, request: &Request<'_>, _view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        let Some(object) = request.object().filter(|_| request.operation == Operation::Create && request.is(GROUP, REQUESTS)) else {
            return Ok(());
        };
        if signer(object) != CLIENT_SIGNER {
            return Ok(());
        }
        let subject = Subject::from_request(json::text_at(object, "/spec/request"))
            .map_err(|problem| Denied::forbidden(request, format!("failed to parse CSR: {problem}")))?;
        if subject.organizations.iter().any(|o| o == MASTERS) {
            return Err(Denied::forbidden(request, format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")));
        }
        Ok(())
    }
}

fn signer(request: &Value) -> &str {
    json::text_at(request, "/spec/signerName")
}

fn failed(request: &Value) -> Vec<&Value> {
    let conditions = request.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.filter(|c| json::text(c, "type") == "Failed").collect()
}

/// Whether the user may use the verb on the signer, or on all signers of its domain.
fn allowed(allows: &Allows, request: &Request<'_>, view: &dyn View, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    [signer.to_owned(), format!("{domain}/*")].into_iter().any(|name| {
        let attributes = Attributes {
            verb: verb.to_owned(),
            group: GROUP.to_owned(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name,
            ..Attributes::default()
        };
        allows(request.user, &attributes, view)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::testing::{Ask, Objects, verdict};
    use serde_json::json;

    /// A P-256 request for `CN=jane`, made by openssl, and one for `O=system:masters, CN=jane`.
    const PLAIN: &str = include_str!("certificates/plain.csr");
    const MASTER: &str = include_str!("certificates/master.csr");

    fn allows(verb: &'static str, name: &'static str) -> Allows {
        Arc::new(move |user, attributes, _| {
            user.username == "jane" && attributes.verb == verb && attributes.resource == "signers" && attributes.name == name
        })
    }

    fn csr(status: Value) -> Value {
        json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": "r" },
            "spec": { "signerName": "example.com/signer" }, "status": status,
        })
    }

    #[test]
    fn approving_needs_the_signers_verb() {
        let refused = "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to approve requests with signerName \"example.com/signer\"";
        for (verb, name, wanted) in [
            ("approve", "example.com/signer", "ok"),
            ("approve", "example.com/*", "ok"),
            ("approve", "other.com/*", refused),
            ("sign", "example.com/signer", refused),
        ] {
            let old = csr(json!({}));
            let plugin = CertificateApproval { allows: allows(verb, name) };
            assert_eq!(
                verdict(Ask::update(&old, old.clone()).sub("approval").validate(&plugin, &Objects::default())),
                wanted,
                "{verb} {name}"
            );
        }
    }

    #[test]
    fn signing_needs_the_signers_verb_only_where_something_is_signed() {
        let refused = "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to sign requests with signerName \"example.com/signer\"";
        let failed = json!({ "conditions": [{ "type": "Failed", "status": "True" }] });
        for (verb, status, wanted) in [
            ("sign", json!({ "certificate": "x" }), "ok"),
            ("approve", json!({ "certificate": "x" }), refused),
            ("approve", failed, refused),
            ("approve", json!({ "conditions": [{ "type": "Approved" }] }), "ok"),
        ] {
            let plugin = CertificateSigning { allows: allows(verb, "example.com/*") };
            let old = csr(json!({}));
            assert_eq!(verdict(Ask::update(&old, csr(status)).sub("status").validate(&plugin, &Objects::default())), wanted, "{verb}");
        }
    }

    #[test]
    fn a_pods_certificate_is_signed_by_its_signer() {
        let refused = "podcertificaterequests.certificates.k8s.io \"r\" is forbidden: user not permitted to sign requests with signerName \"example.com/signer\"";
        let request = |status: Value| {
            json!({
                "apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest", "metadata": { "name": "r", "namespace": "n" },
                "spec": { "signerName": "example.com/signer" }, "status": status,
            })
        };
        let chain = json!({ "certificateChain": "x" });
        for (verb, status, wanted) in [("sign", &chain, "ok"), ("attest", &chain, refused), ("attest", &json!({}), "ok")] {
            let plugin = CertificateSigning { allows: allows(verb, "example.com/signer") };
            let ask = Ask::update(&request(json!({})), request(status.clone())).sub("status").validate(&plugin, &Objects::default());
            assert_eq!(verdict(ask), wanted, "{verb} {status}");
        }
    }

    #[test]
    fn bundles_of_a_signer_need_the_signers_verb() {
        let refused = "clustertrustbundles.certificates.k8s.io \"r\" is forbidden: user not permitted to attest for signerName \"example.com/signer\"";
        let bundle = |signer: &str, pem: &str| {
            json!({
                "apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "metadata": { "name": "r" },
                "spec": { "signerName": signer, "trustBundle": pem },
            })
        };
        let signed = bundle("example.com/signer", "a");
        for (verb, signer, wanted) in [("attest", "example.com/signer", "ok"), ("sign", "example.com/signer", refused), ("sign", "", "ok")]
        {
            let plugin = ClusterTrustBundleAttest { allows: allows(verb, "example.com/*") };
            let create = Ask::create(bundle(signer, "a")).validate(&plugin, &Objects::default());
            assert_eq!(verdict(create), wanted, "{verb} {signer}");
            let update = Ask::update(&signed, bundle(signer, "b")).validate(&plugin, &Objects::default());
            assert_eq!(verdict(update), wanted, "{verb} {signer}");
            let same = Ask::update(&signed, signed.clone()).validate(&plugin, &Objects::default());
            assert_eq!(verdict(same), "ok");
        }
    }

    #[test]
    fn nobody_asks_to_be_a_master() {
        let ask = |signer: &str, pem: &str| {
            let mut object = csr(json!({}));
            object["spec"] = json!({ "signerName": signer, "request": STANDARD.encode(pem) });
            verdict(Ask::create(object).validate(&CertificateSubjectRestriction, &Objects::default()))
        };
        let refused = "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
        assert_eq!(ask(CLIENT_SIGNER, PLAIN), "ok");
        assert_eq!(ask(CLIENT_SIGNER, MASTER), refused);
        assert_eq!(ask("example.com/signer", MASTER), "ok");
        assert!(ask(CLIENT_SIGNER, "nonsense").contains("failed to parse CSR"));
    }
}
