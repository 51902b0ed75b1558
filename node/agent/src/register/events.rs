//! The events of a Node whose status has changed, in the kubelet's words. The input is the Node as it was and as it was written. Pure.

use k8s_openapi::api::core::v1::{Node, NodeStatus};

/// An event on the Node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NodeEvent {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The reasons of the conditions: when one becomes `True`, and when it becomes `False`.
const CONDITIONS: [(&str, &str, &str); 4] = [
    ("MemoryPressure", "NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
    ("DiskPressure", "NodeHasDiskPressure", "NodeHasNoDiskPressure"),
    ("PIDPressure", "NodeHasInsufficientPID", "NodeHasSufficientPID"),
    (READY, "NodeReady", "NodeNotReady"),
];
const READY: &str = "Ready";

/// The events of a status that was written. `before` is the Node that had the status before; a new Node has none. As upstream, the first
/// pressure conditions are events and the first `Ready` is none.
pub(super) fn of_status(before: Option<&Node>, written: &Node) -> Vec<NodeEvent> {
    let name = written.metadata.name.as_deref().unwrap_or_default();
    let (before, Some(now)) = (before.and_then(|node| node.status.as_ref()), written.status.as_ref()) else { return Vec::new() };
    let became = CONDITIONS.into_iter().filter_map(|(condition, yes, no)| {
        let status = condition_status(now, condition)?;
        let earlier = before.and_then(|before| condition_status(before, condition));
        let is_event = earlier.map_or(condition != READY, |earlier| earlier != status);
        is_event.then(|| of_reason(name, if status == "True" { yes } else { no }))
    });
    became.chain(rebooted(name, before, now)).collect()
}

/// The event of a Node that is closed to new Pods or open again. `was_unschedulable` is the answer of the last look.
pub(super) fn of_schedulability(was_unschedulable: bool, node: &Node) -> Option<NodeEvent> {
    let is_unschedulable = is_unschedulable(node);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let reason = if is_unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
    (is_unschedulable != was_unschedulable).then(|| of_reason(name, reason))
}

/// Whether a Node is closed to new Pods.
pub(super) fn is_unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

fn of_reason(name: &str, reason: &'static str) -> NodeEvent {
    NodeEvent { warning: false, reason, message: format!("Node {name} status is now: {reason}") }
}

fn condition_status<'a>(status: &'a NodeStatus, name: &str) -> Option<&'a str> {
    let condition = status.conditions.iter().flatten().find(|condition| condition.type_ == name)?;
    Some(&condition.status)
}

/// The machine has another boot id than the status said.
fn rebooted(name: &str, before: Option<&NodeStatus>, now: &NodeStatus) -> Option<NodeEvent> {
    let boot_id = |status: &NodeStatus| status.node_info.as_ref().map(|info| info.boot_id.clone()).filter(|id| !id.is_empty());
    let (earlier, boot_id) = (boot_id(before?)?, boot_id(now)?);
    let message = format!("Node {name} has been rebooted, boot id: {boot_id}");
    (earlier != boot_id).then_some(NodeEvent { warning: true, reason: "Rebooted", message })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A Node with the statuses of `MemoryPressure`, `DiskPressure`, `PIDPressure` and `Ready`; `-` is none.
    fn node(conditions: &str, boot_id: &str) -> Node {
        let names = CONDITIONS.map(|(name, ..)| name);
        let conditions = names.iter().zip(conditions.split(' ')).filter(|(_, status)| *status != "-");
        let conditions: Vec<Value> = conditions.map(|(name, status)| json!({"type": name, "status": status})).collect();
        let info = json!({"architecture": "", "bootID": boot_id, "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
            "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""});
        let status = json!({"conditions": conditions, "nodeInfo": info});
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": status})).expect("a Node")
    }

    #[test]
    fn a_condition_that_changed_is_an_event() {
        let reasons = |before: Option<&str>, now: &str| {
            let before = before.map(|before| node(before, "b"));
            let events = of_status(before.as_ref(), &node(now, "b"));
            assert!(events.iter().all(|event| !event.warning && event.message == format!("Node n status is now: {}", event.reason)));
            events.iter().map(|event| event.reason).collect::<Vec<_>>().join(" ")
        };
        let calm = "False False False True";
        for (before, now, wanted) in [
            (None, calm, "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID"),
            (None, "True True True False", "NodeHasInsufficientMemory NodeHasDiskPressure NodeHasInsufficientPID"),
            (Some("- - - -"), calm, "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID"),
            (Some(calm), calm, ""),
            (Some(calm), "True False False True", "NodeHasInsufficientMemory"),
            (Some(calm), "False False False False", "NodeNotReady"),
            (Some("False False False False"), calm, "NodeReady"),
            // The control plane had lost the node.
            (Some("Unknown Unknown Unknown Unknown"), calm, "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID NodeReady"),
        ] {
            assert_eq!(reasons(before, now), wanted, "{before:?} {now}");
        }
    }

    #[test]
    fn another_boot_is_a_warning() {
        let calm = "False False False True";
        let events = of_status(Some(&node(calm, "one")), &node(calm, "two"));
        let message = "Node n has been rebooted, boot id: two".to_owned();
        assert_eq!(events, [NodeEvent { warning: true, reason: "Rebooted", message }]);
        for (before, now) in [("one", "one"), ("", "two"), ("one", "")] {
            assert_eq!(of_status(Some(&node(calm, before)), &node(calm, now)), [], "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_node_that_is_closed_or_opened_is_an_event_once() {
        let node = |unschedulable: Value| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"unschedulable": unschedulable}})).expect("a Node")
        };
        let reason = |before, unschedulable| of_schedulability(before, &node(unschedulable)).map(|event| event.reason);
        assert_eq!(reason(false, json!(true)), Some("NodeNotSchedulable"));
        assert_eq!(reason(true, json!(true)), None);
        assert_eq!(reason(true, json!(null)), Some("NodeSchedulable"));
        assert_eq!(reason(false, json!(false)), None);
    }
}
