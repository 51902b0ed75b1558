//! What every request handler has at hand.

use std::net::IpAddr;
use std::sync::Arc;

use api_admission::Chain;
use api_auth::bootstrap::is_controller;
use api_auth::{Authenticator, Authorizer};
use api_model::field::FieldError;
use api_model::kind::GroupResource;
use api_model::request::{Attributes, UserInfo};
use api_model::view::View as _;
use api_store::{Expect, Guard, Store, StoreError, Write};
use api_tasks::Tasks;
use api_upstream::backend::Driver;
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::aggregation::Aggregation;
use crate::audit::{Audit, Trail};
use crate::authorize;
use crate::config::Config;
use crate::exclusive::Locks;
use crate::fairness::Gate;
use crate::held::WriteLocks;
use crate::metrics::Metrics;
use crate::policies::Policies;
use crate::quota::Quotas;
use crate::registry::{Registry, Served};
use crate::services::Allocator;
use crate::webhooks::Webhooks;
use api_cache::key;
use api_cache::{self as cache, Cache, Object};
use api_wire::body::BODY_BYTES_MAX;
use api_wire::query::Query;
use api_wire::status::{ApiError, ApiResult};

/// Bytes of a stored object: a body of the largest size, and what defaults add to it. Patches could pile
/// up more, one after the other.
const OBJECT_BYTES_MAX: usize = BODY_BYTES_MAX + (1 << 20);

/// The parts of the server, shared by all requests.
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) registry: Registry,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) chain: Chain,
    pub(crate) services: Arc<Allocator>,
    pub(crate) policies: Policies,
    pub(crate) webhooks: Webhooks,
    pub(crate) aggregation: Aggregation,
    pub(crate) gate: Gate,
    pub(crate) quotas: Quotas,
    pub(crate) locks: Locks,
    pub(crate) metrics: Metrics,
    /// None: nothing is recorded.
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) documents: crate::documents::Documents,
    /// As the present certificate has it.
    pub(crate) node_tls: ArcSwap<TlsConnector>,
    /// For backends of a proxy, whose certificates nobody here knows.
    pub(crate) proxy_tls: TlsConnector,
    /// Drives outgoing connections.
    pub(crate) driver: Driver,
    /// No new work after this.
    pub(crate) shutdown: CancellationToken,
    /// Everything that runs beside requests, and what follows the cache; it may end after `shutdown`.
    pub(crate) tasks: Tasks,
}

/// One request for a resource, taken apart.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) served: Arc<Served>,
    /// Namespace in the path; empty when none.
    pub(crate) namespace: String,
    /// Name in the path; empty for collections.
    pub(crate) name: String,
    /// Subresource; empty when none.
    pub(crate) subresource: String,
    /// What follows the subresource.
    pub(crate) rest: String,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) user: Arc<UserInfo>,
    /// The connection's other end; none for clients in this process.
    pub(crate) remote: Option<IpAddr>,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
    /// What is recorded of the request.
    pub(crate) trail: Option<Arc<Trail>>,
}

/// Why a write did not happen.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The object is at another revision, or there, or gone.
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

impl App {
    /// Waits until the cache has seen every write that was answered before this call. Our own are
    /// seen before they are answered; where other servers write to the same store it is asked how
    /// far they are.
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

    /// Stores an object (in its stored form) and waits until every read sees it.
    pub(crate) async fn put(
        &self,
        served: &Served,
        namespace: &str,
        name: &str,
        expect: Expect,
        value: Value,
    ) -> Result<Arc<Object>, WriteError> {
        let bytes = cache::encode(&value);
        // Before the wait, after which another thread may go on.
        drop(value);
        self.put_encoded(served, (namespace, name), expect, bytes, Vec::new()).await
    }

