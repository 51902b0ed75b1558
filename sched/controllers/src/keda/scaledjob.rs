//! ScaledJob: as many Jobs as its triggers ask for.
//!
//! Watches ScaledJobs and Jobs; reads Pods, the credentials of triggers and what the triggers point to. Creates Jobs, deletes finished
//! ones beyond the history limits and, when the spec changes, those of the earlier spec; writes the finalizer and the status of
//! ScaledJobs. Never touches a Job that it does not own. Looks at the triggers of each ScaledJob once in its polling interval.

mod demand;
mod jobs;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::{BY_CONTROLLER, Informer, ObjectKey};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};

use super::kinds::{self, ScaledJob};
use super::loops::{Begun, Look, Loops};
use super::spec::{self, ScaledJobSpec};
use super::status::{ACTIVE, Activity, FALSE, PARTIAL_TRIGGER_ERROR, PAUSED, READY, ScaledJobStatus, TRIGGER_ERROR, TRUE, UNKNOWN};
use super::triggers::{self, Sources, Trigger};
use super::{CHECK_AGAIN, FINALIZER};
use crate::context::ControllerContext;
use crate::failure::{Failure, gone_is_fine};
use crate::keda::scaledjob::demand::{Demand, Running};
use crate::note::{self, Note, normal, warning};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};

const ACTIVE_MESSAGE: &str = "Scaling is performed because triggers are active";
const INACTIVE_MESSAGE: &str = "Scaling is not performed because triggers are not active";
const READY_REASON: &str = "ScaledJobReady";
const READY_MESSAGE: &str = "ScaledJob is defined correctly and is ready for scaling";

/// The controller; its keys are ScaledJobs'.
pub struct ScaledJobs {
    client: kube::Client,
    recorder: Recorder,
    objects: Informer<ScaledJob>,
    jobs: Informer<Job>,
    sources: Sources,
    loops: Loops,
}

/// A status that is being computed, and the events of the pass.
struct Draft {
    status: ScaledJobStatus,
    notes: Vec<Note>,
    /// The look at the triggers, if this pass makes one.
    look: Option<Look>,
    has_created: bool,
}

/// Why a pass stops.
enum Stop {
    /// The ScaledJob is not correct.
    Problem(String),
    /// A request failed.
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("scaledjob"));
    let objects = context.optional::<ScaledJob>();
    context.feed_from(&objects, &queue, kinds::changed);
    let (jobs, sources) = (context.informer(), Sources::new(context));
    let recorder = context.recorder("keda-operator");
    let controller = ScaledJobs { client: context.client(), recorder, objects, jobs, sources, loops: Loops::default() };
    context.run(Arc::new(controller), queue);
}

impl Controller for ScaledJobs {
    const NAME: &'static str = "scaledjob-controller";
    const WORKERS: usize = 32;
    type Key = ObjectKey;

    /// Passes wait for the servers of triggers.
    fn flow(key: &ObjectKey) -> Option<&str> {
        Some(&key.namespace)
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(object) = self.objects.get(key) else {
            self.loops.end(key);
            return Ok(Next::OnChange);
        };
        if meta::is_deleting(&object.metadata) {
            self.finalize(key, &object).await?;
            return Ok(Next::OnChange);
        }
        if !meta::has_finalizer(&object.metadata, FINALIZER) {
            let finalizers: Vec<&str> = object.metadata.finalizers.iter().flatten().map(String::as_str).chain([FINALIZER]).collect();
            let object = writes::patch(&self.client, object.as_ref(), json!({"metadata": {"finalizers": finalizers}})).await?;
            return self.pass(key, &object, api_clock::now()).await;
        }
        self.pass(key, &object, api_clock::now()).await
    }
}

