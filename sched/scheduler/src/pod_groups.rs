//! The PodGroups and their Pods, bound or not, as far as the queue and the cycles of gangs need them. A Pod whose group does not exist yet,
//! or has too few Pods, waits here and not in the scheduling queue: it costs nothing until the group is complete.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sched_framework::{PodGroupInfo, PodInfo};
use tokio::time::Instant;

use crate::plugins::may_enqueue;

/// The time after which it is written again that a group is scheduled, if that failed. It doubles up to 64 times as much.
const REPORT_RETRY: Duration = Duration::from_secs(5);

/// The groups by `namespace/name`. A group is here as long as it exists or has Pods.
#[derive(Default)]
pub(crate) struct PodGroups {
    groups: HashMap<Arc<str>, PodGroup>,
    /// The group of each Pod, by the Pod's UID.
    group_of: HashMap<String, Arc<str>>,
    /// The groups whose report failed, with the time of the next one.
    failed_reports: BTreeSet<(Instant, Arc<str>)>,
    /// The number of Pods that wait for their group.
    waiting: usize,
}

#[derive(Default)]
struct PodGroup {
    /// `None` while the PodGroup does not exist.
    info: Option<PodGroupInfo>,
    /// The Pods by UID, with those that wait for the others.
    pods: HashMap<String, Option<Arc<PodInfo>>>,
    /// The cycles that failed since the last one that placed enough Pods.
    failures: u32,
    /// The end of the group's back-off.
    retry_at: Option<Instant>,
    /// It is being written, or was, that the group is scheduled.
    report: Option<Report>,
}

/// A write that says that a group is scheduled.
struct Report {
    /// The condition before it.
    before: Option<Condition>,
    failures: u32,
    /// It failed, and is repeated now.
    is_due: bool,
}

impl PodGroups {
    /// Stores the new state of a PodGroup, or removes one that is gone. Its Pods remain.
    pub fn set(&mut self, key: &str, info: Option<PodGroupInfo>) {
        let key: Arc<str> = key.into();
        let group = self.groups.entry(Arc::clone(&key)).or_default();
        // A group that is created again begins anew.
        if info.as_ref().map(|info| &info.uid) != group.info.as_ref().map(|info| &info.uid) {
            (group.failures, group.retry_at, group.report) = (0, None, None);
        }
        // The PodGroup says so now, or somebody has written something else since.
        group.report.take_if(|report| info.as_ref().is_none_or(|info| info.scheduled != report.before));
        group.info = info;
        self.remove_unused(&key);
    }

    /// The PodGroup, if it exists.
    pub fn info(&self, key: &str) -> Option<&PodGroupInfo> {
        self.groups.get(key)?.info.as_ref()
    }

    /// The number of Pods that the gang needs; `None` for a group without a gang, or that is gone.
    pub fn min_count(&self, key: &str) -> Option<usize> {
        self.info(key)?.min_count
    }

    /// Adds a Pod to its group. A Pod that `waits` is returned by [`PodGroups::take_ready`] when the group is complete.
    pub fn add(&mut self, pod: &Arc<PodInfo>, waits: bool) {
        let Some(key) = &pod.pod_group else { return };
        self.group_of.insert(pod.uid.clone(), Arc::clone(key));
        let waiting = waits.then(|| Arc::clone(pod));
        let before = self.groups.entry(Arc::clone(key)).or_default().pods.insert(pod.uid.clone(), waiting);
        self.waiting += usize::from(waits);
        self.waiting -= usize::from(before.flatten().is_some());
    }

    /// The number of Pods that wait for their group, or for other Pods of it.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Removes a Pod that is gone.
    pub fn remove(&mut self, uid: &str) {
        let Some(key) = self.group_of.remove(uid) else { return };
        if let Some(group) = self.groups.get_mut(&key) {
            let before = group.pods.remove(uid);
            self.waiting -= usize::from(before.flatten().is_some());
        }
        self.remove_unused(&key);
    }

    /// Takes the Pods that wait for nothing any more.
    pub fn take_ready(&mut self, key: &str) -> Vec<Arc<PodInfo>> {
        let ready: Vec<_> = match self.groups.get_mut(key) {
            Some(group) if may_enqueue(group.info.as_ref(), group.pods.len()) => group.pods.values_mut().filter_map(Option::take).collect(),
            _ => Vec::new(),
        };
        self.waiting -= ready.len();
        ready
    }

