//! The behaviour tests that every backend passes: each function checks one promise of
//! [`Store`](crate::Store), run by [`battery!`](crate::battery) on a fresh, empty store.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "a battery is test code")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;

use crate::{Event, Events, Expect, Guard, Revision, Store, StoreError, Write};

/// Time limit of a test for an expected event.
const DEADLINE: Duration = Duration::from_secs(20);

/// A write of text.
pub fn write(key: &str, value: Option<&str>, expect: Expect) -> Write {
    Write::new(key, value.map(|v| Bytes::copy_from_slice(v.as_bytes())), expect)
}

async fn put(store: &dyn Store, key: &str, value: &str, expect: Expect) -> Revision {
    store.write(write(key, Some(value), expect)).await.expect("the condition holds")
}

/// The next `count` events of a watch.
pub async fn take(events: &mut Events, count: usize) -> Vec<Event> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let batch = tokio::time::timeout(DEADLINE, events.next()).await.expect("events come in time");
        let batch = batch.expect("a watch does not end").expect("no error");
        assert!(batch.events.iter().all(|event| event.revision <= batch.revision), "{batch:?}");
        taken.extend(batch.events);
    }
    taken
}

/// The revision of an empty store. A backend may use some revisions itself.
async fn base(store: &dyn Store) -> Revision {
    let snapshot = store.snapshot().await.expect("snapshot");
    assert!(snapshot.entries.is_empty(), "{snapshot:?}");
    snapshot.revision
}

/// Revisions grow by one, and a value is read back with both its revisions.
pub async fn revisions_grow_by_one(store: Arc<dyn Store>) {
    let base = base(&*store).await;
    assert_eq!(put(&*store, "a", "1", Expect::Absent).await, base + 1);
    assert_eq!(put(&*store, "b", "2", Expect::Absent).await, base + 2);
    assert_eq!(put(&*store, "a", "3", Expect::At(base + 1)).await, base + 3);
    assert_eq!(store.head().await.expect("head"), base + 3);
    let snapshot = store.snapshot().await.expect("snapshot");
    assert_eq!(snapshot.revision, base + 3);
    let found: Vec<_> = snapshot.entries.iter().map(|e| (&*e.key, &e.value[..], e.revision, e.created)).collect();
    assert_eq!(found, [("a", &b"3"[..], base + 3, base + 1), ("b", &b"2"[..], base + 2, base + 2)]);
}

/// A failed condition changes nothing and returns the current revision of the key.
pub async fn conditions_hold(store: Arc<dyn Store>) {
    let first = put(&*store, "a", "1", Expect::Absent).await;
    for (refused, current) in [
        (write("a", Some("2"), Expect::Absent), Some(first)),
        (write("a", Some("2"), Expect::At(first + 6)), Some(first)),
        (write("a", None, Expect::At(first + 1)), Some(first)),
        (write("b", None, Expect::At(first)), None),
        (write("b", Some("2"), Expect::At(first)), None),
    ] {
        match store.write(refused.clone()).await {
            Err(StoreError::Conflict { current: found }) => assert_eq!(found, current, "{refused:?}"),
            other => panic!("{refused:?} gave {other:?}"),
        }
    }
    assert_eq!(store.snapshot().await.expect("snapshot").revision, first);
}

