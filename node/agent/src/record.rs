//! The record of a Pod: everything that its worker knows of it. Only the worker changes the record, when an effect begins
//! and when it reports its result. The enums are the states of a Pod on its node; the comment of each state names the
//! transitions out of it.
//!
//! Times of waiting and of deadlines are those of [`api_clock::steady`], so that a machine whose clock is set neither waits longer nor
//! gives less time. Times that a status has are those of the wall clock.

mod container_record;
mod restart;
mod sandbox;
mod target;

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use runtimes_contract::Sandbox;
use serde::{Deserialize, Serialize};

pub(crate) use container_record::{Condemned, ContainerRecord, ExitedInstance, ImageState, InstanceState, RunningInstance, Waiting};
pub(crate) use restart::{AfterExit, RESTARTING_ALL, after_exit, may_restart_all, restarts, restarts_after_probe, will_restart};

use crate::backoff::Backoff;
use crate::container::processes::PauseContainer;
use crate::container::{self, Role, ephemeral, resources};
use crate::resize::{self, Allocation, Pending};

/// The state of one Pod on the node. The next step depends on it, on the Pod and on the time.
#[derive(Clone, Debug)]
pub(crate) struct PodRecord {
    /// Namespaces, address, volumes, files and cgroup.
    pub(crate) sandbox: SandboxState,
    /// The pause container that runs, also before the sandbox is ready again after a restart of the agent.
    pub(crate) pause: Option<PauseContainer>,
    /// The ends of sandboxes.
    pub(crate) sandbox_ends: Backoff,
    /// The Pod has another sandbox, and its init containers run again before the others.
    pub(crate) begins_again: bool,
    /// The containers by name. Boxed, because a node of the map has room for eleven of them and most Pods have one.
    pub(crate) containers: BTreeMap<String, Box<ContainerRecord>>,
    /// The Pod does not exist in the API any more.
    pub(crate) gone: bool,
    /// Why the Pod as a whole has failed.
    pub(crate) failure: Option<Failure>,
    /// The phase with which the Pod had ended when this worker began; it does not change any more.
    pub(crate) ended_before: bool,
    /// Whether everything of the Pod on the node is freed.
    pub(crate) clean: Clean,
    /// Whether that includes, or will include, the logs. Logs stay as long as the Pod exists in the API.
    pub(crate) logs_forgotten: bool,
    /// The volumes are being refreshed: freeing them now would leave files that the refresh creates.
    pub(crate) refreshing: bool,
    /// When the worker first saw that the Pod has to end.
    pub(crate) ending_since: Option<Timestamp>,
    /// The longest grace period that an eviction leaves.
    pub(crate) grace_seconds_max: i64,
    /// When the node shuts down: the time at which every instance must be gone.
    pub(crate) shutdown_at: Option<Timestamp>,
    /// The final status and the deletion were handed to the status writer.
    pub(crate) delete_sent: bool,
    /// `status.startTime`.
    pub(crate) started_at: Timestamp,
    /// The same by the steady clock: `activeDeadlineSeconds` count from then.
    pub(crate) active_since: Timestamp,
    /// Failures in a row to make the base or to clean up.
    pub(crate) faults: Backoff,
    /// The resources allocated to the containers and to the Pod as a whole.
    pub(crate) allocation: Allocation,
    /// `spec.resources` as the Pod's cgroup has them.
    pub(crate) pod_level: Option<Box<ResourceRequirements>>,
    /// The latest of these that the containers had too. The status shows their memory until a resize is over, so that an agent that is
    /// restarted meanwhile resumes it: the status of a container does not say which limits it has of the whole Pod.
    pub(crate) pod_level_in_use: Option<Box<ResourceRequirements>>,
    /// Why these are not the resources of the spec yet.
    pub(crate) pending: Option<Pending>,
    /// Whether the running containers have their allocated resources.
    pub(crate) resize: Resize,
    /// A resize has begun and its end was not reported yet.
    pub(crate) resizing: Option<Resizing>,
}

/// Who began a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resizing {
    /// An earlier agent.
    Before,
    /// This agent, so a container that was ended to start again may have been ended for it.
    Here,
}

