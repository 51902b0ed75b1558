//! The container that only waits ([`Content::Pause`]): one process of our shim, without runc, whose PID namespace Linux containers
//! join. It is its own shim, so that it costs one process.
//!
//! [`Content::Pause`]: runtimes_contract::Content::Pause

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

use runtimes_contract::{ContainerSpec, RuntimeError};
use runtimes_host::cgroup::Group;

/// The file in the container's directory on which the shim mounts its program.
pub const PROGRAM: &str = "pause";
/// The directory in the container's directory on which the shim mounts its root.
pub const ROOT: &str = "root";

/// Makes what its shim needs in the container's directory, and its cgroup.
pub(crate) fn furnish(dir: &Path, group: &Group, spec: &ContainerSpec) -> Result<(), RuntimeError> {
    let making = || format!("making {}", dir.display());
    fs::create_dir(dir.join(ROOT)).map_err(RuntimeError::io(making()))?;
    File::create(dir.join(PROGRAM)).map_err(RuntimeError::io(making()))?;
    group.create(&spec.resources)
}

/// The arguments of its shim.
pub(crate) fn args(dir: &Path, spec: &ContainerSpec) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["pause".into(), dir.into(), spec.oom_score_adj.to_string().into()];
    let sandbox = &spec.sandbox;
    let user = sandbox.user.as_ref().map(|user| user.path.clone());
    // The user namespace first: it owns the others, and only its processes may join them then.
    let namespaces = [("user=", &user), ("network=", &sandbox.network), ("ipc=", &sandbox.ipc), ("uts=", &sandbox.uts)];
    args.extend(namespaces.into_iter().filter_map(|(kind, path)| {
        let mut argument = OsString::from(kind);
        argument.push(path.as_ref()?);
        Some(argument)
    }));
    args
}

#[cfg(test)]
mod tests {
    use runtimes_battery::plain_spec;
    use runtimes_contract::UserNamespace;

    use super::*;

    #[test]
    fn it_joins_the_namespaces_that_its_pod_has() {
        let mut spec = plain_spec("pause");
        spec.oom_score_adj = -998;
        spec.sandbox.network = Some("/run/net".into());
        spec.sandbox.uts = None;
        spec.sandbox.ipc = Some("/run/ipc".into());
        assert_eq!(args(Path::new("/d"), &spec), ["pause", "/d", "-998", "network=/run/net", "ipc=/run/ipc"]);
        spec.sandbox.user = Some(UserNamespace { path: "/run/user".into(), first_id: 65_536 });
        assert_eq!(args(Path::new("/d"), &spec), ["pause", "/d", "-998", "user=/run/user", "network=/run/net", "ipc=/run/ipc"]);
    }
}
