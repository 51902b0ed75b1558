//! HorizontalPodAutoscaler: as many replicas as the metrics of a workload ask for.
//!
//! Watches HorizontalPodAutoscalers and Pods; reads the `scale` of the targets, of any kind, and the metrics APIs, which other
//! servers serve behind this one, and the external metrics that this process computes itself. Writes the `scale` of the targets and the status of HorizontalPodAutoscalers. Looks at each of
//! them when its spec changes and once in a period; without any, it does nothing.

mod behavior;
mod calculator;
mod conditions;
mod history;
mod metrics;
mod plan;
mod proposal;
mod selectors;
mod source;
pub mod target;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::events::{Recorder, reference};
use api_client::informer::{Change, Informer, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::config::Config;
use crate::context::ControllerContext;
use crate::discovery::Resources;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{concurrent, meta, note, writes};
use conditions::Draft;
use history::History;
use metrics::{Metrics, MetricsError};
use plan::{Decision, Snapshot, Start};
use selectors::Selectors;
use source::Source;
use target::Target;

/// Metrics of one autoscaler that are read at the same time.
const METRICS_AT_ONCE: usize = 10;
/// The time for all of them together. A trigger has less, so that the fallback of its ScaledObject is in time.
const METRICS_TIME_MAX: Duration = Duration::from_secs(45);

/// The controller; its keys are autoscalers'.
struct Autoscalers {
    client: kube::Client,
    recorder: Recorder,
    config: Arc<Config>,
    autoscalers: Informer<HorizontalPodAutoscaler>,
    pods: Informer<Pod>,
    resources: Arc<Resources>,
    metrics: Metrics,
    selectors: Selectors,
    histories: Mutex<HashMap<ObjectKey, History>>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("horizontalpodautoscaler"));
    let autoscalers = context.feed(&queue, |change: &Change<HorizontalPodAutoscaler>| {
        let changed = change.latest().filter(|_| is_new(change));
        changed.map(|autoscaler| ObjectKey::from(&autoscaler.metadata)).into_iter().collect()
    });
    let client = context.client();
    let resources = Arc::new(Resources::new(client.clone()));
    let controller = Autoscalers {
        metrics: Metrics::new(client.clone(), Arc::clone(&resources), context.external.clone()),
        client,
        recorder: context.recorder("horizontal-pod-autoscaler"),
        config: Arc::clone(&context.config),
        autoscalers,
        pods: context.informer(),
        resources,
        selectors: Selectors::default(),
        histories: Mutex::default(),
    };
    context.run(Arc::new(controller), queue);
}

/// Whether a change is worth a pass at once. A new status, which this controller writes itself, waits for the period.
fn is_new(change: &Change<HorizontalPodAutoscaler>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    old.metadata.generation != new.metadata.generation || old.metadata.uid != new.metadata.uid
}

impl Controller for Autoscalers {
    const NAME: &'static str = "horizontal-pod-autoscaler-controller";
    const WORKERS: usize = 32;
    type Key = ObjectKey;

    /// Passes wait for the servers of metrics.
    fn flow(key: &ObjectKey) -> Option<&str> {
        Some(&key.namespace)
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(autoscaler) = self.autoscalers.get(key) else {
            self.selectors.remove(key);
            self.histories.lock().remove(key);
            return Ok(Next::OnChange);
        };
        // As upstream, whatever fails is tried again in the next period, not sooner.
        if let Err(failure) = self.pass(key, &autoscaler, api_clock::now()).await {
            tracing::warn!(controller = Self::NAME, %key, error = failure.chain(), "pass not finished");
        }
        Ok(Next::After(self.config.autoscaling.sync_period))
    }
}

impl Autoscalers {
    async fn pass(&self, key: &ObjectKey, autoscaler: &HorizontalPodAutoscaler, now: Timestamp) -> Result<(), Failure> {
        let mut draft = Draft::new(autoscaler, now);
        match Target::get(&self.client, &self.resources, &key.namespace, &autoscaler.spec.scale_target_ref).await {
            Err(why) => plan::no_scale(&why, &mut draft),
            Ok(target) => {
                plan::scale_read(&mut draft);
                let settings = &self.config.autoscaling;
                let snapshot = Snapshot { autoscaler, replicas: target.replicas(), settings, now };
                self.scale(key, snapshot, target, &mut draft).await;
            }
        }
        note::record(&self.recorder, &reference(autoscaler), draft.notes);
        self.write_status(autoscaler, &draft.status).await
    }

