//! Which container has which CPUs, and the file `cpu_manager_state` that holds it: upstream's JSON, and upstream's checksum, so that
//! its tools read the file. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::cpu_set::CpuSet;

/// The CPUs of containers: of a Pod's UID, by the container's name.
type Entries<T> = BTreeMap<String, BTreeMap<String, T>>;

/// The CPUs of all containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assignments {
    /// The CPUs of all containers that have none of their own.
    pub(crate) shared: CpuSet,
    /// The CPUs that one container has alone. An init container and those that run after it may have the same.
    pub(crate) exclusive: Entries<CpuSet>,
}

/// The text of the file is not accepted; upstream's words where it has them.
#[derive(Debug, Error)]
pub(crate) enum StateError {
    #[error("{0}")]
    Json(serde_json::Error),
    #[error("checkpoint is corrupted")]
    Corrupt,
    #[error("configured policy {wanted:?} differs from state checkpoint policy {written:?}")]
    Policy { wanted: String, written: String },
    #[error("could not parse default cpu set {0:?}")]
    Shared(String),
    #[error("could not parse cpuset {text:?} for container {container:?} in pod {pod:?}")]
    Exclusive { text: String, container: String, pod: String },
}

/// Upstream's `CPUManagerCheckpoint`.
#[derive(Serialize, Deserialize)]
struct Checkpoint {
    #[serde(rename = "policyName")]
    policy: String,
    #[serde(rename = "defaultCpuSet", alias = "defaultCPUSet", default)]
    shared: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: Entries<String>,
    checksum: u64,
}

impl Checkpoint {
    /// The 32-bit FNV-1a hash of the value as upstream's debug printer writes it, with a checksum of 0.
    fn computed_checksum(&self) -> u64 {
        let mut entries = String::new();
        for (at, (pod, containers)) in self.entries.iter().enumerate() {
            let containers: Vec<_> = containers.iter().map(|(name, cpus)| format!("{name}:{cpus}")).collect();
            // Writing to a string does not fail.
            let _written = write!(entries, "{}{pod}:map[{}]", if at > 0 { " " } else { "" }, containers.join(" "));
        }
        let text = format!(
            "(*state.CPUManagerCheckpoint){{PolicyName:(string){} DefaultCPUSet:(string){} \
             Entries:(map[string]map[string]string)map[{entries}] Checksum:(checksum.Checksum)0}}",
            self.policy, self.shared
        );
        u64::from(text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)))
    }
}

impl Assignments {
    /// The CPUs that a container has alone.
    pub(crate) fn of(&self, uid: &str, container: &str) -> Option<&CpuSet> {
        self.exclusive.get(uid)?.get(container)
    }

    /// All CPUs that belong to one container.
    pub(crate) fn all_exclusive(&self) -> CpuSet {
        self.exclusive.values().flat_map(BTreeMap::values).flat_map(CpuSet::iter).collect()
    }

    /// The same without the CPUs of a Pod, which are shared again.
    pub(crate) fn without(&self, uid: &str) -> Self {
        let mut rest = self.clone();
        for cpus in rest.exclusive.remove(uid).unwrap_or_default().values() {
            rest.shared = rest.shared.union(cpus);
        }
        rest
    }

    /// The content of the file.
    pub(crate) fn encode(&self, policy: &str) -> Result<Vec<u8>, serde_json::Error> {
        let texts =
            |containers: &BTreeMap<String, CpuSet>| containers.iter().map(|(name, cpus)| (name.clone(), cpus.to_string())).collect();
        let entries = self.exclusive.iter().map(|(uid, containers)| (uid.clone(), texts(containers))).collect();
        let mut checkpoint = Checkpoint { policy: policy.to_owned(), shared: self.shared.to_string(), entries, checksum: 0 };
        checkpoint.checksum = checkpoint.computed_checksum();
        serde_json::to_vec(&checkpoint)
    }

