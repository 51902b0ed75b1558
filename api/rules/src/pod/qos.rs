//! The quality-of-service class of a Pod, and the sums of its containers' requests and limits.

use std::collections::BTreeMap;

use api_model::huge_pages::is_huge_page;
use serde_json::{Map, Value};

use crate::at::At;
use crate::edit::{Fields, inner};
use crate::quantity::{self, Quantity};

/// Resources that decide the class.
const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// Amounts by resource name.
type Amounts = BTreeMap<String, Quantity>;

/// Upstream's `ComputePodQOS`.
pub fn class(spec: &At<'_>) -> &'static str {
    let pod_level = spec.get("resources");
    let sources: Vec<At<'_>> = if pod_level.get("requests").len() + pod_level.get("limits").len() > 0 {
        vec![pod_level]
    } else {
        ["containers", "initContainers"].iter().flat_map(|list| spec.get(list).items()).map(|c| c.get("resources")).collect()
    };
    let (mut requests, mut limits) = (BTreeMap::new(), BTreeMap::new());
    let mut guaranteed = true;
    for resources in &sources {
        add(&mut requests, &resources.get("requests"));
        let count = add(&mut limits, &resources.get("limits"));
        guaranteed &= count == COMPUTE.len();
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    if guaranteed && requests == limits { "Guaranteed" } else { "Burstable" }
}

/// Adds the compute resources above zero to a sum. Returns how many were added.
fn add(sum: &mut BTreeMap<&'static str, i128>, list: &At<'_>) -> usize {
    let mut count = 0;
    for name in COMPUTE {
        let nano = quantity::parse(list.get(name).text()).map_or(0, Quantity::nano);
        if nano > 0 {
            *sum.entry(name).or_default() += nano;
            count += 1;
        }
    }
    count
}

/// Resources that may be set for a Pod as a whole.
pub fn is_pod_level(name: &str) -> bool {
    COMPUTE.contains(&name) || is_huge_page(name)
}

/// Upstream's `AggregateContainerRequests` without overhead. Containers run together with the sidecars; each init
/// container runs together with the sidecars that were started before it.
pub fn aggregate_requests(spec: &At<'_>) -> Amounts {
    aggregate(spec, "resources.requests")
}

/// The huge pages in upstream's `AggregateContainerLimits`.
pub fn aggregate_huge_pages(spec: &At<'_>) -> Amounts {
    let mut limits = aggregate(spec, "resources.limits");
    limits.retain(|name, _| is_huge_page(name));
    limits
}

fn aggregate(spec: &At<'_>, list: &str) -> Amounts {
    let mut total = Amounts::new();
    for container in spec.get("containers").items() {
        plus(&mut total, &amounts(&container, list));
    }
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in spec.get("initContainers").items() {
        let own = amounts(&container, list);
        if container.get("restartPolicy").text() == "Always" {
            plus(&mut total, &own);
            plus(&mut sidecars, &own);
            most(&mut peak, &sidecars);
        } else {
            let mut now = sidecars.clone();
            plus(&mut now, &own);
            most(&mut peak, &now);
        }
    }
    most(&mut total, &peak);
    total
}

fn amounts(container: &At<'_>, list: &str) -> Amounts {
    container.find(list).entries().filter_map(|(name, value)| Some((name.to_owned(), quantity::parse(value.text()).ok()?))).collect()
}

fn plus(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let total = sum.get(name).map_or(*amount, |current| current.plus(*amount));
        sum.insert(name.clone(), total);
    }
}

fn most(high: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if high.get(name).is_none_or(|current| current.nano() < amount.nano()) {
            high.insert(name.clone(), *amount);
        }
    }
}

