//! `status.phase` by upstream's rules (`getPhase` of the kubelet). Pure.

use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStatus, Pod, PodSpec};

use crate::container::{self, Role};
use crate::record::{AfterExit, RESTARTING_ALL, after_exit};

/// The state of all containers together.
#[derive(Default)]
struct Count {
    pending_init: usize,
    pending_sidecars: usize,
    failed_init: usize,
    unknown: usize,
    running: usize,
    waiting: usize,
    stopped: usize,
    succeeded: usize,
    main_begun: bool,
}

/// What follows the instances that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing of the Pod will run again.
    Nothing,
    /// No instance of `spec.containers`.
    None,
    /// An instance of one of `spec.containers`.
    Instance,
}

/// The phase.
pub(super) fn phase(pod: &Pod, init: &[ContainerStatus], main: &[ContainerStatus], next: Next) -> &'static str {
    let Some(spec) = &pod.spec else { return "Pending" };
    let mut count = Count::default();
    for (role, container) in container::all(spec) {
        let list = if role == Role::Main { main } else { init };
        let status = list.iter().find(|status| status.name == container.name);
        match role {
            Role::Init => count.init(spec, container, status),
            Role::Sidecar => count.sidecar(status),
            Role::Main => count.main(status),
            Role::Ephemeral => {}
        }
    }
    if count.failed_init > 0 {
        return "Failed";
    }
    let begun = count.main_begun;
    if next != Next::Nothing && (count.pending_init > 0 || (count.pending_sidecars > 0 && !begun) || count.waiting > 0) {
        return "Pending";
    }
    if count.running > 0 && count.unknown == 0 {
        return "Running";
    }
    if count.running == 0 && count.stopped > 0 && count.unknown == 0 {
        return match next {
            Next::Instance => "Running",
            Next::Nothing | Next::None if count.stopped == count.succeeded => "Succeeded",
            Next::Nothing | Next::None => "Failed",
        };
    }
    "Pending"
}

impl Count {
    /// `failed_init` counts those that are not started again.
    fn init(&mut self, spec: &PodSpec, container: &Container, status: Option<&ContainerStatus>) {
        let (state, last) = states(status);
        let ended = state.terminated.or(last.terminated.filter(|_| state.waiting.is_some()));
        match ended {
            Some(ended) if ended.reason.as_deref() == Some(RESTARTING_ALL) => self.pending_init += 1,
            Some(ended) if ended.exit_code != 0 => {
                let over = after_exit(spec, Role::Init, container, ended.exit_code) == AfterExit::Nothing;
                self.failed_init += usize::from(over);
            }
            Some(_) => {}
            None => self.pending_init += 1,
        }
    }

    fn sidecar(&mut self, status: Option<&ContainerStatus>) {
        let (state, last) = states(status);
        if state.running.is_some() {
            if status.and_then(|status| status.started) != Some(true) {
                self.pending_sidecars += 1;
            }
            self.running += 1;
        } else if state.terminated.is_none() && last.terminated.is_none() {
            self.pending_sidecars += 1;
        }
    }

    fn main(&mut self, status: Option<&ContainerStatus>) {
        let (state, last) = states(status);
        if state.running.is_some() {
            self.running += 1;
            self.main_begun = true;
        } else if let Some(ended) = state.terminated {
            self.main_begun = true;
            self.stopped += 1;
            self.succeeded += usize::from(ended.exit_code == 0);
        } else if state.waiting.is_some() {
            match last.terminated {
                Some(_) => {
                    self.main_begun = true;
                    self.stopped += 1;
                }
                None => self.waiting += 1,
            }
        } else {
            self.unknown += 1;
        }
    }
}

fn states(status: Option<&ContainerStatus>) -> (ContainerState, ContainerState) {
    let of = |state: Option<&ContainerState>| state.cloned().unwrap_or_default();
    (of(status.and_then(|status| status.state.as_ref())), of(status.and_then(|status| status.last_state.as_ref())))
}