/// The state of the Pod's sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a Pod has one, and it is ready for nearly all of the Pod's life")]
pub(crate) enum SandboxState {
    /// Not requested yet. → `Making` by `Step::Prepare`.
    Absent,
    /// In progress. → `Ready` or `Failed` by the report.
    Making,
    /// The sandbox exists. → `Lost` when its pause container ends.
    Ready(PodSandbox),
    /// The pause container of the sandbox does not run, as the start of a container found. → `Lost` by the report of its end.
    Ending,
    /// The pause container has ended. → `Absent`, or `Failed` for a back-off, by `Step::Recreate` once nothing runs.
    Lost,
    /// The sandbox could not be created, or ended too often. → `Making` by `Step::Prepare` after `until`.
    Failed {
        /// When to try again.
        until: Timestamp,
    },
}

/// A Pod's sandbox: namespaces and address, with volumes, files and cgroup in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodSandbox {
    pub(crate) sandbox: Sandbox,
    pub(crate) ip: IpAddr,
    /// When the volumes must be refreshed (a token expires).
    pub(crate) volumes_due: Option<Timestamp>,
    /// The container that has the processes which the Pod's containers share, if they do.
    pub(crate) pause: Option<PauseContainer>,
    /// The Pod's RuntimeClass.
    pub(crate) class: Option<SandboxClass>,
}

/// A RuntimeClass as it was when the sandbox was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SandboxClass {
    pub(crate) name: String,
    pub(crate) handler: String,
    /// The annotations that are settings of WASM containers. They hold when the node's cache does not have the class, because the class
    /// is new or was deleted.
    pub(crate) wasm_settings: BTreeMap<String, String>,
}

/// Whether the Pod's traces are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clean {
    /// No. → `Busy` by `Step::Clean` once nothing runs.
    Not,
    /// Being removed. → `Done` or `Failed` by the report.
    Busy,
    /// Yes.
    Done,
    /// Something could not be removed. → `Busy` by `Step::Clean` after `until`.
    Failed {
        /// When to try again.
        until: Timestamp,
    },
}

/// Whether a changed allocation has reached the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    /// Yes. → `Due` by a new allocation.
    Settled,
    /// No. → `Busy` by `Step::Resize` after `until`.
    Due {
        /// When to try.
        until: Timestamp,
        /// Why it failed before.
        fault: Option<String>,
    },
    /// On its way. → `Settled` or `Due` by the report.
    Busy {
        /// The allocation has changed since.
        again: bool,
    },
}

impl Resize {
    /// There is a new allocation.
    pub(crate) fn ask(&mut self, now: Timestamp) {
        *self = match self {
            Self::Busy { .. } => Self::Busy { again: true },
            Self::Settled | Self::Due { .. } => Self::Due { until: now, fault: None },
        };
    }
}

/// Why a Pod as a whole has failed: `status.reason` and `status.message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) cause: Cause,
}

/// What ended the Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Turned away at the door: its containers never were.
    Rejection,
    /// Its deadline.
    Deadline,
    /// The node has evicted it.
    Eviction {
        /// For the node's sake, which is a disruption.
        disruption: bool,
    },
    /// The node shuts down.
    NodeShutdown,
}

impl Failure {
    /// Whether the Pod was never admitted.
    pub(crate) fn is_rejection(&self) -> bool {
        self.cause == Cause::Rejection
    }

    /// Whether the node evicted it.
    pub(crate) fn is_eviction(&self) -> bool {
        matches!(self.cause, Cause::Eviction { .. })
    }

    /// Whether the node ended it for a reason of the node.
    pub(crate) fn is_disruption(&self) -> bool {
        matches!(self.cause, Cause::Eviction { disruption: true } | Cause::NodeShutdown)
    }
}

impl PodRecord {
    /// The record of a new Pod, at a time of the wall clock. The worker sets `active_since`, where the clock was set since it started.
    pub(crate) fn new(pod: &Pod, now: Timestamp) -> Self {
        let containers = pod
            .spec
            .iter()
            .flat_map(container::all)
            .map(|(role, container)| (container.name.clone(), Box::new(ContainerRecord::new(role))))
            .collect();
        let started_at = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map_or(now, |time| time.0);
        let allocation = resize::remembered(pod);
        let is_resizing = resize::was_in_progress(pod);
        let mut pod_record = Self {
            sandbox: SandboxState::Absent,
            pause: None,
            sandbox_ends: Backoff::default(),
            begins_again: false,
            containers,
            gone: false,
            failure: None,
            ended_before: false,
            clean: Clean::Not,
            logs_forgotten: false,
            refreshing: false,
            ending_since: None,
            grace_seconds_max: i64::MAX,
            shutdown_at: None,
            delete_sent: false,
            started_at,
            active_since: started_at,
            faults: Backoff::default(),
            pod_level: allocation.pod_level.clone(),
            pod_level_in_use: allocation.pod_level.clone(),
            allocation,
            pending: resize::reported_pending(pod),
            // The cgroups may have more or less than the status.
            resize: if is_resizing { Resize::Due { until: Timestamp::MIN, fault: None } } else { Resize::Settled },
            resizing: is_resizing.then_some(Resizing::Before),
        };
        pod_record.add_ephemeral(pod);
        pod_record
    }

