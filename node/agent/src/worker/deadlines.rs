//! When the instances of a Pod must be gone.

use jiff::Timestamp;

use super::{Worker, plan};
use crate::container;
use crate::container::probes::ProbeKind;
use crate::record::{Condemned, InstanceState};

impl Worker {
    /// Starts the grace period when the Pod first has to end. A shorter grace period that comes later counts too.
    pub(super) fn note_ending(&mut self, now: Timestamp) {
        if !self.record.ends(&self.pod) {
            return;
        }
        if self.record.ending_since.is_none() {
            self.record.ending_since = Some(now);
            self.effects.ending.cancel();
            for record in self.record.containers.values_mut() {
                // An ending Pod has no back-off, and its waiting containers do not start.
                if matches!(record.run, InstanceState::Ended(_)) {
                    record.waiting = None;
                }
            }
        }
        self.kill_by.send_replace(plan::kill_deadline(&self.pod, &self.record, now));
    }

    pub(super) fn restarts_all(&self) -> bool {
        self.pod.spec.as_ref().is_some_and(|spec| self.record.restarts_all(spec))
    }

    /// As upstream, a restart of all containers leaves no time but that for the stop signal, also to those that are being ended
    /// for another reason. Once the Pod is to end, its grace period counts.
    pub(super) fn note_restart(&mut self, now: Timestamp) {
        let restarts_all = self.record.ending_since.is_none() && self.restarts_all();
        self.restart_by.send_if_modified(|by| {
            let is_new = restarts_all != (*by != Timestamp::MAX);
            if is_new {
                *by = if restarts_all { now } else { Timestamp::MAX };
            }
            is_new
        });
    }

    /// A probe that failed may have a grace period of its own.
    pub(super) fn restart_deadline(&self, name: &str, now: Timestamp) -> Timestamp {
        let condemned = self.record.container(name).and_then(|record| record.alive()?.condemned);
        let container = container::find(&self.pod, name).map(|(_, container)| container);
        let own = container.zip(condemned).and_then(|(container, condemned)| {
            let probe = match condemned {
                Condemned::Probe(ProbeKind::Startup) => container.startup_probe.as_ref(),
                Condemned::Probe(_) => container.liveness_probe.as_ref(),
                Condemned::PostStartHook => None,
            };
            probe?.termination_grace_period_seconds
        });
        let of_pod = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let seconds = own.or(of_pod).unwrap_or(plan::GRACE_SECONDS).max(1);
        now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now)
    }
}
