//! Builds the record with which a worker begins. The runtimes have the running containers. For containers that no runtime has,
//! the Pod's status in the API is used. Pure.

mod resources;
mod sandbox;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState as ApiState, ContainerStateTerminated, ContainerStatus as ApiStatus, Pod};
use runtimes_contract::{ContainerState, ContainerStatus, User};

use crate::backoff::Backoff;
use crate::container;
use crate::container::resources::InstanceResources;
use crate::layout::label;
use crate::record::{
    Cause, ContainerRecord, ExitedInstance, Failure, InstanceState, PodRecord, RESTARTING_ALL, Resizing, RunningInstance, Waiting,
};
use crate::status::ALL_CONTAINERS_RESTARTING;

pub(crate) use resources::allocation;

/// A container as a runtime lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeContainer {
    pub(crate) handler: String,
    pub(crate) status: ContainerStatus,
}

impl RuntimeContainer {
    fn label(&self, name: &str) -> &str {
        self.status.labels.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The attempt of the instance.
    pub(crate) fn attempt(&self) -> u32 {
        self.label(label::ATTEMPT).parse().unwrap_or(0)
    }

    /// Whether a status of its container is about this instance.
    fn is_of(&self, reported: &ApiStatus) -> bool {
        reported.container_id.as_deref().map(bare_id).as_deref() == Some(self.status.id.0.as_str())
    }
}

/// The record at a time of the wall clock, and the containers to remove: incomplete ones, and those that a newer instance replaced.
pub(crate) fn adopt(pod: &Pod, found: Vec<RuntimeContainer>, now: Timestamp) -> (PodRecord, Vec<RuntimeContainer>) {
    let mut pod_record = PodRecord::new(pod, now);
    let reported = std::mem::replace(&mut pod_record.allocation, allocation(pod, &found));
    if pod_record.allocation.differs(&reported) || resources::lags(pod, &found, &pod_record.allocation) {
        // The cgroups may have less than what was allocated.
        pod_record.resize.ask(Timestamp::MIN);
        pod_record.resizing = Some(Resizing::Before);
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if matches!(phase, "Succeeded" | "Failed") {
        pod_record.ended_before = true;
    }
    let (mut newest, mut useless): (BTreeMap<String, RuntimeContainer>, Vec<RuntimeContainer>) = (BTreeMap::new(), Vec::new());
    let mut pause = None;
    for one in found {
        if one.is_running_pause() {
            pause = Some(one);
            continue;
        }
        let name = one.label(label::CONTAINER).to_owned();
        if one.status.state == ContainerState::Created || !pod_record.containers.contains_key(&name) {
            useless.push(one);
            continue;
        }
        match newest.remove(&name) {
            Some(other) if other.attempt() > one.attempt() => {
                newest.insert(name, other);
                useless.push(one);
            }
            other => {
                useless.extend(other);
                newest.insert(name, one);
            }
        }
    }
    for (name, record) in &mut pod_record.containers {
        let status = api_status(pod, name);
        match newest.remove(name) {
            Some(one) => {
                let resources = resources::of_instance(pod, name, &one, &reported);
                take_up(pod, name, record, one, status, resources);
            }
            None => remember(pod, record, status, now),
        }
        if record.reset {
            record.waiting = Some(Waiting::restarting_all(Timestamp::MIN));
        }
    }
    sandbox::adopt(pod, &mut pod_record, pause);
    (pod_record, useless)
}

/// Records a container that a runtime has.
fn take_up(
    pod: &Pod,
    name: &str,
    record: &mut ContainerRecord,
    one: RuntimeContainer,
    reported: Option<&ApiStatus>,
    resources: InstanceResources,
) {
    let attempt = one.attempt();
    let time = |ms: u64| i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    // The start time in the Pod's status stays the same, to the second.
    let reported_start = reported.filter(|reported| one.is_of(reported));
    let reported_start =
        reported_start.and_then(|reported| reported.state.as_ref()?.running.as_ref()?.started_at.as_ref().map(|time| time.0));
    let started_at = reported_start.or(one.status.started_at_ms.and_then(time));
    record.attempts = attempt + 1;
    record.last = reported.and_then(|reported| last_of(reported, &one.status.id.0));
    if let Some(last) = record.last.as_ref().filter(|_| attempt > 0) {
        record.crash = Backoff::after(attempt, last.finished_at);
    }
    let image_id = one.label(label::IMAGE_ID).to_owned();
    let exited = matches!(one.status.state, ContainerState::Exited(_));
    let latest = reported.filter(|reported| exited && last_id(reported) == Some(one.status.id.0.clone()));
    record.reset = latest.is_some_and(is_reset);
    record.run = match &one.status.state {
        ContainerState::Running { .. } => {
            let container = container::find(pod, name).map(|(_, container)| container);
            let probed = |probe: bool, reported: Option<bool>| !probe || reported.unwrap_or(false);
            InstanceState::Running(RunningInstance {
                id: one.status.id.clone(),
                attempt,
                started_at: started_at.unwrap_or_else(api_clock::now),
                hash: one.label(label::HASH).to_owned(),
                resources,
                user: one.status.user,
                startup_ok: probed(container.is_some_and(|c| c.startup_probe.is_some()), reported.and_then(|reported| reported.started)),
                readiness_ok: probed(container.is_some_and(|c| c.readiness_probe.is_some()), reported.map(|reported| reported.ready)),
                hooked: true,
                condemned: None,
                stopping: false,
                replaced: false,
                handler: one.handler,
                image_id,
            })
        }
        ContainerState::Exited(exit) => {
            let replaced = latest.is_some_and(|reported| is_replaced(pod, reported));
            // The runtime has the exit code that a new beginning of the Pod made void.
            let void = latest.filter(|_| record.reset).and_then(|reported| terminated(reported.last_state.as_ref()?, &image_id));
            let ended = void.unwrap_or_else(|| ExitedInstance::from_exit(&one.status.id, &image_id, started_at, exit, String::new()));
            InstanceState::Ended(ExitedInstance { replaced, ..ended.of_user(one.status.user) })
        }
        ContainerState::Created => InstanceState::Idle,
    };
}

/// A container that no runtime has: only the Pod's last status shows its state.
fn remember(pod: &Pod, record: &mut ContainerRecord, reported: Option<&ApiStatus>, now: Timestamp) {
    let Some(reported) = reported else { return };
    let state = reported.state.clone().unwrap_or_default();
    let restarts = u32::try_from(reported.restart_count).unwrap_or(0);
    let last = reported.last_state.as_ref().and_then(|state| terminated(state, &reported.image_id));
    match (terminated(&state, &reported.image_id), state.running) {
        (Some(ended), _) => {
            record.attempts = restarts + 1;
            record.last = last;
            record.run = InstanceState::Ended(ExitedInstance { user: reported_user(reported), ..ended });
        }
        (None, Some(running)) => {
            record.attempts = restarts + 1;
            record.last = last;
            let id = reported.container_id.as_deref().map(bare_id);
            let lost = ExitedInstance::lost(id, reported.image_id.clone(), running.started_at.map(|time| time.0), now);
            record.run = InstanceState::Ended(ExitedInstance { user: reported_user(reported), ..lost });
        }
        // It waits for its next instance.
        (None, None) => {
            if let Some(last) = last {
                record.reset = is_reset(reported);
                record.attempts = if record.reset { restarts } else { restarts + 1 };
                record.crash = Backoff::after(record.attempts, last.finished_at);
                let (replaced, user) = (is_replaced(pod, reported), reported_user(reported));
                record.run = InstanceState::Ended(ExitedInstance { replaced, user, ..last });
            }
        }
    }
}

/// Whether the Pod began again, by a rule that restarts all containers, and this one has not started since.
fn is_reset(reported: &ApiStatus) -> bool {
    let last = reported.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    waits(reported) && last.and_then(|last| last.reason.as_deref()) == Some(RESTARTING_ALL)
}

/// Whether another instance follows the one of `lastState`, whatever its exit code is: the status says that it waits. While all
/// containers are being ended the code counts: it may be the one that began this.
fn is_replaced(pod: &Pod, reported: &ApiStatus) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let restarting_all = conditions.any(|one| one.type_ == ALL_CONTAINERS_RESTARTING && one.status == "True");
    waits(reported) && (is_reset(reported) || !restarting_all)
}

fn waits(reported: &ApiStatus) -> bool {
    reported.state.as_ref().is_some_and(|state| state.waiting.is_some())
}

fn last_id(reported: &ApiStatus) -> Option<String> {
    reported.last_state.as_ref()?.terminated.as_ref()?.container_id.as_deref().map(bare_id)
}

/// How the instance before this one ended.
fn last_of(reported: &ApiStatus, id: &str) -> Option<ExitedInstance> {
    let ended = |state: Option<&ApiState>| state.and_then(|state| terminated(state, &reported.image_id));
    let newest = ended(reported.state.as_ref()).filter(|exited| exited.id.as_deref() != Some(id));
    newest.or_else(|| ended(reported.last_state.as_ref()))
}

fn terminated(state: &ApiState, image_id: &str) -> Option<ExitedInstance> {
    let ContainerStateTerminated { container_id, exit_code, finished_at, message, reason, signal, started_at } =
        state.terminated.clone()?;
    Some(ExitedInstance {
        id: container_id.as_deref().map(bare_id),
        image_id: image_id.to_owned(),
        exit_code,
        signal,
        reason: reason.unwrap_or_default(),
        message: message.unwrap_or_default(),
        user: None,
        started_at: started_at.map(|time| time.0),
        finished_at: finished_at.map(|time| time.0).unwrap_or_else(api_clock::now),
        replaced: false,
    })
}

/// The user of the newest instance in a status.
fn reported_user(reported: &ApiStatus) -> Option<User> {
    let linux = reported.user.as_ref()?.linux.as_ref()?;
    let id = |id: i64| u32::try_from(id).ok();
    let groups = linux.supplemental_groups.iter().flatten().filter_map(|group| id(*group)).collect();
    Some(User { uid: id(linux.uid), gid: id(linux.gid), groups })
}

fn bare_id(id: &str) -> String {
    id.split_once("://").map_or(id, |(_, bare)| bare).to_owned()
}

fn api_status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ApiStatus> {
    let status = pod.status.as_ref()?;
    let lists = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == name)
}

