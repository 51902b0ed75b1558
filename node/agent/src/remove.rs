//! `skiff down`: every trace of the node goes. Each part is asked what it has and frees it; all parts
//! are tried before an error is given, and doing it again finds nothing.

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
    let mut check = |result: Result<(), String>| failures.extend(result.err());
    match leftovers::containers(parts).await {
        Ok(found) => {
            for one in found {
                if let Some(runtime) = parts.by_handler(&one.handler) {
                    check(runtime.remove(&one.status.id).await.map_err(|error| chain(&error)));
                }
            }
        }
        Err(error) => check(Err(error)),
    }
    match parts.images.mounts().await {
        Ok(keys) => {
            for key in keys {
                check(parts.images.unmount(&key).await.map_err(|error| chain(&error)));
            }
        }
        Err(error) => check(Err(chain(&error))),
    }
    let volumes = Volumes::new(layout.pods());
    match volumes.pods().await {
        Ok(uids) => {
            for uid in uids {
                check(volumes.tear_down(&uid).await.map_err(|error| chain(&error)));
            }
        }
        Err(error) => check(Err(chain(&error))),
    }
    check(parts.network.remove_all().await.map_err(|error| chain(&error)));
    if config.cgroups {
        let root = layout.cgroup_root();
        let removed = api_tasks::blocking("node-agent/remove", move || remove_cgroups(&root)).await;
        check(removed.map_err(|error| error.to_string()).and_then(|removed| removed.map_err(|error| chain(&error))));
    }
    if failures.is_empty() { Ok(()) } else { Err(AgentError::Remove(failures.join("; "))) }
}

/// Removes the node's cgroups, and the one above them that the clusters of a machine share when this
/// was the last of them.
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
