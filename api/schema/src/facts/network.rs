//! Facts about networks: `networking.k8s.io`, `discovery.k8s.io`.

use super::{Table, field, map, of, set};

pub(super) const TABLES: &[Table] = &[
    of("io.k8s.api.discovery.v1.Endpoint", &[], &[set("addresses")]),
    of("io.k8s.api.discovery.v1.EndpointHints", &["forNodes", "forZones"], &[]),
    of("io.k8s.api.discovery.v1.EndpointPort", &[], &[field("").map_atomic()]),
    of("io.k8s.api.discovery.v1.EndpointSlice", &["endpoints", "ports"], &[field("addressType").one_of(&["FQDN"])]),
    of("io.k8s.api.networking.v1.HTTPIngressPath", &[], &[field("pathType").one_of(&["Exact", "ImplementationSpecific", "Prefix"])]),
    of("io.k8s.api.networking.v1.HTTPIngressRuleValue", &["paths"], &[]),
    of("io.k8s.api.networking.v1.IPBlock", &["except"], &[]),
    of("io.k8s.api.networking.v1.IngressLoadBalancerIngress", &["ports"], &[]),
    of("io.k8s.api.networking.v1.IngressLoadBalancerStatus", &["ingress"], &[]),
    of("io.k8s.api.networking.v1.IngressSpec", &["rules", "tls"], &[]),
    of("io.k8s.api.networking.v1.IngressTLS", &["hosts"], &[]),
    of("io.k8s.api.networking.v1.NetworkPolicyEgressRule", &["ports", "to"], &[]),
    of("io.k8s.api.networking.v1.NetworkPolicyIngressRule", &["from", "ports"], &[]),
    of(
        "io.k8s.api.networking.v1.NetworkPolicySpec",
        &["egress", "ingress", "policyTypes"],
        &[field("policyTypes[]").one_of(&["Egress", "Ingress"])],
    ),
    of("io.k8s.api.networking.v1.ServiceBackendPort", &[], &[field("").map_atomic()]),
    of("io.k8s.api.networking.v1.ServiceCIDRSpec", &["cidrs"], &[]),
    of("io.k8s.api.networking.v1.ServiceCIDRStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
];