    /// Writes, or refuses; the latter only when every read sees the write that was faster. Who is told
    /// that an object exists may not find it missing afterwards.
    pub(crate) async fn write(&self, write: Write) -> Result<u64, WriteError> {
        let written = self.store.write(write).await;
        if let Err(StoreError::Conflict { current: Some(revision) }) = written
            && self.cache.wait_for(revision).await.is_err()
        {
            tracing::warn!(revision, "a faster write is not seen");
        }
        Ok(written?)
    }

    /// [`App::put`] of an object's bytes, which are written only if the guards hold.
    async fn put_encoded(
        &self,
        served: &Served,
        (namespace, name): (&str, &str),
        expect: Expect,
        bytes: Bytes,
        guards: Vec<Guard>,
    ) -> Result<Arc<Object>, WriteError> {
        if bytes.len() > OBJECT_BYTES_MAX {
            return Err(WriteError::Api(ApiError::too_large(OBJECT_BYTES_MAX)));
        }
        let key = key::object_key(&served.resource.name, namespace, name);
        let stored = self.cache.seal(&served.resource.name, &key, &bytes);
        let stored = stored.map_err(|error| WriteError::Api(ApiError::unsealable(&key, &error)))?;
        let announced = self.cache.announce(&key, &stored, &bytes);
        let revision = self.write(Write { key, value: Some(stored), expect, guards }).await?;
        let event = self.cache.settled(&served.resource, revision).await.map_err(|closed| WriteError::Api(closed.into()))?;
        drop(announced);
        match event.and_then(|event| event.after.clone()) {
            Some(object) => Ok(object),
            // Already forgotten by the cache's history: what was written is known all the same.
            None => {
                let object = self.cache.object((namespace.into(), name.into()), revision, bytes);
                object.map(Arc::new).map_err(|error| WriteError::Api(ApiError::internal(error)))
            }
        }
    }

    /// [`App::put`] of an object's bytes that gives up `held` only when the write is seen or has failed, whether or
    /// not the client waits for that. A write whose answer is lost may be made later, when another server holds what
    /// was held here; the guards keep it from that.
    pub(crate) async fn put_holding(
        self: &Arc<Self>,
        served: &Arc<Served>,
        (namespace, name): (&str, &str),
        expect: Expect,
        bytes: Bytes,
        held: WriteLocks,
    ) -> Result<Arc<Object>, WriteError> {
        if held.is_nothing() {
            return self.put_encoded(served, (namespace, name), expect, bytes, Vec::new()).await;
        }
        let (app, served) = (Arc::clone(self), Arc::clone(served));
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let writing = self.tasks.request("api-server/write", async move {
            let written = app.put_encoded(&served, (&namespace, &name), expect, bytes, held.guards()).await;
            drop(held);
            written
        });
        writing.await.unwrap_or_else(|error| Err(WriteError::Api(ApiError::internal(error))))
    }

    /// Deletes an object and waits until every read sees it; answers its last state at the
    /// revision of the deletion.
    pub(crate) async fn remove(&self, served: &Served, object: &Arc<Object>) -> Result<Arc<Object>, WriteError> {
        let key = key::object_key(&served.resource.name, &object.namespace, &object.name);
        let revision = self.write(Write::new(key, None, Expect::At(object.revision))).await?;
        let settled = self.cache.settled(&served.resource, revision).await;
        let event = settled.map_err(|closed| WriteError::Api(closed.into()))?;
        let gone = event.and_then(|event| event.object(cache::Change::Deleted).cloned());
        Ok(gone.unwrap_or_else(|| Arc::new(object.at_revision(revision))))
    }
}

impl App {
    /// [`App::remove`] that answers the last state as clients of the kind see it.
    pub(crate) async fn remove_shown(&self, served: &Served, object: &Arc<Object>, shown: &Object) -> Result<Arc<Object>, WriteError> {
        let gone = self.remove(served, object).await?;
        Ok(if served.converter().is_some() { Arc::new(shown.at_revision(gone.revision)) } else { gone })
    }
}