    /// Reads the content of the file, written under the same policy.
    pub(crate) fn decode(content: &[u8], policy: &str) -> Result<Self, StateError> {
        let checkpoint: Checkpoint = serde_json::from_slice(content).map_err(StateError::Json)?;
        if checkpoint.checksum != checkpoint.computed_checksum() {
            return Err(StateError::Corrupt);
        }
        if checkpoint.policy != policy {
            return Err(StateError::Policy { wanted: policy.to_owned(), written: checkpoint.policy });
        }
        let shared = checkpoint.shared.parse().map_err(|_| StateError::Shared(checkpoint.shared.clone()))?;
        let mut exclusive = Entries::new();
        for (pod, containers) in checkpoint.entries {
            for (container, text) in containers {
                let cpus = text.parse().map_err(|_| StateError::Exclusive { text, container: container.clone(), pod: pod.clone() })?;
                exclusive.entry(pod.clone()).or_insert_with(BTreeMap::new).insert(container, cpus);
            }
        }
        Ok(Self { shared, exclusive })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().expect("a list")
    }

    fn assignments(shared: &str, entries: &[(&str, &str, &str)]) -> Assignments {
        let mut all = Assignments { shared: set(shared), ..Assignments::default() };
        for (uid, container, cpus) in entries {
            all.exclusive.entry((*uid).to_owned()).or_default().insert((*container).to_owned(), set(cpus));
        }
        all
    }

    /// The first two are in upstream's documentation, the others in its tests.
    #[test]
    fn files_have_upstreams_form_and_checksum() {
        let encoded = |all: &Assignments, policy: &str| String::from_utf8(all.encode(policy).expect("JSON")).expect("text");
        assert_eq!(encoded(&assignments("0-63", &[]), "static"), r#"{"policyName":"static","defaultCpuSet":"0-63","checksum":1058907510}"#);
        assert_eq!(
            encoded(&assignments("2-15,17-31,34-47,49-63", &[]), "static"),
            r#"{"policyName":"static","defaultCpuSet":"2-15,17-31,34-47,49-63","checksum":4141502832}"#
        );
        let two = assignments("1-3", &[("pod", "container1", "4-6"), ("pod", "container2", "1-3")]);
        assert_eq!(
            encoded(&two, "none"),
            r#"{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},"checksum":3610638499}"#
        );
        let of_tests = br#"{"policyName": "none", "defaultCPUSet": "4-6", "entries": {}, "checksum": 354655845}"#;
        assert_eq!(Assignments::decode(of_tests, "none").expect("a state"), assignments("4-6", &[]));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let all = assignments("0,3", &[("a", "c", "1"), ("a", "d", "2"), ("b", "c", "4-7")]);
        let content = all.encode("static").expect("JSON");
        assert_eq!(Assignments::decode(&content, "static").expect("a state"), all);
    }

    #[test]
    fn odd_files_are_errors() {
        let error = |text: &str| Assignments::decode(text.as_bytes(), "static").expect_err("refused").to_string();
        assert!(error("{").starts_with("EOF while parsing"));
        assert!(error("[]").contains("invalid"));
        assert_eq!(error(r#"{"policyName":"static","defaultCpuSet":"0-62","checksum":1058907510}"#), "checkpoint is corrupted");
        let signed = |policy: &str, shared: &str, cpus: &str| {
            let entries = [("pod".to_owned(), [("c".to_owned(), cpus.to_owned())].into())].into();
            let mut checkpoint = Checkpoint { policy: policy.to_owned(), shared: shared.to_owned(), entries, checksum: 0 };
            checkpoint.checksum = checkpoint.computed_checksum();
            serde_json::to_string(&checkpoint).expect("JSON")
        };
        assert_eq!(error(&signed("none", "0", "1")), "configured policy \"static\" differs from state checkpoint policy \"none\"");
        assert_eq!(error(&signed("static", "1.3", "1")), "could not parse default cpu set \"1.3\"");
        assert_eq!(error(&signed("static", "0", "asd")), "could not parse cpuset \"asd\" for container \"c\" in pod \"pod\"");
    }

    #[test]
    fn a_pod_that_is_gone_gives_its_cpus_back() {
        let all = assignments("0", &[("a", "init", "1-2"), ("a", "c", "1"), ("b", "c", "3")]);
        assert_eq!(all.all_exclusive(), set("1-3"));
        assert_eq!(all.without("a"), assignments("0-2", &[("b", "c", "3")]));
        assert_eq!(all.without("nobody"), all);
    }
}
