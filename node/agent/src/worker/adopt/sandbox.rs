//! Adopts a Pod's pause container, and finds out which containers ran in its sandbox. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use runtimes_contract::ContainerState;

use super::RuntimeContainer;
use crate::container::processes::{self, PauseContainer};
use crate::layout::{PAUSE, label};
use crate::record::{ContainerRecord, InstanceState, PodRecord, SandboxState};

impl RuntimeContainer {
    /// Whether it is a pause container that runs.
    pub(super) fn is_running_pause(&self) -> bool {
        self.label(label::CONTAINER) == PAUSE && matches!(self.status.state, ContainerState::Running { .. })
    }
}

/// Adopts the pause container that runs. A Pod whose containers have begun, and whose processes have none to share any more, has
/// lost its sandbox: the pause container was killed, the machine was rebooted, or an earlier version did not make one.
pub(super) fn adopt(pod: &Pod, pod_record: &mut PodRecord, pause: Option<RuntimeContainer>) {
    let Some(RuntimeContainer { handler, status }) = pause else {
        let begun = pod_record.containers.values().any(|record| record.attempts > 0);
        if processes::are_shared(pod) && begun {
            pod_record.sandbox = SandboxState::Lost;
        }
        return;
    };
    pod_record.pause = Some(PauseContainer { id: status.id, handler });
    // Times in a Pod's status are whole seconds.
    let since = status.started_at_ms.and_then(|ms| i64::try_from(ms / 1_000).ok());
    pod_record.begin_again(|record| since.is_none_or(|since| started_at(record).is_some_and(|at| at.as_second() >= since)));
}

fn started_at(record: &ContainerRecord) -> Option<Timestamp> {
    match &record.run {
        InstanceState::Running(alive) => Some(alive.started_at),
        InstanceState::Ended(ended) | InstanceState::Starting { before: Some(ended) } => ended.started_at,
        InstanceState::Idle | InstanceState::Starting { before: None } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use runtimes_contract::{ContainerId, ContainerStatus, Exit};
    use serde_json::json;

    use super::*;
    use crate::worker::adopt::adopt;

    const RUNNING: ContainerState = ContainerState::Running { pid: 7 };

    fn exited(code: i32) -> ContainerState {
        ContainerState::Exited(Exit { code, signal: None, oom_killed: false, finished_at_ms: 0, message: String::new() })
    }

    fn one(container: &str, second: u64, state: ContainerState) -> RuntimeContainer {
        let labels = [(label::CONTAINER.to_owned(), container.to_owned())].into();
        let (id, started_at_ms) = (ContainerId(container.to_owned()), Some(second * 1_000));
        let status =
            ContainerStatus { id, labels, state, created_at_ms: 0, started_at_ms, log_path: PathBuf::new(), user: Default::default() };
        RuntimeContainer { handler: "runc".to_owned(), status }
    }

    fn adopted(shares: bool, found: Vec<RuntimeContainer>) -> PodRecord {
        let spec = json!({
            "shareProcessNamespace": shares,
            "initContainers": [{"name": "i", "image": "i:1"}],
            "containers": [{"name": "a", "image": "a:1"}],
        });
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec})).expect("a pod");
        adopt(&pod, found, Timestamp::UNIX_EPOCH).0
    }

    #[test]
    fn a_pod_that_ran_on_goes_on() {
        let record = adopted(true, vec![one(PAUSE, 10, RUNNING), one("i", 10, exited(0)), one("a", 20, RUNNING)]);
        assert_eq!(record.pause.as_ref().map(|pause| pause.id.0.as_str()), Some("POD"));
        assert!((record.sandbox == SandboxState::Absent) && !record.begins_again && record.main_begun());
    }

    /// The agent was killed after the sandbox was made anew and before its containers had started in it.
    #[test]
    fn a_pod_with_another_sandbox_begins_with_its_init_containers() {
        let record = adopted(true, vec![one(PAUSE, 30, RUNNING), one("i", 10, exited(0)), one("a", 20, exited(137))]);
        assert!(record.begins_again && !record.main_begun() && record.containers["i"].is_replaced());
        let record = adopted(true, vec![one(PAUSE, 30, RUNNING), one("i", 31, exited(0)), one("a", 20, exited(137))]);
        assert!(record.begins_again && !record.main_begun() && !record.containers["i"].is_replaced(), "this one has run in it");
        let record = adopted(true, vec![one(PAUSE, 30, RUNNING), one("i", 31, exited(0)), one("a", 32, exited(1))]);
        assert!(!record.begins_again && record.main_begun());
    }

    /// The pause container has ended, or there never was one: an earlier version did not make any.
    #[test]
    fn a_pod_without_its_pause_container_has_lost_its_sandbox() {
        for found in [vec![one(PAUSE, 10, exited(137)), one("a", 20, exited(137))], vec![one("a", 20, RUNNING)]] {
            let record = adopted(true, found.clone());
            assert!(record.sandbox == SandboxState::Lost && record.pause.is_none());
            assert_eq!(adopted(false, found).sandbox, SandboxState::Absent);
        }
        assert_eq!(adopted(true, Vec::new()).sandbox, SandboxState::Absent, "nothing has begun");
    }
}