impl Call {
    /// A call that the server makes itself, for objects of a kind in a namespace.
    pub(crate) fn internal(app: &Arc<App>, served: &Arc<Served>, namespace: &str, user: UserInfo) -> Self {
        Self {
            app: Arc::clone(app),
            served: Arc::clone(served),
            namespace: namespace.to_owned(),
            name: String::new(),
            subresource: String::new(),
            rest: String::new(),
            query: Query::default(),
            headers: HeaderMap::new(),
            user: Arc::new(user),
            remote: None,
            warnings: Vec::new(),
            trail: None,
        }
    }

    /// The object that the path names.
    pub(crate) fn object(&self) -> ApiResult<Arc<Object>> {
        self.object_named(&self.name)
    }

    /// [`Call::object`] in the version of the call's kind.
    pub(crate) async fn object_in_version(&self) -> ApiResult<Arc<Object>> {
        self.served.one_in_version(self.object()?).await
    }

    /// An object of the call's kind and namespace.
    pub(crate) fn object_named(&self, name: &str) -> ApiResult<Arc<Object>> {
        let (resource, namespace) = (&self.served.resource, self.namespace_key());
        resource.get(namespace, name).ok_or_else(|| match resource.unreadable(namespace, name) {
            Some(unreadable) => ApiError::unreadable(&key::object_key(&resource.name, namespace, name), &unreadable.why),
            None => ApiError::not_found(&self.served.name, name),
        })
    }

    /// Refuses a selection in which there is an object that cannot be read: it would be missed.
    pub(crate) fn check_readable(&self, namespace: Option<&str>) -> ApiResult<()> {
        let resource = &self.served.resource;
        match resource.unreadable_in(namespace) {
            Some((namespace, name, why)) => Err(ApiError::unreadable(&key::object_key(&resource.name, &namespace, &name), &why)),
            None => Ok(()),
        }
    }

    /// What is wrong with an object for the namespace that it is in.
    pub(crate) fn misplaced(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let namespace = || self.app.cache.get(&GroupResource::new("", "namespaces"), None, &self.namespace);
        api_rules::validate_admin_access(&self.served.stored, self.sub(), new, old, namespace)
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.served.name, &self.name)
    }

    /// The namespace under which the object is stored: cluster-scoped objects, among them
    /// namespaces (whose path carries their own name as namespace), have none.
    pub(crate) fn namespace_key(&self) -> &str {
        if self.served.kind.namespaced { &self.namespace } else { "" }
    }

    /// Rejects what the caller may not also do to the object that the call is for.
    pub(crate) fn check_may(&self, verb: &str) -> ApiResult<()> {
        authorize::check((&self.app.authorizer, &self.app.cache), &self.user, &self.attributes(verb))
    }

    /// The attributes of `verb` for authorization.
    pub(crate) fn attributes(&self, verb: &str) -> Attributes {
        let kind = &self.served.kind;
        Attributes {
            verb: verb.to_owned(),
            group: kind.group.clone(),
            version: kind.version.clone(),
            resource: kind.plural.clone(),
            subresource: self.subresource.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            ..Attributes::default()
        }
    }

    /// The subresource, where there is one.
    pub(crate) fn sub(&self) -> Option<&str> {
        (!self.subresource.is_empty()).then_some(self.subresource.as_str())
    }

    /// Adds texts for the client.
    pub(crate) fn warn(&mut self, warnings: Vec<String>) {
        self.warnings.extend(warnings);
    }

    /// Tells what of an object, or of a change from `old`, is stored although nothing acts on it. The cluster's own parts
    /// write what others asked for, and nobody reads what they are told.
    pub(crate) fn warn_of_unacted(&mut self, new: &Value, old: Option<&Value>) {
        if !is_part_of_the_cluster(&self.user.username) {
            self.warn(api_rules::unacted(&self.served.stored, new, old));
        }
    }
}

fn is_part_of_the_cluster(user: &str) -> bool {
    matches!(user, "system:apiserver" | "system:kube-controller-manager" | "system:kube-scheduler")
        || user.starts_with("system:node:")
        || is_controller(user)
}
