use serde_json::json;

use super::*;
use crate::plugins::fixtures::pod;

const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

fn queued(name: &str, priority: i32) -> Arc<PodInfo> {
    Arc::new(pod(name, json!({"priority": priority})))
}

fn pop(queue: &mut SchedulingQueue) -> Option<Arc<PodInfo>> {
    queue.pop(api_clock::now())
}

fn popped(queue: &mut SchedulingQueue) -> Vec<String> {
    std::iter::from_fn(|| pop(queue)).map(|pod| pod.name.clone()).collect()
}

fn update(queue: &mut SchedulingQueue, pod: Arc<PodInfo>) {
    queue.update(pod, Instant::now());
}

fn unschedulable(queue: &mut SchedulingQueue, uid: &str, events: &[ClusterEvent]) {
    let tried = Arc::clone(queue.pod(uid).expect("in the queue"));
    let rejectors = Rejectors { events: events.iter().copied().collect(), ..Rejectors::default() };
    queue.add_unschedulable_if_not_present(&tried, rejectors, Instant::now(), &NamespaceLabels::default());
}

fn happens(queue: &mut SchedulingQueue, event: ClusterEvent) {
    queue.move_all_to_active_or_backoff(Occurrence::new(event), Instant::now(), &NamespaceLabels::default());
}