    /// The UIDs of the Pods of a group.
    pub fn pods(&self, key: &str) -> Vec<String> {
        self.groups.get(key).map(|group| group.pods.keys().cloned().collect()).unwrap_or_default()
    }

    /// The time until which the group is not tried again.
    pub fn retry_at(&self, key: &str) -> Option<Instant> {
        self.groups.get(key)?.retry_at
    }

    /// Counts a cycle that failed. Returns how many failed in a row.
    pub fn failed(&mut self, key: &str) -> u32 {
        self.groups.get_mut(key).map_or(1, |group| {
            group.failures = group.failures.saturating_add(1);
            group.failures
        })
    }

    /// The group is not tried again until then.
    pub fn back_off(&mut self, key: &str, until: Instant) {
        if let Some(group) = self.groups.get_mut(key) {
            group.retry_at = Some(until);
        }
    }

    /// Enough Pods of the group are on nodes. Returns the PodGroup if it must be written that the group is scheduled.
    pub fn succeeded(&mut self, key: &str) -> Option<PodGroupInfo> {
        let group = self.groups.get_mut(key)?;
        (group.failures, group.retry_at) = (0, None);
        let info = group.info.as_ref().filter(|info| !info.is_scheduled())?;
        let failures = match &group.report {
            Some(report) if !report.is_due => return None,
            report => report.as_ref().map_or(0, |report| report.failures),
        };
        group.report = Some(Report { before: info.scheduled.clone(), failures, is_due: false });
        Some(info.clone())
    }

    /// It could not be written that the group is scheduled. It is written again after a while, unless the group has changed meanwhile.
    pub fn report_failed(&mut self, key: Arc<str>, now: Instant) {
        let Some(report) = self.groups.get_mut(&key).and_then(|group| group.report.as_mut()) else { return };
        let wait = REPORT_RETRY.saturating_mul(1 << report.failures.min(6));
        report.failures = report.failures.saturating_add(1);
        self.failed_reports.insert((now + wait, key));
    }

    /// The time of the first report that is repeated.
    pub fn next_report(&self) -> Option<Instant> {
        self.failed_reports.first().map(|(retry_at, _)| *retry_at)
    }

    /// Takes a group whose report may be repeated by now.
    pub fn take_failed_report(&mut self, now: Instant) -> Option<Arc<str>> {
        self.next_report().filter(|retry_at| *retry_at <= now)?;
        let (_, key) = self.failed_reports.pop_first()?;
        if let Some(report) = self.groups.get_mut(&key).and_then(|group| group.report.as_mut()) {
            report.is_due = true;
        }
        Some(key)
    }

