//! What an earlier agent left on the node, by Pod UID: containers, namespaces, volumes, image mounts.
//! Workers adopt the containers of Pods that still exist. The rest is removed. A node that cannot list them yet is not ready, and tries
//! again: without the list it would start containers that run already.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use node_images::ImageError;
use node_network::NetworkError;
use node_volumes::VolumeError;
use runtimes_contract::{ContainerState, RuntimeError};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, go_duration};
use crate::cleanup::{self, CleanupError};
use crate::error::chain;
use crate::health::{self, Health};
use crate::layout::{Layout, PAUSE, PodName, label};
use crate::node::Node;
use crate::parts::Parts;
use crate::worker::adopt::RuntimeContainer;

/// First and longest wait after a list failed. The Pod manager counts as blocked after a longer one.
const RETRY: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(3);

/// Why the leftovers are unknown.
#[derive(Debug, Error)]
enum FindError {
    /// Upstream's words.
    #[error("container runtime is down: listing containers")]
    Containers(#[from] ListError),
    #[error("listing Pod networks")]
    Networks(#[from] NetworkError),
    #[error("listing volumes")]
    Volumes(#[from] VolumeError),
    #[error("listing image mounts")]
    Images(#[from] ImageError),
}

/// Containers by Pod UID; a UID may have no container and still have other leftovers.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    pods: BTreeMap<String, Vec<RuntimeContainer>>,
}

impl Leftovers {
    /// The leftovers of every part of the node. Tries until all of them are listed; until then the node is not ready, and its condition
    /// says why.
    pub(crate) async fn until_listed(node: &Node, health: &Health) -> Self {
        let mut retry = RETRY;
        loop {
            node.pulse.beat();
            let problem = match Self::find(node).await {
                Ok(leftovers) => {
                    health.set(health::RUNTIME, None);
                    return leftovers;
                }
                Err(error) => chain(&error),
            };
            if health.set(health::RUNTIME, Some(problem.clone())) {
                tracing::warn!(problem, "what an earlier agent left is not listed yet");
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    /// Removes image mounts without a container.
    async fn find(node: &Node) -> Result<Self, FindError> {
        let mut pods: BTreeMap<String, Vec<RuntimeContainer>> = BTreeMap::new();
        let mut ids = BTreeSet::new();
        for found in containers(&node.parts).await? {
            ids.insert(found.status.id.0.clone());
            let uid = found.status.labels.get(label::POD_UID).cloned().unwrap_or_default();
            if uid.is_empty() {
                // A container that was not completed, before its labels were written: it belongs to no Pod.
                if let Err(error) = cleanup::remove_container(node, &found.handler, &found.status.id).await {
                    tracing::warn!(container = %found.status.id, error = chain(&error), "half-made container not removed");
                }
            } else {
                pods.entry(uid).or_default().push(found);
            }
        }
        let networks = node.parts.network.pods().await?;
        let volumes = node.volumes.pods().await?;
        for uid in networks.into_iter().chain(volumes) {
            pods.entry(uid).or_default();
        }
        for key in node.parts.images.mounts().await? {
            if let Some(uid) = Layout::uid_of_volumes(&key) {
                pods.entry(uid.to_owned()).or_default();
            } else if !ids.contains(&key)
                && let Err(error) = node.parts.images.unmount(&key).await
            {
                tracing::warn!(key, error = chain(&error), "image not unmounted");
            }
        }
        Ok(Self { pods })
    }

    /// Has the CPU manager bind the containers that run, whether their Pods still exist or not.
    pub(crate) fn bind_to_cpus(&self, node: &Node) {
        let Some(cpus) = &node.cpu_manager else { return };
        for one in self.pods.values().flatten().filter(|one| matches!(one.status.state, ContainerState::Running { .. })) {
            let label = |name: &str| one.status.labels.get(name).map(String::as_str).unwrap_or_default();
            if label(label::CONTAINER) != PAUSE {
                cpus.adopt(label(label::POD_UID), label(label::CONTAINER), &one.status.id, &one.handler);
            }
        }
    }

    /// The Pods of which a container is left.
    pub(crate) fn with_containers(&self) -> impl Iterator<Item = String> + '_ {
        self.pods.iter().filter(|(_, found)| !found.is_empty()).map(|(uid, _)| uid.clone())
    }

    /// Takes the leftovers of a Pod; its worker adopts them.
    pub(crate) fn take(&mut self, uid: &str) -> Vec<RuntimeContainer> {
        self.pods.remove(uid).unwrap_or_default()
    }

    /// Takes all remaining leftovers.
    pub(crate) fn drain(&mut self) -> BTreeMap<String, Vec<RuntimeContainer>> {
        std::mem::take(&mut self.pods)
    }
}

/// A runtime did not list its containers.
#[derive(Debug, Error)]
#[error("{handler}")]
pub(crate) struct ListError {
    handler: &'static str,
    #[source]
    source: RuntimeError,
}

/// Every container of every runtime.
pub(crate) async fn containers(parts: &Parts) -> Result<Vec<RuntimeContainer>, ListError> {
    let mut all = Vec::new();
    for runtime in &parts.runtimes {
        let list = runtime.list().await.map_err(|source| ListError { handler: runtime.handler(), source })?;
        all.extend(list.into_iter().map(|status| RuntimeContainer { handler: runtime.handler().to_owned(), status }));
    }
    Ok(all)
}

/// Ends and removes the leftovers of a Pod that does not exist any more; tries until it succeeds.
pub(crate) async fn remove(node: Arc<Node>, uid: String, found: Vec<RuntimeContainer>, cancel: CancellationToken) {
    let names = found.first().and_then(|one| PodName::from_labels(&one.status.labels));
    let names = names.unwrap_or(PodName { uid, ..PodName::default() });
    let work = async {
        futures::future::join_all(found.iter().map(|one| stop(&node, one))).await;
        let mut backoff = Backoff::default();
        while let Err(error) = remove_once(&node, &names, &found).await {
            backoff.next(api_clock::steady());
            let wait = go_duration(backoff.delay());
            tracing::warn!(
                pod = %names,
                uid = names.uid,
                error = chain(&error),
                "what a deleted Pod left on this node is not removed; the next attempt is in {wait}. Free what the error names, or reboot \
                 the machine: no container, mount or namespace outlives that"
            );
            tokio::time::sleep(Duration::try_from(backoff.delay()).unwrap_or(Duration::ZERO)).await;
        }
    };
    tokio::select! {
        () = cancel.cancelled() => {}
        () = work => {}
    }
}

async fn remove_once(node: &Node, names: &PodName, found: &[RuntimeContainer]) -> Result<(), CleanupError> {
    for one in found {
        cleanup::remove_container(node, &one.handler, &one.status.id).await?;
    }
    cleanup::free_pod(node, names, None, true).await
}

/// Log directories of Pods with other UIDs: Pods that ended, were freed except for their logs, and were deleted while no agent
/// ran. Blocks while it lists one directory.
pub(crate) fn logs_of_others(node: &Node, uids: &BTreeSet<&str>) -> Vec<PathBuf> {
    let dir = node.layout.logs();
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(dir = %dir.display(), %error, "logs not looked through");
            return Vec::new();
        }
    };
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths.filter(|path| Layout::uid_of_logs(path).is_some_and(|uid| !uids.contains(uid))).collect()
}

/// Removes directories of logs.
pub(crate) async fn forget_logs(dirs: Vec<PathBuf>) {
    for dir in dirs {
        if let Err(error) = cleanup::remove_dir(&dir).await {
            tracing::warn!(error = chain(&error), "logs of a Pod that is no more not removed");
        }
    }
}

/// The containers of one Pod.
pub(crate) async fn of_pod(node: &Node, uid: &str) -> Result<Vec<RuntimeContainer>, ListError> {
    let mut found = containers(&node.parts).await?;
    found.retain(|one| one.status.labels.get(label::POD_UID).is_some_and(|of| of == uid));
    Ok(found)
}

/// `SIGTERM`, and the grace period of the Pod.
async fn stop(node: &Node, one: &RuntimeContainer) {
    if !matches!(one.status.state, ContainerState::Running { .. }) {
        return;
    }
    let Some(runtime) = node.parts.by_handler(&one.handler) else { return };
    let grace = one.status.labels.get(label::GRACE).and_then(|seconds| seconds.parse().ok()).unwrap_or(30);
    match runtime.signal(&one.status.id, nix::sys::signal::Signal::SIGTERM as i32).await {
        Ok(()) | Err(RuntimeError::NotFound(_)) => {}
        Err(error) => tracing::warn!(container = %one.status.id, error = chain(&error), "stop signal not sent"),
    }
    if tokio::time::timeout(Duration::from_secs(grace), runtime.wait(&one.status.id)).await.is_err() {
        tracing::info!(container = %one.status.id, "leftover container did not end in time");
    }
}
