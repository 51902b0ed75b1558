//! The kinds that keep a number of equal Pods. A ReplicationController is an older ReplicaSet in another group: one controller
//! serves both, as upstream by its adapter.

use api_client::informer::Cached;
use api_model::selector::Selector;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;

use crate::meta;
use crate::writes::Object;

/// A kind that keeps a number of equal Pods.
pub trait Replicated: Object + Cached {
    /// The name of the controller of the kind.
    const CONTROLLER: &'static str;
    /// The name of the controller's queue.
    const QUEUE: &'static str;
    /// The component of its events.
    const COMPONENT: &'static str;
    /// The status of the kind.
    type Status: Serialize + Send + Sync;

    /// `spec.replicas`.
    fn replicas(&self) -> usize;
    /// `spec.minReadySeconds`.
    fn min_ready_seconds(&self) -> i32;
    /// `spec.selector`.
    fn selector(&self) -> Selector;
    /// `spec.template`.
    fn template(&self) -> Option<&PodTemplateSpec>;
    /// `status`.
    fn status(&self) -> Option<&Self::Status>;
    /// `status.conditions`.
    fn conditions(&self) -> Vec<ReplicaSetCondition>;
    /// The status of the kind with these numbers and conditions.
    fn converted(status: ReplicaSetStatus) -> Self::Status;
}

impl Replicated for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";
    const QUEUE: &'static str = "replicaset";
    const COMPONENT: &'static str = "replicaset-controller";
    type Status = ReplicaSetStatus;

    fn replicas(&self) -> usize {
        count(self.spec.replicas)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    fn selector(&self) -> Selector {
        meta::selector(&self.spec.selector)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.template.as_ref()
    }

    fn status(&self) -> Option<&ReplicaSetStatus> {
        self.status.as_ref()
    }

    fn conditions(&self) -> Vec<ReplicaSetCondition> {
        self.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default()
    }

    fn converted(status: ReplicaSetStatus) -> ReplicaSetStatus {
        status
    }
}

impl Replicated for ReplicationController {
    const CONTROLLER: &'static str = "replicationcontroller-controller";
    const QUEUE: &'static str = "replicationmanager";
    const COMPONENT: &'static str = "replication-controller";
    type Status = ReplicationControllerStatus;

    fn replicas(&self) -> usize {
        count(self.spec.as_ref().and_then(|spec| spec.replicas))
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    /// A ReplicationController without a selector, which the API server does not accept, selects nothing.
    fn selector(&self) -> Selector {
        let labels = self.spec.as_ref().and_then(|spec| spec.selector.clone()).filter(|labels| !labels.is_empty());
        match labels {
            Some(labels) => meta::selector(&LabelSelector { match_labels: Some(labels), match_expressions: None }),
            None => Selector::from_label_selector(None).unwrap_or_default(),
        }
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> Option<&ReplicationControllerStatus> {
        self.status.as_ref()
    }

    fn conditions(&self) -> Vec<ReplicaSetCondition> {
        let conditions = self.status.iter().flat_map(|status| status.conditions.iter().flatten().cloned());
        let converted = conditions.map(|condition| ReplicaSetCondition {
            type_: Some(condition.type_),
            status: Some(condition.status),
            reason: condition.reason,
            message: condition.message,
            last_transition_time: condition.last_transition_time,
        });
        converted.collect()
    }

    /// Pods that are being deleted are not counted in this kind.
    fn converted(status: ReplicaSetStatus) -> ReplicationControllerStatus {
        let converted = |condition: ReplicaSetCondition| ReplicationControllerCondition {
            type_: condition.type_.unwrap_or_default(),
            status: condition.status.unwrap_or_default(),
            reason: condition.reason,
            message: condition.message,
            last_transition_time: condition.last_transition_time,
        };
        ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions: status.conditions.map(|conditions| conditions.into_iter().map(converted).collect()),
        }
    }
}

fn count(replicas: Option<i32>) -> usize {
    usize::try_from(replicas.unwrap_or(1)).unwrap_or(0)
}
