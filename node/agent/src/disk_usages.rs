//! What Pods have on the disk, for those who look at it and do not act on it. A measurement walks through a Pod's files, so it counts
//! for a minute, as the kubelet's does, and one reader at a time measures.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::eviction::usage::PodUsage;

/// How long a measurement counts.
const MEASURED_EVERY: Duration = Duration::from_secs(60);
/// How long one reader measures. Pods beyond it have their older measurements, or none, and are the next reader's.
const READER_MAX: Duration = Duration::from_secs(2);

/// The latest measurement of each Pod, by UID.
#[derive(Default)]
pub(crate) struct DiskUsages {
    latest: Mutex<HashMap<String, Measurement>>,
    measuring: tokio::sync::Mutex<()>,
}

struct Measurement {
    at: Instant,
    usage: Arc<PodUsage>,
}

impl DiskUsages {
    /// The usage of Pods, by UID. `pods` are all of the node: others are forgotten. `measure` measures one within a time. A Pod is
    /// missing until it has been measured.
    pub(crate) async fn of<T, M: Future<Output = PodUsage>>(
        &self,
        pods: Vec<(String, T)>,
        measure: impl Fn(T, Duration) -> M,
    ) -> HashMap<String, Arc<PodUsage>> {
        if let Ok(_alone) = self.measuring.try_lock() {
            let deadline = Instant::now() + READER_MAX;
            for (uid, pod) in self.due(pods) {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let usage = Arc::new(measure(pod, left).await);
                self.latest.lock().insert(uid, Measurement { at: Instant::now(), usage });
            }
        }
        self.latest.lock().iter().map(|(uid, measurement)| (uid.clone(), measurement.usage.clone())).collect()
    }

    /// The Pods whose measurement counts no more: those without one first, then the oldest.
    fn due<T>(&self, pods: Vec<(String, T)>) -> Vec<(String, T)> {
        let mut pods: HashMap<String, T> = pods.into_iter().collect();
        let mut latest = self.latest.lock();
        latest.retain(|uid, measurement| match pods.contains_key(uid) {
            true if measurement.at.elapsed() < MEASURED_EVERY => pods.remove(uid).is_some(),
            is_there => is_there,
        });
        let mut due: Vec<(String, T)> = pods.into_iter().collect();
        due.sort_by_key(|(uid, _)| latest.get(uid).map(|measurement| measurement.at));
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
        let read = async |pods: &[&'static str]| {
            let measure = |name: &'static str, _within: Duration| {
                measured.borrow_mut().push(name);
                async {
                    tokio::time::advance(Duration::from_millis(1_500)).await;
                    PodUsage::default()
                }
            };
            let pods = pods.iter().map(|name| ((*name).to_owned(), *name)).collect();
            let mut names: Vec<String> = usages.of(pods, measure).await.into_keys().collect();
            names.sort();
            (names.join(" "), std::mem::take(&mut *measured.borrow_mut()).len())
        };
        assert_eq!(read(&["a", "b", "c"]).await.1, 2, "two seconds are over");
        assert_eq!(read(&["a", "b", "c"]).await, ("a b c".to_owned(), 1));
        assert_eq!(read(&["a", "b", "c"]).await, ("a b c".to_owned(), 0));
        assert_eq!(read(&["a", "c"]).await, ("a c".to_owned(), 0), "a Pod that is gone");
        tokio::time::advance(MEASURED_EVERY).await;
        assert_eq!(read(&["a", "c"]).await, ("a c".to_owned(), 2));
    }
}
