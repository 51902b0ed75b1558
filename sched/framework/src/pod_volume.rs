//! The volumes of a Pod that its placement depends on: claims, and disks that not every number of Pods may mount.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Pod, Volume};

/// A volume of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodVolume {
    /// A PersistentVolumeClaim.
    Claim {
        /// The name of the claim, in the namespace of the Pod.
        name: String,
        /// Whether it is the claim of an ephemeral volume: it must be the Pod's own.
        is_ephemeral: bool,
    },
    /// A disk without a PersistentVolume.
    Disk(Disk),
}

/// A disk of which a second mount on a node may conflict with the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disk {
    /// `gcePersistentDisk`.
    Gce {
        /// `pdName`.
        name: String,
        /// Whether the Pod only reads.
        read_only: bool,
    },
    /// `awsElasticBlockStore`, by its `volumeID`.
    Aws(String),
    /// `iscsi`.
    Iscsi {
        /// The target.
        iqn: String,
        /// Whether the Pod only reads.
        read_only: bool,
    },
    /// `rbd`.
    Rbd {
        /// The Ceph monitors.
        monitors: Vec<String>,
        /// The pool and the image in it.
        image: (String, String),
        /// Whether the Pod only reads.
        read_only: bool,
    },
}

impl PodVolume {
    /// The volumes of the Pod, in the order of its spec. A claim of several volumes is there once.
    pub fn of_pod(pod: &Pod) -> Vec<Self> {
        let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
        let (mut all, mut of_claims): (Vec<Self>, HashMap<String, usize>) = (Vec::new(), HashMap::new());
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).filter_map(|volume| Self::new(pod_name, volume)) {
            let Self::Claim { name, is_ephemeral } = volume else {
                all.push(volume);
                continue;
            };
            let index = *of_claims.entry(name.clone()).or_insert(all.len());
            match all.get_mut(index) {
                Some(Self::Claim { is_ephemeral: is_first_ephemeral, .. }) => *is_first_ephemeral |= is_ephemeral,
                Some(Self::Disk(_)) | None => all.push(Self::Claim { name, is_ephemeral }),
            }
        }
        all
    }

    fn new(pod: &str, volume: &Volume) -> Option<Self> {
        if let Some(claim) = &volume.persistent_volume_claim {
            return Some(Self::Claim { name: claim.claim_name.clone(), is_ephemeral: false });
        }
        if volume.ephemeral.is_some() {
            return Some(Self::Claim { name: format!("{pod}-{}", volume.name), is_ephemeral: true });
        }
        let reads = |read_only: Option<bool>| read_only == Some(true);
        if let Some(disk) = &volume.gce_persistent_disk {
            return Some(Self::Disk(Disk::Gce { name: disk.pd_name.clone(), read_only: reads(disk.read_only) }));
        }
        if let Some(disk) = &volume.aws_elastic_block_store {
            return Some(Self::Disk(Disk::Aws(disk.volume_id.clone())));
        }
        if let Some(disk) = &volume.iscsi {
            return Some(Self::Disk(Disk::Iscsi { iqn: disk.iqn.clone(), read_only: reads(disk.read_only) }));
        }
        let disk = volume.rbd.as_ref()?;
        let image = (disk.pool.clone().unwrap_or_default(), disk.image.clone());
        Some(Self::Disk(Disk::Rbd { monitors: disk.monitors.clone(), image, read_only: reads(disk.read_only) }))
    }
}

impl Disk {
    /// Whether a second Pod cannot mount the disk on a node where a Pod has mounted the other one.
    pub fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Gce { name: a, read_only: x }, Self::Gce { name: b, read_only: y })
            | (Self::Iscsi { iqn: a, read_only: x }, Self::Iscsi { iqn: b, read_only: y }) => a == b && !(*x && *y),
            (Self::Aws(a), Self::Aws(b)) => a == b,
            (Self::Rbd { monitors: a, image: i, read_only: x }, Self::Rbd { monitors: b, image: j, read_only: y }) => {
                i == j && a.iter().any(|monitor| b.contains(monitor)) && !(*x && *y)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, json};

    use super::*;

    #[test]
    fn a_claim_of_several_volumes_is_one_claim() {
        let claim = |volume: &str, claim: &str| json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}});
        let volumes = json!([
            claim("one", "data"), claim("two", "p-own"), {"name": "own", "ephemeral": {}}, claim("three", "data"), claim("four", "more"),
        ]);
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": volumes}})).expect("a Pod");
        let claim = |name: &str, is_ephemeral: bool| PodVolume::Claim { name: name.to_owned(), is_ephemeral };
        assert_eq!(PodVolume::of_pod(&pod), [claim("data", false), claim("p-own", true), claim("more", false)]);
    }
}
