//! Mirror Pods: the API's copies of static Pods. This loop makes the missing ones, and deletes those that have no static Pod, that are
//! copies of an earlier one, or that somebody deletes. [`plan`] is pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Changes, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams, Preconditions};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Mirrored, annotation, mirrored_uid};
use crate::error::chain;
use crate::node::Node;

/// The waits after a failure: the API may not be reachable, or not allow mirror Pods.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// How long a mirror Pod that was deleted is absent. A client that waits for the end of a deletion looks more than once: `kubectl delete`
/// waits for ever when the name is free in one look and taken in the next.
const ABSENCE: Duration = Duration::from_secs(1);

/// A write.
#[derive(Clone, Debug, PartialEq)]
enum Action {
    Create(Box<Pod>),
    Delete { key: ObjectKey, uid: String },
}

/// The writes that lead from the Pods of the API to the wanted mirror Pods. `pods` are the Pods of this node. Without the UID of the
/// Node nothing can be made.
fn plan(wanted: &[Mirrored], pods: &[Arc<Pod>], node: Option<&OwnerReference>) -> Vec<Action> {
    let key = |pod: &Pod| ObjectKey::from(&pod.metadata);
    let mut actions = Vec::new();
    for pod in pods {
        let Some(hash) = mirrored_uid(pod) else { continue };
        let is_wanted = wanted.iter().any(|one| key(&one.pod) == key(pod) && one.pod.metadata.uid.as_deref() == Some(hash));
        if !is_wanted || pod.metadata.deletion_timestamp.is_some() {
            actions.push(Action::Delete { key: key(pod), uid: pod.metadata.uid.clone().unwrap_or_default() });
        }
    }
    let is_taken = |one: &Mirrored| pods.iter().any(|pod| key(pod) == key(&one.pod));
    let missing = wanted.iter().filter(|one| !one.ends && !is_taken(one));
    actions.extend(node.into_iter().flat_map(|node| missing.clone().map(|one| Action::Create(Box::new(mirror(&one.pod, node))))));
    actions
}

/// The mirror Pod of a static Pod; as upstream, the Node owns it.
fn mirror(pod: &Pod, node: &OwnerReference) -> Pod {
    let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(annotation::MIRROR.to_owned(), pod.metadata.uid.clone().unwrap_or_default());
    let metadata = ObjectMeta {
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        labels: pod.metadata.labels.clone(),
        annotations: Some(annotations),
        owner_references: Some(vec![node.clone()]),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: pod.spec.clone(), status: None }
}

fn owner(node: &Node) -> Option<OwnerReference> {
    let object = node.objects.node(&node.config.node_name)?;
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.config.node_name.clone(),
        uid: object.metadata.uid.clone()?,
        controller: Some(true),
        block_owner_deletion: None,
    })
}

/// The mirror Pods that are gone since a moment.
#[derive(Default)]
struct Absences {
    present: BTreeSet<ObjectKey>,
    since: BTreeMap<ObjectKey, Instant>,
}

impl Absences {
    /// Takes the Pods that the API has now.
    fn update(&mut self, pods: &[Arc<Pod>], now: Instant) {
        let mirrors = pods.iter().filter(|pod| mirrored_uid(pod).is_some());
        let present: BTreeSet<_> = mirrors.map(|pod| ObjectKey::from(&pod.metadata)).collect();
        self.since.extend(self.present.difference(&present).map(|key| (key.clone(), now)));
        self.since.retain(|key, since| !present.contains(key) && now < *since + ABSENCE);
        self.present = present;
    }

    /// Whether the action would end an absence too early.
    fn forbids(&self, action: &Action) -> bool {
        matches!(action, Action::Create(pod) if self.since.contains_key(&ObjectKey::from(&pod.metadata)))
    }

    /// When the next absence is over.
    fn next_end(&self) -> Option<Instant> {
        self.since.values().min().map(|since| *since + ABSENCE)
    }
}

