//! Locks of this server that nobody here holds: the store's answer to the write that took one, or to the one
//! that gave it back, was lost. Each lock names the attempt that took it, and this server knows which of
//! its own attempts are under way or hold one; any other lock of its own is to be given back at once,
//! rather than to hold others up until its time is over.

use std::collections::HashSet;
use std::sync::Arc;

use api_model::meta;
use api_store::{Expect, StoreError, Write};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{changed, lifetime, locks};
use crate::app::App;
use api_cache::key;
use api_cache::{Filter, Object, Resource};
use api_wire::json;

/// What this server knows of its locks.
pub(crate) struct Locks {
    /// What all its attempts' names begin with; another one each time it starts.
    server: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Attempts so far.
    begun: u64,
    /// Those that are under way or hold a lock.
    live: HashSet<String>,
    /// Somebody looks for lost ones until then.
    looking: Option<Instant>,
}

impl Default for Locks {
    fn default() -> Self {
        Self { server: format!("{}/", meta::new_uid()), state: Mutex::default() }
    }
}

impl Locks {
    fn is_lost(&self, held: &Object) -> bool {
        let value = held.value();
        let attempt = json::text(&value, &["attempt"]);
        attempt.starts_with(&self.server) && !self.state.lock().live.contains(attempt)
    }
}

/// An attempt to take a lock, and then the time for which it is held; over when dropped.
pub(super) struct Attempt {
    app: Arc<App>,
    name: String,
}

impl Attempt {
    pub(super) fn begin(app: &Arc<App>) -> Self {
        let mut state = app.locks.state.lock();
        state.begun += 1;
        let name = format!("{}{}", app.locks.server, state.begun);
        state.live.insert(name.clone());
        drop(state);
        Self { app: Arc::clone(app), name }
    }

    pub(super) fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Its name, like that of no other attempt of any server.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// A lock of its name is lost from now on.
    pub(super) fn end(&self) {
        self.app.locks.state.lock().live.remove(&self.name);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.end();
    }
}

/// Gives back what is lost, for as long as something may turn up that is not over by itself.
pub(super) fn look_for_lost(app: &Arc<App>) {
    let until = Instant::now() + lifetime(app);
    let is_looked_for = app.locks.state.lock().looking.replace(until).is_some();
    if !is_looked_for {
        app.tasks.request("api-server/lost-locks", look(Arc::clone(app)));
    }
}

async fn look(app: Arc<App>) {
    let resource = locks(&app);
    while let Some(until) = goes_on(&app.locks) {
        let lost = app.cache.until(|| find(&app, &resource).is_some());
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            // When nothing turned up in time, the end may have been put off.
            _in_time = tokio::time::timeout_at(until, lost) => {}
        }
        if let Some(lost) = find(&app, &resource) {
            give_back(&app, &resource, &lost).await;
        }
    }
}

/// Until when there is something to look for; `None` at the end.
fn goes_on(locks: &Locks) -> Option<Instant> {
    let mut state = locks.state.lock();
    state.looking = state.looking.filter(|until| *until > Instant::now());
    state.looking
}

fn find(app: &App, resource: &Resource) -> Option<Arc<Object>> {
    resource.list(&Filter::default(), 0).items.into_iter().find(|held| app.locks.is_lost(held))
}

async fn give_back(app: &App, resource: &Resource, lost: &Object) {
    let write = Write::new(key::object_key(&resource.name, "", &lost.name), None, Expect::At(lost.revision));
    match app.store.write(write).await {
        Ok(_) | Err(StoreError::Conflict { .. }) => {}
        Err(error) => tracing::warn!(%error, lock = &*lost.name, "a lock is not given back yet"),
    }
    // Until that is seen, or for a pause.
    changed(app, resource, lost).await;
}
