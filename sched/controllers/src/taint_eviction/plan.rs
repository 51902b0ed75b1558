//! Whether and when a Pod must leave.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

use crate::eviction::Verdict;
use crate::meta;

/// The taints of a Node that make Pods leave.
pub fn no_execute(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

/// Whether a toleration tolerates a taint.
pub fn tolerations(pod: &Pod) -> Vec<Toleration> {
    pod.spec.as_ref().and_then(|spec| spec.tolerations.clone()).unwrap_or_default()
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    (effect.is_empty() || effect == taint.effect) && (key == taint.key || (key.is_empty() && exists)) && (exists || value())
}

/// When a Pod must leave: at once for a taint that it does not tolerate, else when the shortest of its toleration times has
/// passed. For taints without `timeAdded` (those that users add) the time counts from `first_observed`, when this process first
/// observed the Pod under the taints.
pub fn verdict(taints: &[Taint], tolerations: &[Toleration], first_observed: Timestamp, now: Timestamp) -> Verdict {
    let mut leaves: Option<Timestamp> = None;
    for taint in taints {
        let mut matching = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).peekable();
        if matching.peek().is_none() {
            return Verdict::LeavesAt(now);
        }
        let Some(seconds) = matching.filter_map(|toleration| toleration.toleration_seconds).min() else { continue };
        let since = meta::instant(taint.time_added.as_ref()).unwrap_or(first_observed);
        let at = since.checked_add(SignedDuration::from_secs(seconds.max(0))).unwrap_or(Timestamp::MAX);
        leaves = Some(leaves.map_or(at, |other| other.min(at)));
    }
    leaves.map_or(Verdict::Stays, Verdict::LeavesAt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn taints(value: Value) -> Vec<Taint> {
        serde_json::from_value(value).expect("taints")
    }

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates() {
        let at = |second: i64| Timestamp::from_second(1_000 + second).expect("in range");
        let unreachable = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": at(0).to_string()});
        let other = json!({"key": "x", "value": "1", "effect": "NoExecute"});
        let for_seconds = |seconds: i64| json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let cases = [
            (json!([]), json!([]), Verdict::Stays),
            (json!([unreachable]), json!([]), Verdict::LeavesAt(at(50))),
            (json!([unreachable]), json!([for_seconds(300)]), Verdict::LeavesAt(at(300))),
            (json!([unreachable]), json!([for_seconds(300), for_seconds(30)]), Verdict::LeavesAt(at(30))),
            (json!([unreachable]), json!([for_seconds(-5)]), Verdict::LeavesAt(at(0))),
            (json!([unreachable]), json!([{"operator": "Exists"}]), Verdict::Stays),
            (json!([unreachable, other]), json!([for_seconds(300)]), Verdict::LeavesAt(at(50))),
            (json!([unreachable, other]), json!([for_seconds(300), {"key": "x", "value": "1"}]), Verdict::LeavesAt(at(300))),
            (json!([other]), json!([{"key": "x", "operator": "Exists", "tolerationSeconds": 60}]), Verdict::LeavesAt(at(80))),
            (json!([other]), json!([{"key": "x", "value": "2"}]), Verdict::LeavesAt(at(50))),
            (json!([other]), json!([{"key": "x", "operator": "Exists", "effect": "NoSchedule"}]), Verdict::LeavesAt(at(50))),
        ];
        for (node, pod, expected) in cases {
            let tolerations: Vec<Toleration> = serde_json::from_value(pod.clone()).expect("tolerations");
            assert_eq!(verdict(&taints(node.clone()), &tolerations, at(20), at(50)), expected, "{node} {pod}");
        }
    }
}
