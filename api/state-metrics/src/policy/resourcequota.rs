//! ResourceQuotas: how much of each resource a namespace may use and uses.

use api_model::k8s_openapi::api::core::v1::ResourceQuota;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, namespaced};
use crate::quantity::samples;
use crate::read::or_empty;
use crate::series::Label;

impl Kind for ResourceQuota {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("resourcequota", self)
    }
}

const FAMILIES: &[Family<ResourceQuota>] = &[
    gauge("kube_resourcequota_created", "When the ResourceQuota was created, in Unix seconds.", created),
    gauge("kube_resourcequota", "How much of a resource may be used (hard) and is used.", |quota, series| {
        let status = or_empty(&quota.status);
        samples(&status.hard, &[("type", "hard")], series);
        samples(&status.used, &[("type", "used")], series);
    }),
];
