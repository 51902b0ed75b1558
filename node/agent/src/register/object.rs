//! The Node object from the facts about the machine. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api_model::huge_pages::{self, is_huge_page};
use api_model::{local_path, quantity};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use node_device_plugins::Amount;
use node_volumes::Allocatable;
use serde_json::{Value, json};

use crate::config::Config;
use crate::container::resources::is_scalar;
use crate::eviction::Pressure;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::status::time;

/// The present facts about the node.
pub(crate) struct Facts {
    pub(crate) machine: Machine,
    pub(crate) pressure: Pressure,
    pub(crate) allocatable: Allocatable,
    /// The extended resources of device plugins. Others, which somebody else wrote to the status, stay as they are.
    pub(crate) devices: BTreeMap<String, Amount>,
    /// Why the node cannot run Pods.
    pub(crate) problem: Option<String>,
    /// The port of its HTTPS server; 0 is none.
    pub(crate) port: u16,
    pub(crate) images: Vec<ContainerImage>,
    pub(crate) handlers: Vec<String>,
    /// Whether the capacity of local volumes is enforced.
    pub(crate) enforces_capacity: bool,
    /// Whether all of them make mounts read-only with all that is mounted below.
    pub(crate) recursive_read_only: bool,
    /// Those of them that have no user namespaces.
    pub(crate) without_user_namespaces: Vec<String>,
    pub(crate) now: Timestamp,
}

/// Kubernetes' name of this machine's architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The whole object. `present` is the object in the API, whose transition times are kept.
pub(crate) fn node(config: &Config, facts: &Facts, present: Option<&Node>) -> Node {
    let mut labels: BTreeMap<String, String> = [
        ("kubernetes.io/hostname", config.node_name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", architecture()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    labels.extend(config.labels.clone());
    let volumes = Layout::new(&config.data_dir, &config.prefix).local_volumes();
    let capacity = local_path::capacity(facts.enforces_capacity).to_owned();
    let annotations =
        BTreeMap::from([(local_path::DIRECTORY.to_owned(), volumes.display().to_string()), (local_path::CAPACITY.to_owned(), capacity)]);
    Node {
        metadata: ObjectMeta {
            name: Some(config.node_name.clone()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec { taints: Some(config.taints.clone()).filter(|taints| !taints.is_empty()), ..NodeSpec::default() }),
        status: Some(status(config, facts, present)),
    }
}

fn status(config: &Config, facts: &Facts, present: Option<&Node>) -> NodeStatus {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let machine = &facts.machine;
    let capacity = Allocatable {
        cpu_milli: number(machine.cpus) * 1_000,
        memory_bytes: number(machine.memory_bytes),
        ephemeral_storage_bytes: number(machine.disk_bytes),
    };
    let handlers = std::iter::once(String::new()).chain(facts.handlers.iter().cloned());
    NodeStatus {
        capacity: Some(with_scalars(quantities(capacity, config.pods_max), facts, |amount| amount.capacity)),
        allocatable: Some(with_scalars(quantities(facts.allocatable, config.pods_max), facts, |amount| amount.allocatable)),
        conditions: Some(conditions(facts, present)),
        addresses: Some(vec![
            NodeAddress { type_: "InternalIP".to_owned(), address: config.node_ip.to_string() },
            NodeAddress { type_: "Hostname".to_owned(), address: config.node_name.clone() },
        ]),
        daemon_endpoints: (facts.port > 0)
            .then(|| NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(facts.port) }) }),
        node_info: Some(NodeSystemInfo {
            architecture: architecture().to_owned(),
            boot_id: machine.boot_id.clone(),
            container_runtime_version: format!("skiff://{}", config.skiff_version),
            kernel_version: machine.kernel.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: config.kubelet_version.clone(),
            machine_id: machine.machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: machine.os_image.clone(),
            system_uuid: machine.system_uuid.clone(),
            ..NodeSystemInfo::default()
        }),
        // Also an empty list is written: without the field, a patch would keep the old list.
        images: Some(facts.images.clone()),
        features: Some(NodeFeatures { supplemental_groups_policy: Some(true) }),
        runtime_handlers: Some(handlers.map(|name| runtime_handler(name, facts)).collect()),
        ..NodeStatus::default()
    }
}

