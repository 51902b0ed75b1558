//! Whether a new Pod is admitted under pressure. Pure; the kubelet's rules: under memory pressure alone all Pods but BestEffort
//! ones that do not tolerate it, under any other pressure none, and critical Pods always.

use k8s_openapi::api::core::v1::{Pod, Toleration};

use super::signal::Pressure;
use crate::admit::Rejection;
use crate::container::resources;
use crate::priority::is_critical;
use crate::termination::EVICTED;

const MEMORY_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// Why the Pod is turned away, if it is.
pub(crate) fn refusal(pod: &Pod, pressure: Pressure) -> Option<Rejection> {
    if pressure == Pressure::default() || is_critical(pod) {
        return None;
    }
    let memory_alone = pressure == Pressure { memory: true, ..Pressure::default() };
    if memory_alone && (resources::qos(pod) != "BestEffort" || tolerates_memory_pressure(pod)) {
        return None;
    }
    let message = format!("The node had condition: [{}]. ", pressure.names().join(" "));
    Some(Rejection { reason: EVICTED.to_owned(), message })
}

fn tolerates_memory_pressure(pod: &Pod) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let tolerates = |one: &Toleration| {
        let effect = matches!(text(&one.effect).as_str(), "" | "NoSchedule");
        let key = text(&one.key);
        match text(&one.operator).as_str() {
            "Exists" => effect && (key.is_empty() || key == MEMORY_TAINT),
            // The taint has no value.
            "" | "Equal" => effect && key == MEMORY_TAINT && text(&one.value).is_empty(),
            _ => false,
        }
    };
    pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten()).any(tolerates)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn who_is_taken_in_under_which_pressure() {
        let none = Pressure::default();
        let memory = Pressure { memory: true, ..none };
        let disk = Pressure { disk: true, ..none };
        let burstable = json!({"containers": [{"name": "c", "resources": {"requests": {"memory": "1Mi"}}}]});
        let with = |key: &str, value: Value| {
            let mut spec = json!({"containers": [{"name": "c"}]});
            spec[key] = value;
            spec
        };
        let tolerant = |toleration: Value| with("tolerations", json!([toleration]));
        let critical = |priority: i32| with("priority", json!(priority));
        for (spec, pressure, wanted) in [
            (with("hostname", json!("h")), none, None),
            (with("hostname", json!("h")), memory, Some("The node had condition: [MemoryPressure]. ")),
            (burstable.clone(), memory, None),
            (burstable.clone(), disk, Some("The node had condition: [DiskPressure]. ")),
            (burstable.clone(), Pressure { pids: true, ..none }, Some("The node had condition: [PIDPressure]. ")),
            (burstable, Pressure { disk: true, ..memory }, Some("The node had condition: [MemoryPressure DiskPressure]. ")),
            (tolerant(json!({"operator": "Exists"})), memory, None),
            (tolerant(json!({"key": MEMORY_TAINT, "operator": "Exists", "effect": "NoSchedule"})), memory, None),
            (tolerant(json!({"key": MEMORY_TAINT})), memory, None),
            (
                tolerant(json!({"key": MEMORY_TAINT, "operator": "Exists", "effect": "NoExecute"})),
                memory,
                Some("The node had condition: [MemoryPressure]. "),
            ),
            (
                tolerant(json!({"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"})),
                disk,
                Some("The node had condition: [DiskPressure]. "),
            ),
            (critical(2_000_000_000), disk, None),
            (critical(1_999_999_999), disk, Some("The node had condition: [DiskPressure]. ")),
        ] {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod");
            let found = refusal(&pod, pressure);
            assert_eq!(found.as_ref().map(|rejection| rejection.message.as_str()), wanted, "{spec} {pressure:?}");
            assert!(found.is_none_or(|rejection| rejection.reason == "Evicted"));
        }
    }

    #[test]
    fn a_mirror_annotation_makes_nobody_critical() {
        let annotated = json!({"metadata": {"name": "p", "annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"containers": []}});
        let pod: Pod = serde_json::from_value(annotated).expect("a pod");
        assert!(refusal(&pod, Pressure { disk: true, ..Pressure::default() }).is_some());
    }
}
