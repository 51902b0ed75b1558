//! The samples of a Pod's containers. Containers and init containers have the same families under different names, so
//! the functions here take either.

use std::collections::HashMap;

use api_model::k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, ResourceRequirements,
};

use crate::quantity::{Resources, amount, sanitized, unit, whole};
use crate::read::{list, text};
use crate::series::Series;

/// The containers of a Pod of one sort.
pub(super) struct Containers<'a> {
    /// Name of the node; empty before the Pod has one.
    pub(super) node: &'a str,
    pub(super) specs: &'a [Container],
    pub(super) statuses: &'a [ContainerStatus],
}

impl<'a> Containers<'a> {
    /// The containers of the application.
    pub(super) fn main(pod: &'a Pod) -> Self {
        Self {
            node: node(pod),
            specs: pod.spec.as_ref().map_or(&[], |spec| &spec.containers),
            statuses: pod.status.as_ref().map_or(&[], |status| list(&status.container_statuses)),
        }
    }

    /// The init containers, sidecars included.
    pub(super) fn init(pod: &'a Pod) -> Self {
        Self {
            node: node(pod),
            specs: pod.spec.as_ref().map_or(&[], |spec| list(&spec.init_containers)),
            statuses: pod.status.as_ref().map_or(&[], |status| list(&status.init_container_statuses)),
        }
    }

    /// Each container that has a status, with the status.
    pub(super) fn with_status(&self) -> impl Iterator<Item = (&'a Container, &'a ContainerStatus)> {
        let statuses: HashMap<&str, &ContainerStatus> = self.statuses.iter().map(|status| (status.name.as_str(), status)).collect();
        self.specs.iter().filter_map(move |spec| Some((spec, *statuses.get(spec.name.as_str())?)))
    }

    /// The requests or limits: one sample for each container and resource.
    pub(super) fn resources(&self, of: fn(&ResourceRequirements) -> &Option<Resources>, series: &mut Series<'_>) {
        for container in self.specs {
            for (name, quantity) in container.resources.iter().flat_map(|resources| of(resources).iter().flatten()) {
                let Some(unit) = unit(name) else { continue };
                let value = if name == "cpu" { amount(quantity) } else { whole(quantity) };
                let labels = [("container", container.name.as_str()), ("node", self.node), ("resource", &sanitized(name)), ("unit", unit)];
                if let Some(value) = value {
                    series.sample(&labels, value);
                }
            }
        }
    }

    /// One sample for each container: 1 if it is in the state, 0 otherwise.
    pub(super) fn in_state(&self, test: fn(&ContainerState) -> bool, series: &mut Series<'_>) {
        for status in self.statuses {
            let is_in_state = status.state.as_ref().is_some_and(test);
            series.sample(&[("container", &status.name)], f64::from(u8::from(is_in_state)));
        }
    }

    /// Whether each container is ready.
    pub(super) fn ready(&self, series: &mut Series<'_>) {
        for status in self.statuses {
            series.sample(&[("container", &status.name)], f64::from(u8::from(status.ready)));
        }
    }

    /// How often each container was restarted.
    pub(super) fn restarts(&self, series: &mut Series<'_>) {
        for status in self.statuses {
            series.sample(&[("container", &status.name)], f64::from(status.restart_count));
        }
    }

    /// Why each container that waits does so.
    pub(super) fn waiting_reason(&self, series: &mut Series<'_>) {
        for status in self.statuses {
            if let Some(waiting) = status.state.as_ref().and_then(|state| state.waiting.as_ref()) {
                series.info(&[("container", &status.name), ("reason", text(&waiting.reason))]);
            }
        }
    }

    /// Why each container that ended did so.
    pub(super) fn terminated_reason(&self, series: &mut Series<'_>) {
        for status in self.statuses {
            if let Some(terminated) = status.state.as_ref().and_then(|state| state.terminated.as_ref()) {
                series.info(&[("container", &status.name), ("reason", text(&terminated.reason))]);
            }
        }
    }

    /// Why the previous instance of each container ended.
    pub(super) fn last_terminated_reason(&self, series: &mut Series<'_>) {
        for (name, terminated) in self.last_terminated() {
            series.info(&[("container", name), ("reason", text(&terminated.reason))]);
        }
    }

    /// How the previous instance of each restarted container ended.
    pub(super) fn last_terminated(&self) -> impl Iterator<Item = (&'a str, &'a ContainerStateTerminated)> {
        let statuses = self.statuses.iter();
        statuses.filter_map(|status| Some((status.name.as_str(), status.last_state.as_ref()?.terminated.as_ref()?)))
    }
}

fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().map_or("", |spec| text(&spec.node_name))
}
