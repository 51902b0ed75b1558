//! What a controller is built from, upstream's `ControllerContext`, and the controllers that were built.

use std::any::{Any, TypeId};
use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use api_client::events::Recorder;
use api_client::fence::Fence;
use api_client::informer::{Cached, Change, Informer, Informers};
use api_tasks::Tasks;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::config::{Account, Config};
use crate::external::ExternalSource;
use crate::kind::KindInfo;
use crate::work::{self, Controller, WorkQueue};

/// Observes the metadata of every object: the state before a change and the state after it.
pub trait MetadataObserver: Send + Sync + 'static {
    /// An object was added, changed or removed. An object that was created again under its name was removed first.
    fn changed(&self, kind: &Arc<KindInfo>, old: Option<&ObjectMeta>, new: Option<&ObjectMeta>);
}

/// A background task with its name.
type Run = (&'static str, Start);
type Start = Box<dyn FnOnce(CancellationToken) -> Task + Send>;
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Something that lasts until it is dropped.
type Guard = Box<dyn Any + Send>;
/// Registers the observer with the informer of a kind.
type Observe = Box<dyn FnOnce(&Arc<dyn MetadataObserver>) -> Guard + Send>;

/// Hands out informers, queues and recorders while the controllers are set up.
pub struct ControllerContext {
    /// Settings.
    pub config: Arc<Config>,
    /// The external metrics that a controller of this process computes.
    pub external: ExternalSource,
    informers: Informers,
    /// Goes around the clients of an elected leader.
    fence: Option<Fence>,
    /// The client of the controller that is being set up.
    client: kube::Client,
    tasks: Tasks,
    runs: Vec<Run>,
    /// The informers that controllers use: kinds with their field selectors.
    requested: HashSet<(TypeId, &'static str)>,
    syncs: Vec<Task>,
    handlers: Vec<Guard>,
    observer: Option<Arc<dyn MetadataObserver>>,
    observations: Vec<Observe>,
    /// The kinds whose changes the observer gets through the controllers' informers.
    observed: Arc<Mutex<Vec<Arc<KindInfo>>>>,
}

/// The controllers that were set up.
pub struct Built {
    /// Their loops, to be started once the caches are filled.
    pub runs: Vec<Run>,
    syncs: Vec<Task>,
    /// Feed the queues until they are dropped.
    _handlers: Vec<Guard>,
}

impl Built {
    /// Waits until every cache has its first list.
    pub async fn synced(&mut self) {
        for sync in self.syncs.drain(..) {
            sync.await;
        }
    }
}

impl ControllerContext {
    /// A context without controllers. Background tasks run in `tasks`.
    pub fn new(informers: Informers, config: Arc<Config>, fence: Option<Fence>, tasks: Tasks) -> Self {
        let client = informers.client().clone();
        Self {
            config,
            external: ExternalSource::default(),
            informers,
            fence,
            client,
            tasks,
            runs: Vec::new(),
            requested: HashSet::new(),
            syncs: Vec::new(),
            handlers: Vec::new(),
            observer: None,
            observations: Vec::new(),
            observed: Arc::default(),
        }
    }

    /// The next controllers act as this account. The caches belong to the manager, which may list and watch everything.
    pub fn act_as(&mut self, account: Account) {
        self.client = match &self.config.accounts {
            Some(accounts) => accounts(account, self.fence.as_ref()),
            None => self.informers.client().clone(),
        };
    }

    /// The client of the controller that is being set up.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The shared informer of a kind.
    pub fn informer<K: Cached<DynamicType = ()>>(&mut self) -> Informer<K> {
        let informer = self.selected::<K>("");
        let kind = Arc::new(KindInfo::typed::<K>());
        let mut observed = self.observed.lock();
        if !observed.contains(&kind) {
            observed.push(Arc::clone(&kind));
            let shared = informer.clone();
            self.observations.push(Box::new(move |observer| {
                let observer = Arc::clone(observer);
                Box::new(shared.on_change(move |change| {
                    observer.changed(&kind, change.old.as_deref().map(K::meta), change.new.as_deref().map(K::meta));
                }))
            }));
        }
        drop(observed);
        informer
    }

    /// The shared informer of the objects that a field selector finds.
    pub fn selected<K: Cached<DynamicType = ()>>(&mut self, fields: &'static str) -> Informer<K> {
        let informer = self.informers.selected::<K>(fields);
        if self.requested.insert((TypeId::of::<K>(), fields)) {
            let syncing = informer.clone();
            self.syncs.push(Box::pin(async move { syncing.synced().await }));
        }
        informer
    }

    /// The shared informer of a kind that the server may not serve. Nobody waits for its first list.
    pub fn optional<K: Cached<DynamicType = ()>>(&mut self) -> Informer<K> {
        self.informers.selected::<K>("")
    }

    /// Records events as `component`.
    pub fn recorder(&self, component: &str) -> Recorder {
        Recorder::new(self.client(), component, None, &self.tasks)
    }

    /// Calls `handler` after each change in an informer, for as long as the controllers run.
    pub fn on_change<K: Cached>(&mut self, informer: &Informer<K>, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.handlers.push(Box::new(informer.on_change(handler)));
    }

    /// The informer of a kind, which feeds a queue: `keys` returns the keys to reconcile after a change.
    pub fn feed<K: Cached<DynamicType = ()>, Q: work::Key>(
        &mut self,
        queue: &Arc<WorkQueue<Q>>,
        keys: impl Fn(&Change<K>) -> Vec<Q> + Send + Sync + 'static,
    ) -> Informer<K> {
        let informer = self.informer::<K>();
        self.feed_from(&informer, queue, keys);
        informer
    }

    /// The informer of the objects that a field selector selects, which feeds a queue.
    pub fn feed_selected<K: Cached<DynamicType = ()>, Q: work::Key>(
        &mut self,
        fields: &'static str,
        queue: &Arc<WorkQueue<Q>>,
        keys: impl Fn(&Change<K>) -> Vec<Q> + Send + Sync + 'static,
    ) -> Informer<K> {
        let informer = self.selected::<K>(fields);
        self.feed_from(&informer, queue, keys);
        informer
    }

    /// Has an informer feed a queue: `keys` returns the keys to reconcile after a change.
    pub fn feed_from<K: Cached, Q: work::Key>(
        &mut self,
        informer: &Informer<K>,
        queue: &Arc<WorkQueue<Q>>,
        keys: impl Fn(&Change<K>) -> Vec<Q> + Send + Sync + 'static,
    ) {
        let queue = Arc::clone(queue);
        self.on_change(informer, move |change| keys(change).into_iter().for_each(|key| queue.add(key)));
    }

    /// Has `controller` work on `queue` once the caches are filled.
    pub fn run<C: Controller>(&mut self, controller: Arc<C>, queue: Arc<WorkQueue<C::Key>>) {
        self.runs.push((C::NAME, Box::new(move |cancel| Box::pin(work::work(controller, queue, cancel)))));
    }

    /// Has `task` run beside the loops, from the start, as a background task of that name.
    pub fn run_beside<F>(&mut self, name: &'static str, task: impl FnOnce(CancellationToken) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.runs.push((name, Box::new(move |cancel| Box::pin(task(cancel)))));
    }

    /// The background tasks of all controllers.
    pub fn tasks(&self) -> Tasks {
        self.tasks.clone()
    }

    /// Registers `observer` for all objects of every kind whose unfiltered informer a controller uses.
    ///
    /// Returns these kinds; the list is complete once all controllers are set up.
    pub fn observe(&mut self, observer: Arc<dyn MetadataObserver>) -> Arc<Mutex<Vec<Arc<KindInfo>>>> {
        self.observer = Some(observer);
        Arc::clone(&self.observed)
    }

    /// The controllers that were set up.
    pub fn build(mut self) -> Built {
        if let Some(observer) = &self.observer {
            self.handlers.extend(self.observations.drain(..).map(|observe| observe(observer)));
        }
        Built { runs: self.runs, syncs: self.syncs, _handlers: self.handlers }
    }
}
