//! What a Pod has as a whole, as its status shows it (KEP-5419). Pure.

use std::collections::BTreeMap;

use api_model::huge_pages::is_huge_page;
use api_model::quantity::{self, NANO};
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::limits::limits_of_pod;
use super::{pod_level, requests_without_overhead, scalars_of_containers};

/// The requests of a Pod without its overhead, as `status.allocatedResources` has them; `None` if there are none.
pub(crate) fn total_requests(pod: &Pod) -> Option<BTreeMap<String, Quantity>> {
    let amount = requests_without_overhead(pod);
    let mut list = quantities(amount.cpu_milli, amount.memory_bytes);
    if amount.storage_bytes > 0 {
        list.insert("ephemeral-storage".to_owned(), binary(amount.storage_bytes));
    }
    let scalars = scalars_of_containers(pod).into_iter().filter(|(_, number)| *number > 0);
    list.extend(scalars.map(|(name, number)| {
        let quantity = if is_huge_page(&name) { binary(number) } else { decimal(i128::from(number).saturating_mul(NANO)) };
        (name, quantity)
    }));
    // As they are written, huge pages too.
    list.extend(pod_level(pod).and_then(|resources| resources.requests.clone()).into_iter().flatten());
    Some(list).filter(|list| !list.is_empty())
}

/// The CPU, memory and huge pages that a Pod has as a whole, without its overhead: `status.resources`. Limits are those of its cgroup.
pub(crate) fn total(pod: &Pod) -> Option<ResourceRequirements> {
    let (amount, limits) = (requests_without_overhead(pod), limits_of_pod(pod));
    let mut requests = quantities(amount.cpu_milli, amount.memory_bytes);
    let mut limits = quantities(limits.cpu_milli.unwrap_or(0), limits.memory_bytes.unwrap_or(0));
    if let Some(of_pod) = pod_level(pod) {
        requests.extend(of_pod.requests.clone().into_iter().flatten());
        limits.extend(of_pod.limits.clone().into_iter().flatten());
    }
    let list = |list: BTreeMap<String, Quantity>| Some(list).filter(|list| !list.is_empty());
    let total = ResourceRequirements { requests: list(requests), limits: list(limits), ..ResourceRequirements::default() };
    (total != ResourceRequirements::default()).then_some(total)
}

fn quantities(cpu_milli: i64, memory_bytes: i64) -> BTreeMap<String, Quantity> {
    let cpu = (cpu_milli > 0).then(|| ("cpu".to_owned(), decimal(i128::from(cpu_milli).saturating_mul(NANO / 1_000))));
    let memory = (memory_bytes > 0).then(|| ("memory".to_owned(), binary(memory_bytes)));
    cpu.into_iter().chain(memory).collect()
}

fn decimal(nano: i128) -> Quantity {
    Quantity(quantity::decimal_text(nano, false))
}

fn binary(bytes: i64) -> Quantity {
    Quantity(quantity::bytes_text(i128::from(bytes)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_has_what_its_spec_says_as_a_whole_else_what_its_containers_have_together() {
        let of = |resources: Value, containers: Value| {
            let spec = json!({"resources": resources, "containers": containers, "overhead": {"cpu": "100m", "memory": "1Mi"}});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
            json!([total_requests(&pod), total(&pod)])
        };
        let container = |requests: Value, limits: Value| json!({"name": "c", "resources": {"requests": requests, "limits": limits}});
        let one =
            container(json!({"cpu": "250m", "memory": "48Mi", "ephemeral-storage": "1Gi", "example.com/d": "2"}), json!({"cpu": "1"}));
        let other = container(json!({"cpu": "1", "memory": "16Mi"}), json!({"cpu": "500m", "memory": "32Mi"}));
        let together = json!({"cpu": "1250m", "memory": "64Mi", "ephemeral-storage": "1Gi", "example.com/d": "2"});
        let requests = json!({"cpu": "1250m", "memory": "64Mi"});
        assert_eq!(
            of(Value::Null, json!([one, other])),
            json!([together, {"requests": requests, "limits": {"cpu": "1500m"}}]),
            "not every container limits memory"
        );
        let whole = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "3", "memory": "1000M", "hugepages-2Mi": "2Mi"}});
        assert_eq!(
            of(whole, json!([other])),
            json!([
                {"cpu": "2", "memory": "16Mi"},
                {"requests": {"cpu": "2", "memory": "16Mi"}, "limits": {"cpu": "3", "memory": "1000M", "hugepages-2Mi": "2Mi"}},
            ])
        );
        assert_eq!(of(Value::Null, json!([{"name": "c"}])), json!([null, null]));
    }
}