/// A write with guards happens only if their keys have the given revisions.
pub async fn guards_hold(store: Arc<dyn Store>) {
    let lock = put(&*store, "lock", "1", Expect::Absent).await;
    let at = put(&*store, "a", "1", Expect::Absent).await;
    let guarded = |write: Write, keys: &[(&str, Revision)]| {
        let guards = keys.iter().map(|&(key, revision)| Guard { key: key.into(), revision }).collect();
        store.write(Write { guards, ..write })
    };
    let at = guarded(write("a", Some("2"), Expect::At(at)), &[("lock", lock)]).await.expect("the lock is held");
    // The write's own condition is checked first, also if the key is absent.
    let refused = guarded(write("a", Some("3"), Expect::Absent), &[("lock", lock + 7)]).await;
    assert!(matches!(refused, Err(StoreError::Conflict { current: Some(current) }) if current == at), "{refused:?}");
    let refused = guarded(write("b", Some("3"), Expect::At(at)), &[("lock", lock)]).await;
    assert!(matches!(refused, Err(StoreError::Conflict { current: None })), "{refused:?}");
    let is_refused = async |write: Write, keys: &[(&str, Revision)]| {
        let refused = guarded(write, keys).await;
        assert!(matches!(refused, Err(StoreError::Unguarded { .. })), "{refused:?}");
    };
    let writes = || [write("a", Some("3"), Expect::At(at)), write("a", None, Expect::At(at)), write("b", Some("3"), Expect::Absent)];
    for write in writes() {
        is_refused(write.clone(), &[("lock", lock + 7)]).await;
        is_refused(write, &[("lock", lock), ("other", lock)]).await;
    }
    let gone = store.write(write("lock", None, Expect::At(lock))).await.expect("delete");
    for write in writes() {
        is_refused(write, &[("lock", lock)]).await;
    }
    let again = put(&*store, "lock", "2", Expect::Absent).await;
    for write in writes() {
        is_refused(write, &[("lock", lock)]).await;
    }
    assert_eq!(store.snapshot().await.expect("snapshot").revision, again, "what was refused changes nothing after {gone}");
    guarded(write("a", None, Expect::At(at)), &[("lock", again)]).await.expect("it is held anew");
}

