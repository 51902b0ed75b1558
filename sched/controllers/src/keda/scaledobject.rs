//! ScaledObject: a workload with as many replicas as its triggers ask for, down to zero and back.
//!
//! Watches ScaledObjects and HorizontalPodAutoscalers; reads the `scale` of the targets, of any kind, Pods, the credentials of
//! triggers and what the triggers point to. Creates, changes and deletes the HorizontalPodAutoscaler of each ScaledObject, which
//! scales between one replica and the most. Writes the `scale` of the targets between zero and one, and the finalizer, the label and
//! the status of ScaledObjects. Marks the Services whose connections or requests are triggers, so that the nodes report these in their
//! Leases. Looks at the triggers of each ScaledObject once in its polling interval, and when its Service is used again; without any,
//! it does nothing.

mod activation;
mod annotations;
mod assess;
mod autoscaler;
mod check;
mod decide;
mod fallback;
mod finalize;
mod poll;
mod rules;
#[cfg(test)]
mod tests;
mod values;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::events::{Recorder, reference};
use api_client::informer::{Change, Informer, ObjectKey};
use api_model::message::Message;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::kinds::{self, ScaledObject};
use super::loops::{Begun, Look, Loops};
use super::spec::{self, ScaledObjectSpec};
use super::status::{ACTIVE, FALSE, READY, ScaledObjectStatus, TRUE, UNKNOWN};
use super::triggers::Sources;
use super::{CHECK_AGAIN, FINALIZER, SCALED_OBJECT_NAME, demand, status};
use crate::context::ControllerContext;
use crate::discovery::Resources;
use crate::external::LatestValues;
use crate::failure::Failure;
use crate::note::{self, Note, normal, warning};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, writes};
use activation::is_triggered;
use check::Checked;
use values::Values;

const READY_REASON: &str = "ScaledObjectReady";
const READY_MESSAGE: &str = "ScaledObject is defined correctly and is ready for scaling";
/// The names of labels' values.
const LABEL_LEN_MAX: usize = 63;

/// The controller; its keys are ScaledObjects'.
pub struct ScaledObjects {
    client: kube::Client,
    recorder: Recorder,
    objects: Informer<ScaledObject>,
    autoscalers: Informer<HorizontalPodAutoscaler>,
    resources: Arc<Resources>,
    sources: Arc<Sources>,
    latest: Arc<LatestValues>,
    loops: Arc<Loops>,
    /// The autoscalers as they were last written.
    applied: Mutex<HashMap<ObjectKey, Value>>,
}

/// A status that is being computed, and the events of the pass.
struct Draft {
    status: ScaledObjectStatus,
    notes: Vec<Note>,
    /// The look at the triggers, if this pass has made one.
    look: Option<Look>,
}

/// Why a pass stops.
enum Stop {
    /// The ScaledObject is not correct: upstream's words for the part, and the problem.
    Problem(&'static str, Message),
    /// A request failed.
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Registers the controller, makes its metrics those of this process, and publishes their latest values.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("scaledobject"));
    let objects = context.optional::<ScaledObject>();
    context.feed_from(&objects, &queue, kinds::changed);
    let autoscalers = context.feed(&queue, |change: &Change<HorizontalPodAutoscaler>| owner(change).into_iter().collect());
    let client = context.client();
    let (resources, latest) = (Arc::new(Resources::new(client.clone())), Arc::new(LatestValues::default()));
    context.config.scaled_object_metrics.publish(&latest);
    let sources = Arc::new(Sources::new(context));
    context.external.set(Arc::new(Values {
        client: client.clone(),
        resources: Arc::clone(&resources),
        objects: objects.clone(),
        sources: Arc::clone(&sources),
        latest: Arc::clone(&latest),
    }));
    let recorder = context.recorder("keda-operator");
    let (loops, applied) = (Arc::new(Loops::default()), Mutex::default());
    let (wake_loops, wake_objects, wake_queue) = (Arc::clone(&loops), objects.clone(), Arc::clone(&queue));
    context.on_change(&sources.reports.leases, move |change: &Change<Lease>| {
        for service in demand::awakened(change) {
            for object in wake_objects.in_namespace(&service.namespace).iter().filter(|object| is_triggered(object, &service)) {
                let key = ObjectKey::from(&object.metadata);
                wake_loops.wake(&key);
                wake_queue.add(key);
            }
        }
    });
    let controller = ScaledObjects { client, recorder, objects, autoscalers, resources, sources, latest, loops, applied };
    context.run(Arc::new(controller), queue);
}

/// The ScaledObject that owns an autoscaler whose spec or labels changed, or that is gone.
fn owner(change: &Change<HorizontalPodAutoscaler>) -> Option<ObjectKey> {
    if let (Some(old), Some(new)) = (&change.old, &change.new)
        && old.spec == new.spec
        && (&old.metadata.labels, &old.metadata.annotations) == (&new.metadata.labels, &new.metadata.annotations)
    {
        return None;
    }
    let metadata = &change.latest()?.metadata;
    let owner = meta::controller_of(metadata).filter(|owner| owner.kind == "ScaledObject")?;
    Some(ObjectKey::new(meta::namespace(metadata), &owner.name))
}

impl Controller for ScaledObjects {
    const NAME: &'static str = "scaledobject-controller";
    const WORKERS: usize = 32;
    type Key = ObjectKey;

    /// Passes wait for the servers of triggers.
    fn flow(key: &ObjectKey) -> Option<&str> {
        Some(&key.namespace)
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(object) = self.objects.get(key) else {
            self.forget(key);
            self.applied.lock().remove(key);
            return Ok(Next::OnChange);
        };
        if meta::is_deleting(&object.metadata) {
            self.finalize(key, &object).await?;
            return Ok(Next::OnChange);
        }
        let object = self.prepare(&object).await?;
        self.pass(key, &object, api_clock::now()).await
    }
}

