//! The shared caches: one watch a kind, however many controllers read it.
//!
//! Controllers ask for stores while they are being set up; then the hub starts the watches of
//! exactly the kinds that were asked for. The garbage collector hears of every object's metadata
//! through the same watches.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use api_tasks::Tasks;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::store::{Cached, Store};

/// Which kind an object is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindInfo {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural resource name.
    pub plural: String,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
}

impl KindInfo {
    /// Of a typed kind.
    pub fn of<K: kube::Resource<DynamicType = ()>>(namespaced: bool) -> Self {
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            namespaced,
        }
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// Hears of every change of metadata: the state before and the state now.
pub trait MetaObserver: Send + Sync + 'static {
    /// An object was added, changed or removed.
    fn changed(&self, kind: &Arc<KindInfo>, old: Option<&ObjectMeta>, new: Option<&ObjectMeta>);
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The caches, and the watches that fill them.
pub struct Hub {
    client: kube::Client,
    observer: Option<Arc<dyn MetaObserver>>,
    stores: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// Kinds that the observer hears of wholly through the stores.
    observed: Arc<Mutex<Vec<Arc<KindInfo>>>>,
    watches: Vec<Task>,
    syncs: Vec<Task>,
}

impl Hub {
    /// No caches yet. `observer` hears of all objects in caches that hold all objects of a kind.
    pub fn new(client: kube::Client, observer: Option<Arc<dyn MetaObserver>>) -> Self {
        Self { client, observer, stores: HashMap::new(), observed: Arc::default(), watches: Vec::new(), syncs: Vec::new() }
    }

    /// The client that the caches are filled with.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// The cache of a kind; made at the first call.
    pub fn store<K: Cached>(&mut self) -> Arc<Store<K>> {
        if let Some(store) = self.stores.get(&TypeId::of::<K>())
            && let Ok(store) = Arc::clone(store).downcast::<Store<K>>()
        {
            return store;
        }
        let store = Arc::new(Store::<K>::default());
        self.stores.insert(TypeId::of::<K>(), store.clone());
        self.observe(&store);
        let config = if K::FIELDS.is_empty() { watcher::Config::default() } else { watcher::Config::default().fields(K::FIELDS) };
        let (followed, api) = (Arc::clone(&store), Api::<K>::all(self.client.clone()));
        self.watches.push(Box::pin(async move { followed.follow(watcher(api, config).default_backoff()).await }));
        let synced = Arc::clone(&store);
        self.syncs.push(Box::pin(async move { synced.synced().await }));
        store
    }

    fn observe<K: Cached>(&mut self, store: &Store<K>) {
        let Some(observer) = self.observer.clone().filter(|_| K::FIELDS.is_empty()) else {
            return;
        };
        let (group, plural) = (K::group(&()), K::plural(&()));
        let namespaced = api_model::kind::find(&group, &plural).is_none_or(|kind| kind.namespaced);
        let kind = Arc::new(KindInfo::of::<K>(namespaced));
        self.observed.lock().push(Arc::clone(&kind));
        store.on_change(move |change| {
            observer.changed(&kind, change.old.as_deref().map(K::meta), change.new.as_deref().map(K::meta));
        });
    }

    /// Kinds whose metadata the observer hears of without a watch of its own.
    /// Grows while stores are asked for.
    pub fn observed(&self) -> Arc<Mutex<Vec<Arc<KindInfo>>>> {
        Arc::clone(&self.observed)
    }

    /// Starts the watches as tasks of `tasks` and answers a future that ends when every cache is filled.
    pub fn start(self, tasks: &Tasks, cancel: &CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        for watch in self.watches {
            let cancel = cancel.clone();
            tasks.own("controllers/watch", async move {
                tokio::select! {
                    () = cancel.cancelled() => {}
                    () = watch => {}
                }
            });
        }
        let syncs = self.syncs;
        async move {
            for sync in syncs {
                sync.await;
            }
        }
    }
}
