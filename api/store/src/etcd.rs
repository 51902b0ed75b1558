//! The shared backend: an etcd cluster, for several API servers on one store.
//!
//! Revisions are etcd's. A write is a transaction with a condition on the key's mod revision. All keys have a prefix.
//! The backend keeps no state of its own: an acknowledged write is on a majority of the members. See `members` for the
//! loss of a member, `follow` for watches and `compact` for history.

mod compact;
mod follow;
mod members;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api_tasks::{TaskFailure, Tasks};
use async_trait::async_trait;
use futures::StreamExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use self::follow::Follower;
use self::members::{Members, path};
use self::wire::{
    CompactionRequest, CompactionResponse, Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse, Request,
    StatusRequest, StatusResponse, TxnRequest, TxnResponse, WatchCreateRequest, revision,
};
use crate::{Entry, Events, Expect, Guard, Revision, Snapshot, Store, StoreError, Write};

/// Entries per page of a snapshot.
const PAGE_LEN: i64 = 500;
/// The maximum of restarts of a snapshot that a compaction overtook.
const SNAPSHOT_ATTEMPTS: usize = 3;

/// The address of etcd and the credentials.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// URLs of the members, `http://` or `https://`. The first member that answers is used.
    pub servers: Vec<String>,
    /// The prefix of all keys; upstream's is `/registry`.
    pub prefix: String,
    /// TLS credentials for `https://`.
    pub tls: EtcdTls,
    /// Time between compactions. Watches can resume for at least this time. Zero disables compaction.
    pub compaction_interval: Duration,
}

/// TLS credentials, all in PEM.
#[derive(Clone, Default)]
pub struct EtcdTls {
    /// The authority of the members' certificates.
    pub ca_pem: Option<Vec<u8>>,
    /// The client certificate and its key.
    pub client_pem: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdTls").field("ca", &self.ca_pem.is_some()).field("client", &self.client_pem.is_some()).finish()
    }
}

impl EtcdConfig {
    /// Upstream's defaults: `/registry`, five minutes.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            prefix: "/registry".to_owned(),
            tls: EtcdTls::default(),
            compaction_interval: Duration::from_secs(300),
        }
    }
}

/// The etcd backend.
pub struct EtcdStore {
    shared: Arc<Shared>,
    tasks: Tasks,
    /// Cancelled when the tasks may end.
    stopping: CancellationToken,
}

/// The state that calls, watches and the compactor share.
struct Shared {
    members: Members,
    /// The prefix of the keys, with a trailing slash.
    prefix: String,
    /// The store's own key for progress marks; see `follow`.
    mark_key: Vec<u8>,
    /// The greatest known revision of an event under the prefix.
    seen: AtomicU64,
    /// The greatest revision that a reader waits for.
    wanted: watch::Sender<Revision>,
    marking: tokio::sync::Mutex<()>,
    heads: Heads,
    closed: watch::Sender<bool>,
}

/// Reads of the head. One read serves all calls that started before the read was sent.
#[derive(Default)]
struct Heads {
    clock: AtomicU64,
    /// The time of the last read, and its result.
    last: tokio::sync::Mutex<(u64, Revision)>,
}

