//! Functions on Pods that several plugins use.

use api_model::kind::GroupResource;
use serde_json::Value;

use crate::amount::{self, Amounts};
use crate::json;

/// The annotation of mirror Pods, which represent the static Pods of a node.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// `pods` of the core group.
pub fn resource() -> GroupResource {
    GroupResource::new("", "pods")
}

/// Whether a Pod is a mirror Pod.
pub fn is_mirror(pod: &Value) -> bool {
    json::has_annotation(pod, MIRROR)
}

/// The spec; null where absent.
pub fn spec(pod: &Value) -> &Value {
    pod.get("spec").unwrap_or(&Value::Null)
}

/// Init containers, containers and ephemeral containers of a Pod's spec, in upstream's order.
pub fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|field| json::list(spec, field))
}

/// The requests of a Pod: the larger one of two amounts, plus the overhead. One amount is the sum over the containers
/// and sidecars, the other is the peak of the init containers. Values for the whole Pod take precedence over both.
pub fn requests(spec: &Value) -> Amounts {
    total(spec, "requests")
}

/// The limits of a Pod, computed like [`requests`].
pub fn limits(spec: &Value) -> Amounts {
    total(spec, "limits")
}

/// One container's `requests` or `limits`.
pub fn of_container(container: &Value, which: &str) -> Amounts {
    amount::list(container.get("resources").and_then(|r| r.get(which)))
}

fn total(spec: &Value, which: &str) -> Amounts {
    let mut sum = Amounts::new();
    for container in json::list(spec, "containers") {
        amount::add(&mut sum, &of_container(container, which));
    }
    // A sidecar keeps running beside all containers that start after it.
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in json::list(spec, "initContainers") {
        let mut need = of_container(container, which);
        if json::text(container, "restartPolicy") == "Always" {
            amount::add(&mut sum, &need);
            amount::add(&mut sidecars, &need);
            amount::raise(&mut peak, &sidecars);
        } else {
            amount::add(&mut need, &sidecars);
            amount::raise(&mut peak, &need);
        }
    }
    amount::raise(&mut sum, &peak);
    for (name, whole) in amount::list(spec.get("resources").and_then(|r| r.get(which))) {
        sum.insert(name, whole);
    }
    for (name, overhead) in amount::list(spec.get("overhead")) {
        // The overhead sets no limit where the containers set none.
        match sum.get_mut(&name) {
            Some(amount) => *amount = amount.saturating_add(overhead),
            None if which == "requests" => {
                sum.insert(name, overhead);
            }
            None => {}
        }
    }
    sum
}

/// The Secrets that any field of a Pod's spec names.
pub fn secrets(spec: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = json::list(spec, "imagePullSecrets").iter().map(|s| json::text(s, "name")).collect();
    names.extend(json::list(spec, "volumes").iter().flat_map(secrets_of_volume));
    names.extend(environment(spec, "secretRef", "secretKeyRef"));
    names.retain(|name| !name.is_empty());
    names
}

/// The Secrets that a volume of any kind names.
pub fn secrets_of_volume(volume: &Value) -> Vec<&str> {
    let fields = ["/secret/secretName", "/azureFile/secretName", "/csi/nodePublishSecretRef/name"];
    let mut names: Vec<&str> = fields.iter().map(|field| json::text_at(volume, field)).collect();
    for source in volume.pointer("/projected/sources").and_then(Value::as_array).into_iter().flatten() {
        names.push(json::text_at(source, "/secret/name"));
    }
    names.extend(volume.as_object().into_iter().flatten().map(|(_, source)| json::text_at(source, "/secretRef/name")));
    names.retain(|name| !name.is_empty());
    names
}

/// The ConfigMaps that a Pod's spec names.
pub fn config_maps(spec: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    for volume in json::list(spec, "volumes") {
        names.push(json::text_at(volume, "/configMap/name"));
        for source in volume.pointer("/projected/sources").and_then(Value::as_array).into_iter().flatten() {
            names.push(json::text_at(source, "/configMap/name"));
        }
    }
    names.extend(environment(spec, "configMapRef", "configMapKeyRef"));
    names.retain(|name| !name.is_empty());
    names
}

/// The kind of another object of the API that a Pod's spec names, for Pods of a node's own, which may name none. The order is
/// upstream's.
pub fn api_object_reference(spec: &Value) -> Option<&'static str> {
    let volumes = || json::list(spec, "volumes").iter();
    let has = |field: &str| volumes().any(|volume| json::has(volume, field));
    let projected = |field: &str| {
        let sources = volumes().filter_map(|volume| volume.pointer("/projected/sources")?.as_array()).flatten();
        sources.into_iter().any(|source| json::has(source, field))
    };
    let has_account = ["serviceAccountName", "serviceAccount"].iter().any(|field| !json::text(spec, field).is_empty());
    let checks = [
        (has_account || projected("serviceAccountToken"), "serviceaccounts"),
        (!secrets(spec).is_empty(), "secrets"),
        (!config_maps(spec).is_empty(), "configmaps"),
        (!json::list(spec, "resourceClaims").is_empty(), "resourceclaims"),
        (has("persistentVolumeClaim") || has("ephemeral"), "persistentvolumeclaims"),
        (has("csi"), "csidrivers"),
        (projected("clusterTrustBundle"), "clustertrustbundles"),
        (projected("podCertificate"), "podcertificates"),
    ];
    checks.into_iter().find(|(is_named, _)| *is_named).map(|(_, resource)| resource)
}

fn environment<'a>(spec: &'a Value, whole: &str, key: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for container in containers(spec) {
        names.extend(json::list(container, "envFrom").iter().filter_map(|e| e.get(whole)).map(|r| json::text(r, "name")));
        names.extend(json::list(container, "env").iter().filter_map(|e| e.get("valueFrom")?.get(key)).map(|r| json::text(r, "name")));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_are_the_larger_of_running_and_starting() {
        let cpu = |n: &str| json!({ "requests": { "cpu": n } });
        let cases = [
            ("containers add up", json!({ "containers": [{ "resources": cpu("1") }, { "resources": cpu("500m") }] }), 1500),
            (
                "an init container's peak",
                json!({ "initContainers": [{ "resources": cpu("2") }], "containers": [{ "resources": cpu("1") }] }),
                2000,
            ),
            (
                "a sidecar runs beside both",
                json!({
                    "initContainers": [{ "restartPolicy": "Always", "resources": cpu("1") }, { "resources": cpu("2") }],
                    "containers": [{ "resources": cpu("1") }],
                }),
                3000,
            ),
            ("overhead", json!({ "containers": [{ "resources": cpu("1") }], "overhead": { "cpu": "250m" } }), 1250),
            ("the whole Pod's figure", json!({ "resources": cpu("4"), "containers": [{ "resources": cpu("1") }] }), 4000),
        ];
        for (what, spec, wanted) in cases {
            assert_eq!(requests(&spec).get("cpu"), Some(&wanted), "{what}");
        }
    }
}
