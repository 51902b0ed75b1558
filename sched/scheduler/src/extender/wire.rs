//! What is sent to extenders and what they answer: `k8s.io/kube-scheduler/extender/v1`. Its fields have the names of Go's structs. Go's
//! decoder takes them in any case, and so does this one: many extenders answer `nodenames` or `failedNodes`.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Upstream's `ExtenderArgs`. Either the nodes are whole or there are names alone.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ExtenderArgs<'a> {
    pub pod: &'a RawValue,
    pub nodes: Option<NodeList<'a>>,
    pub node_names: Option<Vec<&'a str>>,
}

/// Whole Nodes.
#[derive(Serialize)]
pub(super) struct NodeList<'a> {
    metadata: Metadata,
    pub items: Vec<&'a RawValue>,
}

/// The metadata of a list, of which nothing is set.
#[derive(Serialize)]
struct Metadata {}

impl<'a> NodeList<'a> {
    /// A list of Nodes.
    pub fn new(items: Vec<&'a RawValue>) -> Self {
        Self { metadata: Metadata {}, items }
    }
}

/// Upstream's `ExtenderBindingArgs`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ExtenderBindingArgs<'a> {
    pub pod_name: &'a str,
    pub pod_namespace: &'a str,
    #[serde(rename = "PodUID")]
    pub pod_uid: &'a str,
    pub node: &'a str,
}

/// Upstream's `ExtenderPreemptionArgs`. Either the victims are whole Pods or there are UIDs alone.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ExtenderPreemptionArgs<'a> {
    pub pod: &'a RawValue,
    pub node_name_to_victims: Option<BTreeMap<&'a str, Victims<&'a RawValue>>>,
    pub node_name_to_meta_victims: Option<BTreeMap<&'a str, Victims<MetaPod>>>,
}

/// Upstream's `Victims` and `MetaVictims`.
#[derive(Serialize)]
pub(super) struct Victims<P> {
    #[serde(rename = "Pods")]
    pub pods: Vec<P>,
    #[serde(rename = "NumPDBViolations")]
    pub violations: usize,
}

/// Upstream's `MetaPod`.
#[derive(Serialize)]
pub(super) struct MetaPod {
    #[serde(rename = "UID")]
    pub uid: String,
}

/// Upstream's `ExtenderFilterResult`.
pub(super) struct ExtenderFilterResult {
    /// The names of the allowed nodes that were sent as whole Nodes.
    pub nodes: Option<Vec<String>>,
    pub node_names: Option<Vec<String>>,
    pub failed_nodes: HashMap<String, String>,
    pub failed_and_unresolvable_nodes: HashMap<String, String>,
    pub error: String,
}

/// Upstream's `HostPriority`.
pub(super) struct HostPriority {
    pub host: String,
    pub score: i64,
}

/// Upstream's `ExtenderBindingResult`.
pub(super) struct ExtenderBindingResult {
    pub error: String,
}

/// Upstream's `ExtenderPreemptionResult`: by the name of the node, the UIDs of the victims and the number of violated budgets.
pub(super) struct ExtenderPreemptionResult {
    pub node_name_to_meta_victims: BTreeMap<String, (Vec<String>, i64)>,
}

/// An answer's fields by their names.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Fields<'a>(#[serde(borrow)] HashMap<String, Option<&'a RawValue>>);

/// A body to send.
pub(super) fn encode(args: &impl Serialize) -> Bytes {
    // These types have string keys alone, and writing to memory does not fail.
    serde_json::to_vec(args).unwrap_or_default().into()
}

/// An answer.
pub(super) fn decode<T>(answer: &[u8], read: impl FnOnce(&Fields<'_>) -> serde_json::Result<T>) -> serde_json::Result<T> {
    // As in Go, no object at all is one without fields.
    read(&serde_json::from_slice::<Option<Fields<'_>>>(answer)?.unwrap_or_else(|| Fields(HashMap::new())))
}

impl Fields<'_> {
    /// The value of a field, in whichever case its name is; the default when there is none.
    fn get<T: DeserializeOwned + Default>(&self, name: &str) -> serde_json::Result<T> {
        let exact = self.0.get(name).copied();
        let value = exact.or_else(|| self.0.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| *value));
        match value.flatten() {
            Some(value) => Ok(serde_json::from_str::<Option<T>>(value.get())?.unwrap_or_default()),
            None => Ok(T::default()),
        }
    }
}

impl ExtenderFilterResult {
    pub fn new(fields: &Fields<'_>) -> serde_json::Result<Self> {
        let nodes: Option<AnsweredNodes> = fields.get("Nodes")?;
        Ok(Self {
            nodes: nodes.map(|list| list.items.unwrap_or_default().into_iter().map(|node| node.metadata.name).collect()),
            node_names: fields.get("NodeNames")?,
            failed_nodes: fields.get("FailedNodes")?,
            failed_and_unresolvable_nodes: fields.get("FailedAndUnresolvableNodes")?,
            error: fields.get("Error")?,
        })
    }
}

impl ExtenderBindingResult {
    pub fn new(fields: &Fields<'_>) -> serde_json::Result<Self> {
        Ok(Self { error: fields.get("Error")? })
    }
}

impl ExtenderPreemptionResult {
    pub fn new(fields: &Fields<'_>) -> serde_json::Result<Self> {
        let nodes: HashMap<String, Box<RawValue>> = fields.get("NodeNameToMetaVictims")?;
        let victims = |fields: &Fields<'_>| {
            let pods: Vec<Box<RawValue>> = fields.get("Pods")?;
            let uid = |pod: &RawValue| decode(pod.get().as_bytes(), |fields| fields.get::<String>("UID"));
            let uids: Vec<String> = pods.iter().map(|pod| uid(pod)).collect::<Result<_, _>>()?;
            Ok((uids, fields.get("NumPDBViolations")?))
        };
        let nodes = nodes.into_iter().map(|(name, value)| Ok((name, decode(value.get().as_bytes(), victims)?)));
        Ok(Self { node_name_to_meta_victims: nodes.collect::<serde_json::Result<_>>()? })
    }
}

/// Decodes upstream's `HostPriorityList`.
pub(super) fn host_priorities(answer: &[u8]) -> serde_json::Result<Vec<HostPriority>> {
    let list = serde_json::from_slice::<Option<Vec<Fields<'_>>>>(answer)?.unwrap_or_default();
    list.iter().map(|fields| Ok(HostPriority { host: fields.get("Host")?, score: fields.get("Score")? })).collect()
}

/// The part of a NodeList that counts: extenders send Nodes back as they got them.
#[derive(Default, Deserialize)]
struct AnsweredNodes {
    items: Option<Vec<AnsweredNode>>,
}

#[derive(Deserialize)]
struct AnsweredNode {
    metadata: AnsweredMetadata,
}

#[derive(Deserialize)]
struct AnsweredMetadata {
    name: String,
}