/// The empty name stands for the handler of Pods without a RuntimeClass.
fn runtime_handler(name: String, facts: &Facts) -> NodeRuntimeHandler {
    let without = &facts.without_user_namespaces;
    let user_namespaces = if name.is_empty() { without.len() < facts.handlers.len() } else { !without.contains(&name) };
    let features =
        NodeRuntimeHandlerFeatures { recursive_read_only_mounts: Some(facts.recursive_read_only), user_namespaces: Some(user_namespaces) };
    NodeRuntimeHandler { name: Some(name), features: Some(features) }
}

fn quantities(amount: Allocatable, pods: u32) -> BTreeMap<String, Quantity> {
    let cpu = if amount.cpu_milli % 1_000 == 0 { (amount.cpu_milli / 1_000).to_string() } else { format!("{}m", amount.cpu_milli) };
    [
        ("cpu", cpu),
        ("memory", format!("{}Ki", amount.memory_bytes / 1_024)),
        ("ephemeral-storage", format!("{}Ki", amount.ephemeral_storage_bytes / 1_024)),
        ("pods", pods.to_string()),
    ]
    .into_iter()
    .map(|(name, text)| (name.to_owned(), Quantity(text)))
    .collect()
}

/// Adds the devices, and the huge pages, of which nothing is reserved.
fn with_scalars(mut list: BTreeMap<String, Quantity>, facts: &Facts, number: fn(&Amount) -> usize) -> BTreeMap<String, Quantity> {
    let pages = facts.machine.huge_pages.iter();
    list.extend(pages.map(|(size, bytes)| (huge_pages::resource(*size), Quantity(quantity::bytes_text(i128::from(*bytes))))));
    list.extend(facts.devices.iter().map(|(name, amount)| (name.clone(), Quantity(number(amount).to_string()))));
    list
}

/// The four conditions, in upstream's order and words.
fn conditions(facts: &Facts, present: Option<&Node>) -> Vec<NodeCondition> {
    let pressure = facts.pressure;
    let pick = |bad: bool, yes: (&'static str, &'static str), no: (&'static str, &'static str)| {
        let (reason, message) = if bad { yes } else { no };
        (bad, reason.to_owned(), message.to_owned())
    };
    let ready = match &facts.problem {
        None => (true, "KubeletReady".to_owned(), "kubelet is posting ready status".to_owned()),
        Some(problem) => (false, "KubeletNotReady".to_owned(), problem.clone()),
    };
    let all = [
        (
            "MemoryPressure",
            pick(
                pressure.memory,
                ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
                ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            ),
        ),
        (
            "DiskPressure",
            pick(
                pressure.disk,
                ("KubeletHasDiskPressure", "kubelet has disk pressure"),
                ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ),
        ),
        (
            "PIDPressure",
            pick(
                pressure.pids,
                ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
                ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ),
        ),
        ("Ready", ready),
    ];
    all.into_iter().map(|(name, verdict)| condition(name, verdict, facts.now, present)).collect()
}

fn condition(name: &str, (verdict, reason, message): (bool, String, String), now: Timestamp, present: Option<&Node>) -> NodeCondition {
    let status = if verdict { "True" } else { "False" };
    let before = present.and_then(|node| node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == name));
    let since = before.filter(|before| before.status == status).and_then(|before| before.last_transition_time.clone());
    NodeCondition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: Some(reason),
        message: Some(message),
        last_heartbeat_time: Some(time(now)),
        last_transition_time: since.or_else(|| Some(time(now))),
    }
}

