//! Pods by their UID.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::PodInfo;

/// Pods by UID. The Pods have their UIDs themselves, so that a copy of the set allocates its table and nothing else.
#[derive(Clone, Debug, Default)]
pub struct PodSet(HashSet<ByUid>);

#[derive(Clone, Debug)]
struct ByUid(Arc<PodInfo>);

impl PartialEq for ByUid {
    fn eq(&self, other: &Self) -> bool {
        self.0.uid == other.0.uid
    }
}

impl Eq for ByUid {}

impl Hash for ByUid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.uid.as_str().hash(state);
    }
}

impl Borrow<str> for ByUid {
    fn borrow(&self) -> &str {
        &self.0.uid
    }
}

impl PodSet {
    /// The Pod of that UID.
    pub fn get(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.0.get(uid).map(|ByUid(pod)| pod)
    }

    /// Stores a Pod, in place of one with the same UID.
    pub fn insert(&mut self, pod: Arc<PodInfo>) {
        self.0.replace(ByUid(pod));
    }

    /// Removes and returns the Pod of that UID.
    pub fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        self.0.take(uid).map(|ByUid(pod)| pod)
    }

    /// The Pods in any order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.0.iter().map(|ByUid(pod)| pod)
    }

    /// The number of Pods.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no Pod.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_replaces_its_earlier_state() {
        let pod = |uid: &str, priority| Arc::new(PodInfo { uid: uid.to_owned(), priority, ..PodInfo::default() });
        let mut pods = PodSet::default();
        [pod("a", 1), pod("b", 2), pod("a", 3)].into_iter().for_each(|pod| pods.insert(pod));
        assert_eq!((pods.len(), pods.get("a").map(|pod| pod.priority), pods.iter().map(|pod| pod.priority).sum()), (2, Some(3), 5));
        assert_eq!(pods.remove("a").map(|pod| pod.priority), Some(3));
        assert!(pods.get("a").is_none() && pods.remove("a").is_none() && !pods.is_empty());
    }
}
