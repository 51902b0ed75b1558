//! The CPU shares of the cgroups of the quality of service classes. As with the kubelet, that of `BestEffort` has the least that there is,
//! and that of `Burstable` what its Pods request together. So BestEffort Pods get the CPU that the others leave, however many they are.
//! `Guaranteed` Pods have a cgroup together too, with what they request together; the kubelet has each of them beside the classes.
//!
//! The sums follow each Pod that gets a cgroup, other resources, or is freed. What the kernel has is written when it changes.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use runtimes_contract::{Resources, RuntimeError};
use runtimes_host::cgroup::Cgroups;

use crate::container::resources;
use crate::layout::{Layout, PodName};

/// The cgroups of the classes of a node.
pub(crate) struct QosClasses {
    layout: Layout,
    /// Locked while a cgroup is written, so that the newest sum is written last.
    requests: Mutex<Requests>,
}

impl QosClasses {
    pub(crate) fn new(layout: Layout) -> Self {
        Self { layout, requests: Mutex::default() }
    }

    /// The Pod requests what its spec has, from now on. Blocks.
    pub(crate) fn enter(&self, cgroups: &Cgroups, pod: &Pod) -> Result<(), RuntimeError> {
        let (class, cpu_milli) = (resources::qos(pod), resources::requests(pod).cpu_milli);
        let mut requests = self.requests.lock();
        requests.enter(PodName::of(pod).uid, class, cpu_milli);
        self.write(&mut requests, cgroups, class)
    }

    /// The Pod requests nothing any more. Blocks.
    pub(crate) fn leave(&self, cgroups: &Cgroups, uid: &str) -> Result<(), RuntimeError> {
        let mut requests = self.requests.lock();
        requests.leave(uid).map_or(Ok(()), |class| self.write(&mut requests, cgroups, class))
    }

    fn write(&self, requests: &mut Requests, cgroups: &Cgroups, class: &'static str) -> Result<(), RuntimeError> {
        let shares = requests.shares(class);
        if requests.written.get(class) == Some(&shares) {
            return Ok(());
        }
        // A failed write is made again with the next Pod.
        requests.written.remove(class);
        cgroups.group(&self.layout.class_cgroup(class))?.create(&Resources { cpu_shares: Some(shares), ..Resources::default() })?;
        requests.written.insert(class, shares);
        Ok(())
    }
}

/// What Pods request, in thousandths of a CPU.
#[derive(Debug, Default)]
struct Requests {
    /// Each Pod's class and request, by its UID.
    pods: HashMap<String, (&'static str, i64)>,
    /// All Pods of a class together.
    sums: BTreeMap<&'static str, i128>,
    /// The shares that the cgroups have.
    written: BTreeMap<&'static str, u64>,
}

impl Requests {
    fn enter(&mut self, uid: String, class: &'static str, cpu_milli: i64) {
        self.leave(&uid);
        self.pods.insert(uid, (class, cpu_milli));
        *self.sums.entry(class).or_default() += i128::from(cpu_milli);
    }

    /// Returns the class of a Pod that was there.
    fn leave(&mut self, uid: &str) -> Option<&'static str> {
        let (class, cpu_milli) = self.pods.remove(uid)?;
        *self.sums.entry(class).or_default() -= i128::from(cpu_milli);
        Some(class)
    }

    fn shares(&self, class: &str) -> u64 {
        let sum = self.sums.get(class).copied().unwrap_or_default();
        resources::shares(i64::try_from(sum).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_the_shares_of_what_its_pods_request_together() {
        let mut requests = Requests::default();
        let classes = |requests: &Requests| ["Guaranteed", "Burstable", "BestEffort"].map(|class| requests.shares(class));
        assert_eq!(classes(&requests), [2, 2, 2]);
        for (uid, class, cpu_milli) in
            [("a", "Burstable", 500), ("b", "Burstable", 1_500), ("c", "Guaranteed", 1_000), ("d", "BestEffort", 0), ("e", "Burstable", 0)]
        {
            requests.enter(uid.to_owned(), class, cpu_milli);
        }
        assert_eq!(classes(&requests), [1_024, 2_048, 2]);
        requests.enter("b".to_owned(), "Burstable", 500);
        assert_eq!(classes(&requests), [1_024, 1_024, 2], "another request replaces the first");
        assert_eq!((requests.leave("c"), requests.leave("c")), (Some("Guaranteed"), None));
        assert_eq!(classes(&requests), [2, 1_024, 2]);
        for uid in ["f", "g"] {
            requests.enter(uid.to_owned(), "Burstable", i64::MAX);
        }
        assert_eq!(classes(&requests), [2, 262_144, 2], "the most that there is");
        requests.leave("f");
        requests.leave("g");
        assert_eq!(classes(&requests), [2, 1_024, 2]);
    }
}