/// Whether the object in the API has the conditions, the devices and the huge pages that the node would write. Conditions differ after the
/// control plane has taken the node for lost and written `Unknown` instead.
pub(crate) fn says_the_same(present: &Node, wanted: &Node) -> bool {
    let conditions = |node: &Node| node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let before = conditions(present);
    let has = |wanted: &NodeCondition| before.iter().any(|one| one.type_ == wanted.type_ && one.status == wanted.status);
    let scalars_are_there = scalars(wanted).iter().all(|scalar| scalars(present).contains(scalar));
    conditions(wanted).iter().all(has) && scalars_are_there && stale_huge_pages(present, wanted).is_empty()
}

/// The sizes of huge pages in the object's lists that the machine does not have: of another kernel.
fn stale_huge_pages<'a>(present: &'a Node, wanted: &Node) -> BTreeSet<&'a str> {
    fn lists(node: &Node) -> impl Iterator<Item = &String> {
        let status = node.status.iter();
        status.flat_map(|status| [&status.capacity, &status.allocatable]).flatten().flat_map(BTreeMap::keys)
    }
    let is_stale = |name: &&String| is_huge_page(name) && lists(wanted).all(|own| own != *name);
    lists(present).filter(is_stale).map(String::as_str).collect()
}

/// The patch that makes the object's status the wanted one: a list keeps the names that a patch does not have.
pub(crate) fn status_patch(status: Value, present: Option<&Node>, wanted: &Node) -> Value {
    let mut patch = json!({"status": status});
    let stale = present.map(|present| stale_huge_pages(present, wanted)).unwrap_or_default();
    for list in ["/status/capacity", "/status/allocatable"] {
        if let Some(list) = patch.pointer_mut(list).and_then(Value::as_object_mut) {
            list.extend(stale.iter().map(|name| ((*name).to_owned(), Value::Null)));
        }
    }
    patch
}

/// The extended resources and huge pages of a Node's capacity and allocatable, as numbers: the API writes 1000 as 1k.
fn scalars(node: &Node) -> Vec<(&str, [Option<i64>; 2])> {
    let Some(status) = &node.status else { return Vec::new() };
    let (Some(capacity), Some(allocatable)) = (&status.capacity, &status.allocatable) else { return Vec::new() };
    let number = |amount: &Quantity| quantity::value(&amount.0).ok();
    let both = capacity
        .iter()
        .filter(|(name, _)| is_scalar(name))
        .map(|(name, amount)| (name.as_str(), [number(amount), allocatable.get(name).and_then(number)]));
    both.collect()
}

