//! LimitRanger: sets the namespace's default requests and limits of containers, and rejects Pods, containers and claims
//! below the minimum or above the maximum.

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::view::View;
use serde_json::{Map, Value};

use crate::amount::{self, Amounts};
use crate::denied::Denied;
use crate::json;
use crate::plugin::Plugin;
use crate::pods;
use crate::request::{Operation, Request};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The plugin.
pub struct LimitRanger;

impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn admit(&self, request: &mut Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if request.operation != Operation::Create || !request.is("", "pods") {
            return Ok(());
        }
        for range in ranges(request, view) {
            if let Some(pod) = request.object.as_deref_mut() {
                set_defaults(pod, &range);
            }
        }
        Ok(())
    }

    fn validate(&self, request: &Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let (pod, claim) = (concerns_pod(request), writes && request.is("", "persistentvolumeclaims"));
        let Some(object) = request.object().filter(|_| pod || claim) else { return Ok(()) };
        for range in ranges(request, view) {
            let mut problems = Vec::new();
            for item in range.pointer("/spec/limits").and_then(Value::as_array).into_iter().flatten() {
                if pod {
                    check_pod(item, pods::spec(object), &mut problems);
                } else {
                    check_claim(item, object, &mut problems);
                }
            }
            match problems.as_slice() {
                [] => {}
                [one] => return Err(Denied::forbidden(request, one.clone())),
                _ => return Err(Denied::forbidden(request, format!("[{}]", problems.join(", ")))),
            }
        }
        Ok(())
    }
}

/// A Pod's resources are set when it is created and when it is resized.
fn concerns_pod(request: &Request<'_>) -> bool {
    match request.operation {
        Operation::Create => request.is("", "pods"),
        Operation::Update => request.is_sub("", "pods", "resize"),
        Operation::Delete | Operation::Connect => false,
    }
}

fn ranges(request: &Request<'_>, view: &dyn View) -> Vec<std::sync::Arc<Value>> {
    view.list(&GroupResource::new("", "limitranges"), Some(request.namespace))
}

