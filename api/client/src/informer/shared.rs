//! The informers of a process, one a kind.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use api_tasks::Tasks;
use kube::Api;
use parking_lot::Mutex;
use tokio_util::sync::DropGuard;

use super::cache::SharedCache;
use super::{Cached, Informer};

/// client-go's `SharedInformerFactory`: all users of a kind share one watch and one cache of it. Clones are the same factory.
#[derive(Clone)]
pub struct Informers {
    client: kube::Client,
    tasks: Tasks,
    running: Arc<Mutex<Running>>,
}

/// A [`WeakInformer`] by its kind and field selector.
type Running = HashMap<(TypeId, &'static str), Box<dyn Any + Send>>;

/// An informer that may have ended.
struct WeakInformer<K> {
    cache: Weak<SharedCache<K>>,
    watch: Weak<Option<DropGuard>>,
}

impl<K> WeakInformer<K> {
    fn upgrade(&self) -> Option<Informer<K>> {
        Some(Informer { cache: self.cache.upgrade()?, watch: self.watch.upgrade()? })
    }
}

impl Informers {
    /// A factory without watches. `client` needs the permission to list and watch all requested kinds, in all namespaces. The
    /// watches become tasks of `tasks`.
    pub fn new(client: kube::Client, tasks: Tasks) -> Self {
        Self { client, tasks, running: Arc::default() }
    }

    /// The client of the watches.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// The informer of all objects of a kind. Its watch starts when the informer has no user yet.
    pub fn informer<K: Cached<DynamicType = ()>>(&self) -> Informer<K> {
        self.selected("")
    }

    /// The informer of the objects of a kind that a field selector selects.
    pub fn selected<K: Cached<DynamicType = ()>>(&self, fields: &'static str) -> Informer<K> {
        let mut running = self.running.lock();
        let key = (TypeId::of::<K>(), fields);
        let present = running.get(&key).and_then(|informer| informer.downcast_ref::<WeakInformer<K>>());
        if let Some(informer) = present.and_then(WeakInformer::upgrade) {
            return informer;
        }
        let informer = Informer::start(Api::<K>::all(self.client.clone()), &K::plural(&()), fields, &self.tasks);
        let weak = WeakInformer { cache: Arc::downgrade(&informer.cache), watch: Arc::downgrade(&informer.watch) };
        running.insert(key, Box::new(weak));
        informer
    }
}
