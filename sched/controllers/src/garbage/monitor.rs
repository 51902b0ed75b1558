//! Watches the metadata of every kind that has no shared cache, and follows kinds that appear and disappear.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api_client::informer::{Reflector, Store};
use api_tasks::Tasks;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::{Api, Resource as _};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::graph::Graph;
use super::remote::Kinds;
use crate::context::MetadataObserver as _;
use crate::discovery::{self, Discovered, Served, api_resource};
use crate::failure::Failure;
use crate::kind::KindInfo;
use crate::meta;

/// After a custom resource definition changed, its kind is served this soon.
const SETTLE: Duration = Duration::from_millis(200);

/// Kinds that own nothing and have very many objects; upstream leaves them out too.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// Kinds whose changes the graph gets from a shared cache.
pub type Observed = Arc<Mutex<Vec<Arc<KindInfo>>>>;

/// The monitor.
pub struct Monitor {
    client: kube::Client,
    graph: Arc<Graph>,
    kinds: Kinds,
    observed: Observed,
    period: Duration,
    /// The set in which the monitor's tasks run.
    owner: Tasks,
}

/// An object of a kind that no controller watches.
type Metadata = PartialObjectMeta<DynamicObject>;

/// The objects of one kind in the graph, by UID.
struct OfKind {
    graph: Arc<Graph>,
    kind: Arc<KindInfo>,
}

impl Store<Metadata> for OfKind {
    type Key = String;

    fn key(object: &Metadata) -> String {
        meta::uid(object.meta()).to_owned()
    }

    fn put(&self, object: Metadata) {
        self.graph.changed(&self.kind, None, Some(object.meta()));
    }

    fn remove(&self, object: &Metadata) {
        self.graph.changed(&self.kind, Some(object.meta()), None);
    }

    fn complete(&self, listed: &BTreeSet<String>) {
        self.graph.retain(&self.kind, listed);
    }
}

type Watches = HashMap<KindInfo, Reflector>;

impl Monitor {
    /// A monitor that has not sent a request yet.
    pub fn new(client: kube::Client, graph: Arc<Graph>, kinds: Kinds, observed: Observed, period: Duration, owner: Tasks) -> Self {
        Self { client, graph, kinds, observed, period, owner }
    }

    /// Starts the watches, which continue in the background; returns when every kind of the first discovery is listed.
    pub async fn start(self, cancel: CancellationToken) {
        let (mut watches, mut discovered) = (Watches::new(), Discovered::default());
        while !cancel.is_cancelled() {
            match discovery::discover(&self.client).await {
                Ok(found) => {
                    self.adopt(&found, &mut watches);
                    discovered = found;
                    break;
                }
                Err(failure) => self.complain(&failure),
            }
            self.pause(&cancel, Duration::from_secs(1)).await;
        }
        for watch in watches.values() {
            cancel.run_until_cancelled(watch.synced()).await;
        }
        self.owner.clone().own("garbage-collector-controller/monitor", self.keep_up(discovered, watches, cancel));
    }

    async fn keep_up(self, mut discovered: Discovered, mut watches: Watches, cancel: CancellationToken) {
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                () = self.graph.kinds_changed() => self.pause(&cancel, SETTLE).await,
                () = tokio::time::sleep(self.period) => {}
            }
            match discovery::discover(&self.client).await {
                Ok(found) if found == discovered => {}
                Ok(found) => {
                    self.adopt(&found, &mut watches);
                    discovered = found;
                }
                Err(failure) => self.complain(&failure),
            }
        }
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

    /// Starts the watches of new kinds and ends those of kinds that are gone.
    fn adopt(&self, found: &Discovered, watches: &mut Watches) {
        let by_kind =
            found.kinds.iter().map(|served| ((served.kind.group.clone(), served.kind.kind.clone()), Arc::new(served.kind.clone())));
        *self.kinds.write() = by_kind.collect();
        let wanted: Vec<&KindInfo> = found.kinds.iter().filter(|served| self.is_ours(served)).map(|served| &served.kind).collect();
        // The kinds of a group whose server is unavailable are not gone.
        let stale = |kind: &KindInfo| found.stale.contains(&kind.api_version());
        watches.retain(|kind, _| {
            let stays = wanted.contains(&kind) || stale(kind);
            if !stays {
                tracing::info!(kind = kind.kind, group = kind.group, "kind is gone");
            }
            stays
        });
        for kind in wanted {
            if !watches.contains_key(kind) {
                watches.insert(kind.clone(), self.watch(kind));
            }
        }
    }

    fn watch(&self, kind: &KindInfo) -> Reflector {
        let api: Api<Metadata> = Api::all_with(self.client.clone(), &api_resource(kind));
        let store = OfKind { graph: Arc::clone(&self.graph), kind: Arc::new(kind.clone()) };
        Reflector::start(api, &kind.plural, &self.owner, store)
    }

    fn is_ours(&self, served: &Served) -> bool {
        let named = (served.kind.group.as_str(), served.kind.plural.as_str());
        let cached = || self.observed.lock().iter().any(|kind| kind.group == served.kind.group && kind.plural == served.kind.plural);
        ["list", "watch", "delete"].iter().all(|verb| served.allows(verb)) && !IGNORED.contains(&named) && !cached()
    }
}