    /// Adds the ephemeral containers that the Pod got since. None is ever removed from a Pod.
    pub(crate) fn add_ephemeral(&mut self, pod: &Pod) {
        for container in ephemeral::list(pod) {
            self.containers.entry(container.name.clone()).or_insert_with(|| Box::new(ContainerRecord::new(Role::Ephemeral)));
        }
    }

    /// The record of a container.
    pub(crate) fn container(&self, name: &str) -> Option<&ContainerRecord> {
        self.containers.get(name).map(Box::as_ref)
    }

    /// The sandbox, once it is ready.
    pub(crate) fn ready_sandbox(&self) -> Option<&PodSandbox> {
        match &self.sandbox {
            SandboxState::Ready(sandbox) => Some(sandbox),
            _ => None,
        }
    }

    /// Whether any of `spec.containers` was ever started in this sandbox: init containers do not run again then.
    pub(crate) fn main_begun(&self) -> bool {
        let counts = |record: &&ContainerRecord| record.role == Role::Main && !record.reset && !self.begins_again;
        self.containers
            .values()
            .map(Box::as_ref)
            .filter(counts)
            .any(|record| record.attempts > 0 || !matches!(record.run, InstanceState::Idle))
    }

    /// Whether nothing is left to run, by the Pod's own doing.
    pub(crate) fn finished(&self, spec: &PodSpec) -> bool {
        let record = |container: &Container| self.container(&container.name);
        let over = |role: Role, container: &Container| {
            record(container).and_then(ContainerRecord::ended).is_some_and(|ended| !restarts(spec, role, container, ended))
        };
        let init_failed = !self.main_begun()
            && container::all(spec).any(|(role, container)| {
                let failed = record(container).and_then(ContainerRecord::ended).is_some_and(|ended| ended.exit_code != 0);
                role == Role::Init && failed && over(role, container)
            });
        init_failed || container::all(spec).filter(|(role, _)| *role == Role::Main).all(|(role, container)| over(role, container))
    }

    /// Whether the Pod has to end, for whatever reason.
    pub(crate) fn ends(&self, pod: &Pod) -> bool {
        let finished = pod.spec.as_ref().is_some_and(|spec| self.finished(spec));
        self.gone || self.ended_before || self.failure.is_some() || pod.metadata.deletion_timestamp.is_some() || finished
    }

    /// Whether no request can read the Pod's logs any more. The logs of an evicted Pod may be what filled the disk.
    pub(crate) fn forgets_logs(&self, pod: &Pod) -> bool {
        self.failure.as_ref().is_some_and(Failure::is_eviction) || self.gone || pod.metadata.deletion_timestamp.is_some()
    }

    /// Whether the Pod's cgroup, or a container that runs or was ended for its resize, lacks its allocated resources.
    pub(crate) fn lags(&self, pod: &Pod) -> bool {
        let lags = |spec: &PodSpec, container: &Container| {
            let Some(record) = self.container(&container.name) else { return false };
            let differs = |alive: &RunningInstance| alive.resources.change(spec, container).any();
            record.alive().map_or_else(|| self.resizing == Some(Resizing::Here) && record.is_replaced(), differs)
        };
        let is_set = self.resize == Resize::Settled && !resize::differs_as_a_whole(pod, self.pod_level.as_deref());
        !is_set || pod.spec.iter().any(|spec| container::all(spec).any(|(_, container)| lags(spec, container)))
    }