#[tokio::test(start_paused = true)]
async fn higher_priority_goes_first_and_then_the_earlier() {
    let mut queue = SchedulingQueue::default();
    for (name, priority) in [("a", 0), ("b", 0), ("c", 10), ("d", -1)] {
        update(&mut queue, queued(name, priority));
    }
    assert_eq!(popped(&mut queue), ["c", "a", "b", "d"]);
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_pod_is_active_after_an_event_that_helps_it_and_its_back_off() {
    let mut queue = SchedulingQueue::default();
    update(&mut queue, queued("a", 0));
    pop(&mut queue).expect("active");
    unschedulable(&mut queue, "a", &[ClusterEvent::AssignedPodDelete]);
    happens(&mut queue, ClusterEvent::UpdateNodeLabel);
    assert_eq!(queue.next_flush(), Some(Instant::now() + UNSCHEDULABLE_MAX));
    happens(&mut queue, ClusterEvent::AssignedPodDelete);
    assert!(!queue.has_active());
    tokio::time::advance(BACKOFF_MIN).await;
    queue.flush(Instant::now());
    assert_eq!(popped(&mut queue), ["a"]);
    unschedulable(&mut queue, "a", &[ClusterEvent::AssignedPodDelete]);
    tokio::time::advance(BACKOFF_MAX).await;
    happens(&mut queue, ClusterEvent::AssignedPodDelete);
    assert_eq!(popped(&mut queue), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_pod_is_tried_again_after_five_minutes_or_when_it_changes() {
    let mut queue = SchedulingQueue::default();
    update(&mut queue, queued("a", 0));
    pop(&mut queue).expect("active");
    unschedulable(&mut queue, "a", &[]);
    update(&mut queue, queued("a", 0));
    assert!(!queue.has_active(), "no field changed that its placement depends on");
    update(&mut queue, queued("a", 5));
    assert!(!queue.has_active(), "its back-off lasts");
    tokio::time::advance(BACKOFF_MIN).await;
    queue.flush(Instant::now());
    assert_eq!(popped(&mut queue), ["a"]);
    unschedulable(&mut queue, "a", &[]);
    tokio::time::advance(UNSCHEDULABLE_MAX).await;
    queue.flush(Instant::now());
    assert_eq!(popped(&mut queue), ["a"]);
}

#[test]
fn back_off_doubles_up_to_ten_seconds() {
    let seconds: Vec<u64> = (1..=6).map(|n| backoff(n, PodBackoff::default()).as_secs()).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_leaves_every_stage() {
    let mut queue = SchedulingQueue::default();
    update(&mut queue, queued("a", 0));
    update(&mut queue, queued("b", 0));
    pop(&mut queue).expect("active");
    queue.move_to_backoff("a", Instant::now());
    queue.delete("a");
    queue.delete("b");
    assert!(!queue.contains("a") && !queue.has_active() && queue.next_flush().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_change_while_the_pod_was_in_flight_helps_it_too() {
    for (event, helps) in [(ClusterEvent::AssignedPodDelete, true), (ClusterEvent::NodeAdd, false)] {
        let mut queue = SchedulingQueue::default();
        happens(&mut queue, ClusterEvent::AssignedPodDelete);
        update(&mut queue, queued("a", 0));
        pop(&mut queue).expect("active");
        happens(&mut queue, event);
        unschedulable(&mut queue, "a", &[ClusterEvent::AssignedPodDelete]);
        tokio::time::advance(BACKOFF_MIN).await;
        queue.flush(Instant::now());
        assert_eq!(queue.has_active(), helps, "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_fit_goes_behind_those_that_came_before_its_attempt() {
    let mut queue = SchedulingQueue::default();
    let created = |name: &str, at: Timestamp| Arc::new(PodInfo { created: Some(at), ..pod(name, json!({})) });
    let start = api_clock::now();
    let second = jiff::SignedDuration::from_secs(1);
    update(&mut queue, created("old", start));
    queue.pop(start + second * 2).expect("active");
    unschedulable(&mut queue, "old", &[ClusterEvent::AssignedPodDelete]);
    update(&mut queue, created("new", start + second));
    tokio::time::advance(BACKOFF_MIN).await;
    happens(&mut queue, ClusterEvent::AssignedPodDelete);
    assert_eq!(popped(&mut queue), ["new", "old"]);
}

#[tokio::test(start_paused = true)]
async fn what_moves_pods_is_counted() {
    let (mut queue, tried) = (SchedulingQueue::default(), Arc::new(pod("a", json!({"schedulerName": "default-scheduler"}))));
    let rejected = |queue: &mut SchedulingQueue| {
        let rejectors = Rejectors { plugins: ["NodeAffinity", "NodeResourcesFit"].into(), events: [ClusterEvent::NodeAdd].into() };
        queue.add_unschedulable_if_not_present(&tried, rejectors, Instant::now(), &NamespaceLabels::default());
    };
    let unschedulable = |number: usize| {
        ["NodeAffinity", "NodeResourcesFit"]
            .map(|plugin| format!("scheduler_unschedulable_pods{{plugin=\"{plugin}\",profile=\"default-scheduler\"}} {number}"))
    };
    let first = api_clock::now();
    update(&mut queue, Arc::clone(&tried));
    queue.pop(first).expect("active");
    rejected(&mut queue);
    assert_eq!(metrics::lines("scheduler_unschedulable_pods"), unschedulable(1));
    happens(&mut queue, ClusterEvent::NodeAdd);
    tokio::time::advance(BACKOFF_MIN).await;
    queue.flush(Instant::now());
    assert_eq!(metrics::lines("scheduler_unschedulable_pods"), unschedulable(1), "until the next attempt");
    pop(&mut queue).expect("active");
    assert_eq!(queue.attempts("a"), Some((2, first)));
    assert_eq!(metrics::lines("scheduler_unschedulable_pods"), unschedulable(1), "the attempt has not ended");
    queue.move_to_backoff("a", Instant::now());
    assert_eq!(metrics::lines("scheduler_unschedulable_pods"), unschedulable(0), "it ended otherwise");
    tokio::time::advance(BACKOFF_MAX).await;
    queue.flush(Instant::now());
    pop(&mut queue).expect("active");
    rejected(&mut queue);
    tokio::time::advance(UNSCHEDULABLE_MAX).await;
    queue.flush(Instant::now());
    pop(&mut queue).expect("active");
    rejected(&mut queue);
    queue.delete("a");
    assert_eq!(metrics::lines("scheduler_unschedulable_pods"), unschedulable(0), "the Pod is gone");
    let incoming = |queue: &str, event: &str, number: usize| {
        format!("scheduler_queue_incoming_pods_total{{event=\"{event}\",queue=\"{queue}\"}} {number}")
    };
    assert_eq!(
        metrics::lines("scheduler_queue_incoming_pods_total"),
        [
            incoming("active", "BackoffComplete", 2),
            incoming("active", "UnschedulablePodAdd", 1),
            incoming("active", "UnschedulableTimeout", 1),
            incoming("backoff", "NodeAdd", 1),
            incoming("backoff", "ScheduleAttemptFailure", 1),
            incoming("unschedulable", "ScheduleAttemptFailure", 3),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_an_event_helped_meanwhile_was_still_ruled_out() {
    let mut queue = SchedulingQueue::default();
    update(&mut queue, queued("a", 0));
    let tried = pop(&mut queue).expect("active");
    happens(&mut queue, ClusterEvent::NodeAdd);
    let rejectors = Rejectors { plugins: ["NodeAffinity"].into(), events: [ClusterEvent::NodeAdd].into() };
    queue.add_unschedulable_if_not_present(&tried, rejectors, Instant::now(), &NamespaceLabels::default());
    assert_eq!(queue.counts(), [0, 1, 0]);
    assert_eq!(metrics::lines("scheduler_unschedulable_pods"), ["scheduler_unschedulable_pods{plugin=\"NodeAffinity\",profile=\"\"} 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_result_changes_nothing_of_a_pod_that_came_back() {
    let mut queue = SchedulingQueue::default();
    update(&mut queue, queued("a", 0));
    pop(&mut queue).expect("active");
    queue.delete("a");
    update(&mut queue, queued("a", 0));
    queue.move_to_backoff("a", Instant::now());
    assert_eq!((queue.counts(), queue.next_flush()), ([1, 0, 0], None));
}

#[test]
fn an_attempt_that_was_not_made_is_not_the_first() {
    let (mut queue, first) = (SchedulingQueue::default(), api_clock::now());
    update(&mut queue, queued("a", 0));
    queue.pop(first).expect("active");
    queue.put_back("a");
    let second = first + jiff::SignedDuration::from_secs(1);
    queue.pop(second).expect("active");
    assert_eq!(queue.attempts("a"), Some((1, second)));
}
