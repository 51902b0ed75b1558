//! Functions on Pods that several plugins use.

use api_model::kind::GroupResource;
use api_model::pod_resize::{self, INFEASIBLE, PENDING};
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
    of_spec(spec, "requests")
}

/// The limits of a Pod, computed like [`requests`].
pub fn limits(spec: &Value) -> Amounts {
    of_spec(spec, "limits")
}

/// The requests of a Pod whose resize may be under way: the largest of what the spec requests, what the node allocated, and what the
/// containers and the Pod as a whole have. The spec of an infeasible resize does not count (upstream's `PodRequests` with
/// `UseStatusResources`). The scheduler counts the same: `sched_framework::PodInfo`.
pub fn requests_in_use(pod: &Value) -> Amounts {
    in_use(pod, "requests")
}

/// The limits of a Pod whose resize may be under way, computed like [`requests_in_use`].
pub fn limits_in_use(pod: &Value) -> Amounts {
    in_use(pod, "limits")
}

/// `requests` or `limits` of one container, or of a Pod's spec as a whole.
pub fn of_container(container: &Value, which: &str) -> Amounts {
    amount::list(container.get("resources").and_then(|r| r.get(which)))
}

fn in_use(pod: &Value, which: &str) -> Amounts {
    let (spec, status) = (spec(pod), pod.get("status").unwrap_or(&Value::Null));
    let generation = pod.pointer("/metadata/generation").and_then(Value::as_i64);
    let is_deleted = pod.get("metadata").is_some_and(|metadata| json::has(metadata, "deletionTimestamp"));
    let is_infeasible = json::list(status, "conditions").iter().any(|condition| {
        let observed = condition.get("observedGeneration").and_then(Value::as_i64);
        let (kind, reason) = (json::text(condition, "type"), json::text(condition, "reason"));
        kind == PENDING && reason == INFEASIBLE && pod_resize::is_of_spec(observed, generation, is_deleted)
    });
    let largest = |specified: Amounts, status: Option<&Value>| {
        let allocated = status.and_then(|status| status.get("allocatedResources")).filter(|_| which == "requests");
        let resources = status.and_then(|status| status.get("resources"));
        // The node may report that there are no limits.
        let is_reported = allocated.or(resources).is_some();
        let actual = resources.and_then(|resources| resources.get(which));
        let mut largest = if is_infeasible && is_reported { Amounts::new() } else { specified };
        for list in [allocated, actual] {
            amount::raise(&mut largest, &amount::list(list));
        }
        largest
    };
    let of_container = |container: &Value| {
        let mut statuses = ["containerStatuses", "initContainerStatuses"].into_iter().flat_map(|field| json::list(status, field));
        let name = json::text(container, "name");
        largest(self::of_container(container, which), statuses.find(|status| json::text(status, "name") == name))
    };
    let specified = self::of_container(spec, which);
    let mut pod_level = largest(specified.clone(), Some(status));
    // The status has resources of every Pod as a whole, also of a Pod whose spec has none.
    pod_level.retain(|name, _| specified.contains_key(name));
    total(spec, which, pod_level, &of_container)
}

fn of_spec(spec: &Value, which: &str) -> Amounts {
    total(spec, which, of_container(spec, which), &|container| of_container(container, which))
}

fn total(spec: &Value, which: &str, pod_level: Amounts, of_container: &dyn Fn(&Value) -> Amounts) -> Amounts {
    let mut sum = Amounts::new();
    for container in json::list(spec, "containers") {
        amount::add(&mut sum, &of_container(container));
    }
    // A sidecar keeps running beside all containers that start after it.
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in json::list(spec, "initContainers") {
        let mut need = of_container(container);
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
    sum.extend(pod_level);
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

    #[test]
    fn a_resize_counts_at_its_most_unless_it_is_infeasible() {
        let cpu = |n: &str| json!({ "requests": { "cpu": n }, "limits": { "cpu": n } });
        let amounts = |spec: &Value, status: &Value, reason: &str| {
            let mut status = status.clone();
            status["conditions"] = json!([{ "type": "PodResizePending", "reason": reason }]);
            let pod = json!({ "spec": spec, "status": status });
            [requests_in_use(&pod), limits_in_use(&pod)].map(|list| list.get("cpu").copied())
        };
        let container = json!({ "containers": [{ "name": "c", "resources": cpu("3") }] });
        let whole = json!({ "resources": cpu("3"), "containers": [{ "name": "c" }], "overhead": { "cpu": "100m" } });
        let status =
            |allocated: &str, actual: &str| json!({ "name": "c", "allocatedResources": { "cpu": allocated }, "resources": cpu(actual) });
        let of_container = |allocated: &str, actual: &str| json!({ "containerStatuses": [status(allocated, actual)] });
        for (what, allocated, actual, reason, wanted) in [
            ("not allocated yet", "2", "1", "Deferred", [3000, 3000]),
            ("less was allocated and is not set yet", "3", "4", "", [4000, 4000]),
            ("not feasible", "2", "1", "Infeasible", [2000, 1000]),
        ] {
            assert_eq!(amounts(&container, &of_container(allocated, actual), reason), wanted.map(Some), "{what}");
            assert_eq!(amounts(&whole, &status(allocated, actual), reason), wanted.map(|n| Some(n + 100)), "{what}, the whole Pod");
        }
        assert_eq!(amounts(&container, &status("9", "9"), ""), [Some(3000); 2], "containers count for Pods without resources of their own");
        assert_eq!(amounts(&container, &json!({}), "Infeasible"), [Some(3000); 2], "without a status there is only the spec");
        let unlimited = json!({ "containerStatuses": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] });
        assert_eq!(amounts(&container, &unlimited, "Infeasible"), [Some(1000), None], "it would add a limit");
    }

    #[test]
    fn a_verdict_on_an_earlier_spec_does_not_count() {
        let cpu = |n: &str| json!({ "requests": { "cpu": n }, "limits": { "cpu": n } });
        let pod = |generation: i64, observed: Value, deleted: Value| {
            json!({
                "metadata": { "generation": generation, "deletionTimestamp": deleted },
                "spec": { "containers": [{ "name": "c", "resources": cpu("3") }] },
                "status": {
                    "conditions": [{ "type": "PodResizePending", "reason": "Infeasible", "observedGeneration": observed }],
                    "containerStatuses": [{ "name": "c", "allocatedResources": { "cpu": "1" }, "resources": cpu("1") }],
                },
            })
        };
        let (deleted, present) = (json!("2026-01-01T00:00:00Z"), Value::Null);
        for (generation, observed, deleted, wanted) in
            [(2, json!(2), &present, 1000), (3, json!(2), &present, 3000), (3, json!(2), &deleted, 1000), (2, Value::Null, &present, 3000)]
        {
            let pod = pod(generation, observed.clone(), deleted.clone());
            let amounts = [requests_in_use(&pod), limits_in_use(&pod)].map(|list| list.get("cpu").copied());
            assert_eq!(amounts, [Some(wanted); 2], "generation {generation}, observed {observed}");
        }
    }
}
