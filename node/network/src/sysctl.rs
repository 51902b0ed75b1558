//! The sysctls of a Pod's spec, in the Pod's own network and IPC namespaces.

use std::fs::{self, File};
use std::path::Path;

use api_model::sysctl::{Namespace, file};
use nix::sched::{CloneFlags, setns};
use runtimes_contract::{Sandbox, UserNamespace};
use runtimes_host::user_namespace::become_root_of;

use crate::NetworkError;
use crate::sandbox::in_thread;

/// The sysctl whose value is a range of groups. The kernel takes the numbers for those of the user namespace of who writes them.
const GROUPS: &str = "net.ipv4.ping_group_range";

/// The value that the node writes for a Pod: groups are those of the Pod.
fn as_on_node(name: &str, value: &str, user: Option<&UserNamespace>) -> Result<String, NetworkError> {
    let Some(user) = user.filter(|_| name == GROUPS) else { return Ok(value.to_owned()) };
    let group = |text: &str| text.parse().ok().and_then(|group| user.id_on_node(group)).map(|group| group.to_string());
    let groups: Option<Vec<_>> = value.split_whitespace().map(group).collect();
    let refused = || NetworkError::Invalid(format!("sysctl {name}: {value:?} has groups that a Pod with hostUsers: false does not have"));
    groups.map(|groups| groups.join(" ")).ok_or_else(refused)
}

/// Writes sysctls, named with dots, in a sandbox's namespaces. An error when a sysctl has no namespace, or the sandbox does not have it (the
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
        let user = sandbox.user.clone();
        let write = |(name, value): &(String, String)| {
            let is_own = Namespace::of(name).is_some_and(|namespace| match namespace {
                Namespace::Network => network.is_some(),
                Namespace::Ipc => ipc.is_some(),
            });
            let file = file(name).filter(|_| is_own);
            let file = file.ok_or_else(|| NetworkError::Invalid(format!("sysctl {name} is not one of the Pod's own")))?;
            let path = Path::new("/proc/sys").join(file);
            fs::write(&path, as_on_node(name, value, user.as_ref())?)
                .map_err(NetworkError::io(format!("setting sysctl {name} to {value:?}")))
        };
        of_network.into_iter().try_for_each(write)?;
        // The thread ends with this work.
        root.map_or(Ok(()), become_root_of).map_err(NetworkError::kernel("becoming the root of a user namespace"))?;
        of_ipc.into_iter().try_for_each(write)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_of_the_pod() {
        let user = UserNamespace { path: "/ns".into(), first_id: 131_072 };
        let of = |name: &str, value: &str| as_on_node(name, value, Some(&user)).ok();
        assert_eq!(of(GROUPS, "0\t65535").as_deref(), Some("131072 196607"));
        assert_eq!(of(GROUPS, "1 0").as_deref(), Some("131073 131072"), "no group");
        assert_eq!((of(GROUPS, "0 65536"), of(GROUPS, "0 x"), of(GROUPS, "-1 5")), (None, None, None));
        assert_eq!(of("net.ipv4.ip_local_port_range", "0 65536").as_deref(), Some("0 65536"));
        assert_eq!(as_on_node(GROUPS, "0 65536", None).ok().as_deref(), Some("0 65536"));
    }
}
