//! What the run did to the cluster, for checks whose promise holds only without such an incident.

use std::collections::BTreeMap;
use std::time::Duration;

/// Until then the cluster starts, which is no incident: nobody worked before.
const START: Duration = Duration::from_secs(1);

/// The times of incidents since the run began.
#[derive(Default)]
pub struct Incidents {
    /// When a part last crashed, was cut off or came back, by the part's name.
    interruptions: BTreeMap<&'static str, Duration>,
    /// When a part was last cut off or suspended, or came back from that, by the part's name: its caches may be as old as that.
    absences: BTreeMap<&'static str, Duration>,
    /// Answers to successful creations of Pods that did not arrive.
    lost_creations: Vec<(Duration, String)>,
    /// When a node last changed its state other than by its Pods.
    nodes: Option<Duration>,
    /// When users last deleted or evicted a Pod of a namespace.
    deletions: BTreeMap<String, Duration>,
    /// The Pods that users deleted or evicted, by namespace and name.
    deleted: BTreeMap<String, Duration>,
}

impl Incidents {
    /// The scheduler or the controllers crashed, were cut off or came back.
    pub fn interrupted(&mut self, part: &'static str, now: Duration) {
        if now > START {
            self.interruptions.insert(part, now);
        }
    }

    /// The scheduler or the controllers were cut off or suspended, or came back from that.
    pub fn absent(&mut self, part: &'static str, now: Duration) {
        self.interrupted(part, now);
        self.absences.insert(part, now);
    }

    /// The answer to a creation of this kind in this namespace did not arrive.
    pub fn lost_creation(&mut self, path: &str, now: Duration) {
        self.lost_creations.push((now, path.to_owned()));
    }

    /// A node died, came back or was cut off.
    pub fn node(&mut self, now: Duration) {
        if now > START {
            self.nodes = Some(now);
        }
    }

    /// A user deletes or evicts a Pod.
    pub fn deleted(&mut self, namespace: &str, name: &str, now: Duration) {
        self.deletions.insert(namespace.to_owned(), now);
        self.deleted.insert(format!("{namespace}/{name}"), now);
    }

    /// Whether no user deleted a Pod of the namespace for this time.
    pub fn is_left_alone(&self, namespace: &str, since: Duration, now: Duration) -> bool {
        self.deletions.get(namespace).is_none_or(|at| now.saturating_sub(*at) > since)
    }

    /// Whether a user deletes a Pod at this moment.
    pub fn is_deleted_by_user(&self, namespace: &str, name: &str, now: Duration) -> bool {
        self.deleted.get(&format!("{namespace}/{name}")) == Some(&now)
    }

    /// Whether that part worked without an interruption for this time.
    pub fn is_steady(&self, part: &str, since: Duration, now: Duration) -> bool {
        self.interruptions.get(part).is_none_or(|at| now.saturating_sub(*at) > since)
    }

    /// Whether that part was neither cut off nor suspended for this time. It may have crashed: a process that starts reads everything anew.
    pub fn is_present(&self, part: &str, since: Duration, now: Duration) -> bool {
        self.absences.get(part).is_none_or(|at| now.saturating_sub(*at) > since)
    }

    /// Whether all nodes worked for this time.
    pub fn are_nodes_steady(&self, since: Duration, now: Duration) -> bool {
        self.nodes.is_none_or(|at| now.saturating_sub(at) > since)
    }

    /// The number of lost answers to creations below this path in this time.
    pub fn lost_creations(&self, path: &str, since: Duration, now: Duration) -> usize {
        self.lost_creations.iter().filter(|(at, lost)| now.saturating_sub(*at) <= since && lost == path).count()
    }
}
