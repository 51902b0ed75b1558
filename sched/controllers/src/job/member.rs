//! The Pods of a Job: their finalizer, their completion index, whether and when they failed, and how they are created.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::policies;
use crate::{meta, pods};

/// The finalizer of a Pod that the Job's status does not count yet.
pub const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The annotation and label with the completion index.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The annotation with the failures of earlier Pods of the index that count towards its limit.
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// The annotation with the failures of earlier Pods of the index that a policy ignores.
const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// The environment variable with the completion index.
const VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest name before the random letters, upstream's.
const GENERATE_NAME_LEN_MAX: usize = 58;

/// The completion mode of the Job.
pub fn completion_mode(job: &Job) -> &'static str {
    if is_indexed(job) { "Indexed" } else { "NonIndexed" }
}

/// Whether each Pod has an index.
pub fn is_indexed(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.completion_mode.as_deref() == Some("Indexed"))
}

/// Whether the Job must not run.
pub fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true))
}

/// Whether a Pod is replaced only when it has ended, not when it is being deleted.
pub fn replaces_only_failed(job: &Job) -> bool {
    let failed = |policy: Option<&str>| policy == Some("Failed");
    job.spec.as_ref().is_some_and(|spec| failed(spec.pod_replacement_policy.as_deref()) || spec.pod_failure_policy.is_some())
}

/// The limit of failures of one index.
pub fn limit_per_index(job: &Job) -> Option<i32> {
    job.spec.as_ref()?.backoff_limit_per_index
}

/// Whether the status does not count the Pod yet.
pub fn is_tracked(pod: &Pod) -> bool {
    meta::has_finalizer(&pod.metadata, FINALIZER)
}

/// The completion index.
pub fn index(pod: &Pod) -> Option<i32> {
    meta::annotation(&pod.metadata, INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// The completion index, if the Job has it.
pub fn valid_index(job: &Job, pod: &Pod) -> Option<i32> {
    let completions = job.spec.as_ref()?.completions?;
    index(pod).filter(|index| *index < completions)
}

/// Whether the Pod counts as failed. Unless only failed Pods are replaced, a Pod that is being deleted counts: its node may be
/// gone, so that it never ends.
pub fn is_failed(job: &Job, pod: &Pod) -> bool {
    match pods::phase(pod) {
        "Failed" => true,
        "Succeeded" => false,
        _ => !replaces_only_failed(job) && meta::is_deleting(&pod.metadata),
    }
}

/// The statuses of all containers.
pub fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let own = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    own.iter().chain(status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default())
}

/// When the Pod ended: when its last container did, or when it stopped to be ready, or when its deletion was requested.
pub fn finished_at(pod: &Pod) -> Timestamp {
    let ended = |container: &ContainerStatus| meta::instant(container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    let unready = || {
        let condition = pods::condition(pod, "Ready").filter(|condition| condition.status == "False")?;
        meta::instant(condition.last_transition_time.as_ref())
    };
    let deleted = || {
        let grace = u64::try_from(pod.metadata.deletion_grace_period_seconds.unwrap_or(0)).unwrap_or_default();
        meta::instant(pod.metadata.deletion_timestamp.as_ref())?.checked_sub(Duration::from_secs(grace)).ok()
    };
    let created = || meta::instant(pod.metadata.creation_timestamp.as_ref());
    containers(pod).filter_map(ended).max().or_else(unready).or_else(deleted).or_else(created).unwrap_or_default()
}

/// The failures of an index before a Pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Those that count towards the limit.
    pub counted: i32,
    /// Those that a policy ignores.
    pub ignored: i32,
}

impl Failures {
    /// From the annotations of a Pod.
    pub fn before(pod: &Pod) -> Self {
        let number = |key: &str| meta::annotation(&pod.metadata, key).and_then(|text| text.parse().ok()).unwrap_or(0);
        Self { counted: number(FAILURES), ignored: number(IGNORED_FAILURES) }
    }

    /// With the failure of the Pod itself.
    fn after(job: &Job, pod: &Pod) -> Self {
        let before = Self::before(pod);
        if policies::of_failure(job, pod).counts {
            Self { counted: before.counted.saturating_add(1), ..before }
        } else {
            Self { ignored: before.ignored.saturating_add(1), ..before }
        }
    }

    /// All of them.
    pub fn total(self) -> i32 {
        self.counted.saturating_add(self.ignored)
    }
}

/// A Pod of the Job's template, without an index.
pub fn new(job: &Job) -> Pod {
    let spec = job.spec.clone().unwrap_or_default();
    let from = spec.template.metadata.unwrap_or_default();
    let mut finalizers = from.finalizers.unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", meta::name(&job.metadata))),
            namespace: job.metadata.namespace.clone(),
            labels: from.labels,
            annotations: from.annotations,
            finalizers: Some(finalizers),
            owner_references: Some(vec![meta::controller_reference(job)]),
            ..ObjectMeta::default()
        },
        spec: spec.template.spec,
        status: None,
    }
}

/// A Pod of an index. `replaced` is the failed Pod of the index whose failures go on to count.
pub fn new_indexed(job: &Job, index: i32, replaced: Option<&Pod>) -> Pod {
    let mut pod = new(job);
    let name = meta::name(&job.metadata);
    pod.metadata.generate_name = Some(generate_name(name, index));
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.to_owned(), index.to_string());
    if limit_per_index(job).is_some() {
        let failures = replaced.map(|pod| Failures::after(job, pod)).unwrap_or_default();
        annotations.insert(FAILURES.to_owned(), failures.counted.to_string());
        if failures.ignored > 0 {
            annotations.insert(IGNORED_FAILURES.to_owned(), failures.ignored.to_string());
        }
    }
    pod.metadata.labels.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{name}-{index}"));
        spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(add_variable);
    }
    pod
}

fn generate_name(job: &str, index: i32) -> String {
    let suffix = format!("-{index}-");
    let prefix: String = job.chars().take(GENERATE_NAME_LEN_MAX.saturating_sub(suffix.len())).collect();
    prefix + &suffix
}

/// A variable of that name in the template wins.
fn add_variable(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == VARIABLE) {
        return;
    }
    let field = ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), ..ObjectFieldSelector::default() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    variables.push(EnvVar { name: VARIABLE.to_owned(), value_from: Some(source), ..EnvVar::default() });
}