    /// The resources that the Pod has as a whole. The memory of a resize of the whole Pod counts only once the resize is over, its CPU once
    /// all running containers have theirs. After a restart of the agent they tell which ones `spec.resources` was allocated.
    pub(crate) fn total(&self, pod: &Pod) -> Option<ResourceRequirements> {
        if !self.lags(pod) {
            return resources::total(pod);
        }
        let running = self.containers.iter().filter_map(|(name, record)| Some((name, record.alive()?)));
        let has = running.map(|(name, alive)| (name.clone(), Box::new(alive.resources.own.clone()))).collect();
        let in_use = self.pod_level_in_use.as_deref();
        let with_cpu = self.pod_level.as_deref().filter(|_| !self.lags_in_cpu(pod)).map(|pod_level| {
            let memory = in_use.cloned().unwrap_or_default();
            resources::with_memory_of(pod_level, &memory)
        });
        resources::total(&resize::with_resources(pod, &has, with_cpu.as_ref().or(in_use)))
    }

    /// Whether a running container lacks its allocated CPU.
    fn lags_in_cpu(&self, pod: &Pod) -> bool {
        let lags = |spec: &PodSpec, container: &Container| {
            let alive = self.container(&container.name).and_then(ContainerRecord::alive);
            alive.is_some_and(|alive| alive.resources.change(spec, container).cpu)
        };
        pod.spec.iter().any(|spec| container::all(spec).any(|(_, container)| lags(spec, container)))
    }

    /// Whether a process of the Pod runs or may start to run.
    pub(crate) fn anything_runs(&self) -> bool {
        self.containers.values().any(|record| matches!(record.run, InstanceState::Running(_) | InstanceState::Starting { .. }))
    }
}

#[cfg(test)]
mod tests {
    use runtimes_contract::{ContainerId, User};
    use serde_json::json;

    use super::*;
    use crate::container::resources::InstanceResources;

    fn pod(cpu: &str, memory: &str) -> Pod {
        let resources = json!({"limits": {"cpu": cpu, "memory": memory}});
        serde_json::from_value(json!({"spec": {"resources": resources, "containers": [{"name": "c"}]}})).expect("a pod")
    }

    fn whole(pod: &Pod) -> ResourceRequirements {
        pod.spec.as_ref().and_then(|spec| spec.resources.clone()).expect("resources")
    }

    #[test]
    fn the_cpu_of_a_whole_pod_is_reported_before_its_memory() {
        let (before, wish, part) = (pod("1", "64Mi"), pod("2", "32Mi"), pod("2", "64Mi"));
        let limits = |has: &Pod| {
            let mut pod_record = PodRecord::new(&before, Timestamp::UNIX_EPOCH);
            pod_record.pod_level = Some(Box::new(whole(&part)));
            pod_record.resize = Resize::Due { until: Timestamp::UNIX_EPOCH, fault: Some("below its use".to_owned()) };
            pod_record.containers.get_mut("c").expect("a record").run = InstanceState::Running(RunningInstance {
                id: ContainerId("c".to_owned()),
                handler: String::new(),
                attempt: 0,
                started_at: Timestamp::UNIX_EPOCH,
                image_id: String::new(),
                hash: String::new(),
                resources: InstanceResources::new(ResourceRequirements::default(), Some(&whole(has))),
                user: User::default(),
                startup_ok: true,
                readiness_ok: true,
                hooked: true,
                condemned: None,
                stopping: false,
                replaced: false,
            });
            pod_record.total(&wish).and_then(|total| total.limits).map(|limits| json!(limits))
        };
        assert_eq!(limits(&before), Some(json!({"cpu": "1", "memory": "64Mi"})), "the container has less CPU");
        assert_eq!(limits(&part), Some(json!({"cpu": "2", "memory": "64Mi"})));
    }

    #[test]
    fn an_agent_goes_on_with_the_resize_of_the_agent_before() {
        let mut resized = pod("1", "64Mi");
        assert_eq!(PodRecord::new(&resized, Timestamp::UNIX_EPOCH).resize, Resize::Settled);
        let status = json!({"conditions": [{"type": "PodResizeInProgress", "status": "True"}]});
        resized.status = Some(serde_json::from_value(status).expect("a status"));
        let pod_record = PodRecord::new(&resized, Timestamp::UNIX_EPOCH);
        assert_eq!((pod_record.resize, pod_record.resizing), (Resize::Due { until: Timestamp::MIN, fault: None }, Some(Resizing::Before)));
    }
}
