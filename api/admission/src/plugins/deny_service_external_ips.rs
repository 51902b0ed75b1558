//! DenyServiceExternalIPs: rejects new `externalIPs` of Services. Without it, a user who may write Services could
//! direct the traffic of others to own Pods (CVE-2020-8554). Upstream has the plugin off by default, and has deprecated
//! the field (KEP-5707). Here it is on.

use api_model::view::View;
use serde_json::Value;

use crate::denied::Denied;
use crate::plugin::Plugin;
use crate::request::{Operation, Request};

/// The plugin.
pub struct DenyServiceExternalIPs;

impl Plugin for DenyServiceExternalIPs {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn validate(&self, request: &Request<'_>, _view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if !matches!(request.operation, Operation::Create | Operation::Update) || !request.is("", "services") {
            return Ok(());
        }
        // A Service may keep or drop the addresses that it already has.
        let (new, old) = (external_ips(request.object()), external_ips(request.old));
        if new.iter().all(|ip| old.contains(ip)) {
            return Ok(());
        }
        Err(Denied::forbidden(request, "Use of external IPs is denied by admission control"))
    }
}

fn external_ips(service: Option<&Value>) -> &[Value] {
    service.and_then(|service| service.pointer("/spec/externalIPs")?.as_array()).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects, verdict};
    use serde_json::json;

    #[test]
    fn external_addresses_may_stay_or_go_but_not_be_added() {
        let service = |ips: &[&str]| json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s", "namespace": "ns" }, "spec": { "externalIPs": ips } });
        let view = Objects::default();
        let denied = "services \"s\" is forbidden: Use of external IPs is denied by admission control";
        let create = |ips: &[&str]| verdict(Ask::create(service(ips)).validate(&DenyServiceExternalIPs, &view));
        assert_eq!(create(&[]), "ok");
        assert_eq!(create(&["192.0.2.1"]), denied);
        let update = |old: &[&str], new: &[&str]| {
            let old = service(old);
            verdict(Ask::update(&old, service(new)).validate(&DenyServiceExternalIPs, &view))
        };
        assert_eq!(update(&["192.0.2.1", "192.0.2.2"], &["192.0.2.2", "192.0.2.1"]), "ok");
        assert_eq!(update(&["192.0.2.1", "192.0.2.2"], &["192.0.2.2"]), "ok");
        assert_eq!(update(&["192.0.2.1"], &[]), "ok");
        assert_eq!(update(&["192.0.2.1"], &["192.0.2.1", "192.0.2.2"]), denied);
        assert_eq!(update(&["192.0.2.1"], &["192.0.2.2"]), denied);
        assert_eq!(update(&[], &["192.0.2.2"]), denied);
    }
}
