//! StorageClasses: who provisions their volumes and how.

use api_model::k8s_openapi::api::storage::v1::StorageClass;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, named};
use crate::series::Label;

impl Kind for StorageClass {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        named("storageclass", self)
    }
}

const FAMILIES: &[Family<StorageClass>] = &[
    gauge("kube_storageclass_info", "A StorageClass with its provisioner, reclaim policy and binding mode.", |class, series| {
        series.info(&[
            ("provisioner", &class.provisioner),
            ("reclaim_policy", class.reclaim_policy.as_deref().unwrap_or("Delete")),
            ("volume_binding_mode", class.volume_binding_mode.as_deref().unwrap_or("Immediate")),
        ]);
    }),
    gauge("kube_storageclass_created", "When the StorageClass was created, in Unix seconds.", created),
];