    fn remove_unused(&mut self, key: &str) {
        if self.groups.get(key).is_some_and(|group| group.info.is_none() && group.pods.is_empty()) {
            self.groups.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use sched_framework::POD_GROUP_INITIALLY_SCHEDULED;
    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::pod;

    const KEY: &str = "default/g";

    fn gang(min_count: usize, uid: &str) -> Option<PodGroupInfo> {
        Some(PodGroupInfo {
            uid: uid.to_owned(),
            generation: None,
            min_count: Some(min_count),
            priority: 0,
            disrupts_all: false,
            scheduled: None,
        })
    }

    fn member(name: &str) -> Arc<PodInfo> {
        Arc::new(pod(name, json!({"schedulingGroup": {"podGroupName": "g"}})))
    }

    fn ready(groups: &mut PodGroups) -> Vec<String> {
        let mut names: Vec<_> = groups.take_ready(KEY).iter().map(|pod| pod.name.clone()).collect();
        names.sort();
        names
    }

    #[test]
    fn pods_wait_for_their_group_and_for_each_other_and_are_taken_once() {
        let mut groups = PodGroups::default();
        groups.add(&member("a"), true);
        assert_eq!(ready(&mut groups), [""; 0], "there is no group");
        groups.set(KEY, gang(3, "1"));
        groups.add(&member("b"), true);
        assert_eq!(ready(&mut groups), [""; 0], "a Pod is missing");
        groups.add(&member("b"), true);
        groups.add(&member("bound"), false);
        assert_eq!(groups.waiting(), 2);
        assert_eq!((ready(&mut groups), groups.waiting()), (vec!["a".to_owned(), "b".to_owned()], 0));
        assert_eq!(ready(&mut groups), [""; 0]);
        groups.remove("a");
        groups.add(&member("c"), true);
        assert_eq!(ready(&mut groups), ["c"]);
        groups.set("other/g", gang(1, "2"));
        groups.remove("b");
        groups.add(&member("e"), true);
        groups.remove("e");
        groups.add(&member("d"), true);
        assert_eq!(groups.waiting(), 1);
        groups.remove("bound");
        assert_eq!(ready(&mut groups), [""; 0], "a group of another namespace is another one");
        groups.set(KEY, gang(2, "1"));
        assert_eq!(ready(&mut groups), ["d"], "the gang needs fewer Pods");
    }

    #[test]
    fn nothing_is_left_of_groups_and_pods_that_are_gone() {
        let mut groups = PodGroups::default();
        groups.set(KEY, gang(2, "1"));
        groups.add(&member("a"), true);
        groups.set(KEY, None);
        assert_eq!(groups.pods(KEY), ["a"]);
        groups.remove("a");
        groups.remove("a");
        assert!(groups.groups.is_empty() && groups.group_of.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_backs_off() {
        let (mut groups, now) = (PodGroups::default(), Instant::now());
        let second = Duration::from_secs(1);
        groups.set(KEY, gang(2, "1"));
        assert_eq!((groups.failed(KEY), groups.failed(KEY)), (1, 2));
        groups.back_off(KEY, now + second);
        assert_eq!(groups.retry_at(KEY), Some(now + second));
        assert!(groups.succeeded(KEY).is_some());
        assert_eq!((groups.retry_at(KEY), groups.failed(KEY)), (None, 1));
        groups.back_off(KEY, now + second);
        groups.set(KEY, gang(2, "2"));
        assert_eq!((groups.retry_at(KEY), groups.failed(KEY)), (None, 1), "another group of the same name");
    }

    fn conditioned(status: &str) -> Option<PodGroupInfo> {
        let condition = json!({"type": POD_GROUP_INITIALLY_SCHEDULED, "status": status, "reason": "Scheduled", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let spec = json!({"schedulingPolicy": {"gang": {"minCount": 1}}});
        let group = json!({"metadata": {"uid": "1"}, "spec": spec, "status": {"conditions": [condition]}});
        Some(PodGroupInfo::new(&serde_json::from_value(group).expect("a PodGroup")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_that_failed_is_repeated_later_and_later() {
        let (mut groups, now) = (PodGroups::default(), Instant::now());
        groups.set(KEY, gang(2, "1"));
        assert!(groups.succeeded(KEY).is_some());
        groups.set(KEY, gang(1, "1"));
        assert!(groups.succeeded(KEY).is_none(), "its write may be under way");
        let mut at = now;
        for factor in [1, 2, 4, 8, 16, 32, 64, 64] {
            groups.report_failed(KEY.into(), at);
            assert!(groups.succeeded(KEY).is_none(), "it waits");
            assert_eq!((groups.next_report(), groups.take_failed_report(at)), (Some(at + REPORT_RETRY * factor), None));
            at += REPORT_RETRY * factor;
            assert_eq!((groups.take_failed_report(at).as_deref(), groups.next_report()), (Some(KEY), None));
            assert!(groups.succeeded(KEY).is_some());
        }
    }

    #[test]
    fn a_group_is_reported_until_it_says_that_it_is_scheduled() {
        let mut groups = PodGroups::default();
        groups.set(KEY, gang(1, "1"));
        assert!(groups.succeeded(KEY).is_some());
        groups.set(KEY, conditioned("True"));
        assert!(groups.succeeded(KEY).is_none(), "it says so");
        groups.set(KEY, gang(1, "1"));
        assert!(groups.succeeded(KEY).is_some(), "somebody took the condition away");
        groups.set(KEY, conditioned("False"));
        assert!(groups.succeeded(KEY).is_some(), "a later write says something else");
        groups.report_failed(KEY.into(), Instant::now());
        groups.set(KEY, gang(1, "2"));
        assert!(groups.succeeded(KEY).is_some(), "another group of the same name");
        groups.set(KEY, None);
        groups.report_failed(KEY.into(), Instant::now());
        assert!(groups.groups.is_empty());
    }
}
