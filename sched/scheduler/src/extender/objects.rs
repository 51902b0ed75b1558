//! Whole Pods and Nodes as JSON, for extenders. The scheduler itself has them reduced to what it needs, and the informers that it shares
//! trim them.

use std::collections::HashMap;

use api_client::informer::{Informer, ObjectKey};
use api_tasks::Tasks;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use sched_framework::PodInfo;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// The highest number of objects of one Pod's calls that are read at the same time.
const READS_MAX: usize = 16;
/// Other tasks get the thread after so many Nodes were written as JSON.
const NODES_PER_YIELD: usize = 32;

/// Reads the objects.
pub(super) struct Objects {
    client: kube::Client,
    /// All fields of all Nodes; `None` when no extender gets whole Nodes.
    nodes: Option<Informer<Node>>,
}

/// Why an object could not be read.
pub(super) type ReadError = kube::Error;

impl Objects {
    /// A reader, which watches Nodes if they are needed.
    pub fn new(client: &kube::Client, with_nodes: bool, tasks: &Tasks) -> Self {
        let nodes = with_nodes.then(|| Informer::start_untrimmed(Api::all(client.clone()), "nodes-of-extenders", "", tasks));
        Self { client: client.clone(), nodes }
    }

    /// The Pod; `None` when it does not exist any more or has a node.
    pub async fn waiting_pod(&self, pod: &PodInfo) -> Result<Option<Box<RawValue>>, ReadError> {
        let whole = self.pod(pod).await?;
        let waits = whole.filter(|whole| whole.spec.as_ref().is_none_or(|spec| spec.node_name.as_deref().unwrap_or_default().is_empty()));
        waits.map(|whole| json(&whole)).transpose()
    }

    /// The Pods that still exist, by UID.
    pub async fn pods(&self, pods: impl IntoIterator<Item = &PodInfo>) -> Result<HashMap<String, Box<RawValue>>, ReadError> {
        let reads = pods.into_iter().map(|pod| async {
            let whole = self.pod(pod).await?;
            Ok((pod.uid.clone(), whole.map(|whole| json(&whole)).transpose()?))
        });
        let read: Vec<Result<_, ReadError>> = stream::iter(reads.collect::<Vec<_>>()).buffer_unordered(READS_MAX).collect().await;
        let mut pods = HashMap::new();
        for result in read {
            let (uid, whole) = result?;
            pods.extend(whole.map(|whole| (uid, whole)));
        }
        Ok(pods)
    }

    /// The Nodes of these names that exist, by name.
    pub async fn nodes(&self, names: &[String]) -> Result<HashMap<String, Box<RawValue>>, ReadError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let mut nodes = HashMap::new();
        for (index, name) in names.iter().enumerate() {
            let present = self.nodes.as_ref().and_then(|nodes| nodes.get(&ObjectKey::new("", name)));
            let whole = match present {
                Some(node) => Some(json(&*node)?),
                // The watch has not delivered it yet.
                None => api.get_opt(name).await?.map(|node| json(&node)).transpose()?,
            };
            nodes.extend(whole.map(|whole| (name.clone(), whole)));
            if index % NODES_PER_YIELD == NODES_PER_YIELD - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(nodes)
    }

    /// The Pod, without `managedFields`, as upstream's scheduler has it.
    async fn pod(&self, pod: &PodInfo) -> Result<Option<Pod>, ReadError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let whole = api.get_opt(&pod.name).await?.filter(|whole| whole.metadata.uid.as_deref() == Some(pod.uid.as_str()));
        Ok(whole.map(|mut whole| {
            whole.metadata.managed_fields = None;
            whole
        }))
    }
}

fn json(object: &impl Serialize) -> Result<Box<RawValue>, ReadError> {
    to_raw_value(object).map_err(kube::Error::SerdeError)
}