/// Runs until cancelled. `pods` are the Pods of this node.
pub(crate) async fn run(
    node: Arc<Node>,
    mut wanted: watch::Receiver<Option<Vec<Mirrored>>>,
    mut pods: Changes<Pod>,
    cancel: CancellationToken,
) {
    let work = async {
        let (mut retry, mut due, mut is_listed, mut is_due) = (RETRY, None, false, true);
        let mut absences = Absences::default();
        loop {
            // An agent that has just started must not take the mirrors of its own Pods for leftovers.
            let wanted_now = if is_listed && is_due { wanted.borrow_and_update().clone() } else { None };
            if let Some(wanted) = wanted_now {
                let present = pods.informer().list();
                let owner = owner(&node);
                absences.update(&present, Instant::now());
                let mut actions = plan(&wanted, &present, owner.as_ref());
                actions.retain(|action| !absences.forbids(action));
                let is_done = apply(&node, actions).await && (owner.is_some() || wanted.is_empty());
                let again = (!is_done).then(|| Instant::now() + retry);
                due = [again, absences.next_end()].into_iter().flatten().min();
                retry = if is_done { RETRY } else { (retry * 2).min(RETRY_MAX) };
            }
            is_due = tokio::select! {
                changed = wanted.changed() => if changed.is_ok() { true } else { return },
                batch = pods.next() => {
                    let is_first = batch.synced && !is_listed;
                    is_listed |= batch.synced;
                    // Most changes are of other Pods, of which there may be thousands.
                    let wanted = wanted.borrow();
                    let wanted = wanted.as_deref().unwrap_or_default();
                    is_first || batch.keys.iter().any(|key| concerns(key, wanted, pods.informer().get(key).as_deref()))
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => true,
            };
        }
    };
    cancel.run_until_cancelled(work).await;
}

/// Whether a change of a Pod of the API may be one of a mirror Pod.
fn concerns(key: &ObjectKey, wanted: &[Mirrored], pod: Option<&Pod>) -> bool {
    pod.is_some_and(|pod| mirrored_uid(pod).is_some()) || wanted.iter().any(|one| ObjectKey::from(&one.pod.metadata) == *key)
}

/// Whether all writes succeeded. What is no more, or was made meanwhile, is as it should be; a change of the cache follows.
async fn apply(node: &Node, actions: Vec<Action>) -> bool {
    let mut succeeded = true;
    for action in actions {
        let (doing, key, result) = match action {
            Action::Create(pod) => {
                let key = ObjectKey::from(&pod.metadata);
                let pods: Api<Pod> = Api::namespaced(node.client.clone(), &key.namespace);
                ("making a mirror Pod", key, pods.create(&PostParams::default(), &pod).await.map(drop))
            }
            Action::Delete { key, uid } => {
                let pods: Api<Pod> = Api::namespaced(node.client.clone(), &key.namespace);
                let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
                let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
                ("deleting a mirror Pod", key.clone(), pods.delete(&key.name, &params).await.map(drop))
            }
        };
        if let Err(error) = result
            && !matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
        {
            tracing::warn!(pod = %key, doing, error = chain(&error), "will try again");
            succeeded = false;
        }
    }
    succeeded
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, metadata: Value) -> Arc<Pod> {
        let mut whole = json!({"name": name, "namespace": "default"});
        whole.as_object_mut().expect("an object").extend(metadata.as_object().expect("an object").clone());
        let spec = json!({"nodeName": "n", "containers": []});
        Arc::new(serde_json::from_value(json!({"metadata": whole, "spec": spec})).expect("a pod"))
    }

    fn mirror_of(name: &str, uid: &str, hash: &str) -> Arc<Pod> {
        pod(name, json!({"uid": uid, "annotations": {annotation::MIRROR: hash}}))
    }

    fn wanted(name: &str, uid: &str, ends: bool) -> Mirrored {
        Mirrored { pod: pod(name, json!({"uid": uid, "labels": {"app": name}, "annotations": {annotation::HASH: uid}})), ends }
    }

    /// `+name` and `-uid`.
    fn steps(wanted: &[Mirrored], pods: &[Arc<Pod>]) -> Vec<String> {
        let node = OwnerReference { name: "n".to_owned(), uid: "node".to_owned(), ..OwnerReference::default() };
        let step = |action: Action| match action {
            Action::Create(pod) => format!("+{}", pod.metadata.name.unwrap_or_default()),
            Action::Delete { uid, .. } => format!("-{uid}"),
        };
        plan(wanted, pods, Some(&node)).into_iter().map(step).collect()
    }

    #[test]
    fn mirrors_follow_their_static_pods() {
        let dying = pod("a", json!({"uid": "9", "annotations": {annotation::MIRROR: "1"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}));
        let none: [&str; 0] = [];
        for (wanted, pods, steps_wanted) in [
            (vec![wanted("a", "1", false)], vec![], vec!["+a"]),
            (vec![wanted("a", "1", false)], vec![mirror_of("a", "9", "1")], none.to_vec()),
            // Somebody deletes it; it is made again when it is gone.
            (vec![wanted("a", "1", false)], vec![dying], vec!["-9"]),
            (vec![wanted("a", "2", false)], vec![mirror_of("a", "9", "1")], vec!["-9"]),
            (vec![], vec![mirror_of("a", "9", "1")], vec!["-9"]),
            (vec![wanted("a", "1", true)], vec![mirror_of("a", "9", "1")], none.to_vec()),
            (vec![wanted("a", "1", true)], vec![], none.to_vec()),
            // Another Pod has the name: it is not the node's.
            (vec![wanted("a", "1", false)], vec![pod("a", json!({"uid": "7"}))], none.to_vec()),
            (vec![], vec![pod("b", json!({"uid": "7", "annotations": {annotation::SOURCE: "file"}}))], none.to_vec()),
        ] {
            assert_eq!(steps(&wanted, &pods), steps_wanted, "{wanted:?} {pods:?}");
        }
        assert_eq!(plan(&[wanted("a", "1", false)], &[], None), [], "without the Node's UID");
    }

    #[test]
    fn a_deleted_mirror_is_absent_for_a_moment() {
        let (mut absences, begun) = (Absences::default(), Instant::now());
        let create = Action::Create(Box::new((*mirror_of("a", "9", "1")).clone()));
        absences.update(&[], begun);
        assert!(!absences.forbids(&create), "the first one is made at once");
        absences.update(&[mirror_of("a", "9", "1"), mirror_of("b", "8", "2")], begun);
        absences.update(&[mirror_of("b", "8", "2")], begun);
        assert!(absences.forbids(&create));
        assert_eq!(absences.next_end(), Some(begun + ABSENCE));
        absences.update(&[mirror_of("b", "8", "2")], begun + ABSENCE / 2);
        assert!(absences.forbids(&create), "another look does not end it");
        absences.update(&[mirror_of("b", "8", "2")], begun + ABSENCE);
        assert!(!absences.forbids(&create));
        assert_eq!(absences.next_end(), None);
    }

    #[test]
    fn a_mirror_is_the_nodes_and_names_its_static_pod() {
        let node = OwnerReference { name: "n".to_owned(), uid: "node".to_owned(), ..OwnerReference::default() };
        let made = mirror(&wanted("a", "1", false).pod, &node);
        assert_eq!((mirrored_uid(&made), made.metadata.uid.as_deref()), (Some("1"), None));
        assert_eq!(made.metadata.owner_references.as_deref(), Some([node].as_slice()));
        assert_eq!(made.metadata.labels, wanted("a", "1", false).pod.metadata.labels);
    }
}
