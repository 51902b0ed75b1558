//! Pods: what they are, who owns them and where they run. `pod/spec.rs` has what is wanted of a Pod, `pod/status.rs`
//! what it is doing, and `pod/container.rs` and `pod/init_container.rs` have its containers.

mod container;
mod containers;
mod init_container;
mod spec;
mod status;

use std::net::IpAddr;

use api_model::k8s_openapi::api::core::v1::Pod;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, deleted, owners, with_uid};
use crate::read::{list, or_empty, text};
use crate::series::{Label, Series};

impl Kind for Pod {
    const FAMILIES: &'static [&'static [Family<Self>]] =
        &[FAMILIES, spec::FAMILIES, status::FAMILIES, container::FAMILIES, init_container::FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        with_uid("pod", self)
    }
}

const FAMILIES: &[Family<Pod>] = &[
    gauge("kube_pod_info", "A Pod with its addresses, node, controller and priority class.", info),
    gauge("kube_pod_owner", "An owner of the Pod; empty labels when it has none.", owners),
    gauge("kube_pod_created", "When the Pod was created, in Unix seconds.", created),
    gauge("kube_pod_deletion_timestamp", "When a Pod that terminates is to be gone, in Unix seconds.", deleted),
    gauge("kube_pod_start_time", "When the node accepted the Pod, in Unix seconds.", |pod, series| {
        series.time(pod.status.as_ref().and_then(|status| status.start_time.as_ref()));
    }),
    gauge("kube_pod_completion_time", "When the last container that ended did so, in Unix seconds.", completion_time),
    gauge("kube_pod_ips", "An IP address of the Pod and its family, 4 or 6.", ips),
];

fn info(pod: &Pod, series: &mut Series<'_>) {
    let (spec, status) = (or_empty(&pod.spec), or_empty(&pod.status));
    let controller = list(&pod.metadata.owner_references).iter().find(|owner| owner.controller == Some(true));
    series.info(&[
        ("host_ip", text(&status.host_ip)),
        ("pod_ip", text(&status.pod_ip)),
        ("node", text(&spec.node_name)),
        ("created_by_kind", controller.map_or("", |owner| &owner.kind)),
        ("created_by_name", controller.map_or("", |owner| &owner.name)),
        ("priority_class", text(&spec.priority_class_name)),
        ("host_network", if spec.host_network == Some(true) { "true" } else { "false" }),
    ]);
}

fn completion_time(pod: &Pod, series: &mut Series<'_>) {
    let statuses = pod.status.as_ref().map_or(&[][..], |status| list(&status.container_statuses));
    let ended = statuses.iter().filter_map(|status| status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    series.present(ended.map(|time| time.0.as_second()).max().filter(|seconds| *seconds > 0));
}

fn ips(pod: &Pod, series: &mut Series<'_>) {
    for ip in pod.status.iter().flat_map(|status| list(&status.pod_ips)) {
        let family = match ip.ip.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(IpAddr::V4(_)) => "4",
            Ok(IpAddr::V6(_)) => "6",
            Err(_) => continue,
        };
        series.info(&[("ip", &ip.ip), ("ip_family", family)]);
    }
}

#[cfg(test)]
mod tests;
