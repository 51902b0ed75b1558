//! What the informers say, in the cache and in the queue.

use std::sync::Arc;

use api_client::informer::{Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Node, Pod};
use sched_framework::{ClusterEvent, DisruptionBudget, PodInfo};

use super::Scheduler;
use super::watches::ObjectChanges;
use crate::node_images::ImageChanges;
use crate::queue::Occurrence;

impl Scheduler {
    /// Takes changes into the cache and the queue.
    pub(super) fn objects_changed(&mut self, changes: ObjectChanges, pods: &Informer<Pod>) {
        match changes {
            ObjectChanges::Nodes(nodes) => nodes.iter().for_each(|(key, node)| self.node_changed(key, node.as_deref())),
            ObjectChanges::Namespaces(namespaces) => {
                for (key, namespace) in namespaces {
                    let labels = namespace.map(|namespace| namespace.metadata.labels.clone().unwrap_or_default());
                    self.cache.set_namespace(&key.name, labels);
                }
            }
            ObjectChanges::Budgets(budgets) => {
                for (key, budget) in budgets {
                    self.cache.set_budget(key.to_string(), budget.map(|budget| DisruptionBudget::new(&budget)));
                }
            }
            ObjectChanges::Volumes(volumes) => self.volumes_changed(volumes),
            ObjectChanges::Devices(devices) => self.devices_changed(devices, pods),
            ObjectChanges::Groups(groups) => groups.iter().for_each(|(key, group)| self.group_changed(key, group.as_deref())),
            ObjectChanges::Services(services) => {
                services.iter().for_each(|(key, service)| self.default_spread.set_service(key, service.as_deref()));
            }
            ObjectChanges::Pods(pods) => pods.iter().for_each(|(key, pod)| self.pod_changed(key, pod.as_deref())),
        }
    }

    pub(super) fn node_changed(&mut self, key: &ObjectKey, node: Option<&Node>) {
        let events = match node {
            Some(node) => self.cache.update_node(node),
            None => {
                self.cache.remove_node(&key.name);
                vec![ClusterEvent::NodeDelete]
            }
        };
        if !events.is_empty() {
            self.wake_pre_bindings();
        }
        events.into_iter().for_each(|event| self.happened(Occurrence::new(event)));
    }

    pub(super) fn images_changed(&mut self, ImageChanges { only, changed }: ImageChanges) {
        if let Some(only) = only {
            self.cache.retain_images(&only);
        }
        changed.iter().for_each(|(node, images)| self.cache.set_images(node, images));
    }

    pub(super) fn pod_changed(&mut self, key: &ObjectKey, pod: Option<&Pod>) {
        let uid = pod.map(|pod| pod.metadata.uid.clone().unwrap_or_default());
        let before = match &uid {
            Some(uid) => self.uids.insert(key.clone(), uid.clone()),
            None => self.uids.remove(key),
        };
        if let Some(gone) = before.filter(|before| uid.as_ref() != Some(before)) {
            self.pod_gone(&gone);
        }
        self.claim_waits.remove(key);
        self.gated.remove(key);
        if let Some(pod) = pod {
            self.pod_applied(pod);
        }
    }

    pub(super) fn pod_applied(&mut self, pod: &Pod) {
        let pod = Arc::new(PodInfo::new(pod));
        if pod.terminated {
            self.pod_gone(&pod.uid);
        } else if !pod.node_name.is_empty() {
            self.pod_assigned(pod);
        } else if pod.deleting || !self.may_schedule(&pod) {
            self.pod_gone(&pod.uid);
        } else if self.is_gated(&pod) {
            self.pod_gone(&pod.uid);
            self.gated.insert(ObjectKey::new(&pod.namespace, &pod.name));
        } else if let Some(claim) = self.awaited_claim(&pod) {
            self.pod_gone(&pod.uid);
            self.claim_waits.add(ObjectKey::new(&pod.namespace, &pod.name), claim);
        } else {
            self.nomination_read(&pod);
            self.enqueue(pod);
        }
    }

    /// Whether a profile schedules the Pod.
    fn may_schedule(&self, pod: &PodInfo) -> bool {
        self.profiles.contains_key(&pod.scheduler_name)
    }

    /// Whether the Pod is not tried before its scheduling gates are gone.
    fn is_gated(&self, pod: &PodInfo) -> bool {
        pod.gated && self.profiles.get(&pod.scheduler_name).is_some_and(|profile| profile.has_scheduling_gates)
    }

    /// Follows the Pod's `nominatedNodeName`: another scheduler, or this one before a restart, may have made room for the Pod.
    /// A nomination whose writing is under way stays, and an assumed Pod needs none.
    fn nomination_read(&mut self, pod: &Arc<PodInfo>) {
        if self.cache.pod(&pod.uid).is_some() {
            return;
        }
        let before = self.queue.pod(&pod.uid).map(|pod| pod.nominated_node_name.clone()).unwrap_or_default();
        let present = self.cache.snapshot().nominated.node_of(&pod.uid).map(str::to_owned);
        match (before != pod.nominated_node_name, present) {
            (true, _) if !pod.nominated_node_name.is_empty() => self.cache.nominate(Arc::clone(pod), &pod.nominated_node_name),
            (true, _) => self.end_nomination(pod),
            // The nomination has the newest state of the Pod.
            (false, Some(node)) => self.cache.nominate(Arc::clone(pod), &node),
            (false, None) => {}
        }
    }

    fn pod_assigned(&mut self, pod: Arc<PodInfo>) {
        let (was_waiting, before) = (self.queue.contains(&pod.uid), self.cache.pod(&pod.uid).cloned());
        self.leave_queue(&pod.uid);
        self.cache.add_pod(Arc::clone(&pod));
        if let Some(group) = &pod.pod_group {
            self.groups.add(&pod, false);
            self.enqueue_ready(group);
            self.member_scheduled(&pod);
        }
        let Some(before) = before.filter(|_| !was_waiting) else {
            return self.happened(Occurrence::of_pod(ClusterEvent::AssignedPodAdd, pod));
        };
        // A Pod with other labels may also be in nobody's way any more.
        if before.labels != pod.labels {
            self.happened(Occurrence::new(ClusterEvent::UpdateAssignedPodLabel));
        }
        if before.requests.exceeds(&pod.requests) {
            self.happened(Occurrence::new(ClusterEvent::UpdatePodScaleDown));
        }
    }

    /// Nobody schedules the Pod any more: it is gone, or somebody has bound it, perhaps while it waited at permit or in PreBind.
    fn leave_queue(&mut self, uid: &str) {
        self.queue.delete(uid);
        for waiting in self.profiles.values_mut().filter_map(|running| running.take_waiting(uid)).collect::<Vec<_>>() {
            self.unreserve(&waiting.pod);
        }
        self.end_pre_binding(uid);
    }

    pub(super) fn pod_gone(&mut self, uid: &str) {
        self.leave_queue(uid);
        self.groups.remove(uid);
        self.preempted_for_gangs.remove(uid);
        let was_nominated = self.cache.end_nomination(uid);
        if self.cache.remove_pod(uid) || was_nominated {
            self.happened(Occurrence::new(ClusterEvent::AssignedPodDelete));
        }
    }
}
