mod preemption;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::bind::{BindingResult, Writer};
use crate::config::KubeSchedulerConfiguration;
use crate::default_spread::DefaultSpread;
use crate::plugins::Handle;
use crate::run::WRITES_IN_FLIGHT_MAX;

/// A scheduler and the results of its writes.
struct Run {
    scheduler: Scheduler,
    results: mpsc::Receiver<Finished>,
}

impl Run {
    /// With nodes of so many cores.
    fn new(nodes: &[(&str, usize)]) -> Self {
        let silent = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        Self::of(kube::Client::try_from(silent).expect("a client"), nodes)
    }

    fn of(client: kube::Client, nodes: &[(&str, usize)]) -> Self {
        let (finished, results) = mpsc::channel(10_000);
        let (handle, writer) = (Handle::detached(client.clone()), Writer { client, recorders: Arc::default() });
        let scheduler = Scheduler::new(&KubeSchedulerConfiguration::default(), None, DefaultSpread::default(), writer, finished, &handle);
        let mut run = Self { scheduler, results };
        nodes.iter().for_each(|(name, cores)| run.node(name, *cores));
        run
    }

    fn node(&mut self, name: &str, cores: usize) {
        let status = json!({"allocatable": {"cpu": cores.to_string(), "memory": "8Gi", "pods": "10000"}});
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).expect("a Node");
        self.scheduler.node_changed(&ObjectKey::new("", name), Some(&node));
    }

    fn group(&mut self, name: &str, policy: &Value) {
        let spec = json!({"schedulingPolicy": policy});
        let group: PodGroup =
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}))
                .expect("a group");
        self.scheduler.group_changed(&ObjectKey::new("default", name), Some(&group));
    }

    fn gang(&mut self, name: &str, min_count: usize) {
        self.group(name, &json!({"gang": {"minCount": min_count}}));
    }

    /// A Pod of that group that requests a core.
    fn pod(&mut self, group: &str, name: &str) {
        self.pod_with(group, name, &json!({}));
    }

    fn pod_with(&mut self, group: &str, name: &str, more: &Value) {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
        let mut spec = json!({"schedulerName": "default-scheduler", "containers": [container], "schedulingGroup": {"podGroupName": group}});
        crate::plugins::fixtures::merge(&mut spec, more.clone());
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})).expect("a Pod");
        self.scheduler.pod_changed(&ObjectKey::new("default", name), Some(&pod));
    }

    fn pods(&mut self, group: &str, numbers: std::ops::Range<usize>) {
        numbers.for_each(|number| self.pod(group, &format!("{group}{number}")));
    }

    fn gone(&mut self, name: &str) {
        self.scheduler.pod_changed(&ObjectKey::new("default", name), None);
    }

    /// Runs cycles until there is nothing to do.
    fn cycles(&mut self) {
        self.scheduler.queue.flush(Instant::now());
        while self.scheduler.has_work() {
            self.scheduler.schedule_one();
        }
    }

    /// Waits for the writes of the status of Pods, and handles them. A binding has no result.
    async fn written(&mut self) {
        while self.scheduler.writes.join_next().await.is_some() {}
        while let Ok(finished) = self.results.try_recv() {
            match finished {
                Finished::GangStatus(pods) => pods.into_iter().for_each(|(pod, next)| self.scheduler.status_written(&pod, next)),
                Finished::GangPreemption(ended) => self.scheduler.gang_preemption_finished(ended),
                Finished::Status(pod, next) => self.scheduler.status_written(&pod, next),
                _ => {}
            }
        }
    }

    async fn run(&mut self) {
        self.cycles();
        self.written().await;
    }

    async fn run_after(&mut self, time: Duration) {
        tokio::time::advance(time).await;
        self.run().await;
    }

    fn placed(&self, group: &str) -> usize {
        self.scheduler.cache.scheduled_in(&format!("default/{group}"))
    }
}

const BACKOFF: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn a_gang_is_placed_as_a_whole_or_not_at_all() {
    let mut run = Run::new(&[("n", 2)]);
    run.pods("g", 0..2);
    run.gang("g", 3);
    assert!(!run.scheduler.has_work(), "a Pod is missing");
    run.pods("g", 2..3);
    run.run().await;
    assert_eq!((run.placed("g"), run.scheduler.queue.counts()), (0, [0, 0, 3]));
    run.run_after(BACKOFF).await;
    assert_eq!(run.scheduler.queue.counts(), [0, 0, 3], "nothing happened");
    run.node("m", 1);
    run.run().await;
    assert_eq!((run.placed("g"), run.scheduler.queue.counts()), (3, [0, 0, 0]));
}

