//! What a controller is built from, and the list of those that were built.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use api_client::events::Recorder;
use api_tasks::Tasks;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::garbage::Graph;
use crate::work::{self, Cached, Controller, Hub, KindInfo, MetaObserver, Queue, Store};

/// As whom a controller acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// As the user `system:kube-controller-manager`.
    Manager,
    /// As a ServiceAccount of `kube-system`, upstream's with `--use-service-account-credentials`.
    Named(&'static str),
}

/// A background task with its name.
type Run = (&'static str, Start);
type Start = Box<dyn FnOnce(CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Hands out caches, queues and recorders while the controllers are set up.
pub struct Parts {
    /// Settings.
    pub config: Arc<Config>,
    /// What the garbage collector knows, when it runs.
    pub graph: Option<Arc<Graph>>,
    hub: Hub,
    /// As whom the controller that is being set up acts.
    client: kube::Client,
    tasks: Tasks,
    runs: Vec<Run>,
}

impl Parts {
    /// Nothing set up yet; what runs in the background is one of `tasks`.
    pub fn new(client: kube::Client, config: Arc<Config>, graph: Option<Arc<Graph>>, tasks: Tasks) -> Self {
        let observer = graph.clone().map(|graph| graph as Arc<dyn MetaObserver>);
        Self { config, graph, client: client.clone(), hub: Hub::new(client, observer), tasks, runs: Vec::new() }
    }

    /// Lets the next controllers act as an account. The caches are the manager's, which may list and watch everything.
    pub fn act_as(&mut self, account: Account) {
        self.client = match (account, &self.config.accounts) {
            (Account::Named(name), Some(accounts)) => accounts(name),
            (Account::Manager, _) | (_, None) => self.hub.client().clone(),
        };
    }

    /// The client of the controller that is being set up.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The shared cache of a kind.
    pub fn store<K: Cached>(&mut self) -> Arc<Store<K>> {
        self.hub.store()
    }

    /// Records events as `component`.
    pub fn recorder(&self, component: &str) -> Recorder {
        Recorder::new(self.client(), component, None, &self.tasks)
    }

    /// A queue with a cache that feeds it: `keys` names what a change of `K` makes worth a look.
    pub fn feed<K: Cached, Q: work::Key>(
        &mut self,
        queue: &Arc<Queue<Q>>,
        keys: impl Fn(&work::Change<K>) -> Vec<Q> + Send + Sync + 'static,
    ) -> Arc<Store<K>> {
        let store = self.store::<K>();
        let queue = Arc::clone(queue);
        store.on_change(move |change| {
            for key in keys(change) {
                queue.add(key);
            }
        });
        store
    }

    /// Has `controller` work on `queue` once the caches are filled.
    pub fn run<C: Controller>(&mut self, controller: Arc<C>, queue: Arc<Queue<C::Key>>) {
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

    /// The kinds that the graph hears of through shared caches.
    pub fn observed(&self) -> Arc<Mutex<Vec<Arc<KindInfo>>>> {
        self.hub.observed()
    }

    /// What was set up.
    pub fn into_inner(self) -> (Hub, Vec<Run>) {
        (self.hub, self.runs)
    }
}
