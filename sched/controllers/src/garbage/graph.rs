//! The ownership graph by UID, built from the watches. Each change returns the objects that need a check.
//!
//! The graph stores only the identity of an object, its owners and the phase of its deletion.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use parking_lot::Mutex;

use super::plan::Owner;
use super::{FOREGROUND, ORPHAN};
use crate::context::MetadataObserver;
use crate::kind::KindInfo;
use crate::meta;
use crate::work::WorkQueue;

/// The identity of an object: kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its kind.
    pub kind: Arc<KindInfo>,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.kind, self.namespace, self.name)
    }
}

/// How far an object's deletion is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No deletion was requested.
    Living,
    /// It waits for something that is not ours.
    Deleting,
    /// The object waits until its dependents are gone.
    Foreground,
    /// The object waits until its dependents are released.
    Orphaning,
}

fn phase(meta: &ObjectMeta) -> Phase {
    if !meta::is_deleting(meta) {
        Phase::Living
    } else if meta::has_finalizer(meta, ORPHAN) {
        Phase::Orphaning
    } else if meta::has_finalizer(meta, FOREGROUND) {
        Phase::Foreground
    } else {
        Phase::Deleting
    }
}

#[derive(Debug)]
struct Node {
    identity: Identity,
    /// UID and whether the owner's foreground deletion waits for this object.
    owners: Vec<(String, bool)>,
    phase: Phase,
}

impl Node {
    /// Whether a reference of an object in `namespace` names this object: the UID alone is anybody's claim.
    fn is_named(&self, reference: &OwnerReference, namespace: &str) -> bool {
        let Identity { kind, namespace: own, name } = &self.identity;
        let group = reference.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let is_reachable = !kind.namespaced || own == namespace;
        kind.kind == reference.kind && kind.group == group && *name == reference.name && is_reachable
    }
}

/// The graph's record of one object.
#[derive(Debug)]
pub struct NodeSnapshot {
    /// The object.
    pub identity: Identity,
    /// UIDs of its owners.
    pub owners: Vec<String>,
    /// How far its deletion is.
    pub phase: Phase,
    /// The objects that name it as an owner, by UID.
    pub dependents: Vec<(String, Dependent)>,
}

/// What an owner's plan needs of a dependent.
#[derive(Debug)]
pub struct Dependent {
    /// The object.
    pub identity: Identity,
    /// Whether the owner's foreground deletion waits for it.
    pub blocks: bool,
    /// How far its deletion is.
    pub phase: Phase,
}

#[derive(Debug, Default)]
struct Nodes {
    by_uid: HashMap<String, Node>,
    /// Also the dependents of owners that the graph does not have, or does not have yet.
    dependents: HashMap<String, BTreeSet<String>>,
}

/// The graph, and the queue of objects to check.
pub struct Graph {
    nodes: Mutex<Nodes>,
    queue: Arc<WorkQueue<String>>,
    /// Notified when a kind may have appeared or disappeared.
    kinds_changed: tokio::sync::Notify,
}

impl Default for Graph {
    fn default() -> Self {
        Self {
            nodes: Mutex::new(Nodes::default()),
            queue: Arc::new(WorkQueue::new("garbage_collector_attempt_to_delete")),
            kinds_changed: tokio::sync::Notify::new(),
        }
    }
}

impl MetadataObserver for Graph {
    fn changed(&self, kind: &Arc<KindInfo>, old: Option<&ObjectMeta>, new: Option<&ObjectMeta>) {
        if let Some(old) = old.filter(|old| new.is_none_or(|new| new.uid != old.uid)) {
            self.forget(meta::uid(old));
        }
        if let Some(new) = new {
            self.upsert(kind, new);
        }
        if matches!(kind.plural.as_str(), "customresourcedefinitions" | "apiservices") {
            self.kinds_changed.notify_one();
        }
    }
}

impl Graph {
    /// The queue of objects to check.
    pub fn queue(&self) -> Arc<WorkQueue<String>> {
        Arc::clone(&self.queue)
    }

    /// Waits until a kind may have appeared or disappeared.
    pub async fn kinds_changed(&self) {
        self.kinds_changed.notified().await;
    }