impl ScaledJobs {
    async fn pass(&self, key: &ObjectKey, object: &ScaledJob, now: Timestamp) -> Result<Next, Failure> {
        let mut draft = Draft {
            status: serde_json::from_value(object.status.clone()).unwrap_or_default(),
            notes: Vec::new(),
            look: None,
            has_created: false,
        };
        draft.status.conditions.initialize();
        let synced = self.sync(key, object, &mut draft, now).await;
        let complete = |draft: &Draft| draft.look.into_iter().for_each(|look| self.loops.complete(key, &object.metadata, look));
        if draft.has_created {
            // Whatever fails from here on: another look at once would create Jobs for the same work again.
            complete(&draft);
        }
        let next = match synced {
            Ok(next) => Ok(next),
            Err(Stop::Failure(failure)) => return Err(failure),
            Err(Stop::Problem(problem)) => Err(draft.fail(key, problem)),
        };
        note::record(&self.recorder, &reference(object), std::mem::take(&mut draft.notes));
        let old = if object.status.is_null() { json!({}) } else { object.status.clone() };
        let change = meta::merge_patch(&old, &json!(draft.status));
        if change.as_object().is_some_and(|change| !change.is_empty()) {
            let written = writes::patch_status(&self.client, object, change).await?;
            writes::delivered(&self.objects, &written).await?;
        }
        if next.is_ok() {
            complete(&draft);
        }
        next
    }

    async fn sync(&self, key: &ObjectKey, object: &ScaledJob, draft: &mut Draft, now: Timestamp) -> Result<Next, Stop> {
        let unreadable = |error: serde_json::Error| Stop::Problem(format!("ScaledJob cannot be read: {error}"));
        let spec: ScaledJobSpec = serde_json::from_value(object.spec.clone()).map_err(unreadable)?;
        if jobs::is_paused(&object.metadata) {
            draft.pause();
            if self.loops.end(key) {
                draft.notes.push(normal("KEDAScalersStopped", "Stopped scalers watch"));
            }
            draft.ready("ScaledJob is paused, skipping reconcile loop");
            return Ok(Next::OnChange);
        }
        draft.unpause();
        let Some(template) = spec.job_target_ref.as_ref().filter(|template| !template.is_null()) else {
            return Err(Stop::Problem("ScaledJob.spec.jobTargetRef not found".to_owned()));
        };
        let incorrect = "ScaledJob doesn't have correct triggers specification";
        spec::check_triggers(&spec.triggers).map_err(|_| Stop::Problem(incorrect.to_owned()))?;
        let of_service = spec.triggers.iter().map(|trigger| trigger.type_.as_str()).find(|type_| triggers::ACTIVATING.contains(type_));
        if let Some(type_) = of_service {
            return Err(Stop::Problem(format!("{type_} is a trigger of ScaledObjects, not of ScaledJobs")));
        }
        let (types, authentications) = spec::types(&spec.triggers);
        (draft.status.triggers_types, draft.status.authentications_types) = (Some(types), Some(authentications));
        let triggers = triggers::build_all(&self.client, &key.namespace, &spec.triggers).await.map_err(|why| {
            draft.notes.push(warning("KEDAScalerFailed", why.to_string()));
            Stop::Problem("Failed to ensure ScaledJob is correctly created".to_owned())
        })?;
        if spec.triggers.iter().any(|trigger| !trigger.metric_type.is_empty()) {
            return Err(Stop::Problem("Cannot set metricType in ScaledJob triggers".to_owned()));
        }
        let (begun, look) = (self.loops.begin(key, &object.metadata), Look::begin(spec.polling()));
        draft.checked(begun);
        if let Begun::Waiting(wait) = begun {
            return Ok(Next::After(wait));
        }
        if begun != Begun::Due {
            self.roll_out(object, &spec, draft).await?;
        }
        draft.notes.extend(spec::begun(begun, &spec.triggers));
        draft.look = Some(look);
        let demand = self.demand(&spec, &triggers, draft, now).await;
        self.scale(object, &spec, template, &demand, draft, now).await?;
        self.clean_up(object, &spec).await?;
        Ok(Next::After(spec.polling()))
    }

