//! The objects that the volumes of Pods depend on, as a scheduling cycle sees them. A claim or a volume that was chosen for a Pod is
//! assumed to be so until the informer has a newer state of it: upstream's `AssumeCache`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api_model::storage::OLD_CLASS;
pub use api_model::storage::{BIND_COMPLETED, SELECTED_NODE};
use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The objects. The maps share them with the informers.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    claims: Assumable<PersistentVolumeClaim>,
    volumes: Assumable<PersistentVolume>,
    /// The names of the volumes of a class.
    by_class: HashMap<String, BTreeSet<String>>,
    /// By name.
    pub classes: HashMap<String, Arc<StorageClass>>,
    /// By name.
    pub csi_drivers: HashMap<String, Arc<CSIDriver>>,
    /// By the name of the node.
    pub csi_nodes: HashMap<String, Arc<CSINode>>,
    /// By `namespace/name`.
    pub capacities: BTreeMap<String, Arc<CSIStorageCapacity>>,
    /// By name.
    attachments: HashMap<String, Arc<VolumeAttachment>>,
    /// The names of the attachments to a node.
    attached_to: HashMap<String, BTreeSet<String>>,
}

/// Objects of a kind by their keys, with what is assumed of some of them.
#[derive(Clone, Debug)]
struct Assumable<K> {
    objects: HashMap<String, Arc<K>>,
    assumed: HashMap<String, Arc<K>>,
}

impl<K> Default for Assumable<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), assumed: HashMap::new() }
    }
}

impl<K: Metadata<Ty = ObjectMeta>> Assumable<K> {
    fn get(&self, key: &str) -> Option<&Arc<K>> {
        self.assumed.get(key).or_else(|| self.objects.get(key))
    }

    /// Stores what the informer has. It ends what was assumed of an older state; the same state, from another list, does not. Returns the
    /// state before.
    fn set(&mut self, key: &str, object: Option<Arc<K>>) -> Option<Arc<K>> {
        let revision = |object: &Arc<K>| object.metadata().resource_version.clone();
        let before = self.objects.get(key).and_then(revision);
        if before.is_none() || before != object.as_ref().and_then(revision) {
            self.assumed.remove(key);
        }
        match object {
            Some(object) => self.objects.insert(key.to_owned(), object),
            None => self.objects.remove(key),
        }
    }
}

impl<K> Assumable<K> {
    /// Ends what is assumed of an object, unless something else is assumed of it by now: for another Pod.
    fn restore(&mut self, key: &str, assumed: &Arc<K>) -> bool {
        let is_assumed = self.assumed.get(key).is_some_and(|present| Arc::ptr_eq(present, assumed));
        if is_assumed {
            self.assumed.remove(key);
        }
        is_assumed
    }
}

impl Volumes {
    /// The claim of that key, `namespace/name`.
    pub fn claim(&self, key: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        self.claims.get(key)
    }

    /// The volume of that name.
    pub fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.volumes.get(name)
    }

    /// The volumes of a class, by name; the empty class has those without one.
    pub fn of_class(&self, class: &str) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        self.by_class.get(class).into_iter().flatten().filter_map(|name| self.volumes.get(name))
    }

    /// Stores a claim, or removes one that is gone. Returns the state before.
    pub fn set_claim(&mut self, key: &str, claim: Option<Arc<PersistentVolumeClaim>>) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.set(key, claim)
    }

    /// Stores a volume, or removes one that is gone. Returns the state before.
    pub fn set_volume(&mut self, name: &str, volume: Option<Arc<PersistentVolume>>) -> Option<Arc<PersistentVolume>> {
        let class = volume.as_deref().map(|volume| class_of_volume(volume).to_owned());
        let before = self.volumes.set(name, volume);
        let class_before = before.as_deref().map(|volume| class_of_volume(volume).to_owned());
        if class != class_before {
            if let Some(names) = class_before.as_ref().and_then(|class| self.by_class.get_mut(class)) {
                names.remove(name);
            }
            if let Some(class) = class {
                self.by_class.entry(class).or_default().insert(name.to_owned());
            }
            self.by_class.retain(|_, names| !names.is_empty());
        }
        before
    }

    /// Assumes a state of a claim, until the informer has another one than now or [`Volumes::restore_claim`] is called.
    pub fn assume_claim(&mut self, key: &str, claim: Arc<PersistentVolumeClaim>) {
        self.claims.assumed.insert(key.to_owned(), claim);
    }

    /// Ends the assumption of this state of a claim. Returns whether it was assumed.
    pub fn restore_claim(&mut self, key: &str, assumed: &Arc<PersistentVolumeClaim>) -> bool {
        self.claims.restore(key, assumed)
    }

    /// Assumes a state of a volume, like [`Volumes::assume_claim`].
    pub fn assume_volume(&mut self, name: &str, volume: Arc<PersistentVolume>) {
        self.volumes.assumed.insert(name.to_owned(), volume);
    }

    /// Ends the assumption of this state of a volume. Returns whether it was assumed.
    pub fn restore_volume(&mut self, name: &str, assumed: &Arc<PersistentVolume>) -> bool {
        self.volumes.restore(name, assumed)
    }

    /// The attachments to the node.
    pub fn attachments_to(&self, node: &str) -> impl Iterator<Item = &Arc<VolumeAttachment>> {
        self.attached_to.get(node).into_iter().flatten().filter_map(|name| self.attachments.get(name))
    }

    /// Stores an attachment, or removes one that is gone.
    pub fn set_attachment(&mut self, name: &str, attachment: Option<Arc<VolumeAttachment>>) {
        let node = attachment.as_ref().map(|attachment| attachment.spec.node_name.clone());
        let before = match attachment {
            Some(attachment) => self.attachments.insert(name.to_owned(), attachment),
            None => self.attachments.remove(name),
        };
        if let Some(before) = before
            && let Some(names) = self.attached_to.get_mut(&before.spec.node_name)
        {
            names.remove(name);
            if names.is_empty() {
                self.attached_to.remove(&before.spec.node_name);
            }
        }
        if let Some(node) = node {
            self.attached_to.entry(node).or_default().insert(name.to_owned());
        }
    }
}

