//! Why no node is feasible for a Pod, in upstream's words.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use sched_framework::{ClusterEvent, Reason, Rejection, Status};

/// No node is feasible for a Pod. The message is upstream's `FitError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FitError {
    /// The cluster has no node.
    #[error("no nodes available to schedule pods")]
    NoNodes,
    /// Plugins ruled out all nodes.
    #[error("{}", diagnosis.message(*nodes))]
    Unschedulable { nodes: usize, diagnosis: Diagnosis },
}

impl FitError {
    /// Says why no room can be made for the Pod.
    pub fn set_post_filter(&mut self, message: String) {
        if let Self::Unschedulable { diagnosis, .. } = self {
            diagnosis.post_filter = Some(message);
        }
    }

    /// The plugins that ruled nodes out.
    pub fn rejectors(self) -> Rejectors {
        match self {
            Self::NoNodes => Rejectors { plugins: BTreeSet::new(), events: [ClusterEvent::NodeAdd].into() },
            Self::Unschedulable { diagnosis, .. } => {
                let (plugins, events): (_, Vec<_>) = diagnosis.rejectors.into_iter().unzip();
                Rejectors { plugins, events: events.into_iter().flatten().copied().collect() }
            }
        }
    }
}

/// The plugins that ruled nodes out for a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rejectors {
    /// Their names: upstream's `UnschedulablePlugins`.
    pub plugins: BTreeSet<&'static str>,
    /// The events that may make the Pod fit.
    pub events: HashSet<ClusterEvent>,
}

/// Why nodes are not feasible: upstream's `Diagnosis`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    /// The number of nodes that each reason ruled out.
    node_count: BTreeMap<Reason, usize>,
    /// The reasons of a plugin that ruled out all nodes before any was filtered: upstream's `PreFilterMsg`.
    pre_filter: Option<String>,
    /// Why no room can be made for the Pod: upstream's `PostFilterMsg`.
    pub post_filter: Option<String>,
    /// Each plugin that ruled nodes out with its events, once.
    rejectors: Vec<(&'static str, &'static [ClusterEvent])>,
    /// The indexes in the snapshot of the nodes that the Pod may fit on when other Pods leave.
    pub resolvable: Vec<usize>,
}

impl Diagnosis {
    /// Counts why the node of that index is not feasible.
    pub fn add(&mut self, index: usize, rejection: &Rejection) {
        self.resolvable.extend(rejection.status.is_resolvable().then_some(index));
        self.count_nodes(rejection, 1);
    }

    /// Counts that so many nodes are not feasible because of the rejection.
    pub fn count_nodes(&mut self, rejection: &Rejection, nodes: usize) {
        let (Status::Unschedulable(reasons) | Status::UnschedulableAndUnresolvable(reasons)) = &rejection.status else { return };
        if nodes > 0 {
            reasons.iter().for_each(|reason| self.count(reason, nodes));
            self.wait_for(rejection.plugin, rejection.events);
        }
    }

    /// The plugin ruled nodes out: the Pod waits for these events too.
    pub fn wait_for(&mut self, plugin: &'static str, events: &'static [ClusterEvent]) {
        if !self.rejectors.contains(&(plugin, events)) {
            self.rejectors.push((plugin, events));
        }
    }

    /// Says why a plugin cannot make room for the Pod. A plugin that has no part in the Pod says nothing.
    pub fn add_post_filter(&mut self, message: String) {
        self.post_filter = Some(match self.post_filter.take() {
            Some(before) if !before.is_empty() && !message.is_empty() => format!("{before}, {message}"),
            Some(before) if message.is_empty() => before,
            _ => message,
        });
    }

    /// Counts a node that was not searched because the plugins allow other nodes alone.
    pub fn add_unsearched(&mut self, plugins: &[&'static str]) {
        self.count(&format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" ")).into(), 1);
        plugins.iter().for_each(|plugin| self.wait_for(plugin, &[ClusterEvent::NodeAdd, ClusterEvent::UpdateNodeLabel]));
    }

    fn count(&mut self, reason: &Reason, nodes: usize) {
        match self.node_count.get_mut(reason) {
            Some(count) => *count += nodes,
            None => drop(self.node_count.insert(reason.clone(), nodes)),
        }
    }

    /// Counts a status that rules out all nodes.
    pub fn add_all(&mut self, nodes: usize, rejection: Rejection) {
        self.wait_for(rejection.plugin, rejection.events);
        self.pre_filter = Some(match rejection.status {
            Status::Success => return,
            Status::Unschedulable(reasons) => {
                self.resolvable.extend(0..nodes);
                reasons.join(", ")
            }
            Status::UnschedulableAndUnresolvable(reasons) => reasons.join(", "),
        });
    }

    fn message(&self, nodes: usize) -> String {
        let message = match &self.pre_filter {
            Some(reasons) => format!("0/{nodes} nodes are available: {reasons}."),
            None => node_reasons(nodes, &self.node_count),
        };
        match self.post_filter.as_deref() {
            None | Some("") => message,
            Some(post_filter) => format!("{message} {post_filter}"),
        }
    }
}

/// The sentence with the number of nodes that each reason ruled out.
pub(crate) fn node_reasons(nodes: usize, reasons: &BTreeMap<Reason, usize>) -> String {
    let mut reasons: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    reasons.sort();
    // An extender may reject nodes without a message.
    let sentence = if reasons.is_empty() { String::new() } else { format!(" {}.", reasons.join(", ")) };
    format!("0/{nodes} nodes are available:{sentence}")
}

/// The sentence about the one node that was chosen, when a plugin refuses the Pod after that.
pub(crate) fn rejected(reason: &str) -> String {
    node_reasons(1, &BTreeMap::from([(reason.to_owned().into(), 1)]))
}
