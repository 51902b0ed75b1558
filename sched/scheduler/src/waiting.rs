//! The Pods of a profile that wait at permit: each is assumed on its node and not bound yet. Upstream's `waitingPods` is the model, with
//! one difference: nobody ends the wait of a Pod from outside; the plugins are called again with all waiting Pods together, when a Pod
//! is added and every [`PERMIT_PERIOD`].

use std::sync::Arc;
use std::time::Duration;

use api_model::go::duration_text;
use sched_framework::{PERMIT_WAIT_MAX, Permit, PermitCandidate, PermitPlugin, PodInfo, Snapshot};
use tokio::time::Instant;

use crate::diagnosis::rejected;

/// The time after which the plugins are called again.
const PERMIT_PERIOD: Duration = Duration::from_secs(1);

/// The highest number of Pods of a profile that wait: each call has all of them.
const WAITING_PODS_MAX: usize = 1_000;

/// A Pod at permit.
pub(crate) struct WaitingPod {
    pub pod: Arc<PodInfo>,
    /// The name of its node.
    pub node: String,
    /// The beginning of the attempt to schedule the Pod.
    pub started: Instant,
    since: Instant,
    has_waited: bool,
}

impl WaitingPod {
    /// A Pod that comes to permit.
    pub fn new(pod: Arc<PodInfo>, node: String, started: Instant) -> Self {
        Self { pod, node, started, since: Instant::now(), has_waited: false }
    }

    /// How long the Pod waited; `None` if its plugins decided at once.
    pub fn waited(&self) -> Option<Duration> {
        self.has_waited.then(|| self.since.elapsed())
    }
}

/// What became of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Permitted {
    /// It is bound.
    Allowed,
    /// It is not bound; the message says why.
    Rejected(String),
    /// A plugin failed.
    Failed(String),
}

impl Permitted {
    /// More important Pods need the room on the Pod's node.
    pub fn preempted() -> Self {
        Self::Rejected(rejected("preempted"))
    }
}

/// The Pods at permit, in the order in which they came.
#[derive(Default)]
pub(crate) struct WaitingPods {
    pods: Vec<WaitingPod>,
    checked: Option<Instant>,
}

impl WaitingPods {
    /// Adds a Pod.
    pub fn add(&mut self, pod: WaitingPod) {
        self.pods.push(pod);
    }

    /// Whether a Pod waits.
    pub fn contains(&self, uid: &str) -> bool {
        self.pods.iter().any(|waiting| waiting.pod.uid == uid)
    }

    /// Removes a Pod that is gone or rejected. Returns the Pod if it was waiting.
    pub fn take(&mut self, uid: &str) -> Option<WaitingPod> {
        let index = self.pods.iter().position(|waiting| waiting.pod.uid == uid)?;
        Some(self.pods.remove(index))
    }

    /// Whether another Pod may wait.
    pub fn has_room(&self) -> bool {
        self.pods.len() < WAITING_PODS_MAX
    }

    /// Whether no Pod waits.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// The time at which the plugins are called next, if a Pod waits.
    pub fn next_check(&self) -> Option<Instant> {
        let first = self.pods.first()?;
        Some(self.checked.unwrap_or(first.since) + PERMIT_PERIOD)
    }

    /// Calls the plugins. Returns the Pods that do not wait any more.
    pub fn decide(&mut self, plugins: &[Box<dyn PermitPlugin>], snapshot: &Snapshot, now: Instant) -> Vec<(WaitingPod, Permitted)> {
        self.checked = Some(now);
        let pods = std::mem::take(&mut self.pods);
        let (present, gone): (Vec<_>, Vec<_>) = pods.into_iter().partition(|waiting| snapshot.node(&waiting.node).is_some());
        let is_gone = |waiting: WaitingPod| {
            let message = format!("node {} is gone", waiting.node);
            (waiting, Permitted::Failed(message))
        };
        let mut decided: Vec<_> = gone.into_iter().map(is_gone).collect();
        let decisions = decisions(plugins, &present, snapshot, now);
        for (waiting, decision) in present.into_iter().zip(decisions) {
            match decision {
                Some(decision) => decided.push((waiting, decision)),
                None => self.pods.push(WaitingPod { has_waited: true, ..waiting }),
            }
        }
        decided
    }
}

