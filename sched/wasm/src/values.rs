//! The records of `wit/scheduler.wit`: Pods and nodes as they go to a plugin, and what comes back. What goes out borrows; what comes back
//! is bounded by the store's fuel for calls of the host.

use std::collections::BTreeMap;

use sched_framework::{NodeInfo, Normalization, Permit, PodInfo, Reason, Resource, Scope, Status};
use wasmtime::component::{ComponentType, Lift, Lower};

/// The most reasons of one verdict, and the longest reason in bytes: they become part of events and of Pod conditions.
const REASONS_MAX: usize = 8;
const REASON_LEN_MAX: usize = 256;

type Labels<'a> = Vec<(&'a str, &'a str)>;

#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct Resources<'a> {
    #[component(name = "cpu-milli")]
    cpu_milli: i64,
    #[component(name = "memory-bytes")]
    memory_bytes: i64,
    #[component(name = "ephemeral-storage-bytes")]
    ephemeral_storage_bytes: i64,
    scalar: Vec<(&'a str, i64)>,
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct Taint<'a> {
    key: &'a str,
    value: &'a str,
    effect: &'a str,
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct Toleration<'a> {
    key: &'a str,
    operator: &'a str,
    value: &'a str,
    effect: &'a str,
}

#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct HostPort<'a> {
    ip: &'a str,
    protocol: &'a str,
    port: i32,
}

/// A Pod.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct Pod<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    #[component(name = "scheduler-name")]
    scheduler_name: &'a str,
    labels: Labels<'a>,
    annotations: Labels<'a>,
    priority: i32,
    requests: Resources<'a>,
    #[component(name = "node-selector")]
    node_selector: Labels<'a>,
    tolerations: Vec<Toleration<'a>>,
    #[component(name = "host-ports")]
    host_ports: Vec<HostPort<'a>>,
}

/// A node.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct Node<'a> {
    name: &'a str,
    labels: Labels<'a>,
    taints: Vec<Taint<'a>>,
    unschedulable: bool,
    allocatable: Resources<'a>,
    requested: Resources<'a>,
    #[component(name = "allocatable-pods")]
    allocatable_pods: u32,
    pods: u32,
}

/// A Pod at permit.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct Candidate<'a> {
    pub pod: Pod<'a>,
    pub node: Node<'a>,
    #[component(name = "waited-seconds")]
    pub waited_seconds: u32,
}

impl<'a> Resources<'a> {
    fn new(resource: &'a Resource) -> Self {
        Self {
            cpu_milli: resource.cpu_milli,
            memory_bytes: resource.memory_bytes,
            ephemeral_storage_bytes: resource.ephemeral_bytes,
            scalar: resource.scalar.iter().map(|(name, amount)| (name.as_str(), *amount)).collect(),
        }
    }
}

impl<'a> Pod<'a> {
    /// The whole Pod.
    pub fn new(pod: &'a PodInfo) -> Self {
        Self {
            namespace: &pod.namespace,
            name: &pod.name,
            uid: &pod.uid,
            scheduler_name: &pod.scheduler_name,
            labels: labels(&pod.labels),
            annotations: labels(&pod.annotations),
            priority: pod.priority,
            ..Self::asking(pod)
        }
    }

    /// What Pods have in common that ask the same of a node, and nothing else: a result that is used for all of them cannot depend on
    /// more.
    pub fn asking(pod: &'a PodInfo) -> Self {
        let text = |field: &'a Option<String>| field.as_deref().unwrap_or_default();
        let toleration = |toleration: &'a k8s_openapi::api::core::v1::Toleration| Toleration {
            key: text(&toleration.key),
            operator: text(&toleration.operator),
            value: text(&toleration.value),
            effect: text(&toleration.effect),
        };
        Self {
            namespace: "",
            name: "",
            uid: "",
            scheduler_name: "",
            labels: Vec::new(),
            annotations: Vec::new(),
            priority: 0,
            requests: Resources::new(&pod.requests),
            node_selector: labels(&pod.node_selector),
            tolerations: pod.tolerations.iter().map(toleration).collect(),
            host_ports: pod.ports.iter().map(|port| HostPort { ip: &port.ip, protocol: &port.protocol, port: port.port }).collect(),
        }
    }

    /// The Pod for a plugin of that scope.
    pub fn in_scope(pod: &'a PodInfo, scope: Scope) -> Self {
        match scope {
            Scope::Node => Self::asking(pod),
            Scope::Cluster => Self::new(pod),
        }
    }
}

