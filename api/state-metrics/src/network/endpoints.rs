//! Endpoints, the older form of EndpointSlices.

use api_model::k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, Endpoints};

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, exists, namespaced};
use crate::read::{list, text};
use crate::series::{Label, Series};

impl Kind for Endpoints {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("endpoint", self)
    }
}

const FAMILIES: &[Family<Endpoints>] = &[
    gauge("kube_endpoint_info", "An Endpoints object.", exists),
    gauge("kube_endpoint_created", "When the Endpoints object was created, in Unix seconds.", created),
    gauge("kube_endpoint_address", "An address and a port of an endpoint, and whether it is ready.", |endpoints, series| {
        for subset in list(&endpoints.subsets) {
            for port in list(&subset.ports) {
                addresses(port, list(&subset.addresses), "true", series);
                addresses(port, list(&subset.not_ready_addresses), "false", series);
            }
        }
    }),
    gauge("kube_endpoint_ports", "A port of the endpoints.", |endpoints, series| {
        for port in list(&endpoints.subsets).iter().flat_map(|subset| list(&subset.ports)) {
            let number = port.port.to_string();
            series.info(&[("port_name", text(&port.name)), ("port_protocol", text(&port.protocol)), ("port_number", &number)]);
        }
    }),
];

fn addresses(port: &EndpointPort, addresses: &[EndpointAddress], ready: &str, series: &mut Series<'_>) {
    let number = port.port.to_string();
    for address in addresses {
        series.info(&[
            ("port_protocol", text(&port.protocol)),
            ("port_number", &number),
            ("port_name", text(&port.name)),
            ("ip", &address.ip),
            ("ready", ready),
        ]);
    }
}
