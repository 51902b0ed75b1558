//! Replays a year of a cluster's own writes: the file must not grow with their number.
//!
//! Ten nodes with 110 Pods each renew their Leases every ten seconds and report their status every five minutes. Every
//! minute they create an Event, which is deleted an hour later. That is 31.5 million renewals a year. The size of the
//! file depends on the live data and the stored history, not on what was compacted. So the short replay is a thousandth
//! of the year with a tenth of the history, and the file is compacted many times within its first fiftieth. The whole
//! year is an ignored test: `cargo test --release -p api-store a_year -- --ignored --nocapture`.

use std::collections::VecDeque;

use super::*;

const NODES: usize = 10;
const PODS_A_NODE: usize = 110;
/// Rounds of ten seconds.
const YEAR: u64 = 365 * 24 * 360;
const STATUS_EVERY: u64 = 30;
const EVENT_EVERY: u64 = 6;
/// One hour: upstream's `--event-ttl`.
const EVENT_LIFETIME: u64 = 360;
/// The maximum size of file and write-ahead log, relative to the live data.
const RATIO_MAX: f64 = 3.0;

/// The writes of one node.
struct Node {
    store: Arc<SqliteStore>,
    name: String,
    lease: Revision,
    status: Revision,
    /// The Events that are not deleted yet: key and revision.
    events: VecDeque<(String, Revision)>,
}

impl Node {
    async fn new(store: Arc<SqliteStore>, number: usize) -> Self {
        let mut node = Self { store, name: format!("node-{number}"), lease: 0, status: 0, events: VecDeque::new() };
        for pod in 0..PODS_A_NODE {
            node.put(&format!("core/pods/default/{}-pod-{pod}", node.name), 4_000, Expect::Absent).await;
        }
        node.lease = node.put(&node.lease_key(), 400, Expect::Absent).await;
        node.status = node.put(&node.status_key(), 6_000, Expect::Absent).await;
        node
    }

    fn lease_key(&self) -> String {
        format!("coordination.k8s.io/leases/kube-node-lease/{}", self.name)
    }

    fn status_key(&self) -> String {
        format!("core/nodes//{}", self.name)
    }

    async fn put(&self, key: &str, bytes: usize, expect: Expect) -> Revision {
        self.store.write(write(key, Some(&"x".repeat(bytes)), expect)).await.expect("writes")
    }

    async fn rounds(mut self, rounds: std::ops::Range<u64>) -> Self {
        for round in rounds {
            self.lease = self.put(&self.lease_key(), 400, Expect::At(self.lease)).await;
            if round.is_multiple_of(STATUS_EVERY) {
                self.status = self.put(&self.status_key(), 6_000, Expect::At(self.status)).await;
            }
            if round.is_multiple_of(EVENT_EVERY) {
                let key = format!("core/events/default/{}.{round:x}", self.name);
                let made = self.put(&key, 900, Expect::Absent).await;
                self.events.push_back((key, made));
                if self.events.len() as u64 > EVENT_LIFETIME / EVENT_EVERY
                    && let Some((key, at)) = self.events.pop_front()
                {
                    self.store.write(write(&key, None, Expect::At(at))).await.expect("deletes");
                }
            }
        }
        self
    }
}

/// Replays the given number of rounds. After each twelfth of them, records the size of the file and of the live data.
async fn replay(dir: &std::path::Path, rounds: u64, history_len: u64) -> Vec<(u64, u64)> {
    let path = dir.join("state.db");
    let store = Arc::new(SqliteStore::open(SqliteConfig { history_len, ..SqliteConfig::new(&path) }).await.expect("opens"));
    let mut nodes = futures::future::join_all((0..NODES).map(|n| Node::new(Arc::clone(&store), n))).await;
    let mut sizes = Vec::new();
    for month in 0..12 {
        let span = rounds * month / 12..rounds * (month + 1) / 12;
        nodes = futures::future::join_all(nodes.into_iter().map(|node| node.rounds(span.clone()))).await;
        let health = check(&path).await.expect("checks");
        assert_eq!(health.problems, Vec::<String>::new());
        sizes.push((store.size_bytes().await.expect("a size"), health.live_bytes));
    }
    sizes
}

fn assert_small(sizes: &[(u64, u64)]) {
    for (month, (size, live)) in sizes.iter().enumerate() {
        let ratio = *size as f64 / *live as f64;
        println!("month {:2}: {size} bytes on disk, {live} live, ratio {ratio:.2}", month + 1);
        assert!(ratio <= RATIO_MAX, "month {}: {sizes:?}", month + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_year_of_renewals_leaves_the_file_small() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_small(&replay(dir.path(), YEAR / 1_000, 1_000).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes many minutes: the whole year, for the record"]
async fn a_year_in_full() {
    let dir = std::env::var_os("SKIFF_REPLAY_DIR").map_or_else(std::env::temp_dir, Into::into);
    let dir = tempfile::tempdir_in(dir).expect("a directory");
    assert_small(&replay(dir.path(), YEAR, 10_000).await);
}

#[tokio::test]
async fn space_that_was_needed_once_is_given_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir).await.expect("opens");
    for n in 0..300 {
        store.write(write(&format!("big-{n}"), Some(&"x".repeat(100_000)), Expect::Absent)).await.expect("writes");
    }
    assert!(store.size_bytes().await.expect("a size") > 30_000_000);
    for n in 0..300 {
        store.write(write(&format!("big-{n}"), None, Expect::At(n + 1))).await.expect("deletes");
    }
    let mut lease = store.write(write("lease", Some("0"), Expect::Absent)).await.expect("writes");
    for n in 0..1_000 {
        lease = store.write(write("lease", Some(&n.to_string()), Expect::At(lease))).await.expect("writes");
    }
    let health = check(&dir.path().join("state.db")).await.expect("checks");
    assert!(health.bytes < 4_000_000, "{health:?}");
}
