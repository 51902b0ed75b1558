//! Which nodes a DaemonSet wants a Pod on, judged as the scheduler does: by node name, node selector and affinity, and taints.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use sched_framework::{PodInfo, selects_node, tolerates};

use super::template;
use crate::meta;

/// Whether a node is for the DaemonSet's Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// A Pod should be created.
    pub runs: bool,
    /// A Pod that is there may stay.
    pub stays: bool,
}

/// The DaemonSet's Pods as nodes are judged for them.
pub struct Judge {
    pod: PodInfo,
}

impl Judge {
    /// For the present template.
    pub fn new(set: &DaemonSet) -> Self {
        let mut spec = set.spec.template.spec.clone().unwrap_or_default();
        template::add_tolerations(&mut spec);
        Self { pod: PodInfo::new(&Pod { spec: Some(spec), ..Pod::default() }) }
    }

    /// Judges one node. A Pod that is there stays as long as it tolerates the taints that evict.
    pub fn verdict(&self, node: &Node) -> Verdict {
        let (name, none) = (meta::name(&node.metadata), BTreeMap::new());
        let labels = node.metadata.labels.as_ref().unwrap_or(&none);
        let named = self.pod.node_name.is_empty() || self.pod.node_name == name;
        if !named || !selects_node(&self.pod, name, labels) {
            return Verdict { runs: false, stays: false };
        }
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let tolerated = |effect: &str| {
            let mut those = taints.iter().filter(|taint: &&Taint| taint.effect == effect);
            those.all(|taint| tolerates(&self.pod.tolerations, taint))
        };
        let stays = tolerated("NoExecute");
        Verdict { runs: stays && tolerated("NoSchedule"), stays }
    }
}
