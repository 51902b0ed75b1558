//! The end of a Pod's sandbox. A sandbox with a pause container ends with that container, and all containers that share its
//! processes end too; the Pod then gets another one and begins with its init containers, as upstream. Pure.

use jiff::Timestamp;

use super::{ContainerRecord, InstanceState, PodRecord, SandboxState};
use crate::backoff::Backoff;
use crate::container::Role;

impl PodRecord {
    /// The start of a container found that the pause container does not run.
    pub(crate) fn await_sandbox_end(&mut self) {
        if self.has_pause() {
            self.sandbox = SandboxState::Ending;
        }
    }

    /// The pause container has ended. A report that comes after the Pod was freed changes nothing.
    pub(crate) fn sandbox_ended(&mut self) {
        if self.has_pause() || self.sandbox == SandboxState::Ending {
            self.sandbox = SandboxState::Lost;
            self.pause = None;
        }
    }

    fn has_pause(&self) -> bool {
        self.ready_sandbox().is_some_and(|sandbox| sandbox.pause.is_some())
    }

    /// All containers have ended with their sandbox: another one is to be made. A sandbox that ends again and again waits in a
    /// back-off of its own.
    pub(crate) fn recreate_sandbox(&mut self, now: Timestamp) {
        let until = self.sandbox_ends.until(now);
        self.sandbox_ends.next(now);
        self.sandbox = if until > now { SandboxState::Failed { until } } else { SandboxState::Absent };
        self.begin_again(|_| false);
    }

    /// Whether a sandbox of the Pod has ended since the worker began.
    pub(crate) fn lost_sandbox(&self) -> bool {
        self.sandbox_ends != Backoff::default()
    }

    /// Init containers run again before the others, unless a container of `spec.containers` has started in the present sandbox.
    pub(crate) fn begin_again(&mut self, is_of_sandbox: impl Fn(&ContainerRecord) -> bool) {
        let mains = || self.containers.values().filter(|record| record.role == Role::Main && record.attempts > 0);
        if mains().any(|record| is_of_sandbox(record)) {
            return;
        }
        self.begins_again = mains().next().is_some();
        for record in self.containers.values_mut().filter(|record| record.role == Role::Init && !is_of_sandbox(record)) {
            if let InstanceState::Ended(ended) = &mut record.run {
                ended.replaced |= ended.exit_code == 0;
            }
        }
    }
}
