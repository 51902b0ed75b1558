//! The names of everything that a Pod has on the node: container ids and labels, directories, log files, cgroups. The names are
//! computed from the Pod, so that a new agent finds everything again. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use runtimes_contract::ContainerId;
use sha2::{Digest, Sha256};

/// Labels of a container; after a restart of the agent the runtime returns them. They are upstream's where upstream has them.
pub(crate) mod label {
    pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
    pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
    pub(crate) const POD_NAMESPACE: &str = runtimes_contract::TENANT_LABEL;
    pub(crate) const CONTAINER: &str = "io.kubernetes.container.name";
    pub(crate) const ATTEMPT: &str = "io.kubernetes.container.restartCount";
    pub(crate) const HASH: &str = "io.kubernetes.container.hash";
    /// The resources of the instance when it started.
    pub(crate) const RESOURCES: &str = "dev.skiff.resources";
    pub(crate) const IMAGE_ID: &str = "dev.skiff.image.id";
    pub(crate) const IMAGE: &str = "dev.skiff.image.name";
    pub(crate) const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
}

/// The name in the labels of a pause container, as upstream; no container of a Pod can have it.
pub(crate) const PAUSE: &str = "POD";

/// Bytes of a hash that name a container: 16 give 32 hex digits, short enough for a socket's path.
const ID_LEN: usize = 16;

/// The start of the key of a Pod's image volumes.
const VOLUMES_OF: &str = "volumes_";

/// The paths of the agent's files.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    data_dir: PathBuf,
    prefix: String,
}

impl Layout {
    pub(crate) fn new(data_dir: &Path, prefix: &str) -> Self {
        Self { data_dir: data_dir.to_owned(), prefix: prefix.to_owned() }
    }

    /// The secret of this node's probes.
    pub(crate) fn probe_key(&self) -> PathBuf {
        self.kubelet().join("probe.key")
    }

    /// Which CPUs containers have alone; upstream's name.
    pub(crate) fn cpu_manager_state(&self) -> PathBuf {
        self.kubelet().join("cpu_manager_state")
    }

    /// Which devices of plugins containers have.
    pub(crate) fn device_plugin_allocations(&self) -> PathBuf {
        self.kubelet().join("device_plugin_allocations")
    }

    /// When the node last shut down; upstream's name.
    pub(crate) fn graceful_shutdown_state(&self) -> PathBuf {
        self.kubelet().join("graceful_node_shutdown_state")
    }

    /// The directory of the agent's data about Pods.
    pub(crate) fn kubelet(&self) -> PathBuf {
        self.data_dir.join("kubelet")
    }

    /// Directory of volumes and managed files, by Pod UID.
    pub(crate) fn pods(&self) -> PathBuf {
        self.kubelet().join("pods")
    }

    /// Directory of the volumes that Skiff's provisioner made, by name. The Node object has it in an annotation.
    pub(crate) fn local_volumes(&self) -> PathBuf {
        self.data_dir.join("volumes")
    }

    /// Directory of the records of these volumes.
    pub(crate) fn local_volume_records(&self) -> PathBuf {
        self.kubelet().join("local-volumes")
    }

    /// Directory of the seccomp profiles that `Localhost` names.
    pub(crate) fn seccomp_profiles(&self) -> PathBuf {
        self.data_dir.join("kubelet/seccomp")
    }

    /// The key of a Pod's image volumes in the image store. A container's key is its id, which has no such start.
    pub(crate) fn volumes_key(uid: &str) -> String {
        format!("{VOLUMES_OF}{uid}")
    }

    /// The UID of the Pod of such a key.
    pub(crate) fn uid_of_volumes(key: &str) -> Option<&str> {
        key.strip_prefix(VOLUMES_OF)
    }

    /// A file that the agent writes for a Pod: `hosts`, `hostname`, `resolv.conf`.
    pub(crate) fn pod_file(&self, uid: &str, name: &str) -> PathBuf {
        self.pods().join(uid).join(name)
    }

    /// The file behind a container's termination message path.
    pub(crate) fn termination_log(&self, uid: &str, container: &str, attempt: u32) -> PathBuf {
        self.termination_logs(uid, container).join(attempt.to_string())
    }

