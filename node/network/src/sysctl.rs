//! The sysctls of a Pod's spec, in the Pod's own network and IPC namespaces.

use std::fs::{self, File};
use std::path::Path;

use nix::sched::{CloneFlags, setns};
use runtimes_contract::Sandbox;
use runtimes_host::user_namespace::become_root_of;

use crate::NetworkError;
use crate::sandbox::in_thread;

/// Writes sysctls, named with dots, in a sandbox's namespaces. `net.*` belongs to the network namespace, everything else to the
/// IPC namespace: the caller must not pass sysctls of neither. An error when the sandbox does not have the namespace (the
/// node's own would change), or when the kernel rejects the value.
pub async fn set_sysctls(sandbox: &Sandbox, sysctls: Vec<(String, String)>) -> Result<(), NetworkError> {
    if sysctls.is_empty() {
        return Ok(());
    }
    let sandbox = sandbox.clone();
    in_thread(move || {
        let enter = |path: &Path, kind: CloneFlags| {
            let file = File::open(path).map_err(NetworkError::io(format!("opening {}", path.display())))?;
            setns(file, kind).map_err(|errno| NetworkError::kernel(format!("entering {}", path.display()))(errno.into()))
        };
        let (network, ipc) = (sandbox.network.as_deref(), sandbox.ipc.as_deref());
        network.map_or(Ok(()), |path| enter(path, CloneFlags::CLONE_NEWNET))?;
        ipc.map_or(Ok(()), |path| enter(path, CloneFlags::CLONE_NEWIPC))?;
        let (of_network, of_ipc): (Vec<_>, Vec<_>) = sysctls.iter().partition(|(name, _)| name.starts_with("net."));
        let root = sandbox.user.as_ref().filter(|_| !of_ipc.is_empty()).map(|user| user.first_id);
        let mut write = |(name, value): &(String, String)| {
            let has_namespace = if name.starts_with("net.") { network.is_some() } else { ipc.is_some() };
            if !has_namespace || name.contains("..") || name.contains('/') {
                return Err(NetworkError::Invalid(format!("sysctl {name} is not one of the Pod's own")));
            }
            let path = format!("/proc/sys/{}", name.replace('.', "/"));
            fs::write(&path, value).map_err(NetworkError::io(format!("setting sysctl {name} to {value:?}")))
        };
        of_network.into_iter().try_for_each(&mut write)?;
        // The thread ends with this work.
        root.map_or(Ok(()), become_root_of).map_err(NetworkError::kernel("becoming the root of a user namespace"))?;
        of_ipc.into_iter().try_for_each(write)
    })
    .await
}
