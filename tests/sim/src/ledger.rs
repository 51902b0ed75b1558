//! What runs on the machines, whatever the API server has: a Pod runs from its start until its machine has ended it or has
//! lost its power.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::history::History;

/// A Pod that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// Namespace and name.
    pub pod: String,
    pub node: String,
    /// What it requests, in thousandths of a core.
    pub cpu: i64,
}

/// All Pods that run, by UID.
pub struct Ledger {
    running: Mutex<BTreeMap<String, Running>>,
    history: Arc<History>,
}

impl Ledger {
    pub fn new(history: Arc<History>) -> Arc<Self> {
        Arc::new(Self { running: Mutex::default(), history })
    }

    /// Starts a Pod if the machine has room for it. Two Pods of one name must not run at one time: their volumes and their place
    /// in a StatefulSet are the same.
    pub fn start(&self, uid: &str, pod: &Running, capacity: i64) -> bool {
        let mut running = self.running.lock();
        let used: i64 = running.values().filter(|other| other.node == pod.node).map(|other| other.cpu).sum();
        if used + pod.cpu > capacity {
            self.history.note(&format!("  {} rejects {}: out of CPU", pod.node, pod.pod));
            return false;
        }
        let twin = running.iter().find(|(other, twin)| *other != uid && twin.pod == pod.pod);
        if let Some((other, twin)) = twin {
            self.history.violate(format!("{} runs twice: {uid} on {}, {other} on {}", pod.pod, pod.node, twin.node));
        }
        self.history.note(&format!("  {} runs {}", pod.node, pod.pod));
        running.insert(uid.to_owned(), pod.clone());
        true
    }

    pub fn end(&self, uid: &str) {
        if let Some(ended) = self.running.lock().remove(uid) {
            self.history.note(&format!("  {} ended {}", ended.node, ended.pod));
        }
    }

    /// The machine has lost its power.
    pub fn end_all(&self, node: &str) {
        self.running.lock().retain(|_, pod| pod.node != node);
    }

    /// What runs, by UID.
    pub fn running(&self) -> BTreeMap<String, Running> {
        self.running.lock().clone()
    }
}
