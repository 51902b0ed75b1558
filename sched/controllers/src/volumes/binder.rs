//! PersistentVolume controller (upstream's binder): brings claims and volumes together.
//!
//! Watches claims, volumes, StorageClasses and Pods. Writes `spec.claimRef` and the status of volumes, `spec.volumeName`, the
//! default class, annotations and the status of claims. It creates and deletes nothing: provisioners make and remove volumes.
//!
//! A binding is four writes, first the volume's, then the claim's. Each carries the revision that was read, so of two claims
//! one gets the volume, and after a kill between two writes the next pass goes on: the volume names its claim already.

mod apply;
mod claims;
mod volumes;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use api_client::events::Recorder;
use api_client::informer::{BY_CLAIM_UID, BY_RESERVED_NAME, BY_VOLUME, Change, Informer, ObjectKey, UNBOUND_BY_CLASS};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;

use super::available::{self, Available};
use super::users::{self, ClaimUsers};
use super::{class, matching, object};
use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, pods, writes};

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A claim.
    Claim(ObjectKey),
    /// A volume, by its name.
    Volume(String),
    /// The waiting claims of a class: the class changed.
    Class(String),
    /// The waiting claims of a class that a free volume satisfies now.
    Free(String),
}

/// The controller.
pub struct Binder {
    client: kube::Client,
    recorder: Recorder,
    queue: Arc<WorkQueue<Key>>,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    pods: Informer<Pod>,
    users: Arc<ClaimUsers>,
    available: Arc<Available>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("claims"));
    let (claims, volumes) = (context.informer::<PersistentVolumeClaim>(), context.informer::<PersistentVolume>());
    let available = Arc::new(Available::default());
    let observed = Arc::clone(&available);
    context.on_change(&volumes, move |change| observed.observe(change));
    let (claim_cache, volume_cache) = (claims.clone(), volumes.clone());
    context.feed_from(&claims, &queue, move |change: &Change<PersistentVolumeClaim>| after_claim(change, &volume_cache));
    context.feed_from(&volumes, &queue, move |change: &Change<PersistentVolume>| after_volume(change, &claim_cache));
    let classes = context.feed(&queue, |change: &Change<StorageClass>| {
        change.new.iter().flat_map(|class| [Key::Class(meta::name(&class.metadata).to_owned()), Key::Class(String::new())]).collect()
    });
    let pods = context.informer::<Pod>();
    let users = ClaimUsers::follow(context, &pods);
    // The event of a waiting claim says which Pod it waits for.
    context.feed_from(&pods, &queue, |change: &Change<Pod>| {
        let new = change.new.iter().filter(|pod| change.old.is_none() && pods::node_name(pod).is_none());
        new.flat_map(|pod| users::claims(pod)).map(Key::Claim).collect()
    });
    let (client, recorder) = (context.client(), context.recorder("persistentvolume-controller"));
    let binder = Binder { client, recorder, queue: Arc::clone(&queue), claims, volumes, classes, pods, users, available };
    context.run(Arc::new(binder), queue);
}

/// What is worth a pass after a change of a claim: the claim, and the volumes that name it or that it names.
fn after_claim(change: &Change<PersistentVolumeClaim>, volumes: &Informer<PersistentVolume>) -> Vec<Key> {
    let Some(claim) = change.latest() else { return Vec::new() };
    let named = change.both().filter_map(|claim| claim.spec.as_ref()?.volume_name.clone()).filter(|name| !name.is_empty());
    let bound = volumes.indexed(BY_CLAIM_UID, meta::uid(&claim.metadata)).into_iter().filter_map(|volume| volume.metadata.name.clone());
    let mut keys: Vec<Key> = named.chain(bound).map(Key::Volume).collect();
    keys.push(Key::Claim(ObjectKey::from(&claim.metadata)));
    keys
}

