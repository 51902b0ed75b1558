//! Removes what a Pod and its containers have on the node. A Pod's worker calls it for its own Pod, and `leftovers` for Pods of
//! an earlier agent that no longer exist. Every function may be repeated.

use std::path::{Path, PathBuf};

use node_images::ImageError;
use node_network::NetworkError;
use node_volumes::VolumeError;
use runtimes_contract::{ContainerId, RuntimeError};
use runtimes_host::files::remove_tree;
use thiserror::Error;

use crate::layout::{Layout, PodName};
use crate::node::Node;

/// Why something of a Pod was not removed.
#[derive(Debug, Error)]
pub(crate) enum CleanupError {
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Volumes(#[from] VolumeError),
    #[error(transparent)]
    Images(#[from] ImageError),
    /// A container of a known runtime, or a cgroup.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("removing container {id}")]
    Container {
        id: ContainerId,
        #[source]
        source: RuntimeError,
    },
    #[error("removing {}: {error}", .path.display())]
    Directory { path: PathBuf, error: std::io::Error },
    #[error("interrupted")]
    Interrupted,
}

/// Frees what a Pod has beside its containers, of which none is left. `qos` is `None` for a Pod of which only the UID is known.
pub(crate) async fn free_pod(node: &Node, names: &PodName, qos: Option<&str>, forget_logs: bool) -> Result<(), CleanupError> {
    if let Some(cpus) = &node.cpu_manager {
        cpus.release(&names.uid, &node.parts).await;
    }
    node.device_plugins.release(&names.uid).await;
    node.parts.network.remove_pod(&names.uid).await?;
    node.volumes.tear_down(&names.uid).await?;
    node.user_namespaces.release(&names.uid);
    node.parts.images.unmount(&Layout::volumes_key(&names.uid)).await?;
    if let Some(cgroups) = node.cgroups.clone() {
        let all = ["Guaranteed", "Burstable", "BestEffort"];
        let paths: Vec<_> =
            all.iter().filter(|one| qos.is_none_or(|qos| qos == **one)).map(|qos| node.layout.pod_cgroup(qos, &names.uid)).collect();
        let removed =
            api_tasks::blocking("node-agent/remove-cgroups", move || paths.iter().try_for_each(|path| cgroups.group(path)?.remove_tree()))
                .await;
        removed.map_err(|_| CleanupError::Interrupted)??;
    }
    if forget_logs && !names.name.is_empty() {
        remove_dir(&node.layout.pod_logs(&names.namespace, &names.name, &names.uid)).await?;
    }
    Ok(())
}

/// Removes a directory and its content; a directory that does not exist is no error.
pub(crate) async fn remove_dir(dir: &Path) -> Result<(), CleanupError> {
    let path = dir.to_owned();
    match api_tasks::blocking("node-agent/remove-directory", move || remove_tree(&path)).await {
        Ok(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => Err(CleanupError::Directory { path: dir.to_owned(), error }),
        Ok(_) => Ok(()),
        Err(_) => Err(CleanupError::Interrupted),
    }
}

/// Frees a container of one runtime and its image mount.
pub(crate) async fn remove_container(node: &Node, handler: &str, id: &ContainerId) -> Result<(), CleanupError> {
    if let Some(runtime) = node.parts.by_handler(handler) {
        runtime.remove(id).await?;
    }
    forget_cpus(node, id);
    Ok(node.parts.images.unmount(&id.0).await?)
}

/// Removes a container from whichever runtime has it: removing one that does not exist is no error.
pub(crate) async fn remove_everywhere(node: &Node, id: &ContainerId) -> Result<(), CleanupError> {
    for runtime in &node.parts.runtimes {
        match runtime.remove(id).await {
            Ok(()) | Err(RuntimeError::NotFound(_)) => {}
            Err(source) => return Err(CleanupError::Container { id: id.clone(), source }),
        }
    }
    forget_cpus(node, id);
    Ok(node.parts.images.unmount(&id.0).await?)
}

/// The container does not run on any CPU.
fn forget_cpus(node: &Node, id: &ContainerId) {
    if let Some(cpus) = &node.cpu_manager {
        cpus.forget(id);
    }
}

/// Removes the logs and termination messages of instances before the previous one. No request can read them
/// (`kubectl logs --previous` reads the previous one), and a container that crashes for weeks has thousands.
pub(crate) async fn forget_old_files(node: &Node, names: &PodName, container: &str, attempt: u32) {
    let files = [node.layout.log(names, container, attempt), node.layout.termination_log(&names.uid, container, attempt)];
    for dir in files.iter().filter_map(|file| file.parent()) {
        let (dir, logged) = (dir.to_owned(), dir.to_owned());
        let removed = api_tasks::blocking("node-agent/remove-logs", move || of_instances_before(&dir, attempt.saturating_sub(1))).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(dir = %logged.display(), %error, "files of earlier instances not removed");
        }
    }
}

/// Removes the files named after an instance (`3`, `3.log`, `3.log.<time>`) before that one. Blocks.
fn of_instances_before(dir: &Path, first_retained: u32) -> std::io::Result<()> {
    let old = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.split('.').next().and_then(|number| number.parse::<u32>().ok()).is_some_and(|attempt| attempt < first_retained)
    };
    let paths: Vec<PathBuf> = std::fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.iter().filter(|path| old(path)).try_for_each(std::fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_last_two_instances_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["0", "1.log", "8.log", "8.log.20260101-000000", "9.log", "9.log.20260101-000000", "10.log", "other"] {
            std::fs::write(dir.path().join(name), "").expect("writing");
        }
        of_instances_before(dir.path(), 9).expect("removed");
        let mut left: Vec<_> = std::fs::read_dir(dir.path()).expect("a list").map(|entry| entry.expect("an entry").file_name()).collect();
        left.sort();
        assert_eq!(left, ["10.log", "9.log", "9.log.20260101-000000", "other"]);
    }
}
