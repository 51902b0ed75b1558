//! Ingresses: their class, their paths with what is behind them, and the hosts with TLS.

use api_model::k8s_openapi::api::networking::v1::{HTTPIngressPath, Ingress};

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, namespaced, resource_version};
use crate::read::{list, or_empty, text};
use crate::series::{Label, Series};

/// The annotation that named the class before the field did. It comes first.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

impl Kind for Ingress {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("ingress", self)
    }
}

const FAMILIES: &[Family<Ingress>] = &[
    gauge("kube_ingress_info", "An Ingress with its class.", |ingress, series| {
        let spec = or_empty(&ingress.spec);
        let annotation = ingress.metadata.annotations.as_ref().and_then(|annotations| annotations.get(CLASS_ANNOTATION));
        series.info(&[("ingressclass", annotation.or(spec.ingress_class_name.as_ref()).map_or("_default", String::as_str))]);
    }),
    gauge("kube_ingress_created", "When the Ingress was created, in Unix seconds.", created),
    gauge("kube_ingress_metadata_resource_version", "Resource version of the Ingress.", resource_version),
    gauge("kube_ingress_path", "A path of the Ingress with the Service or the object behind it.", |ingress, series| {
        for rule in list(&or_empty(&ingress.spec).rules) {
            for path in rule.http.iter().flat_map(|http| &http.paths) {
                backend(text(&rule.host), path, series);
            }
        }
    }),
    gauge("kube_ingress_tls", "A host with TLS and the Secret with its certificate.", |ingress, series| {
        for tls in list(&or_empty(&ingress.spec).tls) {
            for host in list(&tls.hosts) {
                series.info(&[("tls_host", host), ("secret", text(&tls.secret_name))]);
            }
        }
    }),
];

fn backend(host: &str, path: &HTTPIngressPath, series: &mut Series<'_>) {
    let mut labels = vec![("host", host), ("path", text(&path.path)), ("path_type", path.path_type.as_str())];
    if let Some(service) = &path.backend.service {
        // 0 for a port that has a name.
        let port = service.port.as_ref().and_then(|port| port.number).unwrap_or_default().to_string();
        labels.extend([("service_name", service.name.as_str()), ("service_port", &port)]);
        series.info(&labels);
    } else if let Some(resource) = &path.backend.resource {
        labels.extend([
            ("resource_api_group", text(&resource.api_group)),
            ("resource_kind", &resource.kind),
            ("resource_name", &resource.name),
        ]);
        series.info(&labels);
    }
}
