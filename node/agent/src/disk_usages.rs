//! What Pods have on the disk, for those who look at it and do not act on it. A measurement walks through a Pod's files and asks the
//! file systems of its claims. So it counts for a minute, as the kubelet's does, and one reader at a time measures.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use node_volumes::ClaimVolume;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::eviction::usage::PodUsage;
use crate::machine::FileSystem;

/// How long a measurement counts, and how long a Pod rests whose measurement failed.
const MEASURED_EVERY: Duration = Duration::from_secs(60);
/// No measurement begins with less time than this.
const MEASUREMENT_MIN: Duration = Duration::from_millis(200);

/// What a Pod has on the disk, wholly measured.
#[derive(Debug)]
pub(crate) struct PodDisk {
    /// When it was measured.
    pub(crate) at: Timestamp,
    pub(crate) usage: PodUsage,
    /// The file systems behind its claims.
    pub(crate) claims: Vec<(ClaimVolume, FileSystem)>,
}

/// The latest measurement of each Pod, by UID.
#[derive(Default)]
pub(crate) struct DiskUsages {
    latest: Mutex<HashMap<String, Latest>>,
    measuring: tokio::sync::Mutex<()>,
    /// The UIDs of Pods whose file systems are being asked.
    asking: Arc<Mutex<HashSet<String>>>,
}

struct Latest {
    tried_at: Instant,
    /// `None` until a measurement was whole.
    disk: Option<Arc<PodDisk>>,
}

impl DiskUsages {
    /// What Pods have, by UID. `pods` are all of the node: others are forgotten. `measure` measures one within a time; it returns `None`
    /// when it could not measure the whole, and then the older measurement stays. This reader measures for so long `at_most`: Pods beyond
    /// it have their older measurements, or none, and are the next reader's. A Pod is missing until it has been measured.
    pub(crate) async fn of<T, M: Future<Output = Option<PodDisk>>>(
        &self,
        pods: Vec<(String, T)>,
        at_most: Duration,
        measure: impl Fn(T, Duration) -> M,
    ) -> HashMap<String, Arc<PodDisk>> {
        if let Ok(_alone) = self.measuring.try_lock() {
            let deadline = Instant::now() + at_most;
            for (uid, pod) in self.due(pods) {
                let left = deadline.saturating_duration_since(Instant::now());
                if left < MEASUREMENT_MIN {
                    break;
                }
                let disk = measure(pod, left).await.map(Arc::new);
                let mut latest = self.latest.lock();
                let older = latest.remove(&uid).and_then(|latest| latest.disk);
                latest.insert(uid, Latest { tried_at: Instant::now(), disk: disk.or(older) });
            }
        }
        self.latest.lock().iter().filter_map(|(uid, latest)| Some((uid.clone(), latest.disk.clone()?))).collect()
    }

    /// Runs a blocking call that a file system of a Pod answers. `None` when it takes longer: one that hangs takes one thread, and is not
    /// asked again before it has answered.
    pub(crate) async fn ask<T: Send + 'static>(&self, uid: &str, within: Duration, call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if !self.asking.lock().insert(uid.to_owned()) {
            return None;
        }
        let (asking, uid) = (self.asking.clone(), uid.to_owned());
        let answer = api_tasks::blocking("node-agent/claims", move || {
            let answer = call();
            asking.lock().remove(&uid);
            answer
        });
        tokio::time::timeout(within, answer).await.ok()?.ok()
    }

    /// The Pods that are to be measured: those that nobody tried to measure first, then the oldest.
    fn due<T>(&self, pods: Vec<(String, T)>) -> Vec<(String, T)> {
        let mut pods: HashMap<String, T> = pods.into_iter().collect();
        let mut latest = self.latest.lock();
        latest.retain(|uid, latest| match pods.contains_key(uid) {
            true if latest.tried_at.elapsed() < MEASURED_EVERY => pods.remove(uid).is_some(),
            is_there => is_there,
        });
        let mut due: Vec<(String, T)> = pods.into_iter().collect();
        due.sort_by_key(|(uid, _)| latest.get(uid).map(|latest| latest.tried_at));
        due
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_measurement_counts_for_a_minute_and_a_reader_has_its_time() {
        let usages = DiskUsages::default();
        let measured = RefCell::new(Vec::new());
        let read = async |pods: &[&'static str], fails: bool| {
            let measure = |name: &'static str, _within: Duration| {
                measured.borrow_mut().push(name);
                async move {
                    tokio::time::advance(Duration::from_millis(1_500)).await;
                    let disk = PodDisk { at: Timestamp::UNIX_EPOCH, usage: PodUsage::default(), claims: Vec::new() };
                    (!fails).then_some(disk)
                }
            };
            let pods = pods.iter().map(|name| ((*name).to_owned(), *name)).collect();
            let mut names: Vec<String> = usages.of(pods, Duration::from_secs(2), measure).await.into_keys().collect();
            names.sort();
            (names.join(" "), std::mem::take(&mut *measured.borrow_mut()).len())
        };
        assert_eq!(read(&["a", "b", "c"], false).await.1, 2, "two seconds are over");
        assert_eq!(read(&["a", "b", "c"], false).await, ("a b c".to_owned(), 1));
        assert_eq!(read(&["a", "b", "c"], false).await, ("a b c".to_owned(), 0));
        assert_eq!(read(&["a", "c"], false).await, ("a c".to_owned(), 0), "a Pod that is gone");
        tokio::time::advance(MEASURED_EVERY).await;
        assert_eq!(read(&["a", "c", "d"], true).await, ("a c".to_owned(), 2), "older measurements stay");
        assert_eq!(read(&["a", "c", "d"], true).await.1, 1, "each is tried once in a minute");
        assert_eq!(read(&["a", "c", "d"], true).await, ("a c".to_owned(), 0));
    }

    #[tokio::test]
    async fn a_file_system_that_hangs_takes_one_call() {
        let usages = DiskUsages::default();
        let (answer, hangs) = std::sync::mpsc::channel::<()>();
        assert_eq!(usages.ask("a", Duration::from_millis(10), move || hangs.recv().is_ok()).await, None);
        assert_eq!(usages.ask("a", Duration::from_secs(10), || true).await, None, "it has not answered");
        assert_eq!(usages.ask("b", Duration::from_secs(10), || true).await, Some(true));
        answer.send(()).expect("somebody waits");
        while usages.ask("a", Duration::from_secs(10), || true).await.is_none() {
            tokio::task::yield_now().await;
        }
    }
}
