//! Shares of the workers by namespace: a pass that waits for a server of one user must not keep the passes of all others waiting.

use std::collections::{HashMap, VecDeque};

use tokio::task::Id;

use super::Key;

/// The passes that run, and the keys that wait for the end of another pass of their namespace. Each key is in it at most once, so
/// the number of objects bounds it.
pub struct Shares<K> {
    /// Passes of one namespace at the same time.
    most: usize,
    namespaces: HashMap<String, Share<K>>,
    running: HashMap<Id, String>,
}

struct Share<K> {
    running: usize,
    waiting: VecDeque<K>,
}

impl<K: Key> Shares<K> {
    /// At most `most` passes of one namespace run at the same time.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), namespaces: HashMap::new(), running: HashMap::new() }
    }

    /// Returns the key if its pass may begin now. If not, a later [`Shares::leave`] returns it.
    pub fn enter(&mut self, namespace: Option<&str>, key: K) -> Option<K> {
        let Some(namespace) = namespace else { return Some(key) };
        let share = self.namespaces.entry(namespace.to_owned()).or_insert(Share { running: 0, waiting: VecDeque::new() });
        if share.running >= self.most {
            share.waiting.push_back(key);
            return None;
        }
        share.running += 1;
        Some(key)
    }

    /// The pass of a key begins as this task.
    pub fn begin(&mut self, namespace: Option<&str>, task: Id) {
        self.running.extend(namespace.map(|namespace| (task, namespace.to_owned())));
    }

    /// A task ended. Returns the next key of its namespace, whose pass begins now.
    pub fn leave(&mut self, task: Id) -> Option<K> {
        let namespace = self.running.remove(&task)?;
        let share = self.namespaces.get_mut(&namespace)?;
        if let Some(next) = share.waiting.pop_front() {
            return Some(next);
        }
        share.running = share.running.saturating_sub(1);
        if share.running == 0 {
            self.namespaces.remove(&namespace);
        }
        None
    }
}
