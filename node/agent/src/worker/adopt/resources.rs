//! Finds out which resources a Pod's running instances have, and which ones the Pod was allocated. Pure.
//!
//! The Pod's status shows both. But the status may be older than an instance, and it does not say which limits a container has of the whole
//! Pod. So a label of each container keeps the resources of its start. A resource for which the `resizePolicy` wants a restart never
//! changes after the start. The others may have changed in place: the status shows it, or the same change is made again.

use k8s_openapi::api::core::v1::Pod;
use runtimes_contract::ContainerState;

use super::{RuntimeContainer, api_status};
use crate::container;
use crate::container::resources::{self, InstanceResources, StartResources};
use crate::layout::label;
use crate::resize::{self, Allocation};

impl RuntimeContainer {
    /// The resources with which it started. `None` for a container of an earlier version.
    fn start_resources(&self) -> Option<StartResources> {
        StartResources::from_label(self.label(label::RESOURCES))
    }

    /// Whether the Pod's status is about this instance.
    fn is_reported(&self, pod: &Pod) -> bool {
        api_status(pod, self.label(label::CONTAINER)).is_some_and(|reported| self.is_of(reported))
    }
}

/// The resources allocated to a Pod. An instance that the status does not know may have started with newer ones than those of the status,
/// if these are not those of the spec.
pub(crate) fn allocation(pod: &Pod, found: &[RuntimeContainer]) -> Allocation {
    let (mut allocation, wanted) = (resize::remembered(pod), resize::desired(pod));
    let mut unreported: Vec<_> = unreported(pod, found).collect();
    unreported.sort_by_key(|(one, _)| one.status.started_at_ms);
    for (one, start) in unreported {
        let name = one.label(label::CONTAINER);
        if let (Some(own), Some(wanted)) = (allocation.containers.get_mut(name), wanted.containers.get(name))
            && resources::change(Some(&**own), Some(&**wanted)).any()
        {
            **own = start.own;
        }
        if resize::differs_as_a_whole(pod, allocation.pod_level.as_deref()) {
            allocation.pod_level = start.pod_level;
        }
    }
    allocation
}

/// Whether a running instance that the status does not know started with other resources than the allocated ones.
pub(super) fn lags(pod: &Pod, found: &[RuntimeContainer], allocation: &Allocation) -> bool {
    unreported(pod, found).any(|(one, start)| {
        let own = allocation.containers.get(one.label(label::CONTAINER)).map(|own| &**own);
        let of_pod = resources::change(allocation.pod_level.as_deref(), start.pod_level.as_deref());
        resources::change(own, Some(&start.own)).any() || of_pod.any()
    })
}

/// The running instances that the status does not know, with the resources of their start. Those of an earlier version are left out.
fn unreported<'a>(pod: &'a Pod, found: &'a [RuntimeContainer]) -> impl Iterator<Item = (&'a RuntimeContainer, StartResources)> {
    let running = found.iter().filter(|one| matches!(one.status.state, ContainerState::Running { .. }));
    running.filter(|one| !one.is_reported(pod)).filter_map(|one| Some((one, one.start_resources()?)))
}

