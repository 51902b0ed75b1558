//! The CPU shares of the cgroups of the quality of service classes. As with the kubelet, that of `BestEffort` has the least that there is,
//! and that of `Burstable` what its Pods request together. So BestEffort Pods, however many they are, get the CPU that the others leave, as far
//! as these request CPU. `Guaranteed` Pods have a cgroup together too, with what they request together; the kubelet has each of them beside
//! the classes.
//!
//! One task writes them when the directory of Pods changes, each time from what all Pods request by then. An agent that starts writes
//! nothing before the directory has all Pods, and one that ends nothing while its workers withdraw them: the Pods run on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use runtimes_contract::{Resources, RuntimeError};
use runtimes_host::cgroup::Cgroups;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::container::resources;
use crate::error::chain;
use crate::layout::Layout;
use crate::node::{Directory, Node};

const CLASSES: [&str; 3] = ["Guaranteed", "Burstable", "BestEffort"];

/// How often the cgroups are written again without a change, as by the kubelet: somebody may have changed or removed them, and a write may
/// have failed.
const PERIOD: Duration = Duration::from_secs(60);

/// The rest after a write, in times of what the write took: with thousands of Pods that come at once, it takes a twentieth of a core.
const REST: u32 = 20;

/// The shares of each class.
type Shares = BTreeMap<&'static str, u64>;

/// Writes the shares until cancelled.
pub(crate) async fn run(node: Arc<Node>, cgroups: Cgroups, cancel: CancellationToken) {
    let mut written = Shares::new();
    let mut rewritten_at = Instant::now() + PERIOD;
    let mut rested_at = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            () = node.directory.requests_changed() => {}
            () = sleep_until(rewritten_at) => {
                written.clear();
                rewritten_at = Instant::now() + PERIOD;
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = sleep_until(rested_at) => {}
        }
        let began = Instant::now();
        let (of_task, cgroups, stop) = (node.clone(), cgroups.clone(), cancel.clone());
        let write = api_tasks::blocking("node-agent/write-qos-classes", move || {
            let Some(wanted) = shares(&of_task.directory, &stop) else { return written };
            write_all(&of_task.layout, &cgroups, &wanted, &written)
        });
        // After a panic, which was logged where it happened, all are written again.
        written = write.await.unwrap_or_default();
        rested_at = Instant::now() + began.elapsed() * REST;
    }
}

/// What the classes are to have. `None` when not all Pods are there: they are not yet, or not any more because the agent ends.
fn shares(directory: &Directory, cancel: &CancellationToken) -> Option<Shares> {
    if !directory.is_complete() {
        return None;
    }
    let mut sums = CLASSES.map(|class| (class, 0_i128));
    for entry in directory.all().into_iter().filter(|entry| entry.requests_count()) {
        let (class, cpu_milli) = (resources::qos(&entry.pod), resources::requests(&entry.pod).cpu_milli);
        sums.iter_mut().filter(|(one, _)| *one == class).for_each(|(_, sum)| *sum += i128::from(cpu_milli));
    }
    // Looked at last: workers withdraw the Pods that run on only after it.
    if cancel.is_cancelled() {
        return None;
    }
    Some(sums.into_iter().map(|(class, sum)| (class, resources::shares(i64::try_from(sum).unwrap_or(i64::MAX)))).collect())
}

/// Writes the shares that the cgroups do not have; returns those that they have then. A failed write is made again later. Blocks.
fn write_all(layout: &Layout, cgroups: &Cgroups, wanted: &Shares, written: &Shares) -> Shares {
    let mut all = Shares::new();
    for (&class, &shares) in wanted {
        match write(cgroups, &layout.class_cgroup(class), shares, written.get(class).copied()) {
            Ok(()) => {
                all.insert(class, shares);
            }
            Err(error) => tracing::warn!(class, error = chain(&error), "the CPU shares of a quality of service class are not set"),
        }
    }
    all
}