#[tokio::test(start_paused = true)]
async fn of_two_gangs_one_is_placed_and_the_other_one_leaves_no_trace() {
    let mut run = Run::new(&[("n", 3)]);
    run.gang("a", 2);
    run.gang("b", 2);
    for number in 0..2 {
        ["a", "b"].iter().for_each(|group| run.pod(group, &format!("{group}{number}")));
    }
    run.run().await;
    assert_eq!((run.placed("a"), run.placed("b")), (2, 0));
    // The room that is left goes to others meanwhile.
    run.group("single", &json!({"basic": {}}));
    run.pod("single", "s");
    run.run().await;
    assert_eq!((run.placed("single"), run.placed("b")), (1, 0));
    run.gone("a0");
    run.gone("a1");
    run.run_after(BACKOFF).await;
    assert_eq!(run.placed("b"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_misses_its_group_waits_for_it() {
    let mut run = Run::new(&[("n", 4)]);
    run.pods("g", 0..2);
    assert!(!run.scheduler.has_work());
    run.gang("g", 2);
    run.scheduler.group_changed(&ObjectKey::new("default", "g"), None);
    run.run().await;
    assert_eq!((run.placed("g"), run.scheduler.queue.counts()), (0, [0, 0, 0]), "the group was deleted before its cycle");
    run.gone("g0");
    run.group("g", &json!({"basic": {}}));
    run.run().await;
    assert_eq!(run.placed("g"), 1);
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_bound_already_count() {
    let mut run = Run::new(&[("n", 3)]);
    // As a scheduler finds it that begins after another one was killed.
    run.pod_with("g", "g0", &json!({"nodeName": "n"}));
    run.pod_with("g", "g1", &json!({"nodeName": "n"}));
    run.pods("g", 2..3);
    run.gang("g", 3);
    run.run().await;
    assert_eq!(run.placed("g"), 3);
    run.gone("g1");
    assert_eq!(run.placed("g"), 2);
    run.pods("g", 3..4);
    run.run().await;
    assert_eq!(run.placed("g"), 3, "a replacement");
}

#[tokio::test(start_paused = true)]
async fn pods_beyond_the_gang_go_alone() {
    let mut run = Run::new(&[("n", 4)]);
    run.pods("g", 0..6);
    run.gang("g", 2);
    run.run().await;
    assert_eq!((run.placed("g"), run.scheduler.queue.counts()), (4, [0, 0, 2]));
    run.node("m", 1);
    run.run_after(BACKOFF).await;
    assert_eq!(run.placed("g"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_needs_fewer_pods_is_tried_again() {
    let mut run = Run::new(&[("n", 2)]);
    run.gang("g", 3);
    run.pods("g", 0..3);
    run.run().await;
    run.gang("g", 4);
    run.run_after(BACKOFF).await;
    assert_eq!((run.placed("g"), run.scheduler.queue.counts()), (0, [0, 0, 3]));
    run.gang("g", 2);
    run.run().await;
    assert_eq!(run.placed("g"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_new_pod_does_not_try_the_gang_before_its_back_off_ends() {
    let mut run = Run::new(&[("n", 2)]);
    run.gang("g", 3);
    run.pods("g", 0..3);
    run.run().await;
    run.node("m", 9);
    run.pods("g", 3..4);
    run.run().await;
    assert_eq!((run.placed("g"), run.scheduler.queue.counts()), (0, [0, 2, 2]), "the one that did not fit, and the new one");
    run.run_after(Duration::from_secs(1)).await;
    assert_eq!(run.placed("g"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_gang_is_not_judged_by_a_part_of_its_pods() {
    let mut run = Run::new(&[("n", 2)]);
    run.gang("g", 3);
    run.pods("g", 0..3);
    run.cycles();
    assert_eq!(run.scheduler.queue.counts(), [0, 0, 0], "their status is being written");
    run.node("m", 9);
    tokio::time::advance(BACKOFF).await;
    run.pods("g", 3..4);
    run.cycles();
    assert_eq!((run.placed("g"), run.scheduler.queue.counts()), (0, [0, 1, 0]));
    run.written().await;
    run.run_after(BACKOFF).await;
    assert_eq!(run.placed("g"), 4);
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_priorities_or_schedulers_fail_the_attempt() {
    for more in [json!({"priority": 7}), json!({"schedulerName": "other"})] {
        let mut run = Run::new(&[("n", 4)]);
        run.gang("g", 2);
        run.pod("g", "g0");
        run.pod_with("g", "g1", &more);
        run.run().await;
        assert_eq!(run.placed("g"), 0, "{more}");
    }
}

/// The cycle of a large gang takes several turns of the loop, in which Pods come and go.
#[tokio::test(start_paused = true)]
async fn a_large_gang_is_tried_in_turns() {
    let (count, mut run) = (MEMBERS_PER_STEP * 3, Run::new(&[("n", MEMBERS_PER_STEP * 3)]));
    run.gang("g", count);
    run.pods("g", 0..count);
    run.scheduler.schedule_one();
    assert_eq!((run.placed("g"), run.scheduler.bindings.len() + run.scheduler.writes.len()), (MEMBERS_PER_STEP, 0));
    run.gone("g0");
    run.run().await;
    assert_eq!(run.placed("g"), 0, "a Pod that was assumed is gone");
    run.pod("g", "g0");
    run.run_after(BACKOFF).await;
    assert_eq!(run.placed("g"), count);

    let mut run = Run::new(&[("n", count)]);
    run.gang("g", count);
    run.pods("g", 0..count);
    run.scheduler.schedule_one();
    run.scheduler.group_changed(&ObjectKey::new("default", "g"), None);
    run.run().await;
    assert_eq!((run.placed("g"), run.scheduler.queue.counts()), (0, [0, 0, 0]), "the group is gone");
}

#[tokio::test(start_paused = true)]
async fn a_gang_that_is_out_of_reach_costs_nothing() {
    let mut run = Run::new(&[("n", 4)]);
    run.gang("g", 1_000_000);
    run.pods("g", 0..1_000);
    assert!(!run.scheduler.has_work());
    run.group("single", &json!({"basic": {}}));
    run.pod("single", "s");
    run.run().await;
    assert_eq!(run.placed("single"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_bindings_of_a_large_gang_take_turns() {
    let count = WRITES_IN_FLIGHT_MAX * 2 + 5;
    let mut run = Run::new(&[("n", count)]);
    run.gang("g", count);
    run.pods("g", 0..count);
    run.cycles();
    assert_eq!(run.placed("g"), count);
    let in_flight = |run: &Run| (run.scheduler.writes.len(), run.scheduler.bindings.len());
    // One write says that the group is scheduled.
    assert_eq!(in_flight(&run), (WRITES_IN_FLIGHT_MAX, count + 1 - WRITES_IN_FLIGHT_MAX));
    run.gone(&format!("g{}", count - 1));
    let mut bound = 0;
    while run.scheduler.writes.join_next().await.is_some() {
        run.scheduler.begin_bindings();
        assert!(run.scheduler.writes.len() <= WRITES_IN_FLIGHT_MAX);
    }
    while let Ok(finished) = run.results.try_recv() {
        bound += usize::from(matches!(finished, Finished::Binding(_, BindingResult::Failed(_))));
    }
    assert_eq!(bound, count - 1, "a Pod that is gone is not bound");
}

/// Pods, nodes and groups come and go. No cycle leaves a gang with a part of its Pods, and in the end all gangs are placed that exist.
#[tokio::test(start_paused = true)]
async fn whatever_comes_and_goes_no_gang_gets_a_part_of_its_pods() {
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut run, groups) = (Run::new(&[("n0", 3)]), ["a", "b", "c"]);
    let mut min_counts = std::collections::BTreeMap::new();
    let (mut placements, mut refusals) = (0, 0);
    for _ in 0..600 {
        let group = groups[usize::try_from(random(3)).expect("small")];
        match random(12) {
            0..6 => run.pod(group, &format!("{group}{}", random(6))),
            6..8 => run.gone(&format!("{group}{}", random(6))),
            8 => {
                let min_count = usize::try_from(random(4) + 1).expect("small");
                run.gang(group, min_count);
                min_counts.insert(group, min_count);
            }
            9 if random(3) == 0 => {
                run.scheduler.group_changed(&ObjectKey::new("default", group), None);
                min_counts.remove(group);
            }
            10 => run.node(&format!("n{}", random(3)), usize::try_from(random(4)).expect("small")),
            _ => tokio::time::advance(Duration::from_secs(random(20))).await,
        }
        let before = groups.map(|group| run.scheduler.cache.scheduled_in(&format!("default/{group}")));
        run.run().await;
        assert!(run.scheduler.gang_cycle.is_none() && run.scheduler.bindings.is_empty());
        for (group, before) in groups.iter().zip(before) {
            let (placed, min_count) = (run.placed(group), min_counts.get(group).copied().unwrap_or(usize::MAX));
            assert!(placed == before || placed >= min_count, "{group}: {placed} Pods are on nodes, and {before} were before");
            placements += placed.saturating_sub(before);
        }
        refusals += usize::from(run.scheduler.queue.counts()[2] > 0);
    }
    assert!(placements > 30 && refusals > 100, "{placements} placements, {refusals} refusals: both happen");
    for group in groups {
        run.gang(group, 6);
        run.pods(group, 0..6);
    }
    run.node("large", 18);
    for _ in 0..5 {
        run.run_after(Duration::from_secs(600)).await;
    }
    assert_eq!(groups.map(|group| run.placed(group)), [6; 3]);
}