impl EtcdStore {
    /// Connects, and starts the compaction task.
    ///
    /// # Errors
    /// [`StoreError::Address`] for an invalid address, or the connection error if no member answers.
    pub async fn open(config: EtcdConfig) -> Result<Self, StoreError> {
        let prefix = format!("{}/", config.prefix.trim_end_matches('/'));
        let shared = Arc::new(Shared {
            members: Members::new(&config)?,
            mark_key: format!("{prefix}~mark").into_bytes(),
            prefix,
            seen: AtomicU64::new(0),
            wanted: watch::Sender::new(0),
            marking: tokio::sync::Mutex::default(),
            heads: Heads::default(),
            closed: watch::Sender::new(false),
        });
        shared.present().await?;
        let interval = config.compaction_interval;
        let stopping = CancellationToken::new();
        let tasks = Tasks::new(stopping.clone());
        if !interval.is_zero() {
            tasks.own("store/compactor", compact::run(Arc::clone(&shared), interval));
        }
        Ok(Self { shared, tasks, stopping })
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.shared.closed.send_replace(true);
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        let shared = &self.shared;
        shared.check_open()?;
        let key = shared.key(&write.key);
        let expected = match write.expect {
            Expect::Absent => 0,
            Expect::At(revision) => signed(revision),
        };
        let change = match write.value {
            Some(value) => Request::Put(PutRequest { key: key.clone(), value }),
            None => Request::DeleteRange(DeleteRangeRequest { key: key.clone() }),
        };
        let guards = write.guards.iter().map(|guard| Compare::mod_revision(&shared.key(&guard.key), signed(guard.revision)));
        let txn = TxnRequest {
            compare: std::iter::once(Compare::mod_revision(&key, expected)).chain(guards).collect(),
            success: vec![change.into()],
            failure: vec![Request::Range(RangeRequest { key, ..RangeRequest::default() }).into()],
        };
        let answer: TxnResponse = shared.members.write(path::TXN, txn).await.map_err(|status| shared.failed("writing to", status))?;
        if !answer.succeeded {
            let current = answer.found().map(|found| found.mod_revision);
            return Err(match write.guards.into_iter().next() {
                // The key's own condition holds, so one of the guards failed.
                Some(Guard { key, .. }) if current.unwrap_or_default() == expected => StoreError::Unguarded { key },
                _ => StoreError::Conflict { current: current.map(unsigned) },
            });
        }
        let revision = unsigned(revision(answer.header));
        shared.seen(revision);
        Ok(revision)
    }

    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let mut attempts = SNAPSHOT_ATTEMPTS;
        loop {
            attempts -= 1;
            match self.shared.snapshot().await {
                Err(status) if is_compacted(&status) && attempts > 0 => {}
                Err(status) => return Err(self.shared.failed("reading a snapshot from", status)),
                Ok(snapshot) => {
                    self.shared.want(snapshot.revision);
                    return Ok(snapshot);
                }
            }
        }
    }

    async fn head(&self) -> Result<Revision, StoreError> {
        self.shared.check_open()?;
        let heads = &self.shared.heads;
        let arrived = heads.clock.fetch_add(1, Ordering::SeqCst);
        let mut last = heads.last.lock().await;
        if last.0 <= arrived {
            let read_at = heads.clock.fetch_add(1, Ordering::SeqCst);
            *last = (read_at, self.shared.present().await?);
        }
        self.shared.want(last.1);
        Ok(last.1)
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn watch(&self, after: Revision) -> Result<Events, StoreError> {
        let shared = Arc::clone(&self.shared);
        // etcd's first revision is 1, at which the log is empty.
        let from = signed(after).max(1);
        match shared.probe(from).await {
            Ok(_) => {}
            Err(status) if is_compacted(&status) => return Err(StoreError::Compacted { oldest: self.compacted().await? }),
            // etcd was restored to an older state, so the revisions of the newer state are invalid.
            Err(status) if status.code() == Code::OutOfRange => return Err(StoreError::Compacted { oldest: shared.present().await? }),
            Err(status) => return Err(shared.failed("starting a watch of", status)),
        }
        // The watch starts at the known revision and not after it. So etcd reports a compaction that has passed that
        // revision.
        let create = WatchCreateRequest { start_revision: from, progress_notify: true, prev_kv: true, ..shared.whole_prefix() };
        let watching = shared.members.watch(create).await.map_err(|status| shared.failed("starting a watch of", status))?;
        let follower = Follower { shared, watching, reached: after };
        Ok(futures::stream::unfold(follower, |mut follower| async move {
            let batch = follower.next().await;
            Some((batch, follower))
        })
        .boxed())
    }

    async fn compacted(&self) -> Result<Revision, StoreError> {
        self.shared.check_open()?;
        let failed = |status| self.shared.failed("asking for the oldest revision of", status);
        match self.shared.probe(1).await {
            Ok(_) => return Ok(0),
            Err(status) if is_compacted(&status) => {}
            Err(status) => return Err(failed(status)),
        }
        // etcd returns its compacted revision only to a watch that it rejects.
        let create = WatchCreateRequest { key: self.shared.mark_key.clone(), start_revision: 1, ..WatchCreateRequest::default() };
        let mut watching = self.shared.members.watch(create).await.map_err(failed)?;
        while let Some(response) = watching.responses.message().await.map_err(failed)? {
            if response.compact_revision > 0 {
                return Ok(unsigned(response.compact_revision));
            }
        }
        Err(failed(Status::unavailable("the watch ended")))
    }

    async fn compact(&self, upto: Revision) -> Result<(), StoreError> {
        let head = self.shared.present().await?;
        self.shared.compact(signed(upto.min(head))).await
    }

    async fn size_bytes(&self) -> Result<u64, StoreError> {
        let status: StatusResponse = self
            .shared
            .members
            .read(path::STATUS, StatusRequest {})
            .await
            .map_err(|status| self.shared.failed("asking the size of", status))?;
        Ok(unsigned(status.db_size))
    }

    async fn failed(&self) -> TaskFailure {
        self.tasks.failed().await
    }

    async fn close(&self) {
        self.stopping.cancel();
        self.shared.closed.send_replace(true);
        self.tasks.wait().await;
    }
}