    /// Queues an object for a check.
    pub fn look_at(&self, uid: &str) {
        self.queue.add(uid.to_owned());
    }

    /// Records the present state of an object.
    pub fn upsert(&self, kind: &Arc<KindInfo>, meta: &ObjectMeta) {
        let worth = self.nodes.lock().upsert(kind, meta);
        worth.into_iter().for_each(|uid| self.queue.add(uid));
    }

    /// Records that an object is gone.
    pub fn forget(&self, uid: &str) {
        let worth = self.nodes.lock().forget(uid);
        worth.into_iter().for_each(|uid| self.queue.add(uid));
    }

    /// Forgets the objects of a kind that are not among these UIDs.
    pub fn retain(&self, kind: &KindInfo, uids: &BTreeSet<String>) {
        let nodes = self.nodes.lock();
        let is_gone = |(uid, node): &(&String, &Node)| *node.identity.kind == *kind && !uids.contains(*uid);
        let gone: Vec<String> = nodes.by_uid.iter().filter(is_gone).map(|(uid, _)| uid.clone()).collect();
        drop(nodes);
        gone.iter().for_each(|uid| self.forget(uid));
    }

    /// A copy of what the graph has of an object and its dependents.
    pub fn snapshot(&self, uid: &str) -> Option<NodeSnapshot> {
        let nodes = self.nodes.lock();
        let node = nodes.by_uid.get(uid)?;
        let dependent = |dependent: &String| {
            let child = nodes.by_uid.get(dependent)?;
            // An object in another namespace cannot have this owner, whatever its reference says.
            let is_reachable = !node.identity.kind.namespaced || child.identity.namespace == node.identity.namespace;
            if !is_reachable {
                return None;
            }
            let blocks = child.owners.iter().any(|(owner, blocks)| owner == uid && *blocks);
            Some((dependent.clone(), Dependent { identity: child.identity.clone(), blocks, phase: child.phase }))
        };
        Some(NodeSnapshot {
            identity: node.identity.clone(),
            owners: node.owners.iter().map(|(owner, _)| owner.clone()).collect(),
            phase: node.phase,
            dependents: nodes.dependents.get(uid).into_iter().flatten().filter_map(dependent).collect(),
        })
    }

    /// The graph's record of the owner that a reference names; `None` unless kind, name and namespace are those of the
    /// reference.
    pub fn owner(&self, item: &Identity, reference: &OwnerReference) -> Option<Owner> {
        let nodes = self.nodes.lock();
        let node = nodes.by_uid.get(&reference.uid).filter(|node| node.is_named(reference, &item.namespace))?;
        Some(if node.phase == Phase::Foreground { Owner::WaitsForUs } else { Owner::Solid })
    }

    /// Whether the graph has an object of that UID in another namespace than the item's.
    pub fn lives_elsewhere(&self, item: &Identity, uid: &str) -> bool {
        let nodes = self.nodes.lock();
        nodes.by_uid.get(uid).is_some_and(|node| node.identity.kind.namespaced && node.identity.namespace != item.namespace)
    }
}

impl Nodes {
    fn upsert(&mut self, kind: &Arc<KindInfo>, meta: &ObjectMeta) -> Vec<String> {
        let uid = meta::uid(meta).to_owned();
        let owners: Vec<(String, bool)> =
            meta.owner_references.iter().flatten().map(|owner| (owner.uid.clone(), owner.block_owner_deletion == Some(true))).collect();
        let phase = phase(meta);
        let identity = Identity { kind: Arc::clone(kind), namespace: meta::namespace(meta).to_owned(), name: meta::name(meta).to_owned() };
        let old = self.by_uid.insert(uid.clone(), Node { identity, owners: owners.clone(), phase });
        let (old_owners, old_phase) = old.map_or((Vec::new(), Phase::Living), |old| (old.owners, old.phase));
        let mut worth = Vec::new();
        for (owner, _) in &old_owners {
            self.unlink(owner, &uid);
        }
        for (owner, _) in &owners {
            self.dependents.entry(owner.clone()).or_default().insert(uid.clone());
        }
        if old_owners != owners {
            // Owners that waited for this object may be done now, and owners that it names now may not exist.
            worth.extend(old_owners.iter().filter(|(owner, _)| self.is_foreground(owner)).map(|(owner, _)| owner.clone()));
            let references = meta.owner_references.iter().flatten();
            let is_doubtful = |reference: &OwnerReference| {
                let owner = self.by_uid.get(&reference.uid);
                owner.is_none_or(|owner| owner.phase == Phase::Foreground || !owner.is_named(reference, meta::namespace(meta)))
            };
            if references.clone().any(is_doubtful) {
                worth.push(uid.clone());
            }
        }
        if phase != old_phase && matches!(phase, Phase::Foreground | Phase::Orphaning) {
            if phase == Phase::Foreground {
                worth.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
            }
            worth.push(uid);
        }
        worth
    }