/// Defaults of Pod-level limits of huge pages: the sum of the containers' limits, unless there is a request. Defaults of Pod-level requests:
/// the sum of the containers' requests, else the limit.
pub fn default_pod_level(spec: &mut Fields) {
    let Some(resources) = spec.get("resources").and_then(Value::as_object) else { return };
    if ["requests", "limits"].into_iter().all(|name| list(resources, name).is_empty()) {
        return;
    }
    let object = Value::Object(spec.clone());
    let containers = At::root(&object);
    let Some(resources) = inner(spec, "resources") else { return };
    default_huge_pages(resources, &containers);
    let limits = list(resources, "limits");
    if limits.is_empty() {
        return;
    }
    let Some(requests) = crate::edit::make(resources, "requests") else { return };
    for (name, amount) in aggregate_requests(&containers).iter().filter(|(name, _)| COMPUTE.contains(&name.as_str())) {
        requests.entry(name.clone()).or_insert_with(|| amount.canonical().into());
    }
    for (name, limit) in limits.into_iter().filter(|(name, _)| is_pod_level(name)) {
        requests.entry(name).or_insert(limit);
    }
}

/// A list of the Pod's resources; empty when absent.
fn list(resources: &Fields, name: &str) -> Map<String, Value> {
    resources.get(name).and_then(Value::as_object).cloned().unwrap_or_default()
}

fn default_huge_pages(resources: &mut Fields, spec: &At<'_>) {
    let (requests, limits) = (list(resources, "requests"), list(resources, "limits"));
    let pages = aggregate_huge_pages(spec);
    let missing: Vec<_> = pages.iter().filter(|(name, _)| !requests.contains_key(*name) && !limits.contains_key(*name)).collect();
    if let Some(limits) = (!missing.is_empty()).then(|| crate::edit::make(resources, "limits")).flatten() {
        limits.extend(missing.into_iter().map(|(name, amount)| (name.clone(), amount.canonical().into())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn classes_follow_requests_and_limits() {
        let container = |requests: Value, limits: Value| json!({"resources": {"requests": requests, "limits": limits}});
        let full = json!({"cpu": "1", "memory": "1Gi"});
        for (containers, wanted) in [
            (json!([{"name": "a"}]), "BestEffort"),
            (json!([container(json!({"cpu": "0"}), json!({}))]), "BestEffort"),
            (json!([container(full.clone(), full.clone())]), "Guaranteed"),
            (json!([container(json!({"cpu": "1000m", "memory": "1024Mi"}), full.clone())]), "Guaranteed"),
            (json!([container(full.clone(), full.clone()), {"name": "b"}]), "Burstable"),
            (json!([container(json!({"cpu": "1"}), json!({}))]), "Burstable"),
            (json!([container(json!({"cpu": "500m", "memory": "1Gi"}), full)]), "Burstable"),
        ] {
            let spec = json!({"containers": containers});
            assert_eq!(class(&At::root(&spec)), wanted, "{spec}");
        }
    }

    #[test]
    fn pod_level_requests_default_to_what_containers_ask_for() {
        let mut spec = json!({
            "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
            "containers": [{"resources": {"requests": {"cpu": "300m"}}}, {"resources": {"requests": {"cpu": "200m"}}}],
        });
        default_pod_level(spec.as_object_mut().expect("map"));
        assert_eq!(spec.pointer("/resources/requests"), Some(&json!({"cpu": "500m", "memory": "1Gi"})));
    }

    #[test]
    fn pod_level_huge_pages_default_to_the_containers_limits() {
        let container = json!({"resources": {"requests": {"hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi", "memory": "8Mi"}}});
        let defaulted = |resources: Value| {
            let mut spec = json!({"resources": resources, "containers": [container, container]});
            default_pod_level(spec.as_object_mut().expect("map"));
            spec.get("resources").cloned().expect("resources")
        };
        let wanted = json!({"limits": {"cpu": "1", "hugepages-2Mi": "8Mi"}, "requests": {"cpu": "1", "hugepages-2Mi": "8Mi"}});
        assert_eq!(defaulted(json!({"limits": {"cpu": "1"}})), wanted);
        assert_eq!(defaulted(json!({"requests": {"cpu": "1"}}))["limits"], json!({"hugepages-2Mi": "8Mi"}));
        let own = json!({"limits": {"hugepages-2Mi": "16Mi"}, "requests": {"hugepages-2Mi": "16Mi"}});
        assert_eq!(defaulted(own.clone()), own);
        let requested = json!({"requests": {"hugepages-2Mi": "8Mi"}});
        assert_eq!(defaulted(requested.clone()), requested, "validation reports the missing limit");
        assert_eq!(defaulted(json!({})), json!({}));
    }
}
