//! PersistentVolumes: their phase, their size, their claim and where their bytes are.

use api_model::k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, deleted, named};
use crate::quantity::whole;
use crate::read::{list, or_empty, text};
use crate::series::{Label, Series};

const PHASES: [&str; 5] = ["Pending", "Available", "Bound", "Released", "Failed"];
/// The labels that say where the bytes are, in the order of the output. Those of other sources are empty.
const SOURCE_LABELS: [&str; 18] = [
    "gce_persistent_disk_name",
    "ebs_volume_id",
    "azure_disk_name",
    "fc_wwids",
    "fc_lun",
    "fc_target_wwns",
    "iscsi_target_portal",
    "iscsi_iqn",
    "iscsi_lun",
    "iscsi_initiator_name",
    "nfs_server",
    "nfs_path",
    "csi_driver",
    "csi_volume_handle",
    "local_path",
    "local_fs",
    "host_path",
    "host_path_type",
];

impl Kind for PersistentVolume {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        named("persistentvolume", self)
    }
}

const FAMILIES: &[Family<PersistentVolume>] = &[
    gauge("kube_persistentvolume_claim_ref", "The claim that the volume belongs to.", |volume, series| {
        if let Some(claim) = &or_empty(&volume.spec).claim_ref {
            series.info(&[("name", text(&claim.name)), ("claim_namespace", text(&claim.namespace))]);
        }
    }),
    gauge("kube_persistentvolume_status_phase", "1 for the phase of the volume, 0 for the other phases.", |volume, series| {
        if let Some(phase) = &or_empty(&volume.status).phase {
            series.states("phase", &PHASES, phase);
        }
    }),
    gauge("kube_persistentvolume_info", "A volume with its class, its reclaim policy and where its bytes are.", info),
    gauge("kube_persistentvolume_capacity_bytes", "Size of the volume in bytes.", |volume, series| {
        let spec = or_empty(&volume.spec);
        let storage = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
        series.value(storage.and_then(whole).unwrap_or_default());
    }),
    gauge("kube_persistentvolume_created", "When the volume was created, in Unix seconds.", created),
    gauge("kube_persistentvolume_deletion_timestamp", "When the deletion of the volume began, in Unix seconds.", deleted),
    gauge("kube_persistentvolume_volume_mode", "Whether the volume is a file system or a block device.", |volume, series| {
        series.info(&[("volumemode", or_empty(&volume.spec).volume_mode.as_deref().unwrap_or("Filesystem"))]);
    }),
];

fn info(volume: &PersistentVolume, series: &mut Series<'_>) {
    let spec = or_empty(&volume.spec);
    let source = source(&spec);
    let mut labels = vec![("storageclass", text(&spec.storage_class_name))];
    labels.extend(SOURCE_LABELS.map(|label| {
        let value = source.iter().find(|(name, _)| *name == label);
        (label, value.map_or("", |(_, value)| value.as_str()))
    }));
    labels.push(("reclaim_policy", text(&spec.persistent_volume_reclaim_policy)));
    series.info(&labels);
}

/// The labels of the volume's source that are not empty.
fn source(spec: &PersistentVolumeSpec) -> Vec<(&'static str, String)> {
    if let Some(disk) = &spec.gce_persistent_disk {
        vec![("gce_persistent_disk_name", disk.pd_name.clone())]
    } else if let Some(disk) = &spec.aws_elastic_block_store {
        vec![("ebs_volume_id", disk.volume_id.clone())]
    } else if let Some(disk) = &spec.azure_disk {
        vec![("azure_disk_name", disk.disk_name.clone())]
    } else if let Some(fc) = &spec.fc {
        let lun = fc.lun.map(|lun| lun.to_string()).unwrap_or_default();
        vec![("fc_wwids", list(&fc.wwids).join(",")), ("fc_lun", lun), ("fc_target_wwns", list(&fc.target_wwns).join(","))]
    } else if let Some(iscsi) = &spec.iscsi {
        vec![
            ("iscsi_target_portal", iscsi.target_portal.clone()),
            ("iscsi_iqn", iscsi.iqn.clone()),
            ("iscsi_lun", iscsi.lun.to_string()),
            ("iscsi_initiator_name", text(&iscsi.initiator_name).to_owned()),
        ]
    } else if let Some(nfs) = &spec.nfs {
        vec![("nfs_server", nfs.server.clone()), ("nfs_path", nfs.path.clone())]
    } else if let Some(csi) = &spec.csi {
        vec![("csi_driver", csi.driver.clone()), ("csi_volume_handle", csi.volume_handle.clone())]
    } else if let Some(local) = &spec.local {
        vec![("local_path", local.path.clone()), ("local_fs", text(&local.fs_type).to_owned())]
    } else if let Some(host) = &spec.host_path {
        vec![("host_path", host.path.clone()), ("host_path_type", text(&host.type_).to_owned())]
    } else {
        Vec::new()
    }
}
