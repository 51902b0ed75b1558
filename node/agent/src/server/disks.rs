//! What Pods have on the disk, for the pages of the node's server that show it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use runtimes_host::disk::Disk;

use crate::disk_usages::PodDisk;
use crate::eviction_manager::measure;
use crate::layout::PodName;
use crate::machine::{FileSystem, file_system};
use crate::node::{Entry, Node};

/// What Pods have on the disk, by UID. Those whose measurement is a minute old are measured again, for so long at most.
pub(super) async fn measured(node: &Arc<Node>, entries: &[Arc<Entry>], at_most: Duration) -> HashMap<String, Arc<PodDisk>> {
    let pods = entries.iter().map(|entry| (PodName::of(&entry.pod).uid, entry.clone())).collect();
    node.disk_usages.of(pods, at_most, |entry, within| disk_of(node, entry, within)).await
}

/// Measures a Pod; `None` when not the whole of it can be measured.
async fn disk_of(node: &Arc<Node>, entry: Arc<Entry>, within: Duration) -> Option<PodDisk> {
    let (uid, of_node, pod) = (PodName::of(&entry.pod).uid, node.clone(), entry.pod.clone());
    let claims = node.disk_usages.ask(&uid, within, move || {
        let claims = of_node.volumes.claims(&pod).into_iter();
        claims.filter_map(|claim| file_system(&claim.path).map(|fs| (claim, fs))).collect()
    });
    let (claims, usage) = futures::join!(claims, measure::disk(node, &entry, within));
    let is_whole = usage.fault.is_none();
    is_whole.then_some(PodDisk { at: api_clock::now(), usage, claims: claims? })
}

/// All that is used of a file system.
pub(super) fn whole(fs: &FileSystem) -> Disk {
    Disk { bytes: fs.bytes.saturating_sub(fs.all_free_bytes), inodes: fs.inodes.saturating_sub(fs.free_inodes) }
}
