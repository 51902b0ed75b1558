//! The huge pages that cgroups may have, by the bytes of a page. A size that is not listed has none.

use std::collections::BTreeMap;

use api_model::huge_pages;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

type List = BTreeMap<String, Quantity>;

/// The limits of a container's cgroup: its own, and of other sizes those of the whole Pod.
pub(super) fn of_container(pod: &Pod, limits: Option<&List>) -> BTreeMap<u64, u64> {
    let of_pod = super::pod_level(pod).and_then(|resources| resources.limits.as_ref());
    of_pod.into_iter().chain(limits).flat_map(huge_pages::amounts).collect()
}

/// The limits of a Pod's cgroup.
pub(super) fn of_pod(pod: &Pod) -> BTreeMap<u64, u64> {
    pod.spec.as_ref().map(huge_pages::limits_of_pod).unwrap_or_default()
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
