//! How many Pods the workloads behind some Pods want: from the caches for the kinds of this server's own workloads, by
//! the `scale` subresource for all others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Cached, Informer, ObjectKey};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::DynamicObject;
use thiserror::Error;

use crate::context::ControllerContext;
use crate::discovery::Resources;
use crate::failure::{During, Failure};
use crate::meta;

/// The sum of the replicas that the workloads of some Pods want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Replicas of all of them.
    pub replicas: i32,
    /// Whether some Pods have no workload.
    pub has_unmanaged: bool,
}

/// Why the expected number of Pods is unknown.
#[derive(Debug, Error)]
pub enum Unscaled {
    /// The Pod's controller does not exist.
    #[error("found no controllers for pod {0:?}")]
    NoController(String),
    /// The kind of the Pod's controller is not served.
    #[error("no matches for kind {kind:?} in version {api_version:?}")]
    NoKind {
        /// The kind.
        kind: String,
        /// Group and version.
        api_version: String,
    },
    /// The kind of the Pod's controller has no replicas.
    #[error("{0} does not implement the scale subresource")]
    NoScale(String),
    /// The value is neither a number nor a percentage.
    #[error("invalid value for IntOrString: {0:?}")]
    NotAShare(String),
    /// The request to the server failed.
    #[error("{}", .0.message())]
    Request(#[from] Failure),
}

impl Unscaled {
    /// When to look again: a kind may be served in a moment, and changes of a custom resource's scale are not watched.
    pub fn retry(&self) -> Duration {
        Duration::from_secs(if matches!(self, Self::NoKind { .. }) { 5 } else { 30 })
    }
}

/// The workloads.
pub struct Scales {
    client: kube::Client,
    sets: Informer<ReplicaSet>,
    deployments: Informer<Deployment>,
    stateful_sets: Informer<StatefulSet>,
    replication_controllers: Informer<ReplicationController>,
    resources: Resources,
}

impl Scales {
    /// Over the shared caches.
    pub fn new(context: &mut ControllerContext) -> Self {
        Self {
            client: context.client(),
            sets: context.informer(),
            deployments: context.informer(),
            stateful_sets: context.informer(),
            replication_controllers: context.informer(),
            resources: Resources::new(context.client()),
        }
    }

    /// The sum of the replicas that the workloads of `pods` want; each workload counts once.
    pub async fn total(&self, namespace: &str, pods: &[Arc<Pod>]) -> Result<Total, Unscaled> {
        let mut has_unmanaged = false;
        let mut owners: BTreeMap<&str, (String, i32)> = BTreeMap::new();
        for pod in pods {
            let Some(owner) = meta::controller_of(&pod.metadata) else {
                has_unmanaged = true;
                continue;
            };
            if !owners.contains_key(owner.uid.as_str()) {
                let found = match self.cached(namespace, owner) {
                    Cache::Found(uid, replicas) => Some((uid, replicas)),
                    Cache::Absent => None,
                    Cache::Foreign => self.foreign(namespace, owner).await?.map(|replicas| (owner.uid.clone(), replicas)),
                };
                let found = found.ok_or_else(|| Unscaled::NoController(meta::name(&pod.metadata).to_owned()))?;
                owners.insert(&owner.uid, found);
            }
        }
        let workloads: BTreeMap<String, i32> = owners.into_values().collect();
        let replicas = workloads.values().fold(0_i32, |sum, replicas| sum.saturating_add(*replicas));
        Ok(Total { replicas, has_unmanaged })
    }

    /// A workload whose kind is cached, by the UID of the topmost owner: a Deployment counts instead of its ReplicaSets.
    fn cached(&self, namespace: &str, owner: &OwnerReference) -> Cache {
        let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let key = ObjectKey::new(namespace, &owner.name);
        match (group, owner.kind.as_str()) {
            ("apps" | "extensions", "ReplicaSet") => match self.sets.get(&key).filter(|set| meta::uid(&set.metadata) == owner.uid) {
                None => Cache::Absent,
                Some(set) => match meta::controller_of(&set.metadata).filter(|above| above.kind == "Deployment") {
                    None => Cache::Found(owner.uid.clone(), set.spec.replicas.unwrap_or(1)),
                    Some(above) => found(&self.deployments, namespace, above, |one| one.spec.replicas),
                },
            },
            ("apps", "StatefulSet") => found(&self.stateful_sets, namespace, owner, |one| one.spec.replicas),
            ("", "ReplicationController") => found(&self.replication_controllers, namespace, owner, |one| one.spec.as_ref()?.replicas),
            _ => Cache::Foreign,
        }
    }

    /// The replicas of a workload of any kind, from its `scale`; `None` when the workload does not exist.
    async fn foreign(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<i32>, Unscaled> {
        let (group, version) = owner.api_version.rsplit_once('/').unwrap_or(("", &owner.api_version));
        let found = self.resources.find(|one| one.group == group && one.version == version && one.kind == owner.kind).await?;
        let Some(resource) = found else {
            return Err(Unscaled::NoKind { kind: owner.kind.clone(), api_version: owner.api_version.clone() });
        };
        if !resource.has_scale {
            return Err(Unscaled::NoScale(resource.group_resource()));
        }
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource.api_resource());
        match api.get_scale(&owner.name).await.during("reading the scale of", format!("{} {}", owner.kind, owner.name)) {
            Ok(scale) if meta::uid(&scale.metadata) == owner.uid => Ok(Some(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0))),
            Ok(_) => Ok(None),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }
}

/// The result of a look-up of a Pod's controller in the caches.
enum Cache {
    /// The workload's UID and replicas.
    Found(String, i32),
    /// The object does not exist.
    Absent,
    /// Its kind is not in a cache.
    Foreign,
}

fn found<K: Cached>(store: &Informer<K>, namespace: &str, owner: &OwnerReference, replicas: impl Fn(&K) -> Option<i32>) -> Cache {
    let object = store.get(&ObjectKey::new(namespace, &owner.name)).filter(|object| meta::uid(object.meta()) == owner.uid);
    object.map_or(Cache::Absent, |object| Cache::Found(owner.uid.clone(), replicas(&object).unwrap_or(1)))
}
