//! What every part of the server stands on: configuration, store and cache, the kinds that are served, who may do what,
//! metrics and tasks. The only way to write to the store from here on is [`Core::put`] and [`Core::remove`].

use std::sync::Arc;

use api_auth::{Authenticator, Authorizer};
use api_cache::{self as cache, Cache, Object, key};
use api_store::{Expect, Guard, Store, StoreError, Write};
use api_tasks::Tasks;
use api_upstream::backend::Driver;
use api_usage::Readings;
use api_wire::body::BODY_BYTES_MAX;
use api_wire::status::{ApiError, ApiResult};
use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::fence::Fence;
use crate::metrics::Metrics;
use crate::metrics_demand::MetricsDemand;
use crate::registry::{Registry, Served};

/// Bytes of a stored object: a body of the largest size, and what defaults add to it. Without this bound a series of patches
/// could make an object of any size.
const OBJECT_BYTES_MAX: usize = BODY_BYTES_MAX + (1 << 20);

/// The base that all parts of the server share.
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) registry: Registry,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) metrics: Metrics,
    /// What nodes and Pods use.
    pub(crate) readings: ArcSwap<Readings>,
    /// The requests for `readings`.
    pub(crate) metrics_demand: MetricsDemand,
    /// Drives outgoing connections.
    pub(crate) driver: Driver,
    /// No new work starts after this.
    pub(crate) shutdown: CancellationToken,
    /// Everything that runs beside requests, and what follows the cache. A task may end after `shutdown`.
    pub(crate) tasks: Tasks,
}

/// Conditions of a write beyond those on the object itself.
#[derive(Default)]
pub(crate) struct Conditions {
    /// Of locks.
    pub(crate) guards: Vec<Guard>,
    /// Of the leader that writes.
    pub(crate) fence: Option<Arc<Fence>>,
}

/// Why a write did not happen.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The stored object is not in the expected state: it is at another revision, exists or is gone.
    Conflict,
    Api(ApiError),
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } => Self::Conflict,
            error => Self::Api(error.into()),
        }
    }
}

impl From<ApiError> for WriteError {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl Core {
    /// Waits until the cache has seen every write that was answered before this call. A server sees its own writes before it
    /// answers them. Where other servers write to the same store, this one asks the store how far it is.
    pub(crate) async fn catch_up(&self) -> ApiResult<()> {
        if !self.store.is_shared() {
            return Ok(());
        }
        let head = self.store.head().await?;
        self.cache.wait_for(head).await.map_err(|at| {
            tracing::warn!(head, applied = at.current, "the cache is behind the store");
            ApiError::took_too_long()
        })
    }

    /// Stores an object (in its stored form), given by namespace and name, and waits until every read sees it.
    pub(crate) async fn put(
        &self,
        served: &Served,
        object: (&str, &str),
        expect: Expect,
        value: Value,
        fence: Option<&Arc<Fence>>,
    ) -> Result<Arc<Object>, WriteError> {
        let bytes = cache::encode(&value);
        // Before the wait, after which another thread may go on.
        drop(value);
        self.put_encoded(served, object, expect, bytes, Conditions { fence: fence.cloned(), ..Conditions::default() }).await
    }

    /// Writes to the store. A conflict is returned only when every read sees the write that was faster: a client that gets
    /// "already exists" finds the object.
    pub(crate) async fn write(&self, write: Write, fence: Option<&Fence>) -> Result<u64, WriteError> {
        let written = match fence {
            None => self.store.write(write).await,
            Some(fence) => fence.write(&*self.store, &self.cache, write).await?,
        };
        if let Err(StoreError::Conflict { current: Some(revision) }) = written
            && self.cache.wait_for(revision).await.is_err()
        {
            tracing::warn!(revision, "a faster write is not seen");
        }
        Ok(written?)
    }

    /// [`Core::put`] of an object's bytes, which are written only if the conditions hold.
    pub(crate) async fn put_encoded(
        &self,
        served: &Served,
        (namespace, name): (&str, &str),
        expect: Expect,
        bytes: Bytes,
        Conditions { guards, fence }: Conditions,
    ) -> Result<Arc<Object>, WriteError> {
        if bytes.len() > OBJECT_BYTES_MAX {
            return Err(WriteError::Api(ApiError::too_large(OBJECT_BYTES_MAX)));
        }
        let key = key::object_key(&served.resource.name, namespace, name);
        let stored = self.cache.seal(&served.resource.name, &key, &bytes);
        let stored = stored.map_err(|error| WriteError::Api(ApiError::unsealable(&key, &error)))?;
        let announced = self.cache.announce(&key, &stored, &bytes);
        let revision = self.write(Write { key, value: Some(stored), expect, guards }, fence.as_deref()).await?;
        let event = self.cache.settled(&served.resource, revision).await.map_err(|closed| WriteError::Api(closed.into()))?;
        drop(announced);
        match event.and_then(|event| event.after.clone()) {
            Some(object) => Ok(object),
            // The cache's history no longer has the event. The object is what was written.
            None => {
                let object = self.cache.object((namespace.into(), name.into()), revision, bytes);
                object.map(Arc::new).map_err(|error| WriteError::Api(ApiError::internal(error)))
            }
        }
    }

    /// Deletes an object and waits until every read sees it. Returns the object's last state at the revision of the deletion.
    pub(crate) async fn remove(
        &self,
        served: &Served,
        object: &Arc<Object>,
        fence: Option<&Arc<Fence>>,
    ) -> Result<Arc<Object>, WriteError> {
        let key = key::object_key(&served.resource.name, &object.namespace, &object.name);
        let revision = self.write(Write::new(key, None, Expect::At(object.revision)), fence.map(AsRef::as_ref)).await?;
        let settled = self.cache.settled(&served.resource, revision).await;
        let event = settled.map_err(|closed| WriteError::Api(closed.into()))?;
        let gone = event.and_then(|event| event.object(cache::Change::Deleted).cloned());
        Ok(gone.unwrap_or_else(|| Arc::new(object.at_revision(revision))))
    }

    /// [`Core::remove`] that returns the last state in the version of the kind, which is that of `in_version`.
    pub(crate) async fn remove_in_version(
        &self,
        served: &Served,
        object: &Arc<Object>,
        in_version: &Object,
        fence: Option<&Arc<Fence>>,
    ) -> Result<Arc<Object>, WriteError> {
        let gone = self.remove(served, object, fence).await?;
        Ok(if served.converter().is_some() { Arc::new(in_version.at_revision(gone.revision)) } else { gone })
    }
}
