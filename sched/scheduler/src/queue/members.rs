//! The Pods of a group in the scheduling queue: a cycle takes all of them, wherever in the queue they are.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sched_framework::PodInfo;
use tokio::time::Instant;

use super::{POD_GROUP_UPDATE, SchedulingQueue, Stage, backoff};

impl SchedulingQueue {
    /// Pops the Pod of that UID out of its turn; the attempt begins at `at`. `None` for a Pod that is not in the queue or in flight.
    pub fn take(&mut self, uid: &str, at: Timestamp) -> Option<Arc<PodInfo>> {
        if self.pods.get(uid).is_none_or(|queued| matches!(queued.stage, Stage::InFlight(_))) {
            return None;
        }
        self.leave_stage(uid);
        let queued = self.pods.get_mut(uid)?;
        Some(queued.attempt(at))
    }

    /// Puts a popped Pod back that was not tried.
    pub fn put_back(&mut self, uid: &str) {
        self.not_tried(uid);
        self.move_to_active(uid);
    }

    /// Puts a popped Pod back that was not tried, until then.
    pub fn delay(&mut self, uid: &str, until: Instant) {
        self.not_tried(uid);
        self.insert_backoff(uid, until);
    }

    /// Makes an unschedulable Pod active whose group changed, after its back-off.
    pub fn wake(&mut self, uid: &str, now: Instant) {
        let Some(Stage::Unschedulable { backoff, .. }) = self.pods.get(uid).map(|queued| &queued.stage) else { return };
        let backoff = *backoff;
        self.move_to_active_or_backoff(uid, backoff, now, POD_GROUP_UPDATE);
    }

    /// The back-off after so many attempts.
    pub fn backoff_after(&self, attempts: u32) -> Duration {
        backoff(attempts, self.backoff)
    }

    fn not_tried(&mut self, uid: &str) {
        if let Some(queued) = self.pods.get_mut(uid) {
            queued.attempts = queued.attempts.saturating_sub(1);
            queued.first_attempt = queued.first_attempt.filter(|_| queued.attempts > 0);
        }
    }
}
