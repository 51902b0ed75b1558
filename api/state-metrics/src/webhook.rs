//! Configurations of admission webhooks, which are two kinds of the same shape.

use api_model::k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, exists, namespaced, resource_version};
use crate::read::list;
use crate::series::{Label, Series};

// Both kinds are without namespaces. kube-state-metrics writes the label nevertheless, with an empty value.

impl Kind for MutatingWebhookConfiguration {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[MUTATING];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("mutatingwebhookconfiguration", self)
    }
}

impl Kind for ValidatingWebhookConfiguration {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[VALIDATING];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("validatingwebhookconfiguration", self)
    }
}

const MUTATING: &[Family<MutatingWebhookConfiguration>] = &[
    gauge("kube_mutatingwebhookconfiguration_info", "A configuration of mutating webhooks.", exists),
    gauge("kube_mutatingwebhookconfiguration_created", "When the configuration was created, in Unix seconds.", created),
    gauge("kube_mutatingwebhookconfiguration_metadata_resource_version", "Resource version of the configuration.", resource_version),
    gauge(
        "kube_mutatingwebhookconfiguration_webhook_clientconfig_service",
        "A mutating webhook and the Service that answers it; empty labels for a webhook with a URL.",
        |configuration, series| {
            for webhook in list(&configuration.webhooks) {
                service(&webhook.name, &webhook.client_config, series);
            }
        },
    ),
];

const VALIDATING: &[Family<ValidatingWebhookConfiguration>] = &[
    gauge("kube_validatingwebhookconfiguration_info", "A configuration of validating webhooks.", exists),
    gauge("kube_validatingwebhookconfiguration_created", "When the configuration was created, in Unix seconds.", created),
    gauge("kube_validatingwebhookconfiguration_metadata_resource_version", "Resource version of the configuration.", resource_version),
    gauge(
        "kube_validatingwebhookconfiguration_webhook_clientconfig_service",
        "A validating webhook and the Service that answers it; empty labels for a webhook with a URL.",
        |configuration, series| {
            for webhook in list(&configuration.webhooks) {
                service(&webhook.name, &webhook.client_config, series);
            }
        },
    ),
];

fn service(webhook: &str, config: &WebhookClientConfig, series: &mut Series<'_>) {
    let service = config.service.as_ref();
    series.info(&[
        ("webhook_name", webhook),
        ("service_name", service.map_or("", |service| &service.name)),
        ("service_namespace", service.map_or("", |service| &service.namespace)),
    ]);
}