/// What the plugins decide together about each Pod; `None` when it waits.
fn decisions(plugins: &[Box<dyn PermitPlugin>], pods: &[WaitingPod], snapshot: &Snapshot, now: Instant) -> Vec<Option<Permitted>> {
    let candidate = |waiting: &WaitingPod| {
        let waited = now.saturating_duration_since(waiting.since);
        Some((waiting.pod.clone(), snapshot.node(&waiting.node)?.clone(), waited))
    };
    let candidates: Vec<_> = pods.iter().filter_map(candidate).collect();
    let candidates: Vec<_> = candidates.iter().map(|(pod, node, waited)| PermitCandidate { pod, node, waited: *waited }).collect();
    let mut decided = vec![Some(Permitted::Allowed); pods.len()];
    for plugin in plugins {
        let mut answers = plugin.permit(&candidates).into_iter();
        for (decision, PermitCandidate { waited, .. }) in decided.iter_mut().zip(&candidates) {
            // Of several plugins, the first one that refuses the Pod decides, else the first one that lets it wait.
            let answer = answers.next().unwrap_or(Permit::Wait(PERMIT_WAIT_MAX));
            let is_refusal = !matches!(answer, Permit::Allow | Permit::Wait(_));
            if *decision == Some(Permitted::Allowed) || decision.is_none() && is_refusal {
                *decision = decided_by(plugin.name(), answer, *waited);
            }
        }
    }
    decided
}

