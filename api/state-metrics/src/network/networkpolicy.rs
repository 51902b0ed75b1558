//! NetworkPolicies: how many rules they have.

use api_model::k8s_openapi::api::networking::v1::NetworkPolicy;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, namespaced};
use crate::read::{list, or_empty};
use crate::series::Label;

impl Kind for NetworkPolicy {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("networkpolicy", self)
    }
}

const FAMILIES: &[Family<NetworkPolicy>] = &[
    gauge("kube_networkpolicy_created", "When the NetworkPolicy was created, in Unix seconds.", created),
    gauge("kube_networkpolicy_spec_ingress_rules", "How many rules the NetworkPolicy has for incoming traffic.", |policy, series| {
        series.len(list(&or_empty(&policy.spec).ingress).len());
    }),
    gauge("kube_networkpolicy_spec_egress_rules", "How many rules the NetworkPolicy has for outgoing traffic.", |policy, series| {
        series.len(list(&or_empty(&policy.spec).egress).len());
    }),
];