impl<'a> Node<'a> {
    /// The node.
    pub fn new(node: &'a NodeInfo) -> Self {
        let taint = |taint: &'a k8s_openapi::api::core::v1::Taint| Taint {
            key: &taint.key,
            value: taint.value.as_deref().unwrap_or_default(),
            effect: &taint.effect,
        };
        Self {
            name: &node.name,
            labels: labels(&node.labels),
            taints: node.taints.iter().map(taint).collect(),
            unschedulable: node.unschedulable,
            allocatable: Resources::new(&node.allocatable),
            requested: Resources::new(&node.requested),
            allocatable_pods: u32::try_from(node.pods_max).unwrap_or(u32::MAX),
            pods: u32::try_from(node.pods.len()).unwrap_or(u32::MAX),
        }
    }
}

fn labels(map: &BTreeMap<String, String>) -> Labels<'_> {
    map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the guest's number becomes the value")]
pub(crate) enum PluginScope {
    #[component(name = "node")]
    Node,
    #[component(name = "pod")]
    Pod,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the guest's number becomes the value")]
pub(crate) enum PluginNormalization {
    #[component(name = "none")]
    None,
    #[component(name = "highest")]
    Highest,
    #[component(name = "highest-reversed")]
    HighestReversed,
    #[component(name = "range")]
    Range,
}

/// What `init` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(record)]
pub(crate) struct Settings {
    scope: PluginScope,
    normalization: PluginNormalization,
}

impl Settings {
    /// The scope in the scheduler's words.
    pub fn scope(self) -> Scope {
        match self.scope {
            PluginScope::Node => Scope::Node,
            PluginScope::Pod => Scope::Cluster,
        }
    }

    /// The normalization of scores.
    pub fn normalization(self) -> Normalization {
        match self.normalization {
            PluginNormalization::None => Normalization::None,
            PluginNormalization::Highest => Normalization::Highest,
            PluginNormalization::HighestReversed => Normalization::HighestReversed,
            PluginNormalization::Range => Normalization::Range,
        }
    }
}

/// The verdict for a node.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(variant)]
pub(crate) enum Verdict {
    #[component(name = "success")]
    Success,
    #[component(name = "unschedulable")]
    Unschedulable(Vec<String>),
    #[component(name = "unschedulable-and-unresolvable")]
    UnschedulableAndUnresolvable(Vec<String>),
}

impl Verdict {
    /// The status. A verdict without a reason has the plugin's name as its reason.
    pub fn status(self, plugin: &'static str) -> Status {
        match self {
            Self::Success => Status::Success,
            Self::Unschedulable(reasons) => Status::Unschedulable(bounded(reasons, plugin)),
            Self::UnschedulableAndUnresolvable(reasons) => Status::UnschedulableAndUnresolvable(bounded(reasons, plugin)),
        }
    }
}

fn bounded(reasons: Vec<String>, plugin: &'static str) -> Vec<Reason> {
    let reasons: Vec<Reason> = reasons.into_iter().take(REASONS_MAX).map(|reason| one_line(&reason).into()).collect();
    if reasons.is_empty() { vec![format!("node(s) were ruled out by plugin {plugin}").into()] } else { reasons }
}

/// The text without control characters, not longer than a reason may be.
pub(crate) fn one_line(text: &str) -> String {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    let end = text.floor_char_boundary(REASON_LEN_MAX);
    text.get(..end).unwrap_or_default().chars().map(clean).collect()
}

/// The decision about a candidate.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(variant)]
pub(crate) enum Decision {
    #[component(name = "allow")]
    Allow,
    #[component(name = "deny")]
    Deny(String),
    #[component(name = "wait")]
    Wait(u32),
}

impl Decision {
    /// The same in the scheduler's words.
    pub fn permit(self) -> Permit {
        match self {
            Self::Allow => Permit::Allow,
            Self::Deny(reason) => Permit::Deny(one_line(&reason).into()),
            Self::Wait(seconds) => Permit::Wait(std::time::Duration::from_secs(seconds.into())),
        }
    }
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the guest's number becomes the value")]
pub(crate) enum Level {
    #[component(name = "error")]
    Error,
    #[component(name = "warn")]
    Warn,
    #[component(name = "info")]
    Info,
    #[component(name = "debug")]
    Debug,
}
