//! `skiff down`: removes everything of the node. An error of one part does not keep the others from being removed; all errors
//! are returned together. The operation may be repeated.

use node_volumes::Volumes;
use runtimes_contract::RuntimeError;
use runtimes_host::cgroup::Cgroups;

use crate::config::Config;
use crate::error::{AgentError, chain};
use crate::layout::Layout;
use crate::leftovers;
use crate::parts::Parts;

pub(crate) async fn all(config: &Config, parts: &Parts) -> Result<(), AgentError> {
    let layout = Layout::new(&config.data_dir, &config.prefix);
    let mut failures = Vec::new();
    let mut failed = |error: &(dyn std::error::Error + 'static)| failures.push(chain(error));
    match leftovers::containers(parts).await {
        Ok(found) => {
            for one in found {
                if let Some(runtime) = parts.by_handler(&one.handler)
                    && let Err(error) = runtime.remove(&one.status.id).await
                {
                    failed(&error);
                }
            }
        }
        Err(error) => failed(&error),
    }
    match parts.images.mounts().await {
        Ok(keys) => {
            for key in keys {
                if let Err(error) = parts.images.unmount(&key).await {
                    failed(&error);
                }
            }
        }
        Err(error) => failed(&error),
    }
    let volumes = Volumes::new(layout.pods(), layout.local_volumes(), layout.local_volume_records());
    match volumes.pods().await {
        Ok(uids) => {
            for uid in uids {
                if let Err(error) = volumes.tear_down(&uid).await {
                    failed(&error);
                }
            }
        }
        Err(error) => failed(&error),
    }
    if let Err(error) = parts.network.remove_all().await {
        failed(&error);
    }
    if let Err(error) = parts.shutdowns.remove_setting().await {
        failed(&error);
    }
    if config.cgroups {
        let root = layout.cgroup_root();
        let removed = api_tasks::blocking("node-agent/remove", move || remove_cgroups(&root)).await;
        match removed {
            Ok(Err(error)) => failed(&error),
            Ok(Ok(())) => {}
            Err(error) => failed(&error),
        }
    }
    if failures.is_empty() {
        // No container is left that it assigns CPUs to: the next start may have another policy.
        let state = layout.cpu_manager_state();
        if let Err(error) = std::fs::remove_file(&state)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            failures.push(format!("removing {}: {error}", state.display()));
        }
    }
    if failures.is_empty() {
        let state = layout.device_plugin_allocations();
        if let Err(error) = node_device_plugins::remove(&state).await {
            failures.push(format!("writing {}: {error}", state.display()));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(AgentError::Remove(failures.join("; "))) }
}

/// Removes the node's cgroups, and the parent that the clusters of a machine share when this node is the last in it.
fn remove_cgroups(root: &str) -> Result<(), RuntimeError> {
    let cgroups = Cgroups::detect()?;
    cgroups.group(root)?.remove_tree()?;
    let Some((shared, _)) = root.rsplit_once('/') else { return Ok(()) };
    for hierarchy in cgroups.roots() {
        if let Err(error) = std::fs::remove_dir(hierarchy.join(shared)) {
            tracing::debug!(hierarchy = %hierarchy.display(), %error, "shared cgroup stays");
        }
    }
    Ok(())
}
