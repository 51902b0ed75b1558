//! What Pods request of a resource, in thousandths: upstream's `calculateRequests`.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_model::huge_pages::is_huge_page;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use sched_framework::{PodInfo, is_sidecar};

use super::CalculatorError;
use crate::meta;
use crate::podautoscaler::metrics::milli;

#[cfg(test)]
mod tests;

/// The requests by the names of the Pods: of one container, or the whole Pod's.
pub fn of_pods<'a>(pods: &'a [Arc<Pod>], container: Option<&str>, resource: &str) -> Result<BTreeMap<&'a str, i64>, CalculatorError> {
    let request = |pod: &Pod| match container {
        None if has_own(pod) => own(pod, resource),
        _ => of_containers(pod, container, resource),
    };
    pods.iter().map(|pod| Ok((meta::name(&pod.metadata), request(pod)?))).collect()
}

fn requests_of_pod(pod: &Pod) -> Option<&BTreeMap<String, Quantity>> {
    pod.spec.as_ref()?.resources.as_ref()?.requests.as_ref()
}

/// Whether the Pod has requests beside those of its containers (KEP-2837).
fn has_own(pod: &Pod) -> bool {
    let can_be_own = |name: &String| matches!(name.as_str(), "cpu" | "memory") || is_huge_page(name);
    requests_of_pod(pod).is_some_and(|requests| requests.keys().any(can_be_own))
}

/// The Pod's own request; that of its containers where it has none of its own for the resource.
fn own(pod: &Pod, resource: &str) -> Result<i64, CalculatorError> {
    let total = PodInfo::new(pod).requests;
    let whole = |amount: i64| amount.saturating_mul(1000);
    let amount = match resource {
        "cpu" => total.cpu_milli,
        "memory" => whole(total.memory_bytes),
        "ephemeral-storage" => whole(total.ephemeral_bytes),
        other => whole(total.scalar.get(other).copied().unwrap_or_default()),
    };
    let missing = || CalculatorError::MissingPodRequest { resource: resource.to_owned(), pod: meta::name(&pod.metadata).to_owned() };
    if amount > 0 { Ok(amount) } else { Err(missing()) }
}

fn of_containers(pod: &Pod, container: Option<&str>, resource: &str) -> Result<i64, CalculatorError> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let sidecars = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).filter(|one| is_sidecar(one));
    let (mut total, mut is_there) = (0_i64, container.is_none());
    for one in containers.chain(sidecars).filter(|one| container.is_none_or(|name| name == one.name)) {
        let request = one.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get(resource));
        let missing = || CalculatorError::MissingRequest {
            resource: resource.to_owned(),
            container: one.name.clone(),
            pod: meta::name(&pod.metadata).to_owned(),
        };
        total = total.saturating_add(milli(request.ok_or_else(missing)?));
        is_there = true;
    }
    let no_container =
        || CalculatorError::NoContainer { container: container.unwrap_or_default().to_owned(), pod: meta::name(&pod.metadata).to_owned() };
    if is_there { Ok(total) } else { Err(no_container()) }
}
