//! Lost locks: locks of this server that nobody here holds, since the store's answer to the write that acquired or
//! released one was lost. Each lock names the attempt that acquired it. This server knows which of its attempts are
//! under way or hold a lock. It releases any other lock of its own at once, so that others need not wait until the lock
//! expires.

use std::collections::HashSet;
use std::sync::Arc;

use api_model::meta;
use api_store::{Expect, StoreError, Write};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{changed, lifetime, resource};
use crate::core::Core;
use api_cache::key;
use api_cache::{Filter, Object, Resource};
use api_wire::json;

/// The locks of this server.
pub(crate) struct Locks {
    pub(super) core: Arc<Core>,
    /// Prefix of the names of all attempts; another one after each start.
    server: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of attempts so far.
    begun: u64,
    /// Names of the attempts that are under way or hold a lock.
    live: HashSet<String>,
    /// A task looks for lost locks until this time.
    looking: Option<Instant>,
}

impl Locks {
    pub(crate) fn new(core: &Arc<Core>) -> Arc<Self> {
        Arc::new(Self { core: Arc::clone(core), server: format!("{}/", meta::new_uid()), state: Mutex::default() })
    }

    fn is_lost(&self, lock: &Object) -> bool {
        let value = lock.value();
        let attempt = json::text(&value, &["attempt"]);
        attempt.starts_with(&self.server) && !self.state.lock().live.contains(attempt)
    }
}

/// An attempt to acquire a lock, and then the time for which it is held. It ends when dropped.
pub(super) struct Attempt {
    locks: Arc<Locks>,
    name: String,
}

impl Attempt {
    pub(super) fn begin(locks: &Arc<Locks>) -> Self {
        let mut state = locks.state.lock();
        state.begun += 1;
        let name = format!("{}{}", locks.server, state.begun);
        state.live.insert(name.clone());
        drop(state);
        Self { locks: Arc::clone(locks), name }
    }

    pub(super) fn locks(&self) -> &Arc<Locks> {
        &self.locks
    }

    /// Its name, which is unique among all servers.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// From now on a lock of this name is lost.
    pub(super) fn end(&self) {
        self.locks.state.lock().live.remove(&self.name);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.end();
    }
}

/// Releases lost locks, for as long as one may appear that has not expired.
pub(super) fn look_for_lost(locks: &Arc<Locks>) {
    let until = Instant::now() + lifetime(&locks.core);
    let is_looked_for = locks.state.lock().looking.replace(until).is_some();
    if !is_looked_for {
        locks.core.tasks.request("api-server/lost-locks", look(Arc::clone(locks)));
    }
}

async fn look(locks: Arc<Locks>) {
    let core = &locks.core;
    let resource = resource(core);
    while let Some(until) = goes_on(&locks) {
        let lost = core.cache.until(|| find(&locks, &resource).is_some());
        tokio::select! {
            () = core.shutdown.cancelled() => return,
            // Without a lost lock until then, the end may have been moved.
            _in_time = tokio::time::timeout_at(until, lost) => {}
        }
        if let Some(lost) = find(&locks, &resource) {
            give_back(core, &resource, &lost).await;
        }
    }
}

/// The time until which lost locks may appear; `None` at the end.
fn goes_on(locks: &Locks) -> Option<Instant> {
    let mut state = locks.state.lock();
    state.looking = state.looking.filter(|until| *until > Instant::now());
    state.looking
}

fn find(locks: &Locks, resource: &Resource) -> Option<Arc<Object>> {
    resource.list(&Filter::default(), 0).items.into_iter().find(|lock| locks.is_lost(lock))
}

async fn give_back(core: &Core, resource: &Resource, lost: &Object) {
    let write = Write::new(key::object_key(&resource.name, "", &lost.name), None, Expect::At(lost.revision));
    match core.store.write(write).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => {}
        Err(error) => tracing::warn!(%error, lock = &*lost.name, "a lock is not given back yet"),
    }
    // Until the release is seen, or for a pause.
    changed(core, resource, lost).await;
}
