//! ConfigMaps, Secrets and ServiceAccounts: that they exist, of what type they are and what they refer to. Their
//! contents are in no label.

use api_model::k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, deleted, exists, namespaced, owners, resource_version, with_uid};
use crate::read::{flag, list, text};
use crate::series::Label;

impl Kind for ConfigMap {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[CONFIG_MAP];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("configmap", self)
    }
}

impl Kind for Secret {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[SECRET];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("secret", self)
    }
}

impl Kind for ServiceAccount {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[SERVICE_ACCOUNT];

    fn identity(&self) -> Vec<Label<'_>> {
        with_uid("serviceaccount", self)
    }
}

const CONFIG_MAP: &[Family<ConfigMap>] = &[
    gauge("kube_configmap_info", "A ConfigMap.", exists),
    gauge("kube_configmap_created", "When the ConfigMap was created, in Unix seconds.", created),
    gauge("kube_configmap_metadata_resource_version", "Resource version of the ConfigMap.", resource_version),
];

const SECRET: &[Family<Secret>] = &[
    gauge("kube_secret_info", "A Secret.", exists),
    gauge("kube_secret_type", "The type of the Secret.", |secret, series| series.info(&[("type", text(&secret.type_))])),
    gauge("kube_secret_created", "When the Secret was created, in Unix seconds.", created),
    gauge("kube_secret_metadata_resource_version", "Resource version of the Secret.", resource_version),
    gauge("kube_secret_owner", "An owner of the Secret; empty labels when it has none.", owners),
];

const SERVICE_ACCOUNT: &[Family<ServiceAccount>] = &[
    gauge("kube_serviceaccount_info", "A ServiceAccount, and whether Pods get its token by default.", |account, series| {
        series.info(&[("automount_token", flag(account.automount_service_account_token))]);
    }),
    gauge("kube_serviceaccount_created", "When the ServiceAccount was created, in Unix seconds.", created),
    gauge("kube_serviceaccount_deleted", "When the deletion of the ServiceAccount began, in Unix seconds.", deleted),
    gauge("kube_serviceaccount_secret", "A Secret that the ServiceAccount lists.", |account, series| {
        for secret in list(&account.secrets) {
            series.info(&[("name", text(&secret.name))]);
        }
    }),
    gauge("kube_serviceaccount_image_pull_secret", "A Secret with which Pods of the ServiceAccount pull images.", |account, series| {
        for secret in list(&account.image_pull_secrets) {
            series.info(&[("name", &secret.name)]);
        }
    }),
];