/// The class of a claim; empty without one.
pub fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let field = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    annotation(&claim.metadata, OLD_CLASS).or(field.map(String::as_str)).unwrap_or_default()
}

/// The class of a volume; empty without one.
pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    let field = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    annotation(&volume.metadata, OLD_CLASS).or(field.map(String::as_str)).unwrap_or_default()
}

/// The volume that a claim names; `None` when it names none yet.
pub fn volume_of_claim(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether the binding of a claim is complete.
pub fn is_fully_bound(claim: &PersistentVolumeClaim) -> bool {
    volume_of_claim(claim).is_some() && annotation(&claim.metadata, BIND_COMPLETED).is_some()
}

/// The value of an annotation.
pub fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, json};

    use super::*;

    fn volume(name: &str, class: &str, version: &str) -> PersistentVolume {
        let metadata = json!({"name": name, "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"storageClassName": class}})).expect("a volume")
    }

    fn versions(volumes: &Volumes, class: &str) -> String {
        let version = |volume: &Arc<PersistentVolume>| volume.metadata.resource_version.clone().unwrap_or_default();
        volumes.of_class(class).map(version).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_assumed_ends_with_the_next_state_or_when_it_is_restored() {
        let mut volumes = Volumes::default();
        volumes.set_volume("a", Some(Arc::new(volume("a", "fast", "1"))));
        volumes.set_volume("b", Some(Arc::new(volume("b", "fast", "2"))));
        let [first, second] = ["assumed", "assumed"].map(|version| Arc::new(volume("a", "fast", version)));
        volumes.assume_volume("a", Arc::clone(&first));
        assert_eq!(versions(&volumes, "fast"), "assumed 2");
        assert!(volumes.restore_volume("a", &first) && !volumes.restore_volume("a", &first));
        assert_eq!(versions(&volumes, "fast"), "1 2");
        volumes.assume_volume("a", Arc::clone(&second));
        assert!(!volumes.restore_volume("a", &first), "another Pod has it");
        assert!(volumes.restore_volume("a", &second));
        volumes.assume_volume("b", Arc::new(volume("b", "fast", "assumed")));
        volumes.set_volume("b", Some(Arc::new(volume("b", "slow", "3"))));
        assert_eq!((versions(&volumes, "fast"), versions(&volumes, "slow")), ("1".to_owned(), "3".to_owned()));
        volumes.assume_volume("b", Arc::new(volume("b", "slow", "assumed")));
        volumes.set_volume("b", Some(Arc::new(volume("b", "slow", "3"))));
        assert_eq!(versions(&volumes, "slow"), "assumed", "another list has the same state");
        volumes.set_volume("b", None);
        volumes.set_volume("a", None);
        assert!(volumes.by_class.is_empty() && volumes.volume("a").is_none());
    }
    #[test]
    fn attachments_are_those_of_their_nodes() {
        let attachment = |node: &str| {
            let spec = json!({"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": "v"}});
            Some(Arc::new(serde_json::from_value(json!({"metadata": {"name": "x"}, "spec": spec})).expect("an attachment")))
        };
        let mut volumes = Volumes::default();
        let counts = |volumes: &Volumes| ["n1", "n2"].map(|node| volumes.attachments_to(node).count());
        volumes.set_attachment("x", attachment("n1"));
        volumes.set_attachment("y", attachment("n1"));
        assert_eq!(counts(&volumes), [2, 0]);
        volumes.set_attachment("x", attachment("n2"));
        assert_eq!(counts(&volumes), [1, 1]);
        ["x", "y"].iter().for_each(|name| volumes.set_attachment(name, None));
        assert!(counts(&volumes) == [0, 0] && volumes.attached_to.is_empty());
    }
}
