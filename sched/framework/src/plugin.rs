//! The extension points. A plugin is one type in one file that implements those it needs.

use std::any::Any;
use std::collections::HashMap;

use crate::{NodeInfo, PodInfo, Snapshot, Verdict};

/// The best normalized score.
pub const SCORE_MAX: i64 = 100;

/// A change that may make a Pod fit which did not: upstream's queueing hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterEvent {
    /// A node appeared.
    NodeAdded,
    /// A node's labels changed.
    NodeLabels,
    /// A node's taints or `unschedulable` changed.
    NodeTaints,
    /// A node's allocatable resources changed.
    NodeAllocatable,
    /// A placed Pod ended, was deleted, or asks for less.
    PodGone,
}

/// What a plugin worked out for one Pod before the nodes are looked at, by plugin name.
#[derive(Default)]
pub struct CycleState {
    values: HashMap<&'static str, Box<dyn Any + Send + Sync>>,
}

impl CycleState {
    /// Keeps a value for the rest of the cycle.
    pub fn put<T: Any + Send + Sync>(&mut self, plugin: &'static str, value: T) {
        self.values.insert(plugin, Box::new(value));
    }

    /// The value that the plugin kept.
    pub fn get<T: Any>(&self, plugin: &'static str) -> Option<&T> {
        self.values.get(plugin)?.downcast_ref()
    }
}

/// What every plugin has.
pub trait Plugin: Send + Sync {
    /// Upstream's name, for example `NodeResourcesFit`.
    fn name(&self) -> &'static str;
}

/// Rules nodes out.
pub trait FilterPlugin: Plugin {
    /// Works out once a cycle what [`FilterPlugin::filter`] needs. An error rules out every node.
    ///
    /// # Errors
    /// The reason shown to users.
    fn pre_filter(&self, _state: &mut CycleState, _pod: &PodInfo, _snapshot: &Snapshot) -> Result<(), String> {
        Ok(())
    }

    /// Whether the Pod may run on the node.
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Verdict;

    /// Which changes may turn a refusal of this plugin around.
    fn helped_by(&self) -> &'static [ClusterEvent];
}

/// Orders the nodes that are left.
pub trait ScorePlugin: Plugin {
    /// How much the score counts beside other plugins'.
    fn weight(&self) -> i64 {
        1
    }

    /// Whether the plugin has anything to say about the Pod; skipped otherwise.
    fn applies(&self, _pod: &PodInfo) -> bool {
        true
    }

    /// A score; from 0 to [`SCORE_MAX`] unless [`ScorePlugin::normalize`] makes it so.
    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> i64;

    /// Brings raw scores of all nodes to 0 to [`SCORE_MAX`].
    fn normalize(&self, _scores: &mut [i64]) {}
}

/// Upstream's usual normalization: the highest becomes [`SCORE_MAX`]; `reverse` turns the order.
pub fn normalize_default(scores: &mut [i64], reverse: bool) {
    let highest = scores.iter().copied().max().unwrap_or_default();
    for score in scores {
        let scaled = if highest == 0 { 0 } else { SCORE_MAX * *score / highest };
        *score = if reverse { SCORE_MAX - scaled } else { scaled };
    }
}
