//! Watches the metadata of every kind that no shared cache holds, and keeps up with kinds that
//! come and go.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api_client::error::{chain, is_everyday};
use api_tasks::Tasks;
use futures::StreamExt;
use kube::Api;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::graph::Graph;
use super::remote::Kinds;
use crate::discovery::{self, Discovered, Served, api_resource};
use crate::failure::Failure;
use crate::meta;
use crate::work::{KindInfo, MetaObserver};

/// After a custom resource definition changed, its kind is served this soon.
const SETTLE: Duration = Duration::from_millis(200);

/// Kinds that own nothing and come in masses; upstream leaves them out too.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// Kinds that a shared cache tells the graph about.
pub type Observed = Arc<Mutex<Vec<Arc<KindInfo>>>>;

/// The monitor.
pub struct Monitor {
    client: kube::Client,
    graph: Arc<Graph>,
    kinds: Kinds,
    observed: Observed,
    period: Duration,
    /// To which the monitor belongs once it runs.
    owner: Tasks,
}

/// Watches that run.
#[derive(Default)]
struct Watches {
    running: HashMap<KindInfo, CancellationToken>,
    tasks: JoinSet<()>,
}

impl Monitor {
    /// Sets up; nothing is asked yet.
    pub fn new(client: kube::Client, graph: Arc<Graph>, kinds: Kinds, observed: Observed, period: Duration, owner: Tasks) -> Self {
        Self { client, graph, kinds, observed, period, owner }
    }

    /// Starts the watches, which go on in the background; returns when every kind known at first has been listed.
    pub async fn start(self, cancel: CancellationToken) {
        let mut watches = Watches::default();
        let mut known = Discovered::default();
        let mut listed = Vec::new();
        while !cancel.is_cancelled() {
            match discovery::discover(&self.client).await {
                Ok(found) => {
                    listed = self.adopt(&found, &mut watches, &cancel);
                    known = found;
                    break;
                }
                Err(failure) => self.complain(&failure),
            }
            self.pause(&cancel, Duration::from_secs(1)).await;
        }
        for mut one in listed {
            tokio::select! {
                () = cancel.cancelled() => break,
                // An error means that the watch ended, which only its cancelling does.
                _ = one.wait_for(|listed| *listed) => {}
            }
        }
        self.owner.clone().own("garbage-collector-controller/monitor", self.keep_up(known, watches, cancel));
    }

    async fn keep_up(self, mut known: Discovered, mut watches: Watches, cancel: CancellationToken) {
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                () = self.graph.kinds_changed() => self.pause(&cancel, SETTLE).await,
                () = tokio::time::sleep(self.period) => {}
                Some(ended) = watches.tasks.join_next() => {
                    api_tasks::joined(ended);
                    continue;
                }
            }
            match discovery::discover(&self.client).await {
                Ok(found) if found == known => {}
                Ok(found) => {
                    self.adopt(&found, &mut watches, &cancel);
                    known = found;
                }
                Err(failure) => self.complain(&failure),
            }
        }
        while watches.tasks.join_next().await.is_some() {}
    }

    fn complain(&self, failure: &Failure) {
        tracing::warn!(error = failure.chain(), "kinds not discovered");
    }

    async fn pause(&self, cancel: &CancellationToken, pause: Duration) {
        tokio::select! {
            () = cancel.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    /// Starts watches of new kinds, ends those of kinds that are gone. Answers who is done listing.
    fn adopt(&self, found: &Discovered, watches: &mut Watches, cancel: &CancellationToken) -> Vec<watch::Receiver<bool>> {
        let by_kind =
            found.kinds.iter().map(|served| ((served.kind.group.clone(), served.kind.kind.clone()), Arc::new(served.kind.clone())));
        *self.kinds.write() = by_kind.collect();
        let wanted: Vec<&KindInfo> = found.kinds.iter().filter(|served| self.is_ours(served)).map(|served| &served.kind).collect();
        // While a group's server is away its kinds are not gone.
        let stale = |kind: &KindInfo| found.stale.contains(&kind.api_version());
        watches.running.retain(|kind, token| {
            let stays = wanted.contains(&kind) || stale(kind);
            if !stays {
                token.cancel();
                tracing::info!(kind = kind.kind, group = kind.group, "kind is gone");
            }
            stays
        });
        let mut listed = Vec::new();
        for kind in wanted {
            if !watches.running.contains_key(kind) {
                let token = cancel.child_token();
                let (done, receiver) = watch::channel(false);
                let (client, graph, kind_followed) = (self.client.clone(), Arc::clone(&self.graph), Arc::new(kind.clone()));
                let following = follow(client, graph, kind_followed, done, token.clone());
                watches.tasks.spawn(api_tasks::named("garbage-collector-controller/watch", following));
                watches.running.insert(kind.clone(), token);
                listed.push(receiver);
            }
        }
        listed
    }

    fn is_ours(&self, served: &Served) -> bool {
        let named = (served.kind.group.as_str(), served.kind.plural.as_str());
        let cached = || self.observed.lock().iter().any(|kind| kind.group == served.kind.group && kind.plural == served.kind.plural);
        ["list", "watch", "delete"].iter().all(|verb| served.allows(verb)) && !IGNORED.contains(&named) && !cached()
    }
}

/// One kind's watch, until cancelled.
async fn follow(client: kube::Client, graph: Arc<Graph>, kind: Arc<KindInfo>, listed: watch::Sender<bool>, cancel: CancellationToken) {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &api_resource(&kind));
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut seen: Option<BTreeSet<String>> = None;
    loop {
        let event = tokio::select! {
            () = cancel.cancelled() => break,
            event = events.next() => event,
        };
        match event {
            Some(Ok(watcher::Event::Init)) => seen = Some(BTreeSet::new()),
            Some(Ok(watcher::Event::InitApply(object))) => {
                if let Some(seen) = &mut seen {
                    seen.insert(meta::uid(&object.metadata).to_owned());
                }
                graph.changed(&kind, None, Some(&object.metadata));
            }
            Some(Ok(watcher::Event::InitDone)) => {
                graph.keep_only(&kind, &seen.take().unwrap_or_default());
                listed.send_replace(true);
            }
            Some(Ok(watcher::Event::Apply(object))) => graph.changed(&kind, None, Some(&object.metadata)),
            Some(Ok(watcher::Event::Delete(object))) => graph.changed(&kind, Some(&object.metadata), None),
            Some(Err(error)) if is_everyday(&error) => tracing::debug!(kind = kind.kind, error = chain(&error), "watch interrupted"),
            Some(Err(error)) => tracing::warn!(kind = kind.kind, group = kind.group, error = chain(&error), "watch interrupted"),
            None => break,
        }
    }
}