/// No guarded write happens after its guard is lost, also if both race.
pub async fn no_guarded_write_comes_after_the_loss_of_its_guard(store: Arc<dyn Store>) {
    for round in 0..20 {
        let lock = put(&*store, "lock", "1", Expect::Absent).await;
        let racers = (0..16).map(|n| {
            let store = Arc::clone(&store);
            let guards = vec![Guard { key: "lock".into(), revision: lock }];
            let write = Write { guards, ..write(&format!("k{round}/{n}"), Some("v"), Expect::Absent) };
            tokio::spawn(async move { store.write(write).await })
        });
        let racers: Vec<_> = racers.collect();
        let lost = store.write(write("lock", None, Expect::At(lock))).await.expect("delete");
        for raced in futures::future::join_all(racers).await {
            match raced.expect("no panic") {
                Ok(revision) => assert!(revision < lost, "round {round}: {revision} after {lost}"),
                Err(StoreError::Unguarded { key }) => assert_eq!(&*key, "lock"),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A deleted key is absent and can be created again.
pub async fn deleted_keys_are_absent(store: Arc<dyn Store>) {
    let first = put(&*store, "a", "1", Expect::Absent).await;
    assert_eq!(store.write(write("a", None, Expect::At(first))).await.expect("delete"), first + 1);
    assert!(store.snapshot().await.expect("snapshot").entries.is_empty());
    assert_eq!(put(&*store, "a", "3", Expect::Absent).await, first + 2);
    assert_eq!(store.snapshot().await.expect("snapshot").entries[0].created, first + 2);
}

/// A snapshot has every key once and in order, also if one response cannot hold all keys.
pub async fn snapshots_are_whole(store: Arc<dyn Store>) {
    const KEYS: usize = 1_234;
    let writes = (0..KEYS).map(|n| {
        let store = Arc::clone(&store);
        async move { put(&*store, &format!("k/{n:05}"), &"v".repeat(n % 50), Expect::Absent).await }
    });
    futures::future::join_all(writes).await;
    let snapshot = store.snapshot().await.expect("snapshot");
    assert_eq!(snapshot.entries.len(), KEYS);
    for (n, entry) in snapshot.entries.iter().enumerate() {
        assert_eq!((&*entry.key, entry.value.len()), (&*format!("k/{n:05}"), n % 50));
    }
}

/// A watch returns history, then new events, each once and in order, with the revision that the event replaced.
pub async fn watches_see_every_event_once_in_order(store: Arc<dyn Store>) {
    let base = base(&*store).await;
    put(&*store, "a", "1", Expect::Absent).await;
    put(&*store, "a", "2", Expect::At(base + 1)).await;
    let mut all = store.watch(base).await.expect("watch");
    let mut late = store.watch(base + 2).await.expect("watch");
    store.write(write("a", None, Expect::At(base + 2))).await.expect("delete");
    put(&*store, "b", "4", Expect::Absent).await;
    let seen = take(&mut all, 4).await;
    let brief: Vec<_> =
        seen.iter().map(|e| (e.revision - base, &*e.key, e.value.as_deref(), e.previous.map(|previous| previous - base))).collect();
    assert_eq!(
        brief,
        [(1, "a", Some(&b"1"[..]), None), (2, "a", Some(&b"2"[..]), Some(1)), (3, "a", None, Some(2)), (4, "b", Some(&b"4"[..]), None)]
    );
    assert_eq!(take(&mut late, 2).await, seen[2..]);
}

/// A watch reaches the head without a further write, also if the last revisions are no events.
pub async fn watches_reach_the_head(store: Arc<dyn Store>) {
    let at = put(&*store, "a", "1", Expect::Absent).await;
    store.compact(at).await.expect("compacts");
    let head = store.head().await.expect("head");
    assert!(head >= at);
    let mut events = store.watch(at).await.expect("watch");
    put(&*store, "a", "2", Expect::At(at)).await;
    let head = store.head().await.expect("head").max(head);
    let mut reached = at;
    while reached < head {
        let batch = tokio::time::timeout(DEADLINE, events.next()).await.expect("the head is reached in time");
        let batch = batch.expect("a watch does not end").expect("no error");
        assert!(batch.revision > reached, "{} after {reached}", batch.revision);
        reached = batch.revision;
    }
}

/// If many writers race for one revision, exactly one succeeds.
pub async fn one_of_many_racing_writers_wins(store: Arc<dyn Store>) {
    let mut at = put(&*store, "a", "0", Expect::Absent).await;
    for round in 0..20 {
        let racers = (0..16).map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.write(write("a", Some(&format!("{round}/{n}")), Expect::At(at))).await })
        });
        let results = futures::future::join_all(racers).await;
        let won: Vec<Revision> = results.into_iter().filter_map(|r| r.expect("no panic").ok()).collect();
        assert_eq!(won.len(), 1, "round {round}");
        at = won[0];
    }
}

/// A conflict is returned only after the conflicting write is in the log.
pub async fn refusals_come_after_what_they_name(store: Arc<dyn Store>) {
    for round in 0..20 {
        let racers = (0..16).map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let refused = store.write(write(&format!("k{round}"), Some("v"), Expect::Absent)).await;
                (refused, store.head().await.expect("head"))
            })
        });
        for raced in futures::future::join_all(racers).await {
            match raced.expect("no panic") {
                (Ok(revision) | Err(StoreError::Conflict { current: Some(revision) }), head) => assert!(head >= revision, "round {round}"),
                (other, _) => panic!("{other:?}"),
            }
        }
    }
}

/// Concurrent writes of many keys all happen, and a watch returns each once and in order.
pub async fn concurrent_writes_all_happen(store: Arc<dyn Store>) {
    const WRITERS: usize = 32;
    const EACH: usize = 100;
    let base = base(&*store).await;
    let mut events = store.watch(base).await.expect("watch");
    let writers = (0..WRITERS).map(|w| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 0..EACH {
                put(&*store, &format!("k/{w}/{n}"), "v", Expect::Absent).await;
            }
        })
    });
    futures::future::join_all(writers).await.into_iter().for_each(|r| r.expect("no panic"));
    let seen = take(&mut events, WRITERS * EACH).await;
    let revisions: Vec<Revision> = seen.iter().map(|e| e.revision - base).collect();
    assert_eq!(revisions, (1..=(WRITERS * EACH) as Revision).collect::<Vec<_>>());
    assert_eq!(store.snapshot().await.expect("snapshot").entries.len(), WRITERS * EACH);
}