impl ScaledObjects {
    /// Adds the finalizer, and the label by which the autoscaler's metrics name the object.
    async fn prepare(&self, object: &Arc<ScaledObject>) -> Result<Arc<ScaledObject>, Failure> {
        let metadata = &object.metadata;
        let name = meta::name(metadata);
        let mut patch = json!({});
        if !meta::has_finalizer(metadata, FINALIZER) {
            let finalizers: Vec<&str> = metadata.finalizers.iter().flatten().map(String::as_str).chain([FINALIZER]).collect();
            api_model::meta::set(&mut patch, "finalizers", json!(finalizers));
        }
        if meta::label(metadata, SCALED_OBJECT_NAME) != Some(name) && name.len() <= LABEL_LEN_MAX {
            api_model::meta::set(&mut patch, "labels", json!({SCALED_OBJECT_NAME: name}));
        }
        if patch.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(Arc::clone(object));
        }
        Ok(Arc::new(writes::patch(&self.client, object.as_ref(), patch).await?))
    }

    async fn pass(&self, key: &ObjectKey, object: &ScaledObject, now: Timestamp) -> Result<Next, Failure> {
        let mut draft = Draft::new(&object.status);
        draft.status.conditions.initialize();
        let next = match self.sync(key, object, &mut draft, now).await {
            Ok(next) => Ok(next),
            Err(Stop::Failure(failure)) => return Err(failure),
            Err(Stop::Problem(part, problem)) => Err(draft.fail(key, part, &problem)),
        };
        note::record(&self.recorder, &reference(object), std::mem::take(&mut draft.notes));
        self.write_status(object, &draft.status).await?;
        if let Some(look) = draft.look {
            self.loops.complete(key, &object.metadata, look);
        }
        next
    }

    async fn sync(&self, key: &ObjectKey, object: &ScaledObject, draft: &mut Draft, now: Timestamp) -> Result<Next, Stop> {
        let unreadable = |error: serde_json::Error| Stop::Problem("ScaledObject cannot be read", error.to_string().into());
        let spec: ScaledObjectSpec = serde_json::from_value(object.spec.clone()).map_err(unreadable)?;
        let mut checked = match self.check(key, object, &spec, draft).await? {
            Checked::Paused => {
                if self.forget(key) {
                    draft.notes.push(normal("KEDAScalersStopped", "Stopped scalers watch"));
                }
                draft.ready("ScaledObject is paused");
                draft.no_fallback(&spec);
                return Ok(Next::OnChange);
            }
            Checked::Scaling(checked) => checked,
        };
        self.mark_services(key, &spec.triggers).await?;
        let (begun, look) = (self.loops.begin(key, &object.metadata), Look::begin(spec.polling()));
        draft.checked(begun);
        draft.no_fallback(&spec);
        if object.status.get("originalReplicaCount").is_none() {
            // The replicas before the first scaling are stored before it: a deletion may come in between.
            return Ok(Next::After(Duration::ZERO));
        }
        if let Begun::Waiting(wait) = begun {
            return Ok(Next::After(wait));
        }
        draft.notes.extend(spec::begun(begun, &spec.triggers));
        self.poll(key, object, &spec, &mut checked, draft, now).await?;
        draft.look = Some(look);
        Ok(Next::After(spec.polling()))
    }

    /// Ends the loop of an object. Returns whether there was one.
    fn forget(&self, key: &ObjectKey) -> bool {
        self.latest.remove(key);
        self.loops.end(key)
    }

    /// Writes the status if it differs, and waits until the cache has it, so that the next pass counts on.
    async fn write_status(&self, read: &ScaledObject, status: &ScaledObjectStatus) -> Result<(), Failure> {
        let old = if read.status.is_null() { json!({}) } else { read.status.clone() };
        let change = meta::merge_patch(&old, &json!(status));
        if change.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(());
        }
        let written = writes::patch_status(&self.client, read, change).await?;
        writes::delivered(&self.objects, &written).await
    }
}

impl Draft {
    /// Begins with the status that is stored. One that cannot be read begins anew.
    fn new(status: &Value) -> Self {
        Self { status: serde_json::from_value(status.clone()).unwrap_or_default(), notes: Vec::new(), look: None }
    }

    /// The object is correct. What the last look says of the triggers stays until the next look, or until the spec changes.
    fn checked(&mut self, begun: Begun) {
        if begun == Begun::Changed || !self.status.conditions.has_trigger_error() {
            self.ready(READY_MESSAGE);
        }
    }

    fn ready(&mut self, message: &str) {
        if !self.status.conditions.is(READY, TRUE) {
            self.notes.push(normal("ScaledObjectReady", "ScaledObject is ready for scaling"));
        }
        self.status.conditions.set(READY, TRUE, READY_REASON, message);
    }

    /// Says that the object is not correct. It is looked at again: what it lacks may come.
    fn fail(&mut self, key: &ObjectKey, part: &'static str, problem: &Message) -> Failure {
        let message = format!("{part}: {problem}");
        self.status.conditions.set(READY, FALSE, "ScaledObjectCheckFailed", message.clone());
        self.status.conditions.set(ACTIVE, UNKNOWN, "UnknownState", "ScaledObject check failed");
        self.notes.push(warning("ScaledObjectCheckFailed", message.clone()));
        Failure::Unfinished { object: format!("ScaledObject {key}"), waiting_for: message, at_most: CHECK_AGAIN }
    }

    fn no_fallback(&mut self, spec: &ScaledObjectSpec) {
        if spec.fallback.is_none() {
            self.status.conditions.set(status::FALLBACK, FALSE, "NoFallbackFound", "No fallbacks are active on this scaled object");
        }
    }
}
