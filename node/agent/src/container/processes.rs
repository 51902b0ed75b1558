//! The processes that a container sees: its own, those of its Pod, those of the container that an ephemeral container names, or the
//! node's. Pure.

use k8s_openapi::api::core::v1::Pod;
use runtimes_contract::{ContainerId, ContentKind, Processes};

/// The container that has the PID namespace which a Pod's containers share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PauseContainer {
    pub(crate) id: ContainerId,
    pub(crate) handler: String,
}

/// The running instance whose processes an ephemeral container is to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TargetInstance {
    pub(crate) container: String,
    pub(crate) id: ContainerId,
    pub(crate) handler: String,
}

/// Whether the Linux containers of a Pod share one PID namespace.
pub(crate) fn are_shared(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.share_process_namespace == Some(true))
}

/// Why a container cannot see the processes that its Pod wants it to see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProcessesError {
    #[error("hostPID is set, but a WebAssembly container cannot see the processes of the node")]
    OnNode,
    #[error("shareProcessNamespace is set, but a WebAssembly container has no processes that others could see")]
    InPod,
    #[error("shareProcessNamespace is set, but the Pod has no pause container")]
    NoPause,
    #[error("invalid target container: a WebAssembly container cannot see the processes of container \"{0}\"")]
    WithTarget(String),
    #[error(
        "invalid target container: container \"{0}\" runs WebAssembly, whose process no other container can see; \
         leave out targetContainerName"
    )]
    AsTarget(String),
}

/// What a container with content of a kind sees. `pause` is the Pod's pause container. `target` comes with the kind of its content;
/// in a Pod that shares its processes, those of the target are the Pod's.
pub(crate) fn processes(
    pod: &Pod,
    kind: ContentKind,
    pause: Option<&PauseContainer>,
    target: Option<(&TargetInstance, ContentKind)>,
) -> Result<Processes, ProcessesError> {
    let of_node = pod.spec.as_ref().and_then(|spec| spec.host_pid) == Some(true);
    match (kind, target) {
        (ContentKind::Wasm, _) if of_node => Err(ProcessesError::OnNode),
        (ContentKind::Linux, _) if of_node => Ok(Processes::OfNode),
        (ContentKind::Wasm, _) if are_shared(pod) => Err(ProcessesError::InPod),
        (ContentKind::Linux, _) if are_shared(pod) => {
            pause.map(|pause| Processes::OfContainer(pause.id.clone())).ok_or(ProcessesError::NoPause)
        }
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
            processes(&pod, kind, None, target.map(|kind| (&app, kind)))
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

    #[test]
    fn the_linux_containers_of_a_pod_share_the_processes_of_its_pause_container() {
        use ContentKind::{Linux, Wasm};
        let pause = PauseContainer { id: ContainerId("p".to_owned()), handler: "h".to_owned() };
        let app = TargetInstance { container: "app".to_owned(), id: ContainerId("1".to_owned()), handler: "h".to_owned() };
        let pod: Pod = serde_json::from_value(json!({"spec": {"shareProcessNamespace": true, "containers": []}})).expect("a pod");
        let of_pause = Ok(Processes::OfContainer(pause.id.clone()));
        assert_eq!(processes(&pod, Linux, Some(&pause), None), of_pause);
        assert_eq!(processes(&pod, Linux, Some(&pause), Some((&app, Linux))), of_pause, "also a debugger with a target");
        assert_eq!(processes(&pod, Linux, None, None), Err(ProcessesError::NoPause), "never processes of its own in silence");
        assert_eq!(processes(&pod, Wasm, Some(&pause), None), Err(ProcessesError::InPod));
        let alone: Pod = serde_json::from_value(json!({"spec": {"shareProcessNamespace": false, "containers": []}})).expect("a pod");
        assert_eq!(processes(&alone, Linux, None, None), Ok(Processes::Own));
    }
}