    /// Deletes the Jobs of an earlier spec, unless the user wants them to end by themselves.
    async fn roll_out(&self, object: &ScaledJob, spec: &ScaledJobSpec, draft: &mut Draft) -> Result<(), Stop> {
        let outdated = jobs::outdated(object, spec, &self.owned(object));
        if outdated.is_empty() {
            return Ok(());
        }
        let text = |did: &str| format!("{did} {} jobs owned by the previous version of the scaledJob", outdated.len());
        draft.notes.push(normal("ScaledJobRolloutCleanupStarted", text("Deleting")));
        let params = match spec.rollout.propagation_policy.as_str() {
            "foreground" => DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() },
            _ => DeleteParams::background(),
        };
        for job in &outdated {
            if let Err(failure) = writes::delete(&self.client, job.as_ref(), params.clone()).await {
                let name = meta::name(&job.metadata);
                let message = format!("Failed to delete job {name}: {}", failure.message());
                draft.notes.push(warning("ScaledJobRolloutCleanupFailed", message));
                return Err(Stop::Problem(format!("Not able to delete job: {name}")));
            }
        }
        draft.notes.push(normal("ScaledJobRolloutCleanupCompleted", text("Deleted")));
        Ok(())
    }

    /// Reads the triggers.
    async fn demand(&self, spec: &ScaledJobSpec, triggers: &[Arc<Trigger>], draft: &mut Draft, now: Timestamp) -> Demand {
        let mut demand = Demand::default();
        draft.status.external_metric_names.clear();
        draft.status.triggers_activity.clear();
        let results = triggers::read_all(triggers, &self.sources, now).await;
        for (trigger, result) in triggers.iter().zip(results) {
            let Some(metric) = trigger.external_name().map(str::to_owned) else { continue };
            draft.status.external_metric_names.push(metric.clone());
            let mut activity = Activity::default();
            match result {
                Ok(sample) => {
                    activity.is_active = sample.is_active;
                    demand.add(sample, trigger.target(), spec.max());
                }
                Err(why) => {
                    draft.notes.push(warning("KEDAScalerFailed", why.to_string()));
                    demand.is_error = true;
                }
            }
            draft.status.triggers_activity.insert(metric, activity);
        }
        demand
    }

    /// Creates the Jobs that are missing, and sets the conditions.
    async fn scale(
        &self,
        object: &ScaledJob,
        spec: &ScaledJobSpec,
        template: &Value,
        demand: &Demand,
        draft: &mut Draft,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let running = self.running(object, spec);
        let decision = demand.decide(spec, running);
        draft.judge(decision.is_active, demand.is_error);
        if !decision.is_active {
            return Ok(());
        }
        draft.status.last_active_time = Some(meta::whole_seconds(now));
        if decision.jobs == 0 {
            return Ok(());
        }
        let mut created = 0;
        let mut last = None;
        for _ in 0..decision.jobs {
            let written = match jobs::job(object, template) {
                Ok(job) => writes::create(&self.client, &job).await.map_err(|failure| failure.message()),
                Err(error) => Err(error.to_string()),
            };
            match written {
                Ok(job) => {
                    created += 1;
                    last = Some(job);
                }
                Err(why) => {
                    let message = format!("Failed to create job {}-: {why}", meta::name(&object.metadata));
                    draft.notes.push(warning("KEDAJobCreateFailed", message));
                    break;
                }
            }
        }
        if created > 0 {
            draft.has_created = true;
            draft.notes.push(normal("KEDAJobsCreated", format!("Created {created} jobs")));
        }
        // The next look must count them.
        match last {
            Some(job) => writes::delivered(&self.jobs, &job).await,
            None => Ok(()),
        }
    }

    /// Deletes finished Jobs beyond the history limits, the oldest first.
    async fn clean_up(&self, object: &ScaledJob, spec: &ScaledJobSpec) -> Result<(), Failure> {
        for job in jobs::surplus(spec, &self.owned(object)) {
            writes::delete(&self.client, job.as_ref(), DeleteParams::background()).await?;
        }
        Ok(())
    }

    fn owned(&self, object: &ScaledJob) -> Vec<Arc<Job>> {
        self.jobs.indexed(BY_CONTROLLER, meta::uid(&object.metadata))
    }

    /// The Jobs that have not finished.
    fn running(&self, object: &ScaledJob, spec: &ScaledJobSpec) -> Running {
        let mut running = Running::default();
        for job in self.owned(object).iter().filter(|job| jobs::end(job).is_none()) {
            running.jobs += 1;
            let pods = self.sources.pods.indexed(BY_CONTROLLER, meta::uid(&job.metadata));
            running.pending += i64::from(jobs::is_pending(&pods, &spec.scaling_strategy.pending_pod_conditions));
        }
        running
    }

    /// Removes the finalizer. The garbage collector deletes the Jobs.
    async fn finalize(&self, key: &ObjectKey, object: &ScaledJob) -> Result<(), Failure> {
        self.loops.end(key);
        if !meta::has_finalizer(&object.metadata, FINALIZER) {
            return Ok(());
        }
        let rest: Vec<&String> = object.metadata.finalizers.iter().flatten().filter(|name| *name != FINALIZER).collect();
        let removed = writes::patch(&self.client, object, json!({"metadata": {"finalizers": meta::list_or_null(&rest)}})).await;
        gone_is_fine(removed)?;
        self.recorder.warning(&reference(object), "ScaledJobDeleted", "ScaledJob was deleted");
        Ok(())
    }
}

