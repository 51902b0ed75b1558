//! The battery on a real etcd, and tests of the promises of a shared store.

mod server;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use self::server::Etcd;
use super::*;
use crate::battery::{take, write};

/// Time limit of a test for an expected event.
const DEADLINE: Duration = Duration::from_secs(20);

async fn open(config: EtcdConfig) -> EtcdStore {
    EtcdStore::open(config).await.expect("opens")
}

/// An empty store on an etcd that runs as long as the test's process.
async fn fresh() -> Arc<dyn Store> {
    Arc::new(open(Etcd::shared().config()).await)
}

crate::battery!(fresh());

async fn put(store: &dyn Store, key: &str, value: &str, expect: Expect) -> Revision {
    store.write(write(key, Some(value), expect)).await.expect("writes")
}

/// A watch and the revision that it has reached.
struct Reader {
    events: Events,
    reached: Revision,
}

impl Reader {
    async fn start(store: &dyn Store, after: Revision) -> Self {
        Self { events: store.watch(after).await.expect("watch"), reached: after }
    }

    /// Reads until the watch reaches a revision. Returns the events up to that revision.
    async fn until(&mut self, revision: Revision) -> Vec<crate::Event> {
        let mut seen = Vec::new();
        while self.reached < revision {
            let batch = tokio::time::timeout(DEADLINE, self.events.next()).await.expect("comes in time");
            let batch = batch.expect("does not end").expect("no error");
            seen.extend(batch.events);
            self.reached = batch.revision;
        }
        seen
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_on_one_etcd_are_one_store() {
    let etcd = Etcd::start();
    let (one, other) = (open(etcd.config()).await, open(etcd.config()).await);
    let at = put(&one, "a", "1", Expect::Absent).await;
    let refused = other.write(write("a", Some("2"), Expect::Absent)).await;
    assert!(matches!(refused, Err(StoreError::Conflict { current: Some(current) }) if current == at), "{refused:?}");
    let mut events = one.watch(at).await.expect("watch");
    let next = put(&other, "a", "2", Expect::At(at)).await;
    let seen = take(&mut events, 1).await;
    assert_eq!((seen[0].revision, seen[0].previous), (next, Some(at)));
    assert_eq!(one.head().await.expect("head"), next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_comes_to_revisions_that_others_made_outside_of_the_prefix() {
    let etcd = Etcd::start();
    let store = open(etcd.config()).await;
    let neighbour = open(EtcdConfig { prefix: "/other".to_owned(), ..etcd.config() }).await;
    let at = put(&store, "a", "1", Expect::Absent).await;
    let mut reader = Reader::start(&store, at).await;
    for n in 0..5 {
        put(&neighbour, &format!("k{n}"), "1", Expect::Absent).await;
        let head = store.head().await.expect("head");
        assert!(head > at);
        assert_eq!(reader.until(head).await, Vec::new(), "neither the neighbour's writes nor marks are events");
    }
    let snapshot = store.snapshot().await.expect("snapshot");
    assert_eq!(snapshot.entries.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["a"]);
}

/// A watch that has reached the head has returned every acknowledged write of any writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_the_head_every_answered_write_has_been_seen() {
    let etcd = Etcd::start();
    let store = open(etcd.config()).await;
    let from = put(&store, "start", "1", Expect::Absent).await;
    let mut reader = Reader::start(&store, from).await;
    let answered = Arc::new(AtomicU64::new(0));
    let writers = ["/registry", "/other"].map(|prefix| {
        let (config, answered) = (EtcdConfig { prefix: prefix.to_owned(), ..etcd.config() }, Arc::clone(&answered));
        tokio::spawn(async move {
            let store = open(config).await;
            for n in 0..300_u64 {
                put(&store, &format!("k{n:05}"), "1", Expect::Absent).await;
                if prefix == "/registry" {
                    answered.store(n + 1, Ordering::SeqCst);
                }
            }
        })
    });
    let mut seen = 0;
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        let before = answered.load(Ordering::SeqCst);
        let head = store.head().await.expect("head");
        seen += reader.until(head).await.len() as u64;
        assert!(seen >= before, "{seen} seen, {before} answered before");
    }
    for writer in writers {
        writer.await.expect("no panic");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_servers_compacts_up_to_the_last_look() {
    let etcd = Etcd::start();
    let (one, other) = (open(etcd.config()).await, open(etcd.config()).await);
    let mut at = put(&one, "a", "0", Expect::Absent).await;
    // The first attempt of each server only records the revision of the log.
    let first = compact::try_compact(&one.shared, compact::CompactionState::default()).await.expect("looks");
    let second = compact::try_compact(&other.shared, compact::CompactionState::default()).await.expect("looks");
    assert_eq!(one.compacted().await.expect("compacted"), 0);
    for n in 0..10 {
        at = put(&one, "a", &n.to_string(), Expect::At(at)).await;
    }
    let noted = one.head().await.expect("head");
    // The key has the version that the other server read last. The first server that tries compacts; the second does
    // not.
    let second = compact::try_compact(&other.shared, second).await.expect("looks");
    let oldest = other.compacted().await.expect("compacted");
    assert!(oldest > 0 && oldest < noted, "{oldest} {noted}");
    let first = compact::try_compact(&one.shared, first).await.expect("looks");
    assert_eq!(one.compacted().await.expect("compacted"), oldest);
    // Now both servers know the same version.
    compact::try_compact(&one.shared, first).await.expect("looks");
    let now = one.compacted().await.expect("compacted");
    assert!(now >= noted, "{now} {noted}");
    compact::try_compact(&other.shared, second).await.expect("looks");
    assert_eq!(other.compacted().await.expect("compacted"), now);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_compaction_overtakes_ends_with_too_old_and_not_with_a_gap() {
    let etcd = Etcd::start();
    let store = open(etcd.config()).await;
    let from = put(&store, "a", "0", Expect::Absent).await;
    // As if a compaction happened between the check and the start of the watch.
    let create = WatchCreateRequest { start_revision: signed(from), prev_kv: true, ..store.shared.whole_prefix() };
    let mut at = from;
    for n in 0..10 {
        at = put(&store, "a", &n.to_string(), Expect::At(at)).await;
    }
    store.compact(at).await.expect("compacts");
    let watching = store.shared.members.watch(create).await.expect("starts");
    let mut follower = Follower { shared: Arc::clone(&store.shared), watching, reached: from };
    let refused = tokio::time::timeout(DEADLINE, follower.next()).await.expect("comes in time");
    assert!(matches!(refused, Err(StoreError::Compacted { oldest }) if oldest == at), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_not_there_is_passed_over_and_one_that_comes_back_is_found() {
    let mut etcd = Etcd::start();
    let mut config = etcd.config();
    config.servers.insert(0, "http://127.0.0.1:1".to_owned());
    let store = open(config).await;
    let at = put(&store, "a", "1", Expect::Absent).await;
    let mut events = store.watch(at).await.expect("watch");
    etcd.kill();
    assert!(store.write(write("b", Some("1"), Expect::Absent)).await.is_err());
    let ended = tokio::time::timeout(DEADLINE, events.next()).await.expect("comes in time").expect("an answer");
    assert!(matches!(ended, Err(StoreError::Backend { .. })), "{ended:?}");
    etcd.start_again();
    assert_eq!(store.snapshot().await.expect("snapshot").entries.len(), 1, "what was answered is there");
    let mut events = store.watch(at).await.expect("watch");
    put(&store, "b", "1", Expect::Absent).await;
    assert_eq!(take(&mut events, 1).await[0].previous, None);
}

#[tokio::test]
async fn addresses_that_cannot_be_meant_are_rejected_and_ones_that_do_not_answer_are_named() {
    for (address, complaint) in [("127.0.0.1:2379", "http://"), ("ftp://a", "http://"), ("http://", "")] {
        let error = EtcdStore::open(EtcdConfig::new([address])).await.map(drop).expect_err(address);
        assert!(matches!(error, StoreError::Address { .. }) && error.to_string().contains(complaint), "{address}: {error}");
    }
    let error = EtcdStore::open(EtcdConfig::new(["http://127.0.0.1:1"])).await.map(drop).expect_err("nobody is there");
    let source = std::error::Error::source(&error).expect("a source").to_string();
    assert!(source.contains("127.0.0.1:1") && source.contains("refused"), "{error}: {source}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_asks_for_certificates_gets_ours_and_we_check_its_own() {
    let keys = server::Keys::make();
    let etcd = Etcd::start_with(Some(&keys));
    let store = open(etcd.config()).await;
    put(&store, "a", "1", Expect::Absent).await;
    let without = EtcdConfig { tls: EtcdTls { client_pem: None, ..etcd.config().tls }, ..etcd.config() };
    assert!(EtcdStore::open(without).await.is_err(), "without a certificate");
    let stranger = server::Keys::make();
    let distrusted = EtcdConfig { tls: EtcdTls { ca_pem: stranger.tls().ca_pem, ..etcd.config().tls }, ..etcd.config() };
    assert!(EtcdStore::open(distrusted).await.is_err(), "by another authority");
}
