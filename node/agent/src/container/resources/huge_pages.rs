//! The huge pages that cgroups may have, by the bytes of a page. A size that is not listed has none.

use std::collections::BTreeMap;

use api_model::{huge_pages, quantity};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

type List = BTreeMap<String, Quantity>;

/// The limits of a container's cgroup: its own, and of other sizes those of the whole Pod.
pub(super) fn of_container(pod: &Pod, limits: Option<&List>) -> BTreeMap<u64, u64> {
    let mut pages = of_list(limits_of_pod(pod));
    pages.extend(of_list(limits));
    pages
}

/// The limits of a Pod's cgroup: those of `spec.resources`, else those of all containers together. As upstream, init containers are added
/// too: pages that they leave in a volume count for the Pod after their end.
pub(super) fn of_pod(pod: &Pod) -> BTreeMap<u64, u64> {
    let Some(spec) = &pod.spec else { return BTreeMap::new() };
    let mut sum = BTreeMap::new();
    for (_, container) in super::super::all(spec) {
        add(&mut sum, container.resources.as_ref().and_then(|resources| resources.limits.as_ref()));
    }
    sum.extend(of_list(limits_of_pod(pod)));
    add(&mut sum, spec.overhead.as_ref());
    sum
}

fn limits_of_pod(pod: &Pod) -> Option<&List> {
    super::pod_level(pod)?.limits.as_ref()
}

fn of_list(list: Option<&List>) -> BTreeMap<u64, u64> {
    let limit = |(name, quantity): (&String, &Quantity)| {
        let bytes = u64::try_from(quantity::value(&quantity.0).ok()?).ok()?;
        Some((huge_pages::page_bytes(name)?, bytes))
    };
    list.into_iter().flatten().filter_map(limit).collect()
}

fn add(sum: &mut BTreeMap<u64, u64>, list: Option<&List>) {
    for (page_bytes, bytes) in of_list(list) {
        let present = sum.entry(page_bytes).or_default();
        *present = present.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{of_container, of_pod, scalar_requests};
    use super::*;

    fn pod(containers: Value, init: Value, overhead: Value, resources: Value) -> Pod {
        let spec = json!({"containers": containers, "initContainers": init, "overhead": overhead, "resources": resources});
        serde_json::from_value(json!({"spec": spec})).expect("a Pod")
    }

    /// The limits of each container and of the Pod, and what the Pod requests.
    fn numbers(pod: &Pod) -> (Vec<List64>, List64, List64Named) {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let list = |pages: Option<BTreeMap<u64, u64>>| pages.expect("limits").into_iter().collect::<List64>();
        let of_containers = containers.map(|container| list(of_container(pod, container).huge_pages)).collect();
        (of_containers, list(of_pod(pod).huge_pages), scalar_requests(pod).into_iter().collect())
    }

    type List64 = Vec<(u64, u64)>;
    type List64Named = Vec<(String, i64)>;

    #[test]
    fn huge_pages_are_limited_by_their_size() {
        let (small, large) = (2 << 20, 1 << 30);
        let one = |amounts: Value| json!({"name": "c", "resources": {"requests": amounts, "limits": amounts}});
        let containers = json!([one(json!({"hugepages-2Mi": "4Mi"})), {"name": "d"}, one(json!({"hugepages-1Gi": "1Gi"}))]);
        let init = json!([one(json!({"hugepages-2Mi": "8Mi"}))]);
        let (of_containers, of_pod, requests) = numbers(&pod(containers.clone(), init.clone(), json!({}), json!(null)));
        assert_eq!(of_containers, [vec![(small, 4 << 20)], vec![], vec![(large, 1 << 30)]]);
        assert_eq!(of_pod, [(small, 12 << 20), (large, 1 << 30)], "init containers too");
        let named = |large: i64, small: i64| vec![("hugepages-1Gi".to_owned(), large), ("hugepages-2Mi".to_owned(), small)];
        assert_eq!(requests, named(1 << 30, 8 << 20), "of the containers and the init container, the greater");
        let whole = json!({"hugepages-2Mi": "16Mi"});
        let (of_containers, of_pod, requests) =
            numbers(&pod(containers, init, json!({"hugepages-2Mi": "2Mi"}), json!({"requests": whole, "limits": whole})));
        assert_eq!(of_containers, [vec![(small, 4 << 20)], vec![(small, 16 << 20)], vec![(small, 16 << 20), (large, 1 << 30)]]);
        assert_eq!(of_pod, [(small, 18 << 20), (large, 1 << 30)], "with the overhead");
        assert_eq!(requests, named(1 << 30, 18 << 20));
    }
}
