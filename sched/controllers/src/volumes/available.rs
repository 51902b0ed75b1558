//! The volumes without a claim, by class and access modes, ordered by size: a claim finds its volume without a look at all
//! volumes. Fed by the informer of volumes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api_client::informer::Change;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use parking_lot::Mutex;

use super::{class, matching};
use crate::meta;

/// Fewer modes come first: a claim takes a volume that can little more than it needs.
type Modes = (usize, Vec<String>);
/// Names by size; the size is in billionths of a byte.
type BySize = BTreeSet<(i128, String)>;

/// The free volumes.
#[derive(Default)]
pub struct Available {
    by_class: Mutex<HashMap<String, BTreeMap<Modes, BySize>>>,
}

fn modes(volume: &PersistentVolume) -> Modes {
    let modes = matching::volume_modes(volume);
    (modes.len(), modes)
}

fn entry(volume: &PersistentVolume) -> (i128, String) {
    (matching::capacity_nano(volume), meta::name(&volume.metadata).to_owned())
}

/// Whether a claim may take the volume.
pub fn is_free(volume: &PersistentVolume) -> bool {
    !meta::is_deleting(&volume.metadata) && volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none())
}

impl Available {
    /// Follows a change of a volume.
    pub fn observe(&self, change: &Change<PersistentVolume>) {
        let mut by_class = self.by_class.lock();
        if let Some(old) = change.old.as_deref().filter(|old| is_free(old)) {
            remove(&mut by_class, old);
        }
        if let Some(new) = change.new.as_deref().filter(|new| is_free(new)) {
            let sizes = by_class.entry(class::of_volume(new).to_owned()).or_default().entry(modes(new)).or_default();
            sizes.insert(entry(new));
        }
    }

    /// The smallest volume that satisfies the claim; of several sets of access modes, the smallest set counts first, as upstream.
    /// `get` returns a volume by its name.
    pub fn best(
        &self,
        claim: &PersistentVolumeClaim,
        get: impl Fn(&str) -> Option<Arc<PersistentVolume>>,
    ) -> Option<Arc<PersistentVolume>> {
        let (wanted, size) = (matching::requested_modes(claim), matching::requested_nano(claim));
        let by_class = self.by_class.lock();
        let sets = by_class.get(class::of_claim(claim))?.iter().filter(|((_, modes), _)| matching::contains(modes, &wanted));
        let names = sets.flat_map(|(_, sizes)| sizes.range((size, String::new())..).map(|(_, name)| name));
        names.filter_map(|name| get(name)).find(|volume| matching::fits_free(volume, claim))
    }
}

/// Removes a volume and what it leaves empty.
fn remove(by_class: &mut HashMap<String, BTreeMap<Modes, BySize>>, volume: &PersistentVolume) {
    let class = class::of_volume(volume);
    let Some(sets) = by_class.get_mut(class) else { return };
    let modes = modes(volume);
    if let Some(sizes) = sets.get_mut(&modes) {
        sizes.remove(&entry(volume));
        if sizes.is_empty() {
            sets.remove(&modes);
        }
    }
    if sets.is_empty() {
        by_class.remove(class);
    }
}