/// What is worth a pass after a change of a volume: the volume, the claim that it names, the claims that name it, and waiting
/// claims when it became free.
fn after_volume(change: &Change<PersistentVolume>, claims: &Informer<PersistentVolumeClaim>) -> Vec<Key> {
    let Some(volume) = change.latest() else { return Vec::new() };
    let name = meta::name(&volume.metadata);
    let mut keys = vec![Key::Volume(name.to_owned())];
    keys.extend(claims.indexed(BY_VOLUME, name).iter().map(|claim| Key::Claim(ObjectKey::from(&claim.metadata))));
    keys.extend(change.both().filter_map(|volume| object::claim_key(volume)).map(Key::Claim));
    if change.new.as_deref().is_some_and(available::is_free) {
        keys.push(Key::Free(class::of_volume(volume).to_owned()));
    }
    keys
}

impl Controller for Binder {
    const NAME: &'static str = "persistentvolume-binder-controller";
    const WORKERS: usize = 8;
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        match key {
            Key::Claim(key) => {
                if let Some(claim) = self.claims.get(key) {
                    self.apply_claim(&claim, claims::plan(&claim, self)).await?;
                }
            }
            Key::Volume(name) => {
                if let Some(volume) = self.volumes.get(&ObjectKey::new("", name)) {
                    let claim = self.claim_of(&volume).await?;
                    self.apply_volume(&volume, claim.as_deref(), volumes::plan(&volume, claim.as_deref())).await?;
                }
            }
            Key::Class(name) => {
                // An empty class was requested on purpose: no other class concerns that claim.
                let concerned = self.waiting(name).filter(|claim| !name.is_empty() || !class::is_requested(claim));
                concerned.for_each(|claim| self.look_at(&claim));
            }
            Key::Free(name) => {
                // For delayed claims the scheduler looks.
                if !claims::View::class(self, name).is_some_and(|class| class::waits_for_consumer(&class)) {
                    let satisfied = self.waiting(name).filter(|claim| claims::View::best(self, claim).is_some());
                    satisfied.for_each(|claim| self.look_at(&claim));
                }
            }
        }
        Ok(Next::OnChange)
    }
}

impl Binder {
    fn waiting(&self, class: &str) -> impl Iterator<Item = Arc<PersistentVolumeClaim>> {
        self.claims.indexed(UNBOUND_BY_CLASS, class).into_iter()
    }

    fn look_at(&self, claim: &PersistentVolumeClaim) {
        self.queue.add(Key::Claim(ObjectKey::from(&claim.metadata)));
    }

    /// The claim that the volume is bound to. Before a volume counts as released, the server is asked: the cache may be older than
    /// the volume.
    async fn claim_of(&self, volume: &PersistentVolume) -> Result<Option<Arc<PersistentVolumeClaim>>, Failure> {
        let (Some(key), Some(uid)) = (object::claim_key(volume), object::claim_uid(volume)) else { return Ok(None) };
        let is_meant = |claim: &PersistentVolumeClaim| meta::uid(&claim.metadata) == uid;
        if let Some(claim) = self.claims.get(&key).filter(|claim| is_meant(claim)) {
            return Ok(Some(claim));
        }
        if volumes::is_released(volume) {
            return Ok(None);
        }
        Ok(writes::get::<PersistentVolumeClaim>(&self.client, &key).await?.filter(|claim| is_meant(claim)).map(Arc::new))
    }
}

impl claims::View for Binder {
    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.volumes.get(&ObjectKey::new("", name))
    }

    fn reserved(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        let bound = self.volumes.indexed(BY_CLAIM_UID, meta::uid(&claim.metadata));
        let reserved = self.volumes.indexed(BY_RESERVED_NAME, meta::name(&claim.metadata));
        let all = bound.into_iter().chain(reserved).filter(|volume| matching::fits_reserved(volume, claim));
        all.min_by_key(|volume| matching::capacity_nano(volume))
    }

    fn best(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        self.available.best(claim, |name| self.volume(name))
    }

    fn class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.classes.get(&ObjectKey::new("", name))
    }

    fn default_class(&self) -> Option<Arc<StorageClass>> {
        class::default(self.classes.list())
    }

    fn unscheduled_pods(&self, claim: &PersistentVolumeClaim) -> Vec<String> {
        let users = self.users.of(&ObjectKey::from(&claim.metadata), &self.pods);
        let waiting = users.into_iter().filter(|pod| !pods::is_terminal(pod) && pods::node_name(pod).is_none());
        waiting.map(|pod| meta::name(&pod.metadata).to_owned()).collect()
    }
}