impl Shared {
    fn check_open(&self) -> Result<(), StoreError> {
        if *self.closed.borrow() { Err(StoreError::Closed) } else { Ok(()) }
    }

    async fn until_closed(&self) {
        // The task also ends if the store is dropped without a close.
        let _closed = self.closed.subscribe().wait_for(|closed| *closed).await.map(|closed| *closed);
    }

    fn key(&self, key: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), key.as_bytes()].concat()
    }

    /// A key without the prefix; `None` for a key outside of the prefix and for the store's own key.
    fn key_of(&self, key: &[u8]) -> Option<Arc<str>> {
        if key == self.mark_key {
            return None;
        }
        let text = key.strip_prefix(self.prefix.as_bytes()).and_then(|rest| std::str::from_utf8(rest).ok());
        if text.is_none() {
            tracing::error!(key = %String::from_utf8_lossy(key), "ignored a key in etcd that is not ours");
        }
        text.map(Arc::from)
    }

    fn whole_prefix(&self) -> WatchCreateRequest {
        WatchCreateRequest { key: self.prefix.clone().into_bytes(), range_end: self.end(), ..WatchCreateRequest::default() }
    }

    /// The end of the range of the prefix: the character `0` follows the slash.
    fn end(&self) -> Vec<u8> {
        let mut end = self.prefix.clone().into_bytes();
        end.pop();
        end.push(b'/' + 1);
        end
    }

    /// The current revision of etcd, from a majority of its members.
    async fn present(&self) -> Result<Revision, StoreError> {
        let found = self.probe(0).await.map_err(|status| self.failed("asking for the revision of", status))?;
        Ok(unsigned(revision(found.header)))
    }

    /// A cheap read at the given revision.
    async fn probe(&self, revision: i64) -> Result<RangeResponse, Status> {
        let range = RangeRequest { key: self.mark_key.clone(), revision, count_only: true, ..RangeRequest::default() };
        self.members.read(path::RANGE, range).await
    }

    async fn snapshot(&self) -> Result<Snapshot, Status> {
        let mut range =
            RangeRequest { key: self.prefix.clone().into_bytes(), range_end: self.end(), limit: PAGE_LEN, ..RangeRequest::default() };
        let mut entries = Vec::new();
        loop {
            let page: RangeResponse = self.members.read(path::RANGE, range.clone()).await?;
            if range.revision == 0 {
                range.revision = revision(page.header);
            }
            if let Some(last) = page.kvs.last() {
                range.key = [&last.key[..], &[0]].concat();
            }
            entries.extend(page.kvs.into_iter().filter_map(|kv| self.entry(kv)));
            if !page.more {
                return Ok(Snapshot { revision: unsigned(range.revision), entries });
            }
        }
    }

    fn entry(&self, kv: KeyValue) -> Option<Entry> {
        let key = self.key_of(&kv.key)?;
        Some(Entry { key, value: kv.value, revision: unsigned(kv.mod_revision), created: unsigned(kv.create_revision) })
    }

    async fn compact(&self, upto: i64) -> Result<(), StoreError> {
        match self.members.write::<_, CompactionResponse>(path::COMPACT, CompactionRequest { revision: upto }).await {
            Ok(_) => Ok(()),
            Err(status) if is_compacted(&status) => Ok(()),
            Err(status) => Err(self.failed("compacting", status)),
        }
    }

    fn failed(&self, doing: &str, status: Status) -> StoreError {
        members::failed(doing, &status)
    }
}

/// Whether the revision is compacted. etcd has no status code for this error.
fn is_compacted(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("compacted")
}

/// etcd's revisions are signed but never negative.
fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn unsigned(revision: i64) -> Revision {
    Revision::try_from(revision).unwrap_or_default()
}

#[cfg(test)]
mod tests;