/// After compaction, current values stay, old watches fail, and newer watches continue without a gap.
pub async fn compaction_keeps_current_values_and_refuses_old_watches(store: Arc<dyn Store>) {
    let base = base(&*store).await;
    let created = put(&*store, "keep", "1", Expect::Absent).await;
    let gone = put(&*store, "gone", "2", Expect::Absent).await;
    store.write(write("gone", None, Expect::At(gone))).await.expect("delete");
    let mut at = created;
    for n in 0..50 {
        at = put(&*store, "keep", &n.to_string(), Expect::At(at)).await;
    }
    let oldest = base + 40;
    store.compact(oldest).await.expect("compacts");
    assert_eq!(store.compacted().await.expect("compacted"), oldest);
    match store.watch(oldest - 1).await.map(drop) {
        Err(StoreError::Compacted { oldest: found }) => assert_eq!(found, oldest),
        other => panic!("{other:?}"),
    }
    let mut rest = store.watch(oldest).await.expect("watch");
    let seen: Vec<_> = take(&mut rest, 13).await.iter().map(|e| e.revision - base).collect();
    assert_eq!(seen, (41..=53).collect::<Vec<_>>());
    let snapshot = store.snapshot().await.expect("snapshot");
    assert_eq!(snapshot.revision, base + 53);
    assert_eq!(snapshot.entries.len(), 1);
    assert_eq!((&snapshot.entries[0].value[..], snapshot.entries[0].created), (&b"49"[..], created));
}

/// Compaction beyond the head compacts to the head, and the head does not change.
pub async fn compacting_everything_keeps_the_head(store: Arc<dyn Store>) {
    let first = put(&*store, "a", "1", Expect::Absent).await;
    store.write(write("a", None, Expect::At(first))).await.expect("delete");
    store.compact(first + 1_000).await.expect("compacts");
    assert_eq!(store.compacted().await.expect("compacted"), first + 1);
    assert_eq!(store.snapshot().await.expect("snapshot").revision, first + 1);
    // A repeated compaction is no error.
    store.compact(first).await.expect("compacts");
    assert_eq!(put(&*store, "a", "3", Expect::Absent).await, first + 2);
}

/// A closed store rejects writes.
pub async fn a_closed_store_refuses_writes(store: Arc<dyn Store>) {
    put(&*store, "a", "1", Expect::Absent).await;
    store.close().await;
    assert!(matches!(store.write(write("b", Some("2"), Expect::Absent)).await, Err(StoreError::Closed)));
    assert!(matches!(store.compacted().await, Err(StoreError::Closed)), "who only asks learns it too");
    assert!(matches!(store.head().await, Err(StoreError::Closed)), "and so do health checks");
}

/// Creates one test for each promise. The argument is a future of a fresh `Arc<dyn Store>`.
#[macro_export]
macro_rules! battery {
    ($fresh:expr) => {
        $crate::battery!(@each $fresh;
            revisions_grow_by_one
            conditions_hold
            guards_hold
            no_guarded_write_comes_after_the_loss_of_its_guard
            deleted_keys_are_absent
            snapshots_are_whole
            watches_see_every_event_once_in_order
            watches_reach_the_head
            one_of_many_racing_writers_wins
            refusals_come_after_what_they_name
            concurrent_writes_all_happen
            compaction_keeps_current_values_and_refuses_old_watches
            compacting_everything_keeps_the_head
            a_closed_store_refuses_writes
        );
    };
    (@each $fresh:expr; $($name:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $crate::battery::$name($fresh.await).await;
            }
        )+
    };
}
