//! VolumeAttachments: which volume is to be attached to which node, and whether it is. Unlike those of all other kinds,
//! the labels of a VolumeAttachment are a default family of kube-state-metrics.

use std::collections::BTreeMap;

use api_model::k8s_openapi::api::storage::v1::VolumeAttachment;

use crate::family::{Family, Kind, gauge};
use crate::labels;
use crate::metadata::{created, named};
use crate::read::or_empty;
use crate::series::{Label, Series};

impl Kind for VolumeAttachment {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        named("volumeattachment", self)
    }
}

const FAMILIES: &[Family<VolumeAttachment>] = &[
    gauge("kube_volumeattachment_labels", "The labels of the VolumeAttachment.", |attachment, series| {
        map(&attachment.metadata.labels, "label", series);
    }),
    gauge("kube_volumeattachment_info", "A VolumeAttachment with its attacher and its node.", |attachment, series| {
        series.info(&[("attacher", &attachment.spec.attacher), ("node", &attachment.spec.node_name)]);
    }),
    gauge("kube_volumeattachment_created", "When the VolumeAttachment was created, in Unix seconds.", created),
    gauge("kube_volumeattachment_spec_source_persistentvolume", "The volume that is to be attached.", |attachment, series| {
        if let Some(volume) = &attachment.spec.source.persistent_volume_name {
            series.info(&[("volumename", volume)]);
        }
    }),
    gauge("kube_volumeattachment_status_attached", "Whether the volume is attached.", |attachment, series| {
        series.flag(or_empty(&attachment.status).attached);
    }),
    gauge("kube_volumeattachment_status_attachment_metadata", "What the attacher says about the attachment.", |attachment, series| {
        map(&or_empty(&attachment.status).attachment_metadata, "metadata", series);
    }),
];

fn map(map: &Option<BTreeMap<String, String>>, prefix: &str, series: &mut Series<'_>) {
    let labels = labels::of_map(prefix, map.as_ref());
    let labels: Vec<Label<'_>> = labels.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    series.info(&labels);
}
