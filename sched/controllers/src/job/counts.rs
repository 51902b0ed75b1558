//! What the Pods of a Job are now, and how many ended: those that the status counts, those that it has noted, and those that
//! it does not know yet.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::indexes::Indexes;
use super::{member, policies};
use crate::{meta, pods};

/// What a pass decides from.
pub struct Snapshot<'a> {
    /// The Job.
    pub job: &'a Job,
    /// Its Pods, also ended ones and those that are being deleted.
    pub pods: &'a [Arc<Pod>],
    /// UIDs of Pods whose finalizer was removed, which the cache does not show yet.
    pub untracked: &'a HashSet<String>,
    /// Whether the cache shows all Pods that were created and deleted.
    pub settled: bool,
    /// The time.
    pub now: Timestamp,
}

impl Snapshot<'_> {
    /// The Job's status; empty before the first one is written.
    pub fn status(&self) -> JobStatus {
        self.job.status.clone().unwrap_or_default()
    }

    /// Whether the status does not count the Pod yet.
    pub fn is_tracked(&self, pod: &Pod) -> bool {
        member::is_tracked(pod) && !self.untracked.contains(meta::uid(&pod.metadata))
    }

    /// Whether the end of a Pod counts: Pods of an indexed Job without a valid index do not.
    pub fn is_valid(&self, pod: &Pod) -> bool {
        !member::is_indexed(self.job) || member::valid_index(self.job, pod).is_some()
    }
}

/// The counts of a Job's Pods.
#[derive(Debug, Default)]
pub struct Counts {
    /// Pods that have not ended and are not being deleted.
    pub active: Vec<Arc<Pod>>,
    /// How many of them are ready.
    pub ready: i32,
    /// Pods that are being deleted and have not ended.
    pub terminating: i32,
    /// Succeeded Pods, or succeeded indexes.
    pub succeeded: i32,
    /// Failed Pods that count towards the limit.
    pub failed: i32,
    /// The succeeded indexes in the status.
    pub stored_indexes: Indexes,
    /// All succeeded indexes.
    pub succeeded_indexes: Indexes,
    /// The failed indexes, if each index has a limit.
    pub failed_indexes: Option<Indexes>,
    /// Failed Pods that keep their finalizer until a Pod that continues to count their failures replaces them, by index.
    pub to_replace: BTreeMap<i32, Arc<Pod>>,
}

/// The UIDs that the status has noted and not counted yet: of succeeded and of failed Pods.
pub fn noted(status: &JobStatus) -> (HashSet<&str>, HashSet<&str>) {
    fn set(uids: Option<&Vec<String>>) -> HashSet<&str> {
        uids.into_iter().flatten().map(String::as_str).collect()
    }
    let noted = status.uncounted_terminated_pods.as_ref();
    (set(noted.and_then(|noted| noted.succeeded.as_ref())), set(noted.and_then(|noted| noted.failed.as_ref())))
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Counts the Pods.
pub fn counts(snapshot: &Snapshot<'_>) -> Counts {
    let (job, status) = (snapshot.job, snapshot.status());
    let (noted_succeeded, noted_failed) = noted(&status);
    let uncounted = |pod: &&Arc<Pod>, noted: &HashSet<&str>| {
        snapshot.is_tracked(pod) && snapshot.is_valid(pod) && !noted.contains(meta::uid(&pod.metadata))
    };
    let succeeded = snapshot.pods.iter().filter(|pod| pods::phase(pod) == "Succeeded" && uncounted(pod, &noted_succeeded)).count();
    let failed = snapshot.pods.iter().filter(|pod| member::is_failed(job, pod) && uncounted(pod, &noted_failed));
    let failed = failed.filter(|pod| policies::of_failure(job, pod).counts).count();
    let active: Vec<_> = snapshot.pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
    let mut counts = Counts {
        ready: number(active.iter().filter(|pod| pods::is_ready(pod)).count()),
        terminating: number(snapshot.pods.iter().filter(|pod| pods::is_terminating(pod)).count()),
        succeeded: status.succeeded.unwrap_or(0).saturating_add(number(succeeded + noted_succeeded.len())),
        failed: status.failed.unwrap_or(0).saturating_add(number(failed + noted_failed.len())),
        active,
        ..Counts::default()
    };
    if member::is_indexed(job) {
        counts.count_indexes(snapshot, &status);
    }
    counts
}

impl Counts {
    fn count_indexes(&mut self, snapshot: &Snapshot<'_>, status: &JobStatus) {
        let job = snapshot.job;
        let completions = job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or(0);
        let tracked = || snapshot.pods.iter().filter(|pod| snapshot.is_tracked(pod));
        self.stored_indexes = Indexes::parse(status.completed_indexes.as_deref().unwrap_or_default(), completions);
        let succeeded = tracked().filter(|pod| pods::phase(pod) == "Succeeded");
        self.succeeded_indexes = self.stored_indexes.with(succeeded.filter_map(|pod| member::valid_index(job, pod)));
        self.succeeded = self.succeeded_indexes.total();
        let Some(limit) = member::limit_per_index(job) else { return };
        let is_past_limit = |pod: &Pod| {
            let verdict = policies::of_failure(job, pod);
            verdict.fails_index || (verdict.counts && member::Failures::before(pod).counted >= limit)
        };
        let failed = || tracked().filter(|pod| member::is_failed(job, pod));
        let past = failed().filter(|pod| is_past_limit(pod)).filter_map(|pod| member::valid_index(job, pod));
        let failed_indexes = Indexes::parse(status.failed_indexes.as_deref().unwrap_or_default(), completions).with(past);
        // The Pods that replaced the others have the count of their failures already.
        let active: HashSet<i32> = self.active.iter().filter_map(|pod| member::valid_index(job, pod)).collect();
        for pod in failed() {
            let Some(index) = member::valid_index(job, pod) else { continue };
            if active.contains(&index) || failed_indexes.contains(index) || self.succeeded_indexes.contains(index) {
                continue;
            }
            let latest = self.to_replace.entry(index).or_insert_with(|| Arc::clone(pod));
            if member::Failures::before(latest).total() <= member::Failures::before(pod).total() {
                *latest = Arc::clone(pod);
            }
        }
        self.failed_indexes = Some(failed_indexes);
    }
}
