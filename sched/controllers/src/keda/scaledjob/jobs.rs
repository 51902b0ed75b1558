//! The Jobs of a ScaledJob: how one is made, which have ended, and which are to be deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api_model::go::parse_bool;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::keda::kinds::ScaledJob;
use crate::keda::spec::ScaledJobSpec;
use crate::keda::{MANAGER, PAUSED, SCALED_JOB_NAME, VERSION};
use crate::{meta, pods};

const GENERATION: &str = "scaledjob.keda.sh/generation";
const EXCLUDED_LABELS: &str = "scaledjob.keda.sh/job-excluded-labels";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Upstream's default of both history limits.
const HISTORY: i32 = 100;

/// How a Job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With success.
    Complete,
    /// With a failure.
    Failed,
}

/// Whether an annotation pauses the ScaledJob. As upstream, a value that is no truth value counts as true.
pub fn is_paused(metadata: &ObjectMeta) -> bool {
    meta::annotation(metadata, PAUSED).is_some_and(|value| parse_bool(value).unwrap_or(true))
}

/// A new Job, with upstream's labels and annotations.
pub fn job(object: &ScaledJob, template: &Value) -> serde_json::Result<Job> {
    let own = &object.metadata;
    let name = meta::name(own);
    let excluded: BTreeSet<&str> = meta::annotation(own, EXCLUDED_LABELS).unwrap_or_default().split(',').collect();
    let mut labels = BTreeMap::from([
        ("app.kubernetes.io/name", name),
        ("app.kubernetes.io/version", VERSION),
        ("app.kubernetes.io/part-of", name),
        ("app.kubernetes.io/managed-by", MANAGER),
        (SCALED_JOB_NAME, name),
    ]);
    let inherited = own.labels.iter().flatten().filter(|(key, _)| !excluded.contains(key.as_str()));
    labels.extend(inherited.map(|(key, value)| (key.as_str(), value.as_str())));
    let generation = generation(object);
    let mut annotations = BTreeMap::from([(GENERATION, generation.as_str())]);
    let inherited = own.annotations.iter().flatten().filter(|(key, _)| *key != LAST_APPLIED);
    annotations.extend(inherited.map(|(key, value)| (key.as_str(), value.as_str())));
    let mut spec = template.clone();
    meta::overlay(&mut spec, &json!({"template": {"metadata": {"labels": {SCALED_JOB_NAME: name}}}}));
    // The server's default, `Always`, is not allowed in a Job.
    if spec.pointer("/template/spec/restartPolicy").and_then(Value::as_str).unwrap_or_default().is_empty() {
        meta::overlay(&mut spec, &json!({"template": {"spec": {"restartPolicy": "OnFailure"}}}));
    }
    serde_json::from_value(json!({
        "metadata": {"generateName": format!("{name}-"), "namespace": own.namespace, "labels": labels, "annotations": annotations,
            "ownerReferences": [meta::controller_reference(object)]},
        "spec": spec,
    }))
}

fn generation(object: &ScaledJob) -> String {
    object.metadata.generation.unwrap_or_default().to_string()
}

/// The Jobs of an earlier spec, which are to be deleted.
pub fn outdated(object: &ScaledJob, spec: &ScaledJobSpec, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let strategy = if spec.rollout_strategy.is_empty() { &spec.rollout.strategy } else { &spec.rollout_strategy };
    let generation = generation(object);
    let is_outdated = |job: &&Arc<Job>| meta::annotation(&job.metadata, GENERATION) != Some(&generation);
    if strategy == "gradual" { Vec::new() } else { jobs.iter().filter(is_outdated).cloned().collect() }
}

/// How a Job has ended; none while it runs.
pub fn end(job: &Job) -> Option<End> {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().filter(|condition| condition.status == "True").find_map(|condition| match condition.type_.as_str() {
        "Complete" => Some(End::Complete),
        "Failed" => Some(End::Failed),
        _ => None,
    })
}

/// The finished Jobs beyond the history limits, the oldest first.
pub fn surplus(spec: &ScaledJobSpec, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let limits = [(End::Complete, spec.successful_jobs_history_limit), (End::Failed, spec.failed_jobs_history_limit)];
    let mut surplus = Vec::new();
    for (how, limit) in limits {
        let mut ended: Vec<Arc<Job>> = jobs.iter().filter(|job| end(job) == Some(how)).cloned().collect();
        ended.sort_by_key(|job| {
            let completed = job.status.as_ref().and_then(|status| meta::instant(status.completion_time.as_ref()));
            (completed, meta::instant(job.metadata.creation_timestamp.as_ref()), job.metadata.name.clone())
        });
        let limit = usize::try_from(limit.unwrap_or(HISTORY)).unwrap_or_default();
        surplus.extend(ended.iter().take(ended.len().saturating_sub(limit)).cloned());
    }
    surplus
}

/// Whether a Job with these Pods has not begun its work: without conditions, no Pod runs or has succeeded; with them, no Pod has all.
pub fn is_pending(pods: &[Arc<Pod>], conditions: &[String]) -> bool {
    let has_begun = |pod: &Arc<Pod>| match conditions {
        [] => matches!(pods::phase(pod), "Running" | "Succeeded"),
        all => all.iter().all(|kind| pods::condition(pod, kind).is_some_and(|condition| condition.status == "True")),
    };
    !pods.iter().any(has_begun)
}
