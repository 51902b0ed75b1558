//! Evictions by taints, of Nodes and of devices: a Pod leaves at once, or at a time that may still change. The condition
//! `DisruptionTarget` comes before the deletion.

use std::collections::HashMap;
use std::time::Duration;

use api_client::events::{Recorder, reference};
use api_client::informer::ObjectKey;
use api_metrics::{Counters, Histograms};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::api::DeleteParams;
use parking_lot::Mutex;
use serde_json::json;

use crate::failure::{Failure, gone_is_fine};
use crate::work::Next;
use crate::{meta, metrics, pods, writes};

/// Whether a Pod stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The Pod tolerates everything.
    Stays,
    /// The Pod leaves at that time.
    LeavesAt(Timestamp),
}

/// What was done about a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The Pod stays.
    Stays,
    /// The Pod leaves after this time.
    Waits(Duration),
    /// The Pod was deleted.
    Evicted,
}

impl Step {
    /// When the Pod wants another pass.
    pub fn next(self) -> Next {
        match self {
            Self::Waits(time) => Next::After(time),
            Self::Stays | Self::Evicted => Next::OnChange,
        }
    }
}

/// What one controller says of its evictions, and where it counts them.
pub struct Wording {
    /// The reason of the events.
    pub event: &'static str,
    /// The message of the event of a deletion.
    pub marking: fn(&ObjectKey) -> String,
    /// The message of the event of a deletion that does not happen any more.
    pub cancelling: fn(&ObjectKey) -> String,
    /// The reason of the condition.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: &'static str,
    /// Counts deletions.
    pub deletions: &'static Counters<0>,
    /// How late they were.
    pub lateness: &'static Histograms<0>,
}

/// Carries out verdicts.
pub struct Evictions {
    client: kube::Client,
    recorder: Recorder,
    wording: &'static Wording,
    /// Pods that have a time to leave, by the time since when: when the reason is gone, an event reports that the eviction is cancelled.
    leaving: Mutex<HashMap<ObjectKey, Timestamp>>,
}

impl Evictions {
    /// Evicts as the client.
    pub fn new(client: kube::Client, recorder: Recorder, wording: &'static Wording) -> Self {
        Self { client, recorder, wording, leaving: Mutex::default() }
    }

    /// Since when this process observes that the Pod has a time to leave; now, if it does not yet.
    pub fn first_observed(&self, key: &ObjectKey, now: Timestamp) -> Timestamp {
        self.leaving.lock().get(key).copied().unwrap_or(now)
    }

    /// The Pod is gone, or is being deleted.
    pub fn forget(&self, key: &ObjectKey) {
        self.leaving.lock().remove(key);
    }

    /// Deletes the Pod if its time has come.
    pub async fn carry_out(&self, key: &ObjectKey, pod: &Pod, verdict: Verdict, now: Timestamp) -> Result<Step, Failure> {
        match verdict {
            Verdict::Stays => {
                if self.leaving.lock().remove(key).is_some() {
                    self.recorder.normal(&reference(pod), self.wording.event, (self.wording.cancelling)(key));
                }
                Ok(Step::Stays)
            }
            Verdict::LeavesAt(at) if at > now => {
                self.leaving.lock().entry(key.clone()).or_insert(now);
                Ok(Step::Waits(Duration::try_from(at.duration_since(now)).unwrap_or_default()))
            }
            Verdict::LeavesAt(at) => {
                self.evict(key, pod, now).await?;
                self.wording.deletions.count([]);
                self.wording.lateness.observe([], metrics::seconds(api_clock::now().duration_since(at)));
                self.forget(key);
                Ok(Step::Evicted)
            }
        }
    }

    async fn evict(&self, key: &ObjectKey, pod: &Pod, now: Timestamp) -> Result<(), Failure> {
        let conditions = self.wording.disrupted(pod, now);
        gone_is_fine(writes::patch_status(&self.client, pod, json!({"conditions": conditions})).await)?;
        self.recorder.normal(&reference(pod), self.wording.event, (self.wording.marking)(key));
        writes::delete(&self.client, pod, DeleteParams::default()).await
    }
}

impl Wording {
    /// The Pod's conditions with the reason of its eviction.
    fn disrupted(&self, pod: &Pod, now: Timestamp) -> Vec<PodCondition> {
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some(self.reason.to_owned()),
            message: Some(self.message.to_owned()),
            last_transition_time: Some(meta::whole_seconds(now)),
            ..PodCondition::default()
        };
        pods::with_condition(pod, condition)
    }
}
