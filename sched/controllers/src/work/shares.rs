//! Shares of the workers by flow: a pass that waits for a server of one user, or for one node, must not keep all other passes waiting.

use std::collections::{HashMap, VecDeque};

use tokio::task::Id;

use super::Key;

/// The passes that run, and the keys that wait for the end of another pass of their flow. Each key is in it at most once, so
/// the number of objects bounds it.
pub struct Shares<K> {
    /// Passes of one flow at the same time.
    most: usize,
    flows: HashMap<String, Share<K>>,
    running: HashMap<Id, String>,
}

struct Share<K> {
    running: usize,
    waiting: VecDeque<K>,
}

impl<K: Key> Shares<K> {
    /// At most `most` passes of one flow run at the same time.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), flows: HashMap::new(), running: HashMap::new() }
    }

    /// Returns the key if its pass may begin now. If not, a later [`Shares::leave`] returns it.
    pub fn enter(&mut self, flow: Option<&str>, key: K) -> Option<K> {
        let Some(flow) = flow else { return Some(key) };
        let share = self.flows.entry(flow.to_owned()).or_insert(Share { running: 0, waiting: VecDeque::new() });
        if share.running >= self.most {
            share.waiting.push_back(key);
            return None;
        }
        share.running += 1;
        Some(key)
    }

    /// The pass of a key begins as this task.
    pub fn begin(&mut self, flow: Option<&str>, task: Id) {
        self.running.extend(flow.map(|flow| (task, flow.to_owned())));
    }

    /// A task ended. Returns the next key of its flow, whose pass begins now.
    pub fn leave(&mut self, task: Id) -> Option<K> {
        let flow = self.running.remove(&task)?;
        let share = self.flows.get_mut(&flow)?;
        if let Some(next) = share.waiting.pop_front() {
            return Some(next);
        }
        share.running = share.running.saturating_sub(1);
        if share.running == 0 {
            self.flows.remove(&flow);
        }
        None
    }
}
