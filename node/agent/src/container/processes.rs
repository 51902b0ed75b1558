//! The processes that a container sees: its own, those of the container that an ephemeral container names, or the node's. Pure.

use k8s_openapi::api::core::v1::Pod;
use runtimes_contract::{ContainerId, ContentKind, Processes};

/// The running instance whose processes an ephemeral container is to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetInstance {
    pub(crate) container: String,
    pub(crate) id: ContainerId,
    pub(crate) handler: String,
}

/// Why a container cannot see the processes that its Pod wants it to see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProcessesError {
    #[error("hostPID is set, but a WebAssembly container cannot see the processes of the node")]
    OnNode,
    #[error("invalid target container: a WebAssembly container cannot see the processes of container \"{0}\"")]
    WithTarget(String),
    #[error(
        "invalid target container: container \"{0}\" runs WebAssembly, whose process no other container can see; \
         leave out targetContainerName"
    )]
    AsTarget(String),
}

/// What a container with content of a kind sees. `target` comes with the kind of its content.
pub(crate) fn processes(pod: &Pod, kind: ContentKind, target: Option<(&TargetInstance, ContentKind)>) -> Result<Processes, ProcessesError> {
    let of_node = pod.spec.as_ref().and_then(|spec| spec.host_pid) == Some(true);
    match (kind, target) {
        (ContentKind::Wasm, _) if of_node => Err(ProcessesError::OnNode),
        (ContentKind::Linux, _) if of_node => Ok(Processes::OfNode),
        (_, None) => Ok(Processes::Own),
        (ContentKind::Wasm, Some((target, _))) => Err(ProcessesError::WithTarget(target.container.clone())),
        (ContentKind::Linux, Some((target, ContentKind::Wasm))) => Err(ProcessesError::AsTarget(target.container.clone())),
        (ContentKind::Linux, Some((target, ContentKind::Linux))) => Ok(Processes::OfContainer(target.id.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_sees_its_own_processes_its_targets_or_the_nodes() {
        use ContentKind::{Linux, Wasm};
        let id = ContainerId("1".to_owned());
        let app = TargetInstance { container: "app".to_owned(), id: id.clone(), handler: "h".to_owned() };
        let of = |host_pid: bool, kind: ContentKind, target: Option<ContentKind>| {
            let pod: Pod = serde_json::from_value(json!({"spec": {"hostPID": host_pid, "containers": []}})).expect("a pod");
            processes(&pod, kind, target.map(|kind| (&app, kind)))
        };
        assert_eq!(of(false, Linux, None), Ok(Processes::Own));
        assert_eq!(of(false, Wasm, None), Ok(Processes::Own));
        assert_eq!(of(false, Linux, Some(Linux)), Ok(Processes::OfContainer(id.clone())));
        assert_eq!(of(false, Linux, Some(Wasm)), Err(ProcessesError::AsTarget("app".to_owned())));
        assert_eq!(of(false, Wasm, Some(Linux)), Err(ProcessesError::WithTarget("app".to_owned())));
        assert_eq!(of(true, Linux, None), Ok(Processes::OfNode));
        assert_eq!(of(true, Linux, Some(Linux)), Ok(Processes::OfNode));
        assert_eq!(of(true, Wasm, None), Err(ProcessesError::OnNode));
    }
}
