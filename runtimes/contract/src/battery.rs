//! The battery every runtime passes.
use crate::spec::*;
/// A spec with nothing special in it.
pub fn plain_spec(id: &str) -> ContainerSpec {
    ContainerSpec {
        id: ContainerId(id.into()),
        labels: [("name".to_owned(), id.to_owned())].into(),
        sandbox: Sandbox { network: None, ipc: None, uts: None, hostname: "pod".into() },
        cgroup: format!("skiff-test/{id}"),
        content: Content::Linux { rootfs: "/".into() },
        args: vec!["run".into()],
        env: Vec::new(),
        working_dir: "/".into(),
        mounts: Vec::new(),
        user: User::default(),
        resources: Resources::default(),
        security: Security::default(),
        log_path: "/dev/null".into(),
        ports: Vec::new(),
        stdin: false,
        tty: false,
    }
}
