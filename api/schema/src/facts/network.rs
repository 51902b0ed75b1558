//! Facts about networks: `networking.k8s.io`, `discovery.k8s.io`.

use super::{Table, field, map, set, table};

pub(super) const TABLES: &[Table] = &[
    table("io.k8s.api.discovery.v1.Endpoint", &[], &[set("addresses")]),
    table("io.k8s.api.discovery.v1.EndpointHints", &["forNodes", "forZones"], &[]),
    table("io.k8s.api.discovery.v1.EndpointPort", &[], &[field("").map_atomic()]),
    table("io.k8s.api.discovery.v1.EndpointSlice", &["endpoints", "ports"], &[field("addressType").one_of(&["FQDN"])]),
    table("io.k8s.api.networking.v1.HTTPIngressPath", &[], &[field("pathType").one_of(&["Exact", "ImplementationSpecific", "Prefix"])]),
    table("io.k8s.api.networking.v1.HTTPIngressRuleValue", &["paths"], &[]),
    table("io.k8s.api.networking.v1.IPBlock", &["except"], &[]),
    table("io.k8s.api.networking.v1.IngressLoadBalancerIngress", &["ports"], &[]),
    table("io.k8s.api.networking.v1.IngressLoadBalancerStatus", &["ingress"], &[]),
    table("io.k8s.api.networking.v1.IngressSpec", &["rules", "tls"], &[]),
    table("io.k8s.api.networking.v1.IngressTLS", &["hosts"], &[]),
    table("io.k8s.api.networking.v1.NetworkPolicyEgressRule", &["ports", "to"], &[]),
    table("io.k8s.api.networking.v1.NetworkPolicyIngressRule", &["from", "ports"], &[]),
    table(
        "io.k8s.api.networking.v1.NetworkPolicySpec",
        &["egress", "ingress", "policyTypes"],
        &[field("policyTypes[]").one_of(&["Egress", "Ingress"])],
    ),
    table("io.k8s.api.networking.v1.ServiceBackendPort", &[], &[field("").map_atomic()]),
    table("io.k8s.api.networking.v1.ServiceCIDRSpec", &["cidrs"], &[]),
    table("io.k8s.api.networking.v1.ServiceCIDRStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
];
