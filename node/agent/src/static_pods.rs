//! Static Pods: Pods that a node runs from files of its own ([`files`], [`manifest`]), whether or not it reaches the API server. The API has
//! a mirror Pod of each, which shows its status and logs ([`mirrors`]); deleting it changes nothing on the node. The Pod manager tells
//! the two apart by where a Pod comes from, never by the annotations of a Pod of the API, which any user may set.

pub(crate) mod files;
pub(crate) mod manifest;
pub(crate) mod mirrors;

use std::collections::BTreeMap;
use std::sync::Arc;

use api_client::informer::ObjectKey;
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::layout::PodName;
use crate::termination::{NODE_SHUTDOWN, NODE_SHUTDOWN_REJECTED};

/// Annotations with upstream's names.
pub(crate) mod annotation {
    /// The static Pod's UID, which is a hash of its file.
    pub(crate) const HASH: &str = "kubernetes.io/config.hash";
    /// Makes a Pod of the API a mirror Pod; the value is the UID of its static Pod.
    pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";
    /// When the node first read the file.
    pub(crate) const FIRST_READ: &str = "kubernetes.io/config.seen";
    /// Where the Pod comes from.
    pub(crate) const SOURCE: &str = "kubernetes.io/config.source";
}

/// Where a Pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The API.
    Api,
    /// A file of the node: the API has a mirror Pod of it.
    File,
}

/// The UID of the static Pod that a Pod of the API mirrors; `None` when it is no mirror Pod.
pub(crate) fn mirrored_uid(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(annotation::MIRROR).map(String::as_str)
}

/// Whether a shutdown of the node ended a Pod or kept it from running.
pub(crate) fn ended_with_the_node(pod: &Pod) -> bool {
    let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
    matches!(reason, Some(NODE_SHUTDOWN | NODE_SHUTDOWN_REJECTED))
}

/// A Pod with another status.
fn with_status(pod: &Arc<Pod>, status: Option<PodStatus>) -> Arc<Pod> {
    Arc::new(Pod { status, ..(**pod).clone() })
}

/// A static Pod and its mirror Pod, for [`mirrors`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mirrored {
    pub(crate) pod: Arc<Pod>,
    /// The Pod is being ended: a mirror Pod that exists stays until it has ended, and none is made.
    pub(crate) ends: bool,
}

/// What the Pod manager does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Start a worker.
    Begin(Arc<Pod>),
    /// End the Pod of that UID.
    End(String),
}

/// One name.
#[derive(Default)]
struct Slot {
    wanted: Option<Arc<Pod>>,
    /// The Pod that has a worker.
    begun: Option<Arc<Pod>>,
}

/// The static Pods of the node. Of each name one runs at a time: after a change of its file the new Pod begins when the old one has
/// ended, as upstream.
#[derive(Default)]
pub(crate) struct StaticPods {
    slots: BTreeMap<ObjectKey, Slot>,
}

impl StaticPods {
    /// Takes the Pods of all files.
    pub(crate) fn want(&mut self, pods: &[Arc<Pod>]) -> Vec<Action> {
        let mut wanted: BTreeMap<ObjectKey, Arc<Pod>> = pods.iter().map(|pod| (ObjectKey::from(&pod.metadata), pod.clone())).collect();
        for key in wanted.keys() {
            self.slots.entry(key.clone()).or_default();
        }
        let mut actions = Vec::new();
        for (key, slot) in &mut self.slots {
            slot.wanted = wanted.remove(key);
            match (&slot.begun, &slot.wanted) {
                (Some(begun), wanted) if wanted.as_ref().is_none_or(|wanted| wanted.metadata.uid != begun.metadata.uid) => {
                    actions.push(Action::End(PodName::of(begun).uid));
                }
                (None, Some(wanted)) => {
                    slot.begun = Some(wanted.clone());
                    actions.push(Action::Begin(wanted.clone()));
                }
                _ => {}
            }
        }
        self.slots.retain(|_, slot| slot.wanted.is_some() || slot.begun.is_some());
        actions
    }