impl Draft {
    fn ready(&mut self, message: &str) {
        if !self.status.conditions.is(READY, TRUE) {
            self.notes.push(normal("ScaledJobReady", "ScaledJob is ready for scaling"));
        }
        self.status.conditions.set(READY, TRUE, READY_REASON, message);
    }

    /// The object is correct. What the last look says of the triggers stays until the next look, or until the spec changes.
    fn checked(&mut self, begun: Begun) {
        if begun == Begun::Changed || !self.status.conditions.has_trigger_error() {
            self.ready(READY_MESSAGE);
        }
    }

    fn fail(&mut self, key: &ObjectKey, problem: String) -> Failure {
        self.status.conditions.set(READY, FALSE, "ScaledJobCheckFailed", problem.clone());
        self.status.conditions.set(ACTIVE, UNKNOWN, "UnknownState", "ScaledJob check failed");
        self.notes.push(warning("ScaledJobCheckFailed", problem.clone()));
        Failure::Unfinished { object: format!("ScaledJob {key}"), waiting_for: problem, at_most: CHECK_AGAIN }
    }

    fn pause(&mut self) {
        if !self.status.conditions.is(PAUSED, TRUE) {
            self.notes.push(normal("ScaledJobPaused", "ScaledJob is paused"));
        }
        self.status.conditions.set(PAUSED, TRUE, "ScaledJobPaused", "ScaledJob is paused");
    }

    fn unpause(&mut self) {
        if self.status.conditions.is(PAUSED, TRUE) {
            self.status.conditions.set(PAUSED, FALSE, "ScaledJobUnpaused", "ScaledJob is unpaused");
            self.notes.push(normal("ScaledJobUnpaused", "ScaledJob is unpaused"));
        }
    }

    /// The conditions and events of activity and errors.
    fn judge(&mut self, is_active: bool, is_error: bool) {
        match (is_error, is_active) {
            (true, true) => {
                let message = "Some triggers defined in ScaledJob are not working correctly";
                self.status.conditions.set(READY, UNKNOWN, PARTIAL_TRIGGER_ERROR, message);
            }
            (true, false) => {
                let message = "Triggers defined in ScaledJob are not working correctly";
                self.status.conditions.set(READY, FALSE, TRIGGER_ERROR, message);
            }
            // As upstream, without an event.
            (false, _) if !self.status.conditions.is(READY, TRUE) => {
                self.status.conditions.set(READY, TRUE, READY_REASON, READY_MESSAGE);
            }
            (false, _) => {}
        }
        match (self.status.conditions.is(ACTIVE, TRUE), is_active) {
            (false, true) => self.notes.push(normal("ScaledJobActive", ACTIVE_MESSAGE)),
            (true, false) => self.notes.push(normal("ScaledJobInactive", INACTIVE_MESSAGE)),
            _ => {}
        }
        let (status, reason, message) =
            if is_active { (TRUE, "ScalerActive", ACTIVE_MESSAGE) } else { (FALSE, "ScalerNotActive", INACTIVE_MESSAGE) };
        self.status.conditions.set(ACTIVE, status, reason, message);
    }
}
