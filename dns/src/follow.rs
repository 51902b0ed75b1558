//! Updates the zone with the cluster's objects: each change of an object is one small change under a short write lock. A
//! repeated list changes only what differs, so that names never vanish in between.

use std::collections::HashSet;
use std::sync::Arc;

use api_client::informer::{Batch, Cached, Changes, Informers};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::objects;
use crate::zone::{Key, Zone};

/// The kinds whose first list must be complete before names are answered.
const KINDS: usize = 3;

/// Follows the cluster for as long as it is polled.
pub(crate) async fn follow(informers: &Informers, zone: Arc<RwLock<Zone>>, ready: watch::Sender<bool>) {
    let listed = Mutex::new(HashSet::new());
    let done = |kind: &'static str| {
        let mut listed = listed.lock();
        if listed.insert(kind) && listed.len() == KINDS {
            zone.write().complete = true;
            ready.send_replace(true);
        }
    };
    let namespaces = informers.informer::<Namespace>().changes();
    let services = informers.informer::<Service>().changes();
    let slices = informers.informer::<EndpointSlice>().changes();
    tokio::join!(
        one("namespaces", namespaces, |key, object| zone.write().set_namespace(&key.1, object.is_some()), &done),
        one("services", services, |key, object| zone.write().set_service(key, object.and_then(objects::Service::parse)), &done),
        one("endpointslices", slices, |key, object| zone.write().set_slice(key, object.and_then(objects::Slice::parse)), &done),
    );
}

/// Follows one kind: calls `set` with each object that changed, or with `None` for one that is gone, and `done` once the first
/// list is complete.
async fn one<K: Cached>(kind: &'static str, mut changes: Changes<K>, set: impl Fn(&Key, Option<&K>), done: &impl Fn(&'static str)) {
    loop {
        let Batch { keys, synced } = changes.next().await;
        for key in keys {
            let object = changes.informer().get(&key);
            set(&(key.namespace, key.name), object.as_deref());
        }
        if synced {
            done(kind);
        }
    }
}