    /// The worker of a Pod has ended; returns the Pod that takes its place.
    pub(crate) fn ended(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let is_it = |slot: &Slot| slot.begun.as_ref().is_some_and(|begun| begun.metadata.uid.as_deref() == Some(uid));
        let slot = self.slots.values_mut().find(|slot| is_it(slot))?;
        slot.begun = slot.wanted.clone();
        let next = slot.begun.clone();
        self.slots.retain(|_, slot| slot.wanted.is_some() || slot.begun.is_some());
        next
    }

    /// The static Pod that a Pod of the API mirrors, with the status that the API has of it.
    pub(crate) fn with_status_of(&self, mirror: &Pod) -> Option<Arc<Pod>> {
        let begun = self.slots.get(&ObjectKey::from(&mirror.metadata))?.begun.as_ref()?;
        let is_its = begun.metadata.uid.as_deref() == mirrored_uid(mirror);
        is_its.then(|| with_status(begun, mirror.status.clone()))
    }

    /// The same for a Pod that begins. A Pod that the shutdown of the node ended, or kept from running, begins anew, as upstream: its
    /// file is still there.
    pub(crate) fn beginning(&self, mirror: &Pod) -> Option<Arc<Pod>> {
        self.with_status_of(mirror).filter(|_| !ended_with_the_node(mirror))
    }

    /// The Pods that are to have mirror Pods.
    pub(crate) fn mirrored(&self) -> Vec<Mirrored> {
        let of_slot = |slot: &Slot| {
            let pod = slot.begun.clone()?;
            let ends = slot.wanted.as_ref().is_none_or(|wanted| wanted.metadata.uid != pod.metadata.uid);
            Some(Mirrored { pod, ends })
        };
        self.slots.values().filter_map(of_slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, uid: &str) -> Arc<Pod> {
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default", "uid": uid}})).expect("a pod"))
    }

    #[test]
    fn a_changed_pod_begins_when_the_one_before_has_ended() {
        let mut pods = StaticPods::default();
        let (first, second, third) = (pod("a", "1"), pod("a", "2"), pod("a", "3"));
        assert_eq!(pods.want(std::slice::from_ref(&first)), [Action::Begin(first.clone())]);
        assert_eq!(pods.want(std::slice::from_ref(&first)), []);
        assert_eq!(pods.mirrored(), [Mirrored { pod: first.clone(), ends: false }]);
        assert_eq!(pods.want(std::slice::from_ref(&second)), [Action::End("1".to_owned())]);
        assert_eq!(pods.mirrored(), [Mirrored { pod: first.clone(), ends: true }]);
        // The file changes once more meanwhile.
        assert_eq!(pods.want(std::slice::from_ref(&third)), [Action::End("1".to_owned())]);
        assert_eq!(pods.ended("2"), None);
        assert_eq!(pods.ended("1"), Some(third.clone()));
        assert_eq!(pods.mirrored(), [Mirrored { pod: third, ends: false }]);
        assert_eq!(pods.want(&[]), [Action::End("3".to_owned())]);
        assert_eq!((pods.ended("3"), pods.mirrored().len()), (None, 0));
        assert!(pods.slots.is_empty());
    }

    #[test]
    fn a_status_is_taken_from_its_own_mirror_alone() {
        let mut pods = StaticPods::default();
        pods.want(&[pod("a", "1")]);
        let mirror = |hash: &str| {
            let mut pod: Pod = (*pod("a", "9")).clone();
            pod.metadata.annotations = Some([(annotation::MIRROR.to_owned(), hash.to_owned())].into());
            pod.status = Some(PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() });
            pod
        };
        let taken = pods.with_status_of(&mirror("1")).expect("its mirror");
        assert_eq!((taken.metadata.uid.as_deref(), taken.status.clone()), (Some("1"), mirror("1").status));
        assert_eq!(pods.with_status_of(&mirror("2")), None);
        assert_eq!(pods.beginning(&mirror("1")), Some(taken));
        for reason in ["Terminated", "NodeShutdown"] {
            let mut shut_down = mirror("1");
            shut_down.status.as_mut().expect("a status").reason = Some(reason.to_owned());
            assert_eq!((pods.beginning(&shut_down), pods.with_status_of(&shut_down).is_some()), (None, true));
        }
        assert_eq!(pods.with_status_of(&pod("a", "1")), None);
    }
}
