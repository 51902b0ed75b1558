//! Defaults of Pod specs: upstream's `SetDefaults_PodSpec`, `_Container`, `_Volume`, `_Probe` and
//! similar functions for every spec, and `SetDefaults_Pod` for Pods only.

use serde_json::{Value, json};

use crate::edit::{Fields, each, fill, fill_absent, inner, make, text};

/// The file mode of volumes: 0644.
const FILE_MODE: i64 = 0o644;

/// Defaults of a Pod that a template does not get. They are added when the Pod is created, so that a change of a
/// default does not start a rollout of every workload.
pub fn pod(spec: &mut Fields) {
    template_spec(spec);
    for list in ["containers", "initContainers"] {
        for container in each(spec, list) {
            requests_from_limits(container);
        }
    }
    super::qos::default_pod_level(spec);
    fill_absent(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or_default() {
        for list in ["containers", "initContainers"] {
            for container in each(spec, list) {
                for port in each(container, "ports") {
                    let own = port.get("containerPort").cloned().unwrap_or_default();
                    fill(port, "hostPort", own);
                }
            }
        }
    }
}

/// Defaults of every Pod spec.
pub fn template_spec(spec: &mut Fields) {
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill_absent(spec, "securityContext", json!({}));
    fill_absent(spec, "terminationGracePeriodSeconds", 30);
    fill(spec, "schedulerName", "default-scheduler");
    mirror_service_account(spec);
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for item in each(spec, list) {
            container(item);
        }
    }
    for item in each(spec, "volumes") {
        volume(item);
    }
}

/// Defaults of a Pod template: its metadata and its spec.
pub fn template(owner: &mut Fields) {
    if let Some(template) = make(owner, "template") {
        make(template, "metadata");
        if let Some(spec) = make(template, "spec") {
            template_spec(spec);
        }
    }
}

/// Keeps the field's old name `serviceAccount` equal to `serviceAccountName`.
fn mirror_service_account(spec: &mut Fields) {
    let new = text(spec, "serviceAccountName").to_owned();
    let name = if new.is_empty() { text(spec, "serviceAccount").to_owned() } else { new };
    if !name.is_empty() {
        spec.insert("serviceAccountName".to_owned(), Value::from(name.as_str()));
        spec.insert("serviceAccount".to_owned(), name.into());
    }
}

fn requests_from_limits(container: &mut Fields) {
    let Some(resources) = inner(container, "resources") else {
        return;
    };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).filter(|limits| !limits.is_empty()).cloned() else {
        return;
    };
    if let Some(requests) = make(resources, "requests") {
        for (name, quantity) in limits {
            requests.entry(name).or_insert(quantity);
        }
    }
}

fn container(container: &mut Fields) {
    let policy = pull_policy(text(container, "image"));
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    fill_absent(container, "resources", json!({}));
    for port in each(container, "ports") {
        fill(port, "protocol", "TCP");
    }
    for variable in each(container, "env") {
        if let Some(source) = inner(variable, "valueFrom") {
            field_ref(source);
            resource_field_ref(source);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = inner(container, name) {
            self::probe(probe);
        }
    }
    if let Some(lifecycle) = inner(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = inner(lifecycle, hook) {
                http_get(hook);
            }
        }
    }
}

/// `Always` for the tag `latest`, explicit or implied; `IfNotPresent` for any other tag or a digest.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map(|(_, tag)| tag);
    match (tag, digest) {
        (Some("latest"), _) => "Always",
        (None, None) if !image.is_empty() => "Always",
        _ => "IfNotPresent",
    }
}

fn probe(probe: &mut Fields) {
    fill(probe, "timeoutSeconds", 1);
    fill(probe, "periodSeconds", 10);
    fill(probe, "successThreshold", 1);
    fill(probe, "failureThreshold", 3);
    http_get(probe);
    if let Some(grpc) = inner(probe, "grpc") {
        fill_absent(grpc, "service", "");
    }
}

fn http_get(handler: &mut Fields) {
    if let Some(get) = inner(handler, "httpGet") {
        fill(get, "path", "/");
        fill(get, "scheme", "HTTP");
    }
}

fn field_ref(source: &mut Fields) {
    if let Some(reference) = inner(source, "fieldRef") {
        fill(reference, "apiVersion", "v1");
    }
}

fn resource_field_ref(source: &mut Fields) {
    if let Some(reference) = inner(source, "resourceFieldRef") {
        fill(reference, "divisor", "0");
    }
}

/// The defaults of a volume, by its kind.
fn volume(volume: &mut Fields) {
    if volume.iter().all(|(name, value)| name == "name" || value.is_null()) {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = inner(volume, source) {
            fill_absent(source, "defaultMode", FILE_MODE);
        }
    }
    if let Some(source) = inner(volume, "downwardAPI") {
        downward(source);
    }
    if let Some(projected) = inner(volume, "projected") {
        for source in each(projected, "sources") {
            if let Some(token) = inner(source, "serviceAccountToken") {
                fill_absent(token, "expirationSeconds", 3600);
            }
            if let Some(source) = inner(source, "downwardAPI") {
                downward(source);
            }
        }
    }
    if let Some(source) = inner(volume, "hostPath") {
        fill_absent(source, "type", "");
    }
    if let Some(source) = inner(volume, "image") {
        let policy = pull_policy(text(source, "reference"));
        fill(source, "pullPolicy", policy);
    }
    if let Some(spec) = inner(volume, "ephemeral").and_then(|e| inner(e, "volumeClaimTemplate")).and_then(|t| inner(t, "spec")) {
        fill_absent(spec, "volumeMode", "Filesystem");
    }
    persistent_source(volume);
}

fn downward(source: &mut Fields) {
    for item in each(source, "items") {
        field_ref(item);
        resource_field_ref(item);
    }
}

/// Defaults of the volume kinds that PersistentVolumes have too.
pub fn persistent_source(source: &mut Fields) {
    if let Some(source) = inner(source, "hostPath") {
        fill_absent(source, "type", "");
    }
    if let Some(source) = inner(source, "iscsi") {
        fill(source, "iscsiInterface", "default");
    }
    if let Some(source) = inner(source, "rbd") {
        fill(source, "pool", "rbd");
        fill(source, "user", "admin");
        fill(source, "keyring", "/etc/ceph/keyring");
    }
    if let Some(source) = inner(source, "azureDisk") {
        fill_absent(source, "cachingMode", "ReadWrite");
        fill_absent(source, "kind", "Shared");
        fill_absent(source, "fsType", "ext4");
        fill_absent(source, "readOnly", false);
    }
    if let Some(source) = inner(source, "scaleIO") {
        fill(source, "storageMode", "ThinProvisioned");
        fill(source, "fsType", "xfs");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_named_latest_are_always_pulled() {
        for (image, wanted) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.27", "IfNotPresent"),
            ("registry:5000/nginx", "Always"),
            ("registry:5000/nginx:v1", "IfNotPresent"),
            ("nginx@sha256:0123", "IfNotPresent"),
            ("nginx:latest@sha256:0123", "Always"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), wanted, "{image}");
        }
    }
}