/// A Pod that is turned away at the door.
pub(crate) fn rejected(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> PodRecord {
    let failure = Failure { reason: reason.to_owned(), message: format!("Pod was rejected: {message}"), cause: Cause::Rejection };
    PodRecord { failure: Some(failure), ..PodRecord::new(pod, now) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Also of those that wait for their next instance, and of those that ran and that no runtime has.
    #[test]
    fn containers_without_a_runtime_keep_their_user() {
        let user = json!({"linux": {"uid": 1000, "gid": 2000, "supplementalGroups": [2000, 3000]}});
        let ended = json!({"terminated": {"exitCode": 1, "containerID": "skiff://c0"}});
        for (state, last) in [
            (ended.clone(), json!({})),
            (json!({"waiting": {"reason": "CrashLoopBackOff"}}), ended),
            (json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}), json!({})),
        ] {
            let status = json!({"name": "c", "image": "i", "imageID": "i", "containerID": "skiff://c0", "ready": false, "restartCount": 0,
                "state": state, "lastState": last, "user": user});
            let pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
                "status": {"containerStatuses": [status]}});
            let pod: Pod = serde_json::from_value(pod).expect("a Pod");
            let (record, useless) = adopt(&pod, Vec::new(), Timestamp::UNIX_EPOCH);
            let of_end = record.containers["c"].latest_end().and_then(|ended| ended.user.clone());
            assert_eq!(of_end, Some(User { uid: Some(1_000), gid: Some(2_000), groups: vec![2_000, 3_000] }), "{status}");
            assert!(useless.is_empty());
        }
    }
}
