//! Ranks nodes by the alternatives that a Pod's claims get there (`firstAvailable`): earlier ones are better. Upstream's `computeScore`.

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use sched_framework::{CycleState, NodeInfo, Normalization, PodInfo, ScorePlugin};

use super::requests::alternative_name;
use super::{DYNAMIC_RESOURCES, DynamicResources, PodClaims};

/// The highest number of alternatives of a request.
const ALTERNATIVES_MAX: i64 = 8;

impl ScorePlugin for DynamicResources {
    /// Only claims with alternatives prefer nodes.
    fn pre_score(&self, state: &mut CycleState, _pod: &PodInfo, _feasible: &[&NodeInfo]) -> bool {
        let claims = state.read::<PodClaims>(DYNAMIC_RESOURCES);
        claims.is_some_and(|claims| claims.unallocated.iter().any(|claim| alternatives(claim).next().is_some()))
    }

    fn score(&self, state: &CycleState, _pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let claims = state.read::<PodClaims>(DYNAMIC_RESOURCES)?;
        let progress = claims.progress.lock();
        let allocations = &progress.nodes.get(&node.name)?.as_ref().ok()?.allocations;
        Some(claims.unallocated.iter().zip(allocations).map(|(claim, allocation)| rank(claim, allocation)).sum())
    }

    fn normalization(&self) -> Normalization {
        Normalization::Highest
    }
}

/// Each alternative as results name it, with its points.
fn alternatives(claim: &ResourceClaim) -> impl Iterator<Item = (String, i64)> {
    let requests = claim.spec.iter().filter_map(|spec| spec.devices.as_ref()).flat_map(|devices| devices.requests.iter().flatten());
    requests.flat_map(|request| {
        let names = request.first_available.iter().flatten().map(|alternative| alternative_name(request, alternative));
        names.zip((1..=ALTERNATIVES_MAX).rev())
    })
}

/// The sum of the points of the alternatives that were allocated.
fn rank(claim: &ResourceClaim, allocation: &AllocationResult) -> i64 {
    let results = || allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let is_allocated = |name: &str| results().any(|result| result.request == name);
    alternatives(claim).filter(|(name, _)| is_allocated(name)).map(|(_, points)| points).sum()
}

#[cfg(test)]
mod tests {
    use sched_framework::{FilterPlugin, Status};
    use serde_json::json;

    use super::super::fixtures::{DRIVER, claim, slice, wanted};
    use super::super::tests::{cluster, using};
    use super::*;

    #[test]
    fn the_node_with_the_earlier_alternative_is_better() {
        let of_model = |model: &str| {
            let expression = format!("device.attributes[\"{DRIVER}\"].model == \"{model}\"");
            json!({"name": model, "deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]})
        };
        let with_model = |node: &str, model: &str| {
            slice(node, json!({"nodeName": node}), json!([{"name": "d", "attributes": {"model": {"string": model}}}]))
        };
        let claims = [claim("a", json!([{"name": "r", "firstAvailable": [of_model("new"), of_model("old")]}])), wanted("plain")];
        let all = cluster(&[with_model("n1", "old"), with_model("n2", "new")], &claims);
        let plugin = DynamicResources::default();
        let scores = |name: &str| {
            let (pod, mut state) = (using("p", &[name]), CycleState::default());
            assert_eq!(plugin.pre_filter(&mut state, &pod, &all), Status::Success);
            all.nodes.iter().for_each(|node| assert_eq!(plugin.filter(&state, &pod, node), Status::Success));
            let has_preference = plugin.pre_score(&mut state, &pod, &[]);
            has_preference.then(|| all.nodes.iter().map(|node| plugin.score(&state, &pod, node)).collect::<Vec<_>>())
        };
        assert_eq!(scores("a"), Some(vec![Some(7), Some(8)]));
        assert_eq!(scores("plain"), None, "a claim without alternatives");
    }
}