fn write(cgroups: &Cgroups, path: &str, shares: u64, written: Option<u64>) -> Result<(), RuntimeError> {
    let group = cgroups.group(path)?;
    if written == Some(shares) && group.exists() {
        return Ok(());
    }
    group.create(&Resources { cpu_shares: Some(shares), ..Resources::default() })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::Pod;
    use node_volumes::Allocatable;
    use serde_json::{Value, json};

    use super::*;
    use crate::layout::PodName;
    use crate::node::Entry;
    use crate::resize;

    fn pod(uid: &str, resources: Value) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": uid, "namespace": "default", "uid": uid}, "status": {"phase": "Running"},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}});
        Arc::new(serde_json::from_value(pod).expect("a Pod"))
    }

    fn burstable(uid: &str, cpu: &str) -> Arc<Pod> {
        pod(uid, json!({"requests": {"cpu": cpu}}))
    }

    fn guaranteed(uid: &str, cpu: &str) -> Arc<Pod> {
        pod(uid, json!({"limits": {"cpu": cpu, "memory": "1Mi"}, "requests": {"cpu": cpu, "memory": "1Mi"}}))
    }

    fn take(directory: &Directory, pod: &Arc<Pod>) {
        directory.publish(&PodName::of(pod).uid, Entry::taken(pod, &resize::desired(pod), false));
    }

    /// The worker of a Pod publishes that it is in that phase.
    fn publish(directory: &Directory, pod: &Arc<Pod>, phase: &str, is_clean: bool) {
        let mut entry = Entry { is_clean, ..Entry::taken(pod, &resize::desired(pod), false) };
        Arc::make_mut(&mut entry.status).phase = Some(phase.to_owned());
        directory.publish(&PodName::of(pod).uid, entry);
    }

    fn classes(directory: &Directory) -> Option<[u64; 3]> {
        shares(directory, &CancellationToken::new()).map(|shares| CLASSES.map(|class| shares[class]))
    }

    #[test]
    fn a_class_has_the_shares_of_what_its_pods_request_together() {
        let directory = Directory::default();
        directory.completed();
        assert_eq!(classes(&directory), Some([2, 2, 2]));
        for pod in [burstable("a", "500m"), burstable("b", "1500m"), guaranteed("c", "1"), pod("d", json!({})), burstable("e", "1m")] {
            take(&directory, &pod);
        }
        assert_eq!(classes(&directory), Some([1_024, 2_049, 2]));
        take(&directory, &burstable("b", "499m"));
        assert_eq!(classes(&directory), Some([1_024, 1_024, 2]), "another request replaces the first");
        directory.withdraw("c");
        assert_eq!(classes(&directory), Some([2, 1_024, 2]));
        take(&directory, &burstable("f", "1000000"));
        assert_eq!(classes(&directory), Some([2, 262_144, 2]), "the most that there is");
    }

    #[test]
    fn nothing_is_written_before_all_pods_of_an_earlier_agent_are_there() {
        let directory = Directory::default();
        take(&directory, &burstable("adopted", "500m"));
        assert_eq!(classes(&directory), None);
        let mut terminating = (*burstable("terminating", "250m")).clone();
        terminating.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time"));
        take(&directory, &Arc::new(terminating));
        take(&directory, &burstable("other", "250m"));
        directory.completed();
        assert_eq!(classes(&directory), Some([2, 1_024, 2]));
        let cancel = CancellationToken::new();
        cancel.cancel();
        assert_eq!(shares(&directory, &cancel), None, "its workers withdraw Pods that run on");
    }

    #[test]
    fn a_rejected_and_a_freed_pod_do_not_count() {
        let directory = Directory::default();
        directory.completed();
        let (freed, rejected) = (burstable("freed", "1"), burstable("rejected", "1"));
        publish(&directory, &freed, "Running", false);
        assert_eq!(classes(&directory), Some([2, 1_024, 2]));
        publish(&directory, &rejected, "Failed", false);
        assert_eq!(classes(&directory), Some([2, 1_024, 2]));
        publish(&directory, &freed, "Running", true);
        assert_eq!(classes(&directory), Some([2, 2, 2]));
    }

    #[test]
    fn a_resize_that_comes_after_the_end_of_its_pod_counts_nothing() {
        let directory = Directory::default();
        directory.completed();
        let node = Allocatable { cpu_milli: 4_000, memory_bytes: 1 << 30, ephemeral_storage_bytes: 1 << 30 };
        let resize = |cpu: &str| directory.allocate("a", &burstable("a", cpu), node, Timestamp::UNIX_EPOCH);
        take(&directory, &burstable("a", "500m"));
        assert_eq!(resize("1"), Ok(()));
        assert_eq!(classes(&directory), Some([2, 1_024, 2]));
        directory.withdraw("a");
        assert_eq!(resize("2"), Ok(()));
        assert_eq!(classes(&directory), Some([2, 2, 2]));
    }

    #[tokio::test]
    async fn the_writer_is_woken_once_for_the_changes_that_it_has_not_read() {
        use futures::FutureExt as _;
        let directory = Directory::default();
        let is_woken = || directory.requests_changed().now_or_never().is_some();
        assert!(!is_woken());
        let pod = burstable("a", "500m");
        take(&directory, &pod);
        take(&directory, &burstable("b", "500m"));
        assert!(is_woken() && !is_woken());
        publish(&directory, &pod, "Running", false);
        assert!(!is_woken(), "the Pod requests what it did");
        publish(&directory, &pod, "Succeeded", false);
        assert!(is_woken() && !is_woken());
        directory.withdraw("b");
        assert!(is_woken() && !is_woken());
        directory.completed();
        assert!(is_woken());
    }
}
