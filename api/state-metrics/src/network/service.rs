//! Services: their type and their addresses.

use api_model::k8s_openapi::api::core::v1::Service;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, deleted, with_uid};
use crate::read::{list, or_empty, text};
use crate::series::{Label, Series};

impl Kind for Service {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        with_uid("service", self)
    }
}

const FAMILIES: &[Family<Service>] = &[
    gauge("kube_service_info", "A Service with its addresses and its external traffic policy.", info),
    gauge("kube_service_created", "When the Service was created, in Unix seconds.", created),
    gauge("kube_service_spec_type", "The type of the Service.", |service, series| {
        series.info(&[("type", text(&or_empty(&service.spec).type_))]);
    }),
    gauge("kube_service_spec_external_ip", "An external IP address of the Service.", |service, series| {
        for ip in list(&or_empty(&service.spec).external_ips) {
            series.info(&[("external_ip", ip)]);
        }
    }),
    gauge("kube_service_status_load_balancer_ingress", "An address of the Service's load balancer.", load_balancer),
    gauge("kube_service_deletion_timestamp", "When the deletion of the Service began, in Unix seconds.", deleted),
];

fn info(service: &Service, series: &mut Series<'_>) {
    let spec = or_empty(&service.spec);
    series.info(&[
        ("cluster_ip", text(&spec.cluster_ip)),
        ("external_name", text(&spec.external_name)),
        ("load_balancer_ip", text(&spec.load_balancer_ip)),
        ("external_traffic_policy", text(&spec.external_traffic_policy)),
    ]);
}

fn load_balancer(service: &Service, series: &mut Series<'_>) {
    let status = or_empty(&service.status);
    for ingress in list(&or_empty(&status.load_balancer).ingress) {
        series.info(&[("ip", text(&ingress.ip)), ("hostname", text(&ingress.hostname))]);
    }
}
