//! The running instance whose PID namespace an ephemeral container joins. Pure.

use k8s_openapi::api::core::v1::Pod;

use super::{InstanceState, PodRecord};
use crate::container::ephemeral;
use crate::container::processes::TargetInstance;
use crate::reason::Reason;

impl PodRecord {
    /// The target of a container, if it has one. The error has upstream's words: the kubelet's when the target never ran, the
    /// container runtime's when it has ended.
    pub(crate) fn target(&self, pod: &Pod, name: &str) -> Result<Option<TargetInstance>, Reason> {
        let Some(wanted) = ephemeral::target_name(pod, name) else { return Ok(None) };
        let ended = match self.containers.get(wanted).map(|record| &record.run) {
            Some(InstanceState::Running(alive)) => {
                return Ok(Some(TargetInstance { container: wanted.to_owned(), id: alive.id.clone(), handler: alive.handler.clone() }));
            }
            Some(InstanceState::Ended(ended) | InstanceState::Starting { before: Some(ended) }) => ended,
            Some(InstanceState::Idle | InstanceState::Starting { before: None }) | None => {
                return Err(Reason::new("CreateContainerConfigError", format!("unable to find target container {wanted}")));
            }
        };
        let id = ended.id.as_deref().unwrap_or_default();
        let message = format!("invalid target container: container \"{id}\" is not running - in state CONTAINER_EXITED");
        Err(Reason::new("CreateContainerError", message))
    }
}