    /// Directory of the termination messages of a container.
    pub(crate) fn termination_logs(&self, uid: &str, container: &str) -> PathBuf {
        self.pods().join(uid).join("containers").join(container)
    }

    /// Directory of every Pod's logs.
    pub(crate) fn logs(&self) -> PathBuf {
        self.data_dir.join("pods")
    }

    /// Directory of a Pod's logs.
    pub(crate) fn pod_logs(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.logs().join(format!("{namespace}_{name}_{uid}"))
    }

    /// The UID of the Pod whose logs lie in a directory: names have no underscore.
    pub(crate) fn uid_of_logs(dir: &Path) -> Option<&str> {
        let (names, uid) = dir.file_name()?.to_str()?.rsplit_once('_')?;
        (names.contains('_') && !uid.is_empty()).then_some(uid)
    }

    /// The log of one instance of a container.
    pub(crate) fn log(&self, pod: &PodName, container: &str, attempt: u32) -> PathBuf {
        self.pod_logs(&pod.namespace, &pod.name, &pod.uid).join(container).join(format!("{attempt}.log"))
    }

    /// The cgroup of everything of this node.
    pub(crate) fn cgroup_root(&self) -> String {
        format!("skiff/{}", self.prefix)
    }

    /// The cgroup of all Pods of a quality of service.
    pub(crate) fn class_cgroup(&self, qos: &str) -> String {
        format!("{}/{}", self.cgroup_root(), qos.to_lowercase())
    }

    /// The cgroup of a Pod in the tree of its quality of service.
    pub(crate) fn pod_cgroup(&self, qos: &str, uid: &str) -> String {
        format!("{}/pod{uid}", self.class_cgroup(qos))
    }
}

/// The identity of a Pod, which never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PodName {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl PodName {
    pub(crate) fn of(pod: &Pod) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self { namespace: text(&pod.metadata.namespace), name: text(&pod.metadata.name), uid: text(&pod.metadata.uid) }
    }

    pub(crate) fn from_labels(labels: &BTreeMap<String, String>) -> Option<Self> {
        let text = |name: &str| labels.get(name).cloned();
        Some(Self { namespace: text(label::POD_NAMESPACE)?, name: text(label::POD_NAME)?, uid: text(label::POD_UID)? })
    }
}

/// Upstream's `format.Pod`: `name_namespace(uid)`.
impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}_{}({})", self.name, self.namespace, self.uid)
    }
}

/// The id of one instance of a container.
pub(crate) fn container_id(uid: &str, container: &str, attempt: u32) -> ContainerId {
    ContainerId(short_hash(&format!("{uid}/{container}/{attempt}"), ID_LEN))
}

/// The id of a Pod's pause container.
pub(crate) fn pause_id(uid: &str) -> ContainerId {
    container_id(uid, PAUSE, 0)
}

/// A hash of what a container was made from; a change means a new instance. As upstream it covers name and image only, because
/// nothing else of a running container can change.
pub(crate) fn spec_hash(container: &Container) -> String {
    short_hash(&format!("{}\0{}", container.name, container.image.as_deref().unwrap_or_default()), 4)
}

/// The first `len` bytes of the text's SHA-256, in hex digits.
pub(crate) fn short_hash(text: &str, len: usize) -> String {
    Sha256::digest(text).iter().take(len).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stable_and_short() {
        let id = container_id("u", "web", 3);
        assert_eq!(id.0.len(), 32);
        assert_eq!(id, container_id("u", "web", 3));
        assert_ne!(id, container_id("u", "web", 4));
        let layout = Layout::new(Path::new("/data"), "sk1");
        let pod = PodName { namespace: "ns".to_owned(), name: "web".to_owned(), uid: "u".to_owned() };
        assert_eq!(layout.log(&pod, "c", 2), PathBuf::from("/data/pods/ns_web_u/c/2.log"));
        assert_eq!(layout.pod_cgroup("Burstable", "u"), "skiff/sk1/burstable/podu");
        assert_eq!(pod.to_string(), "web_ns(u)");
    }
}