fn set_defaults(pod: &mut Value, range: &Value) {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for item in range.pointer("/spec/limits").and_then(Value::as_array).into_iter().flatten() {
        if json::text(item, "type") == "Container" {
            requests.extend(json::map(item, "defaultRequest").cloned().unwrap_or_default());
            limits.extend(json::map(item, "default").cloned().unwrap_or_default());
        }
    }
    let mut applied = Vec::new();
    for (field, what) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(field)).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = json::text(container, "name").to_owned();
            for (list, defaults, word) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                let set = fill(container, list, defaults);
                if !set.is_empty() {
                    applied.push(format!("{} {word} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if applied.is_empty() {
        return;
    }
    let text = format!("LimitRanger plugin set: {}", applied.join("; "));
    meta::metadata_mut(pod);
    if let Some(annotations) = pod.get_mut("metadata").and_then(|m| json::map_mut(m, "annotations")) {
        annotations.insert(ANNOTATION.to_owned(), text.into());
    }
}

/// Sets the missing entries of a container's requests or limits. Returns the names of the set entries, sorted.
fn fill(container: &mut Value, list: &str, defaults: &Map<String, Value>) -> Vec<String> {
    if defaults.is_empty() || json::map_mut(container, "resources").is_none() {
        return Vec::new();
    }
    let Some(have) = container.get_mut("resources").and_then(|r| json::map_mut(r, list)) else { return Vec::new() };
    let mut set = Vec::new();
    for (name, value) in defaults {
        if !have.contains_key(name) {
            have.insert(name.clone(), value.clone());
            set.push(name.clone());
        }
    }
    set.sort();
    set
}

fn check_pod(item: &Value, spec: &Value, problems: &mut Vec<String>) {
    match json::text(item, "type") {
        "Container" => {
            for field in ["containers", "initContainers"] {
                for container in json::list(spec, field) {
                    check_use(item, &pods::of_container(container, "requests"), &pods::of_container(container, "limits"), problems);
                }
            }
        }
        "Pod" => check_use(item, &pods::requests(spec), &pods::limits(spec), problems),
        _ => {}
    }
}

fn check_use(item: &Value, requests: &Amounts, limits: &Amounts, problems: &mut Vec<String>) {
    let kind = json::text(item, "type");
    for (name, bound) in json::map(item, "min").into_iter().flatten() {
        problems.extend(below(kind, name, bound, requests.get(name), limits.get(name)));
    }
    for (name, bound) in json::map(item, "max").into_iter().flatten() {
        problems.extend(above(kind, name, bound, requests.get(name), limits.get(name)));
    }
    for (name, bound) in json::map(item, "maxLimitRequestRatio").into_iter().flatten() {
        problems.extend(ratio(kind, name, bound, requests.get(name), limits.get(name)));
    }
}

fn below(kind: &str, name: &str, bound: &Value, request: Option<&i128>, limit: Option<&i128>) -> Option<String> {
    let least = amount::milli(bound).ok()?;
    let head = format!("minimum {name} usage per {kind} is {}", amount::canonical(name, bound));
    let text = |milli: i128| amount::text(name, milli, None);
    match (request, limit) {
        (None, _) => Some(format!("{head}.  No request is specified")),
        (Some(request), _) if *request < least => Some(format!("{head}, but request is {}", text(*request))),
        (_, Some(limit)) if *limit < least => Some(format!("{head}, but limit is {}", text(*limit))),
        _ => None,
    }
}

fn above(kind: &str, name: &str, bound: &Value, request: Option<&i128>, limit: Option<&i128>) -> Option<String> {
    let most = amount::milli(bound).ok()?;
    let head = format!("maximum {name} usage per {kind} is {}", amount::canonical(name, bound));
    let text = |milli: i128| amount::text(name, milli, None);
    match (limit, request) {
        (None, _) => Some(format!("{head}.  No limit is specified")),
        (Some(limit), _) if *limit > most => Some(format!("{head}, but limit is {}", text(*limit))),
        (_, Some(request)) if *request > most => Some(format!("{head}, but request is {}", text(*request))),
        _ => None,
    }
}

fn ratio(kind: &str, name: &str, bound: &Value, request: Option<&i128>, limit: Option<&i128>) -> Option<String> {
    let most = amount::milli(bound).ok()?;
    let head = format!("{name} max limit to request ratio per {kind} is {}", amount::canonical(name, bound));
    let Some(request) = request.filter(|r| **r != 0) else {
        return Some(format!("{head}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|l| **l != 0) else {
        return Some(format!("{head}, but no limit is specified or limit is 0"));
    };
    if limit.saturating_mul(1000) <= request.saturating_mul(most) {
        return None;
    }
    let thousandths = limit.saturating_mul(1_000_000) / request;
    Some(format!("{head}, but provided ratio is {}.{:06}", thousandths / 1_000_000, thousandths % 1_000_000))
}

/// A claim has requests only.
fn check_claim(item: &Value, claim: &Value, problems: &mut Vec<String>) {
    let kind = json::text(item, "type");
    if kind != "PersistentVolumeClaim" {
        return;
    }
    let requests = amount::list(claim.pointer("/spec/resources/requests"));
    for (name, bound) in json::map(item, "min").into_iter().flatten() {
        problems.extend(below(kind, name, bound, requests.get(name), None));
    }
    for (name, bound) in json::map(item, "max").into_iter().flatten() {
        let head = format!("maximum {name} usage per {kind} is {}", amount::canonical(name, bound));
        match (requests.get(name), amount::milli(bound)) {
            (None, _) => problems.push(format!("{head}.  No request is specified")),
            (Some(request), Ok(most)) if *request > most => {
                problems.push(format!("{head}, but request is {}", amount::text(name, *request, None)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects, verdict};
    use serde_json::json;

    fn view(limits: Value) -> Objects {
        Objects::new([
            json!({ "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "l", "namespace": "ns" }, "spec": { "limits": limits } }),
        ])
    }

    fn pod(resources: Value) -> Value {
        let containers = json!([{ "name": "c", "resources": resources }]);
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "ns" }, "spec": { "containers": containers } })
    }

    #[test]
    fn defaults_are_set_and_recorded() {
        let view = view(json!([{ "type": "Container", "default": { "cpu": "1", "memory": "1Gi" }, "defaultRequest": { "cpu": "500m" } }]));
        let outcome = Ask::create(pod(json!({ "limits": { "cpu": "2" } }))).admit(&LimitRanger, &view).expect("admitted").object;
        let wanted = json!({ "limits": { "cpu": "2", "memory": "1Gi" }, "requests": { "cpu": "500m" } });
        assert_eq!(outcome["spec"]["containers"][0]["resources"], wanted);
        let annotation = "LimitRanger plugin set: cpu request for container c; memory limit for container c";
        assert_eq!(outcome["metadata"]["annotations"][ANNOTATION], annotation);

        let full = pod(json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "1" } }));
        assert_eq!(Ask::create(full.clone()).admit(&LimitRanger, &view).expect("admitted").object, full);
    }

    #[test]
    fn bounds_hold() {
        let container = |field: &str, bounds: Value| json!([{ "type": "Container", field: bounds }]);
        let cpu = |request: &str, limit: &str| json!({ "requests": { "cpu": request }, "limits": { "cpu": limit } });
        for (limits, resources, wanted) in [
            (container("min", json!({ "cpu": "100m" })), json!({}), "minimum cpu usage per Container is 100m.  No request is specified"),
            (container("min", json!({ "cpu": "1" })), cpu("500m", "2"), "minimum cpu usage per Container is 1, but request is 500m"),
            (container("max", json!({ "cpu": "1" })), json!({}), "maximum cpu usage per Container is 1.  No limit is specified"),
            (container("max", json!({ "cpu": "1" })), cpu("1", "2"), "maximum cpu usage per Container is 1, but limit is 2"),
            (
                container("maxLimitRequestRatio", json!({ "cpu": "2" })),
                cpu("1", "2500m"),
                "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
            ),
            (
                container("maxLimitRequestRatio", json!({ "cpu": "2" })),
                json!({}),
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
            (
                json!([{ "type": "Pod", "max": { "cpu": "1", "memory": "1Gi" } }]),
                json!({ "limits": { "cpu": "2", "memory": "2Gi" } }),
                "[maximum cpu usage per Pod is 1, but limit is 2, maximum memory usage per Pod is 1Gi, but limit is 2Gi]",
            ),
        ] {
            let verdict = verdict(Ask::create(pod(resources)).validate(&LimitRanger, &view(limits)));
            assert_eq!(verdict, format!("pods \"p\" is forbidden: {wanted}"));
        }
        let bounds = json!([{ "type": "Container", "min": { "cpu": "1" }, "max": { "cpu": "2" }, "maxLimitRequestRatio": { "cpu": "2" } }]);
        assert_eq!(verdict(Ask::create(pod(cpu("1", "2"))).validate(&LimitRanger, &view(bounds))), "ok");
    }

    #[test]
    fn claims_are_bounded_too() {
        let view = view(json!([{ "type": "PersistentVolumeClaim", "min": { "storage": "1Gi" }, "max": { "storage": "2Gi" } }]));
        let claim = |size: &str| {
            let claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c", "namespace": "ns" },
                "spec": { "resources": { "requests": { "storage": size } } },
            });
            verdict(Ask::create(claim).validate(&LimitRanger, &view))
        };
        assert_eq!(claim("1Gi"), "ok");
        let refused = "persistentvolumeclaims \"c\" is forbidden: ";
        assert_eq!(claim("3Gi"), format!("{refused}maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"));
        assert_eq!(claim("1Mi"), format!("{refused}minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"));
    }
}
