//! EndpointSlices: the endpoints of Services, their ports and their hints.

use api_model::k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::family::{Family, Kind, gauge};
use crate::metadata::created;
use crate::read::{flag, list, or_empty, text};
use crate::series::{Label, Series};

impl Kind for EndpointSlice {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        vec![("endpointslice", text(&self.metadata.name)), ("namespace", text(&self.metadata.namespace))]
    }
}

const FAMILIES: &[Family<EndpointSlice>] = &[
    gauge("kube_endpointslice_info", "An EndpointSlice with the type of its addresses.", |slice, series| {
        series.info(&[("addresstype", &slice.address_type)]);
    }),
    gauge("kube_endpointslice_created", "When the EndpointSlice was created, in Unix seconds.", created),
    gauge("kube_endpointslice_endpoints_hints", "A zone whose clients should use the endpoint.", hints),
    gauge("kube_endpointslice_endpoints", "An address of an endpoint with its conditions, target and node.", |slice, series| {
        for endpoint in list(&slice.endpoints) {
            addresses(endpoint, series);
        }
    }),
    gauge("kube_endpointslice_ports", "A port of the endpoints.", |slice, series| {
        for port in list(&slice.ports) {
            let number = port.port.map(|number| number.to_string());
            series.info(&[("port_name", text(&port.name)), ("port_protocol", text(&port.protocol)), ("port_number", text(&number))]);
        }
    }),
];

fn hints(slice: &EndpointSlice, series: &mut Series<'_>) {
    for endpoint in list(&slice.endpoints) {
        let Some(address) = endpoint.addresses.first() else { continue };
        for zone in endpoint.hints.iter().flat_map(|hints| list(&hints.for_zones)) {
            series.info(&[("address", address), ("for_zone", &zone.name)]);
        }
    }
}

/// One sample for each address. kube-state-metrics 2.17 writes some of the values under wrong labels; these are the
/// values of version 2.20, where that is corrected.
fn addresses(endpoint: &Endpoint, series: &mut Series<'_>) {
    let (conditions, target) = (or_empty(&endpoint.conditions), or_empty(&endpoint.target_ref));
    for address in &endpoint.addresses {
        series.info(&[
            ("ready", flag(conditions.ready)),
            ("serving", flag(conditions.serving)),
            ("hostname", text(&endpoint.hostname)),
            ("terminating", flag(conditions.terminating)),
            ("targetref_kind", text(&target.kind)),
            ("targetref_name", text(&target.name)),
            ("targetref_namespace", text(&target.namespace)),
            ("endpoint_nodename", text(&endpoint.node_name)),
            ("endpoint_zone", text(&endpoint.zone)),
            ("address", address),
        ]);
    }
}
