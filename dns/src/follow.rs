//! Keeps the zone in line with the cluster's objects: three watches, each event one small change
//! under a short write lock. A list that comes in anew is merged as it arrives; what it did not
//! name is dropped at its end, so that names never vanish in between.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};
use kube::{Api, Resource, ResourceExt as _};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::objects;
use crate::zone::{Key, Zone};

/// The kinds that must have been listed once before names are answered.
const KINDS: usize = 3;

/// Longest wait after a failed watch.
const RECONNECT_MAX: Duration = Duration::from_secs(3);

/// Follows the cluster for as long as it is polled.
pub(crate) async fn follow(client: kube::Client, zone: Arc<RwLock<Zone>>, ready: watch::Sender<bool>) {
    let listed = parking_lot::Mutex::new(HashSet::new());
    let done = |kind: &'static str| {
        let mut listed = listed.lock();
        listed.insert(kind);
        if listed.len() == KINDS {
            zone.write().complete = true;
            ready.send_replace(true);
        }
    };
    let config = watcher::Config::default;
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), config()).backoff(Reconnect::default());
    let services = watcher(Api::<Service>::all(client.clone()), config()).backoff(Reconnect::default());
    let slices = watcher(Api::<EndpointSlice>::all(client), config()).backoff(Reconnect::default());
    tokio::join!(
        one("namespaces", namespaces, |key, object| zone.write().set_namespace(&key.1, object.is_some()), &done),
        one("services", services, |key, object| zone.write().set_service(key, object.as_ref().and_then(objects::Service::parse)), &done),
        one("endpointslices", slices, |key, object| zone.write().set_slice(key, object.as_ref().and_then(objects::Slice::parse)), &done),
    );
}

/// kube's waits between tries to watch, with a shorter longest one: a node whose link comes back
/// should not serve what is old for long.
#[derive(Default)]
struct Reconnect(DefaultBackoff);

impl Iterator for Reconnect {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|wait| wait.min(RECONNECT_MAX))
    }
}

impl Backoff for Reconnect {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Follows one kind: `set` is called with each object that is there, and with `None` for each that
/// is gone; `done` at the end of each list.
async fn one<K: Resource>(
    kind: &'static str,
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    set: impl Fn(&Key, Option<K>),
    done: &impl Fn(&'static str),
) {
    let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
    let mut events = std::pin::pin!(events);
    let (mut known, mut listing) = (HashSet::new(), HashSet::new());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitApply(object)) => {
                let key = key(&object);
                set(&key, Some(object));
                listing.insert(key);
            }
            Ok(Event::InitDone) => {
                for gone in known.difference(&listing) {
                    set(gone, None);
                }
                known = std::mem::take(&mut listing);
                done(kind);
            }
            Ok(Event::Apply(object)) => {
                let key = key(&object);
                set(&key, Some(object));
                known.insert(key);
            }
            Ok(Event::Delete(object)) => {
                let key = key(&object);
                set(&key, None);
                known.remove(&key);
            }
            Err(error) => tracing::debug!(kind, %error, "watching failed"),
        }
    }
}
