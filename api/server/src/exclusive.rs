//! Locks among servers that share a store.
//!
//! A server finds a free address, or the rest of a quota, by looking at the stored objects. The result is wrong as soon as another
//! write comes in between. Within one process a mutex prevents that. Between servers a lock is a key in the store that only one of
//! them can create; its holder has seen every write of the holders before. The holder writes its decision on condition that the
//! key is still its own ([`Guard`]), so that a late write, or a holder that was believed dead, does no harm. The lock of a server
//! that dies expires, later than any request may end. A server that lost the store's answer does not know whether it has the lock:
//! it deletes the key when the key appears.

mod lost;

use std::sync::Arc;
use std::time::Duration;

use api_model::kind::GroupResource;
use api_store::{Expect, Guard, Revision, StoreError, Write};
use bytes::Bytes;
use serde_json::json;

pub(crate) use self::lost::Locks;
use self::lost::{Attempt, look_for_lost};
use crate::core::Core;
use api_cache::key;
use api_cache::{Object, Resource, encode};
use api_wire::status::{ApiError, ApiResult};

/// A lock expires this much later than a request, for clocks that differ.
const MARGIN: Duration = Duration::from_secs(30);
/// The interval at which waiting servers check whether a lock has expired.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A lock that this server holds; released when dropped.
pub(crate) struct Exclusive {
    attempt: Attempt,
    key: Arc<str>,
    revision: Revision,
}

impl Exclusive {
    /// The condition under which the holder's decision may be written.
    pub(crate) fn guard(&self) -> Guard {
        Guard { key: Arc::clone(&self.key), revision: self.revision }
    }
}

/// Waits for the lock of that name. A server that has the store for itself needs none.
pub(crate) async fn enter(locks: &Arc<Locks>, name: &str) -> ApiResult<Option<Arc<Exclusive>>> {
    let core = &locks.core;
    if !core.store.is_shared() {
        return Ok(None);
    }
    let resource = resource(core);
    let key = key::object_key(&resource.name, "", name);
    loop {
        let lock = resource.get("", name);
        let expect = match &lock {
            None => Expect::Absent,
            Some(object) if is_over(object) => Expect::At(object.revision),
            Some(object) => {
                changed(core, &resource, object).await;
                continue;
            }
        };
        let attempt = Attempt::begin(locks);
        let value = value(name, &attempt);
        let sealed = core.cache.seal(&resource.name, &key, &value).map_err(|error| ApiError::unsealable(&key, &error))?;
        // The task goes on when nobody waits for it any more. Then it drops the lock, which releases it.
        let taking = core.tasks.request("api-server/lock", take(attempt, Write::new(Arc::clone(&key), Some(sealed), expect)));
        match taking.await.map_err(ApiError::internal)? {
            Ok(exclusive) => {
                core.cache.settled(&resource, exclusive.revision).await?;
                return Ok(Some(Arc::new(exclusive)));
            }
            // Another server was faster. Its lock is in the cache after this.
            Err(StoreError::Conflict { .. }) => core.catch_up().await?,
            Err(error) => return Err(error.into()),
        }
    }
}

async fn take(attempt: Attempt, write: Write) -> Result<Exclusive, StoreError> {
    let key = Arc::clone(&write.key);
    let locks = Arc::clone(attempt.locks());
    match locks.core.store.write(write).await {
        Ok(revision) => Ok(Exclusive { attempt, key, revision }),
        Err(error) => {
            drop(attempt);
            // The key may have been written, or may still be written.
            if !matches!(error, StoreError::Conflict { .. }) {
                look_for_lost(&locks);
            }
            Err(error)
        }
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.attempt.end();
        let (locks, write) = (Arc::clone(self.attempt.locks()), Write::new(Arc::clone(&self.key), None, Expect::At(self.revision)));
        self.attempt.locks().core.tasks.request("api-server/unlock", async move {
            match locks.core.store.write(write).await {
                // A conflict: the lock had expired, and another server has it.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => {
                    tracing::warn!(%error, "a lock is not given back yet");
                    look_for_lost(&locks);
                }
            }
        });
    }
}

fn resource(core: &Core) -> Arc<Resource> {
    core.cache.resource(&GroupResource::new("skiff.internal", "locks"))
}

/// Waits until another server releases its lock, or for a while.
async fn changed(core: &Core, resource: &Resource, lock: &Object) {
    let gone = core.cache.until(|| resource.get("", &lock.name).is_none_or(|now| now.revision != lock.revision));
    // Without a change the lock may have expired.
    let _waited = tokio::time::timeout(LOOK_AGAIN, gone).await;
}

/// How long a lock is held at most.
fn lifetime(core: &Core) -> Duration {
    core.config.request_timeout.saturating_add(MARGIN)
}

fn value(name: &str, attempt: &Attempt) -> Bytes {
    let lifetime_ms = u64::try_from(lifetime(&attempt.locks().core).as_millis()).unwrap_or(u64::MAX);
    let until = api_clock::now().as_millisecond().saturating_add_unsigned(lifetime_ms);
    let (kind, version) = ("Lock", "skiff.internal/v1");
    encode(&json!({"kind": kind, "apiVersion": version, "metadata": {"name": name}, "until": until, "attempt": attempt.name()}))
}

fn is_over(lock: &Object) -> bool {
    let until = lock.value().get("until").and_then(serde_json::Value::as_i64).unwrap_or_default();
    until < api_clock::now().as_millisecond()
}