    fn forget(&mut self, uid: &str) -> Vec<String> {
        let Some(node) = self.by_uid.remove(uid) else { return Vec::new() };
        let mut worth: Vec<String> = self.dependents.get(uid).into_iter().flatten().cloned().collect();
        for (owner, _) in &node.owners {
            self.unlink(owner, uid);
            if self.is_foreground(owner) {
                worth.push(owner.clone());
            }
        }
        worth
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    fn is_foreground(&self, uid: &str) -> bool {
        self.by_uid.get(uid).is_some_and(|node| node.phase == Phase::Foreground)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn kind() -> Arc<KindInfo> {
        let text = |t: &str| t.to_owned();
        Arc::new(KindInfo { group: text("apps"), version: text("v1"), kind: text("Thing"), plural: text("things"), namespaced: true })
    }

    fn meta_of(uid: &str, owners: &[(&str, bool)], extra: Value) -> ObjectMeta {
        let owners: Vec<Value> = owners
            .iter()
            .map(|(uid, blocks)| json!({"apiVersion": "apps/v1", "kind": "Thing", "name": uid, "uid": uid, "blockOwnerDeletion": blocks}))
            .collect();
        let mut value = json!({"name": uid, "uid": uid, "namespace": "ns", "ownerReferences": owners});
        for (key, extra) in extra.as_object().expect("an object") {
            value[key] = extra.clone();
        }
        serde_json::from_value(value).expect("metadata")
    }

    fn deleting(finalizer: &str) -> Value {
        json!({"deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": [finalizer]})
    }

    fn sorted(mut worth: Vec<String>) -> Vec<String> {
        worth.sort();
        worth.dedup();
        worth
    }

    #[test]
    fn an_object_without_known_owner_is_looked_at() {
        let mut nodes = Nodes::default();
        assert_eq!(nodes.upsert(&kind(), &meta_of("pod", &[("set", true)], json!({}))), ["pod"]);
        assert!(nodes.upsert(&kind(), &meta_of("set", &[], json!({}))).is_empty());
        assert!(nodes.upsert(&kind(), &meta_of("other", &[("set", true)], json!({}))).is_empty());
    }

    /// Upstream's "potentially invalid" references.
    #[test]
    fn an_object_whose_reference_does_not_fit_its_owner_is_looked_at() {
        let mut nodes = Nodes::default();
        nodes.upsert(&kind(), &meta_of("set", &[], json!({})));
        let referring = |change: Value| {
            let mut reference = json!({"apiVersion": "apps/v1", "kind": "Thing", "name": "set", "uid": "set"});
            meta::overlay(&mut reference, &change);
            json!({"ownerReferences": [reference]})
        };
        for (at, (extra, expected)) in [
            (referring(json!({})), false),
            (referring(json!({"apiVersion": "apps/v2"})), false),
            (referring(json!({"apiVersion": "batch/v1"})), true),
            (referring(json!({"kind": "Other"})), true),
            (referring(json!({"name": "another"})), true),
        ]
        .into_iter()
        .enumerate()
        {
            let uid = format!("pod-{at}");
            assert_eq!(!nodes.upsert(&kind(), &meta_of(&uid, &[], extra.clone())).is_empty(), expected, "{extra}");
        }
        let mut elsewhere = referring(json!({}));
        elsewhere["namespace"] = json!("elsewhere");
        assert_eq!(nodes.upsert(&kind(), &meta_of("stranger", &[], elsewhere)), ["stranger"]);
    }

    #[test]
    fn the_dependents_of_what_is_gone_are_looked_at() {
        let mut nodes = Nodes::default();
        nodes.upsert(&kind(), &meta_of("set", &[], json!({})));
        nodes.upsert(&kind(), &meta_of("a", &[("set", true)], json!({})));
        nodes.upsert(&kind(), &meta_of("b", &[("set", false)], json!({})));
        assert_eq!(sorted(nodes.forget("set")), ["a", "b"]);
        assert!(nodes.forget("set").is_empty());
    }

    #[test]
    fn a_foreground_deletion_looks_at_itself_and_its_dependents_and_again_when_one_goes() {
        let mut nodes = Nodes::default();
        nodes.upsert(&kind(), &meta_of("set", &[], json!({})));
        nodes.upsert(&kind(), &meta_of("a", &[("set", true)], json!({})));
        let worth = nodes.upsert(&kind(), &meta_of("set", &[], deleting(FOREGROUND)));
        assert_eq!(sorted(worth), ["a", "set"]);
        assert_eq!(sorted(nodes.upsert(&kind(), &meta_of("late", &[("set", true)], json!({})))), ["late"]);
        assert_eq!(nodes.forget("a"), ["set"]);
        assert_eq!(sorted(nodes.upsert(&kind(), &meta_of("late", &[], json!({})))), ["set"], "a dependent that leaves unblocks too");
    }

    #[test]
    fn orphaning_looks_at_the_owner_alone() {
        let mut nodes = Nodes::default();
        nodes.upsert(&kind(), &meta_of("set", &[], json!({})));
        nodes.upsert(&kind(), &meta_of("a", &[("set", true)], json!({})));
        assert_eq!(nodes.upsert(&kind(), &meta_of("set", &[], deleting(ORPHAN))), ["set"]);
    }

    #[test]
    fn an_owner_is_known_only_where_the_reference_says() {
        let graph = Graph::default();
        graph.upsert(&kind(), &meta_of("set", &[], json!({})));
        let item = |namespace: &str| Identity { kind: kind(), namespace: namespace.to_owned(), name: "x".to_owned() };
        let reference = |name: &str, kind: &str| OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: "set".to_owned(),
            ..OwnerReference::default()
        };
        assert_eq!(graph.owner(&item("ns"), &reference("set", "Thing")), Some(Owner::Solid));
        assert_eq!(graph.owner(&item("elsewhere"), &reference("set", "Thing")), None);
        assert_eq!(graph.owner(&item("ns"), &reference("other", "Thing")), None);
        assert_eq!(graph.owner(&item("ns"), &reference("set", "Other")), None);
        assert!(graph.lives_elsewhere(&item("elsewhere"), "set"));
    }

    /// Every user can write any UID into their own objects; a deletion does not wait for the finalizer of a stranger's object.
    #[test]
    fn a_deletion_waits_for_nobody_in_another_namespace() {
        let graph = Graph::default();
        graph.upsert(&kind(), &meta_of("set", &[], deleting(FOREGROUND)));
        graph.upsert(&kind(), &meta_of("own", &[("set", true)], json!({})));
        graph.upsert(&kind(), &meta_of("stranger", &[("set", true)], json!({"namespace": "elsewhere"})));
        let dependents: Vec<String> = graph.snapshot("set").expect("known").dependents.into_iter().map(|(uid, _)| uid).collect();
        assert_eq!(dependents, ["own"]);
    }

    #[test]
    fn objects_that_a_list_of_their_kind_does_not_name_are_gone() {
        let graph = Graph::default();
        let other = Arc::new(KindInfo { plural: "others".to_owned(), ..KindInfo::clone(&kind()) });
        graph.upsert(&kind(), &meta_of("a", &[], json!({})));
        graph.upsert(&other, &meta_of("b", &[], json!({})));
        graph.upsert(&other, &meta_of("c", &[], json!({})));
        graph.retain(&other, &BTreeSet::from(["c".to_owned()]));
        let present = ["a", "b", "c"].map(|uid| graph.snapshot(uid).is_some());
        assert_eq!(present, [true, false, true]);
    }
}