/// The resources of a running instance. `reported` are those that the Pod's status shows.
pub(super) fn of_instance(pod: &Pod, name: &str, one: &RuntimeContainer, reported: &Allocation) -> InstanceResources {
    let own = reported.containers.get(name).cloned().unwrap_or_default();
    let of_status = InstanceResources::new(*own, reported.pod_level.as_deref());
    let Some(start) = one.start_resources().map(StartResources::into_instance) else { return of_status };
    let container = container::find_any(pod, name).map(|(_, container)| container);
    let would_restart = container.is_some_and(|container| resize::restarts_for(&container, start.change_to(&of_status)));
    if would_restart || !one.is_reported(pod) { start } else { of_status }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use runtimes_contract::{ContainerId, ContainerStatus};
    use serde_json::{Value, json};

    use super::*;
    use crate::record::{PodRecord, Resize, Resizing};
    use crate::worker::adopt::adopt;

    const MIB: i64 = 1 << 20;

    fn limits(mib: i64) -> Value {
        json!({"limits": {"memory": format!("{mib}Mi")}})
    }

    /// An instance that runs since then. Its label has the limits of its start, unless it is of an earlier version.
    fn instance(container: &str, attempt: u32, since_ms: u64, start: Option<Value>) -> RuntimeContainer {
        let mut labels = vec![(label::CONTAINER, container.to_owned()), (label::ATTEMPT, attempt.to_string())];
        labels.extend(start.map(|start| (label::RESOURCES, start.to_string())));
        let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let status = ContainerStatus {
            id: ContainerId(format!("{container}{attempt}")),
            labels,
            state: ContainerState::Running { pid: 7 },
            created_at_ms: 0,
            started_at_ms: Some(since_ms),
            log_path: PathBuf::new(),
            user: Default::default(),
        };
        RuntimeContainer { handler: "runc".to_owned(), status }
    }

    /// The status of the first instance of a container.
    fn status(container: &str, resources: &Value) -> Value {
        json!({"name": container, "image": "i", "imageID": "i", "containerID": format!("skiff://{container}0"), "ready": true,
            "restartCount": 0, "state": {"running": {}}, "resources": resources})
    }

    fn container(name: &str, policy: &str, resources: &Value) -> Value {
        let policy = json!([{"resourceName": "memory", "restartPolicy": policy}]);
        json!({"name": name, "image": "i", "resizePolicy": policy, "resources": resources})
    }

    fn adopted(spec: &Value, status: &Value, found: Vec<RuntimeContainer>) -> PodRecord {
        let pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": status});
        adopt(&serde_json::from_value(pod).expect("a Pod"), found, Timestamp::UNIX_EPOCH).0
    }

    fn memory_of(record: &PodRecord, container: &str) -> Option<i64> {
        record.containers[container].alive().and_then(|alive| alive.resources.limits.memory_bytes).map(|bytes| bytes / MIB)
    }

    fn value(resources: Option<&ResourceRequirements>) -> Value {
        serde_json::to_value(resources).expect("resources")
    }

    fn is_due(record: &PodRecord) -> bool {
        let due = Resize::Due { until: Timestamp::MIN, fault: None };
        assert_eq!(record.resizing, (record.resize == due).then_some(Resizing::Before));
        record.resize == due
    }

    #[test]
    fn an_instance_that_the_status_does_not_know_has_the_resources_of_its_start() {
        for (what, policy, attempt, start, of_status, wanted) in [
            ("restarted for its resize", "RestartContainer", 1, Some(128), 64, (128, true)),
            ("restarted for its resize, by an earlier version", "RestartContainer", 1, None, 64, (64, false)),
            ("restarted after it crashed", "RestartContainer", 1, Some(64), 64, (64, false)),
            ("resized where it is, which is made again", "NotRequired", 0, Some(64), 64, (64, false)),
            ("resized where it is, by an earlier version", "NotRequired", 0, None, 64, (64, false)),
            ("resized where it is, as reported", "NotRequired", 0, Some(64), 128, (128, false)),
            ("resized where it is, as an earlier version reported", "NotRequired", 0, None, 128, (128, false)),
            ("restarted after a resize where it was", "NotRequired", 1, Some(128), 64, (128, true)),
        ] {
            let start = start.map(|mib| json!({"own": limits(mib)}));
            let spec = json!({"containers": [container("c", policy, &limits(128))]});
            let record =
                adopted(&spec, &json!({"containerStatuses": [status("c", &limits(of_status))]}), vec![instance("c", attempt, 0, start)]);
            let allocated = value(record.allocation.containers.get("c").map(Box::as_ref));
            let (mib, due) = wanted;
            assert_eq!((memory_of(&record, "c"), allocated, is_due(&record)), (Some(mib), limits(mib), due), "{what}");
        }
    }

    #[test]
    fn an_instance_that_started_with_other_resources_than_the_allocated_ones_is_resized() {
        for (what, start, allocated) in [("allocated while it started", 64, 128), ("the spec went back after the start", 128, 64)] {
            let spec = json!({"containers": [container("c", "NotRequired", &limits(allocated))]});
            let statuses = json!({"containerStatuses": [status("c", &limits(allocated))]});
            let record = adopted(&spec, &statuses, vec![instance("c", 1, 0, Some(json!({"own": limits(start)})))]);
            let of_container = value(record.allocation.containers.get("c").map(Box::as_ref));
            assert_eq!((memory_of(&record, "c"), of_container, is_due(&record)), (Some(start), limits(allocated), true), "{what}");
        }
    }

    #[test]
    fn a_limit_of_the_whole_pod_is_that_of_the_start_where_its_change_wants_a_restart() {
        for (what, policy, attempt, start, wanted) in [
            ("restarted, not reported", "RestartContainer", 1, Some(128), (128, 128)),
            ("restarted, the resize is not over", "RestartContainer", 0, Some(128), (128, 64)),
            ("restarted by an earlier version", "RestartContainer", 1, None, (64, 64)),
            ("to be restarted", "RestartContainer", 0, Some(64), (64, 64)),
            ("resized where it is", "NotRequired", 0, Some(32), (64, 64)),
        ] {
            let start = start.map(|mib| json!({"own": {}, "podLevel": limits(mib)}));
            let spec = json!({"resources": limits(128), "containers": [container("c", policy, &json!({}))]});
            let of_status = json!({"containerStatuses": [status("c", &json!({}))], "resources": limits(64)});
            let record = adopted(&spec, &of_status, vec![instance("c", attempt, 0, start)]);
            let (mib, allocated) = wanted;
            let of_pod = [&record.allocation.pod_level, &record.pod_level, &record.pod_level_in_use].map(|whole| value(whole.as_deref()));
            assert_eq!((memory_of(&record, "c"), of_pod), (Some(mib), [allocated, 64, 64].map(limits)), "{what}");
            assert_eq!(is_due(&record), allocated != 64, "{what}");
        }
    }

    #[test]
    fn a_pod_was_allocated_what_its_newest_instance_started_with() {
        let (names, none) = (["a", "b", "c"], json!({}));
        let (containers, statuses) = (names.map(|name| container(name, "RestartContainer", &none)), names.map(|name| status(name, &none)));
        let spec = json!({"resources": limits(128), "containers": containers});
        let of_status = json!({"containerStatuses": statuses, "resources": limits(64)});
        let start = |mib: i64| Some(json!({"own": {}, "podLevel": limits(mib)}));
        let found = vec![instance("a", 1, 20, start(128)), instance("b", 1, 10, start(96)), instance("c", 0, 30, start(64))];
        let record = adopted(&spec, &of_status, found);
        assert_eq!(value(record.allocation.pod_level.as_deref()), limits(128));
        assert_eq!(names.map(|name| memory_of(&record, name)), [Some(128), Some(96), Some(64)]);
    }
}
