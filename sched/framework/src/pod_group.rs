//! A PodGroup reduced to what the placement of its Pods depends on.

use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::PodInfo;

/// The condition of a PodGroup that says whether its Pods were scheduled together once. It stays true from then on.
pub const POD_GROUP_INITIALLY_SCHEDULED: &str = "PodGroupInitiallyScheduled";

/// The fields of a PodGroup that the scheduler needs.
#[derive(Clone, Debug, PartialEq)]
pub struct PodGroupInfo {
    /// UID.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// The number of Pods that a gang needs on nodes at the same time; `None` for a group whose Pods are scheduled one by one.
    pub min_count: Option<usize>,
    /// The priority that all Pods of the group have.
    pub priority: i32,
    /// Whether the Pods of the group are preempted together or not at all (`disruptionMode`).
    pub disrupts_all: bool,
    /// The condition [`POD_GROUP_INITIALLY_SCHEDULED`].
    pub scheduled: Option<Condition>,
}

impl PodGroupInfo {
    /// Copies what the scheduler needs from the PodGroup.
    pub fn new(group: &PodGroup) -> Self {
        let (metadata, spec, policy) = (&group.metadata, &group.spec, &group.spec.scheduling_policy);
        // The API server allows exactly one of both.
        let gang = policy.gang.as_ref().filter(|_| policy.basic.is_none());
        let conditions = group.status.iter().flat_map(|status| status.conditions.iter().flatten());
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation,
            min_count: gang.map(|gang| usize::try_from(gang.min_count).unwrap_or_default()),
            priority: spec.priority.unwrap_or_default(),
            disrupts_all: spec.disruption_mode.as_ref().is_some_and(|mode| mode.all.is_some()),
            scheduled: conditions.into_iter().find(|condition| condition.type_ == POD_GROUP_INITIALLY_SCHEDULED).cloned(),
        }
    }

    /// Whether the Pods of the group were scheduled together once.
    pub fn is_scheduled(&self) -> bool {
        self.scheduled.as_ref().is_some_and(|condition| condition.status == "True")
    }

    /// Why the Pod cannot be scheduled as a Pod of the group, in upstream's words.
    pub fn mismatch(&self, pod: &PodInfo) -> Option<String> {
        let message = "all pods in a single pod group should have the same priority as the pod group's priority";
        (pod.priority != self.priority).then(|| format!("{message}, got {} and {}", pod.priority, self.priority))
    }
}