    /// Decides, and changes the target.
    async fn scale(&self, key: &ObjectKey, snapshot: Snapshot<'_>, mut target: Target, draft: &mut Draft) {
        let mut history = self.history(key, &snapshot);
        let decision = match snapshot.start() {
            Start::Disabled => {
                plan::disabled(draft);
                Decision::Stay
            }
            Start::Rescale(rescale) => Decision::Rescale(rescale),
            Start::Compute => self.compute(key, &snapshot, &target, &mut history, draft).await,
        };
        match decision {
            Decision::Stuck => {}
            Decision::Stay => snapshot.stayed(draft),
            Decision::Rescale(rescale) => match target.rescale(rescale.replicas).await {
                Ok(()) => snapshot.rescaled(&rescale, &mut history, draft),
                Err(failure) => snapshot.not_rescaled(&rescale, &failure.message(), draft),
            },
        }
        self.histories.lock().insert(key.clone(), history);
    }

    /// Reads the metrics, and decides by them.
    async fn compute(
        &self,
        key: &ObjectKey,
        snapshot: &Snapshot<'_>,
        target: &Target,
        history: &mut History,
        draft: &mut Draft,
    ) -> Decision {
        let Some(selector) = snapshot.selector(target.selector(), draft) else { return Decision::Stuck };
        let selected = |pod: &Arc<Pod>| meta::matches(&selector, pod.metadata.labels.as_ref());
        let pods: Vec<Arc<Pod>> = self.pods.in_namespace(&key.namespace).into_iter().filter(selected).collect();
        self.selectors.put(key, selector.clone());
        let selecting = self.selectors.selecting(&key.namespace, &pods);
        if selecting.len() > 1 {
            snapshot.ambiguous(target.selector(), &selecting, draft);
            return Decision::Stuck;
        }
        let reads = snapshot.metrics().iter().map(|spec| Source::new(spec).read(&self.metrics, &key.namespace, &selector));
        let readings = concurrent::all(reads, METRICS_AT_ONCE, Instant::now() + METRICS_TIME_MAX).await;
        let readings = readings.into_iter().map(|reading| reading.unwrap_or(Err(MetricsError::Deadline))).collect();
        snapshot.compute(&pods, readings, history, draft)
    }

    /// The history of this autoscaler, which begins with its first pass.
    fn history(&self, key: &ObjectKey, snapshot: &Snapshot<'_>) -> History {
        let uid = meta::uid(&snapshot.autoscaler.metadata);
        let history = self.histories.lock().remove(key).filter(|history| history.uid == uid);
        history.unwrap_or_else(|| History::begin(uid, snapshot.replicas.spec, snapshot.now))
    }

    /// Writes the status if it differs, and waits until the cache has it, so that the next pass sees its conditions. The status is
    /// this controller's alone: after a conflict it is written to the newer object.
    async fn write_status(&self, read: &HorizontalPodAutoscaler, status: &HorizontalPodAutoscalerStatus) -> Result<(), Failure> {
        let change = |old: &HorizontalPodAutoscaler| meta::merge_patch(&json!(old.status.clone().unwrap_or_default()), &json!(status));
        if change(read).as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(());
        }
        let written = match writes::patch_status(&self.client, read, change(read)).await {
            Err(failure) if failure.is_conflict() => {
                let fresh: Option<HorizontalPodAutoscaler> = writes::get(&self.client, &ObjectKey::from(&read.metadata)).await?;
                let Some(fresh) = fresh.filter(|fresh| fresh.metadata.uid == read.metadata.uid) else { return Ok(()) };
                writes::patch_status(&self.client, &fresh, change(&fresh)).await
            }
            written => written,
        };
        match written {
            Ok(written) => writes::delivered(&self.autoscalers, &written).await,
            Err(failure) if failure.is_not_found() => Ok(()),
            Err(failure) => {
                self.recorder.warning(&reference(read), "FailedUpdateStatus", failure.message());
                Err(failure)
            }
        }
    }
}