/// A status without the fields that change with each heartbeat.
pub(crate) fn without_heartbeats(status: &Value) -> Value {
    let mut bare = status.clone();
    for condition in bare.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastHeartbeatTime");
            condition.remove("lastTransitionTime");
        }
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::Thresholds;

    #[test]
    fn conditions_that_somebody_else_wrote_are_seen() {
        let config = Config::new("n1", "192.0.2.1".parse().expect("an address"), "/data", "sk1");
        let facts = Facts {
            machine: Machine::default(),
            allocatable: Machine::default().allocatable((0, 0), &Thresholds::default()),
            devices: [("example.com/thing".to_owned(), Amount { capacity: 2, allocatable: 1 })].into(),
            pressure: Pressure::default(),
            problem: None,
            port: 10_250,
            images: Vec::new(),
            handlers: Vec::new(),
            enforces_capacity: true,
            recursive_read_only: false,
            without_user_namespaces: Vec::new(),
            now: Timestamp::from_second(1_700_000_000).expect("in range"),
        };
        let mut present = node(&config, &facts, None);
        let later = Facts { now: Timestamp::from_second(1_700_000_100).expect("in range"), ..facts };
        let wanted = node(&config, &later, Some(&present));
        assert!(says_the_same(&present, &wanted), "times alone are no difference");
        let mut other = present.clone();
        let list = |node: &mut Node, name: &str, number: &str| {
            let list = node.status.as_mut().and_then(|status| status.allocatable.as_mut()).expect("a list");
            list.insert(name.to_owned(), Quantity(number.to_owned()));
        };
        list(&mut other, "example.com/of-another-writer", "7");
        assert!(says_the_same(&other, &wanted));
        list(&mut other, "example.com/thing", "7");
        assert!(!says_the_same(&other, &wanted), "the devices of a plugin are the node's");
        let thousand = |text: &str| {
            let amounts = serde_json::json!({"example.com/thing": text});
            let status = serde_json::json!({"capacity": amounts, "allocatable": amounts});
            serde_json::from_value::<Node>(serde_json::json!({"metadata": {"name": "n"}, "status": status})).expect("a node")
        };
        assert!(says_the_same(&thousand("1k"), &thousand("1000")), "as the API writes it");
        for condition in present.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten()) {
            condition.status = "Unknown".to_owned();
        }
        assert!(!says_the_same(&present, &wanted));
        present.status = None;
        assert!(!says_the_same(&present, &wanted));
    }

    #[test]
    fn sizes_of_huge_pages_of_another_kernel_are_removed() {
        let node = |pages: Value| -> Node {
            serde_json::from_value(json!({"metadata": {}, "status": {"capacity": pages, "allocatable": pages}})).expect("a node")
        };
        let wanted = node(json!({"cpu": "1", "hugepages-2Mi": "32Mi"}));
        let same = node(json!({"cpu": "1", "hugepages-2Mi": "32Mi", "example.com/thing": "1"}));
        let (fewer, more) = (node(json!({"hugepages-2Mi": "0"})), node(json!({"hugepages-2Mi": "32Mi", "hugepages-32Mi": "0"})));
        assert_eq!([&same, &fewer, &more].map(|present| says_the_same(present, &wanted)), [true, false, false]);
        let patch = |present: Option<&Node>| status_patch(json!({"capacity": {}, "allocatable": {}}), present, &wanted);
        let nothing = json!({"status": {"capacity": {}, "allocatable": {}}});
        assert_eq!([patch(None), patch(Some(&same))], [nothing.clone(), nothing]);
        let gone = json!({"hugepages-32Mi": null});
        assert_eq!(patch(Some(&more)), json!({"status": {"capacity": gone, "allocatable": gone}}));
    }

    #[test]
    fn the_node_reads_like_a_kubelets() {
        let mut config = Config::new("n1", "192.0.2.1".parse().expect("an address"), "/data", "sk1");
        config.skiff_version = "0.1.0".to_owned();
        let huge_pages = [(2 << 20, 512 << 20), (1 << 30, 0)].into();
        let (kernel, disk_bytes) = ("6.18".to_owned(), 100 << 30);
        let machine = Machine { cpus: 2, memory_bytes: 4 << 30, disk_bytes, huge_pages, kernel, ..Machine::default() };
        let facts = Facts {
            allocatable: machine.allocatable((500, 1 << 30), &Thresholds::default()),
            devices: [("example.com/thing".to_owned(), Amount { capacity: 2, allocatable: 1 })].into(),
            machine,
            pressure: Pressure { disk: true, ..Pressure::default() },
            problem: Some("no Pod range yet".to_owned()),
            port: 10_250,
            images: vec![ContainerImage { names: Some(vec!["docker.io/library/web:latest".to_owned()]), size_bytes: Some(7) }],
            handlers: vec!["wasmtime".to_owned(), "runc".to_owned()],
            enforces_capacity: false,
            recursive_read_only: true,
            without_user_namespaces: vec!["runc".to_owned()],
            now: Timestamp::from_second(1_700_000_000).expect("in range"),
        };
        let made = node(&config, &facts, None);
        let text = serde_json::to_string_pretty(&made).expect("JSON").replace(architecture(), "ARCH");
        insta::assert_snapshot!(text);
    }
}