fn decided_by(plugin: &str, answer: Permit, waited: Duration) -> Option<Permitted> {
    match answer {
        Permit::Allow => Some(Permitted::Allowed),
        Permit::Deny(reason) => Some(Permitted::Rejected(rejected(&reason))),
        Permit::Error(message) => Some(Permitted::Failed(message.into_owned())),
        Permit::Wait(longest) => {
            let longest = longest.min(PERMIT_WAIT_MAX);
            let message = || format!("rejected due to timeout after waiting {} at plugin {plugin}", duration_text(longest));
            (waited >= longest).then(|| Permitted::Rejected(rejected(&message())))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use sched_framework::Plugin;
    use serde_json::json;

    use super::*;
    use crate::plugins::fixtures::{labelled, node, snapshot};

    /// Allows as soon as so many Pods with the same label `group` wait.
    struct Gang(usize);

    impl Plugin for Gang {
        fn name(&self) -> &'static str {
            "Gang"
        }
    }

    impl PermitPlugin for Gang {
        fn permit(&self, candidates: &[PermitCandidate<'_>]) -> Vec<Permit> {
            let group = |candidate: &PermitCandidate<'_>| candidate.pod.labels.get("group").cloned();
            let members = |of: &PermitCandidate<'_>| candidates.iter().filter(|other| group(other) == group(of)).count();
            let answer = |one| if members(one) >= self.0 { Permit::Allow } else { Permit::Wait(Duration::from_secs(90)) };
            candidates.iter().map(answer).collect()
        }
    }

    /// Answers with what it has, and remembers nothing.
    struct Fixed(&'static str, Mutex<Vec<Permit>>);

    impl Plugin for Fixed {
        fn name(&self) -> &'static str {
            self.0
        }
    }

    impl PermitPlugin for Fixed {
        fn permit(&self, _: &[PermitCandidate<'_>]) -> Vec<Permit> {
            self.1.lock().expect("no panic").clone()
        }
    }

    fn waiting(name: &str, group: &str) -> WaitingPod {
        let pod = Arc::new(labelled(name, json!({"group": group}), json!({})));
        WaitingPod::new(pod, "n".to_owned(), Instant::now())
    }

    fn decided(waiting: &mut WaitingPods, plugins: &[Box<dyn PermitPlugin>]) -> Vec<(String, Permitted)> {
        let decided = waiting.decide(plugins, &snapshot(vec![node("n", json!({}))]), Instant::now());
        decided.into_iter().map(|(waiting, decision)| (waiting.pod.name.clone(), decision)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_goes_at_once_and_an_incomplete_one_is_rejected_after_its_time() {
        let plugins: [Box<dyn PermitPlugin>; 1] = [Box::new(Gang(2))];
        let mut pods = WaitingPods::default();
        pods.add(waiting("a1", "a"));
        assert_eq!(decided(&mut pods, &plugins), []);
        assert_eq!(pods.next_check(), Some(Instant::now() + PERMIT_PERIOD));
        pods.add(waiting("b1", "b"));
        pods.add(waiting("a2", "a"));
        let allowed = |name: &str| (name.to_owned(), Permitted::Allowed);
        assert_eq!(decided(&mut pods, &plugins), [allowed("a1"), allowed("a2")]);
        tokio::time::advance(Duration::from_secs(89)).await;
        assert_eq!(decided(&mut pods, &plugins), []);
        tokio::time::advance(Duration::from_secs(1)).await;
        let message = "0/1 nodes are available: 1 rejected due to timeout after waiting 1m30s at plugin Gang.";
        assert_eq!(decided(&mut pods, &plugins), [("b1".to_owned(), Permitted::Rejected(message.to_owned()))]);
        assert!(pods.is_empty() && pods.next_check().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_waits_from_the_first_call_that_does_not_decide() {
        let plugins: [Box<dyn PermitPlugin>; 1] = [Box::new(Gang(2))];
        let (mut pods, all) = (WaitingPods::default(), snapshot(vec![node("n", json!({}))]));
        pods.add(waiting("a", "g"));
        assert!(pods.decide(&plugins, &all, Instant::now()).is_empty());
        tokio::time::advance(Duration::from_secs(3)).await;
        pods.add(waiting("b", "g"));
        let decided = pods.decide(&plugins, &all, Instant::now());
        let waited: Vec<_> = decided.iter().map(|(pod, _)| (pod.pod.name.as_str(), pod.waited())).collect();
        assert_eq!(waited, [("a", Some(Duration::from_secs(3))), ("b", None)]);
    }

    #[tokio::test(start_paused = true)]
    async fn every_plugin_must_allow_and_the_first_refusal_counts() {
        let wait = || Permit::Wait(Duration::from_secs(3_600));
        let deny = |reason: &'static str| Permit::Deny(reason.into());
        let rejection = |reason: &str| Some(Permitted::Rejected(format!("0/1 nodes are available: 1 {reason}.")));
        for (first, second, wanted) in [
            (vec![Permit::Allow], vec![Permit::Allow], Some(Permitted::Allowed)),
            (vec![Permit::Allow], vec![wait()], None),
            (vec![wait()], vec![Permit::Allow], None),
            (vec![wait()], vec![deny("no")], rejection("no")),
            (vec![deny("no")], vec![deny("never")], rejection("no")),
            (vec![Permit::Allow], vec![Permit::Error("broken".into())], Some(Permitted::Failed("broken".to_owned()))),
            (vec![], vec![Permit::Allow], None),
        ] {
            let plugins: [Box<dyn PermitPlugin>; 2] =
                [Box::new(Fixed("First", Mutex::new(first))), Box::new(Fixed("Second", Mutex::new(second)))];
            let mut pods = WaitingPods::default();
            pods.add(waiting("p", "g"));
            assert_eq!(decided(&mut pods, &plugins).pop().map(|(_, decision)| decision), wanted);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_upstream_allows_or_on_a_node_that_is_gone() {
        let plugins: [Box<dyn PermitPlugin>; 1] = [Box::new(Fixed("Slow", Mutex::new(vec![Permit::Wait(Duration::MAX); 2])))];
        let mut pods = WaitingPods::default();
        pods.add(waiting("p", "g"));
        pods.add(WaitingPod { node: "other".to_owned(), ..waiting("q", "g") });
        assert_eq!(decided(&mut pods, &plugins), [("q".to_owned(), Permitted::Failed("node other is gone".to_owned()))]);
        tokio::time::advance(PERMIT_WAIT_MAX).await;
        let message = "0/1 nodes are available: 1 rejected due to timeout after waiting 15m0s at plugin Slow.";
        assert_eq!(decided(&mut pods, &plugins), [("p".to_owned(), Permitted::Rejected(message.to_owned()))]);
        pods.add(waiting("r", "g"));
        assert!(pods.contains("r") && pods.take("r").is_some() && pods.take("r").is_none());
        assert!(pods.is_empty());
        (0..WAITING_PODS_MAX).for_each(|n| pods.add(waiting(&n.to_string(), "g")));
        assert!(!pods.has_room());
    }
}
