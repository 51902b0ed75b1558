//! Custom resources: follows the CustomResourceDefinitions, accepts their names, serves what they define,
//! and cleans up behind those that are deleted.
//!
//! Watches definitions. Writes their status, removes their cleanup finalizer, and deletes the objects of definitions that are
//! deleted. Never writes a definition's spec. Pure functions compute the wanted state from all definitions each time (`names.rs`,
//! `kinds.rs`); this file brings it about.

mod cleanup;
mod kinds;
mod names;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api_model::kind::GroupResource;
use api_model::meta;
use http::{Method, StatusCode};
use serde_json::Value;

pub(crate) use self::kinds::version_order;
use crate::conversion::{Converter, Hook, Versions};
use crate::core::Core;
use crate::loopback::Loopback;
use crate::registry::{CustomStorage, Served, served_id};
use crate::verbs::WritePath;
use api_cache::{Filter, Object, Resource, Since};

/// Group and resource of definitions.
const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// Pause before a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Follows the definitions. A server has one of these, and only this one changes which custom resources the registry serves.
pub(crate) struct Definitions {
    loopback: Loopback,
    writes: Arc<WritePath>,
    resource: Arc<Resource>,
    /// The served versions of each definition, by its uid.
    known: HashMap<String, ServedVersions>,
}

/// The served versions of one definition at one revision.
struct ServedVersions {
    revision: u64,
    /// Every version, whether it is served or not.
    versions: Vec<Arc<Served>>,
}

/// The work that is left after a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// None, until a definition changes.
    Nothing,
    /// Objects of a deleted definition are still being deleted.
    Objects,
    /// A write failed.
    Retry,
}

impl Definitions {
    /// Serves the definitions in the store before the first request comes.
    pub(crate) fn new(loopback: Loopback, writes: &Arc<WritePath>) -> Self {
        let resource = loopback.core.cache.resource(&GroupResource::new(GROUP, PLURAL));
        let mut definitions = Self { loopback, writes: Arc::clone(writes), resource, known: HashMap::new() };
        let present = definitions.present();
        definitions.serve(&present);
        definitions
    }

    /// Follows the definitions until the server stops.
    pub(crate) async fn keep_up(mut self) {
        let mut applied = self.core().cache.follow();
        let shutdown = self.core().shutdown.clone();
        while !shutdown.is_cancelled() {
            let started = self.resource.watch(Filter::default(), Since::Now, false, self.core().cache.applied());
            // A watch that starts now needs no history, so it cannot be too old.
            let Ok((_, mut changes)) = started else { continue };
            loop {
                applied.mark_unchanged();
                let rest = self.sync().await;
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    changed = changes.events.changed() => if !changed { break },
                    _ = applied.changed(), if rest == Rest::Objects => {}
                    () = tokio::time::sleep(RETRY), if rest == Rest::Retry => {}
                }
            }
            // All watches were ended: the cache reads the store's log again, or gets nothing from it any more.
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    fn core(&self) -> &Core {
        &self.loopback.core
    }

    /// Every definition, the oldest first: names are accepted in this order.
    fn present(&self) -> Vec<Definition> {
        let page = self.resource.list(&Filter::default(), 0);
        let mut all: Vec<Definition> =
            page.items.into_iter().map(|object| Definition { value: object.value(), object, status: None }).collect();
        all.sort_by(|one, other| {
            let age = |definition: &Definition| meta::text(&definition.value, "creationTimestamp").to_owned();
            (age(one), &one.object.name).cmp(&(age(other), &other.object.name))
        });
        all
    }

    async fn sync(&mut self) -> Rest {
        let mut present = self.present();
        let values: Vec<Arc<Value>> = present.iter().map(|definition| Arc::clone(&definition.value)).collect();
        for (definition, status) in present.iter_mut().zip(names::plan(&values, api_clock::now())) {
            definition.status = status;
        }
        // Before the status is written: a client that reads `Established` finds the kind.
        self.serve(&present);
        let mut rest = Rest::Nothing;
        for definition in &present {
            rest = rest.max(self.write_status(definition).await);
            if meta::is_deleting(&definition.value) {
                rest = rest.max(self.clean_up(definition).await);
            }
        }
        rest
    }

    /// Brings the registry up to date.
    fn serve(&mut self, present: &[Definition]) {
        let mut known = HashMap::new();
        for definition in present {
            let (uid, versions) = (meta::uid(&definition.value).to_owned(), self.versions(definition));
            known.insert(uid, ServedVersions { revision: definition.seen_at(), versions });
        }
        self.known = known;
        let mut custom: Vec<Arc<Served>> =
            present.iter().flat_map(|definition| self.of(definition)).filter(|served| served.kind.allows("list")).cloned().collect();
        custom.sort_by(|one, other| kinds::discovery_order(&one.kind, &other.kind));
        let table = self.core().registry.table();
        let is_same =
            |one: &[Arc<Served>], other: &[Arc<Served>]| one.len() == other.len() && one.iter().zip(other).all(|(a, b)| Arc::ptr_eq(a, b));
        if is_same(&table.custom, &custom) {
            return;
        }
        self.core().registry.serve_custom(custom.clone());
        for gone in table.custom.iter().filter(|old| !custom.iter().any(|new| Arc::ptr_eq(old, new))) {
            gone.resource.end_watches();
            self.core().metrics.forget(gone);
            tracing::debug!(resource = %gone.name, version = gone.kind.version, "custom resource changed or gone");
        }
    }

    fn of(&self, definition: &Definition) -> &[Arc<Served>] {
        self.known.get(meta::uid(&definition.value)).map(|known| known.versions.as_slice()).unwrap_or_default()
    }

    /// The versions of a definition. A version that did not change is the same value as before, with its converted objects.
    fn versions(&self, definition: &Definition) -> Vec<Arc<Served>> {
        let before = self.of(definition);
        let known = self.known.get(meta::uid(&definition.value));
        if definition.status.is_none() && known.is_some_and(|known| known.revision == definition.object.revision) {
            return before.to_vec();
        }
        let wanted = definition.wanted();
        let Some(storage) = kinds::storage_api_version(&wanted) else { return Vec::new() };
        let terminating = meta::is_deleting(&wanted);
        let kinds = kinds::of(&wanted);
        let (hook, versions) = (Hook::of(&wanted), Versions::of(&kinds, &storage));
        let serve = |kind| {
            let old = before.iter().find(|old| *old.kind == kind);
            let is_stored_version = kind.api_version() == storage;
            let converter =
                versions.clone().map(|versions| Arc::new(Converter::new(hook.clone(), versions, &self.writes.admission.webhooks.client)));
            let is_stored_alike = |old: &&CustomStorage| match (&old.converter, &converter) {
                _ if is_stored_version => true,
                (Some(old), Some(new)) => new.stores_like(old),
                _ => false,
            };
            // Objects that were written under the same definition are current.
            let since = old
                .and_then(|old| old.custom.as_ref())
                .filter(|old| old.api_version == storage)
                .filter(is_stored_alike)
                .map_or(definition.object.revision, |old| old.since);
            let custom = CustomStorage { api_version: storage.clone(), is_stored_version, since, terminating, converter };
            match old {
                Some(old) if old.custom.as_ref() == Some(&custom) => Arc::clone(old),
                old => {
                    let kind = old.map_or_else(|| Arc::new(kind), |old| Arc::clone(&old.kind));
                    let name = kind.group_resource();
                    let resource = self.core().cache.resource(&name);
                    Arc::new(Served {
                        id: served_id(),
                        stored: Arc::clone(&kind),
                        kind,
                        name,
                        resource,
                        conversion: None,
                        custom: Some(custom),
                    })
                }
            }
        };
        kinds.into_iter().map(serve).collect()
    }

    async fn write_status(&self, definition: &Definition) -> Rest {
        if definition.status.is_none() {
            return Rest::Nothing;
        }
        self.put(&definition.wanted(), "/status").await
    }

    /// Replaces a definition, unless somebody else was faster; that change will cause another pass.
    async fn put(&self, definition: &Value, subresource: &str) -> Rest {
        let path = format!("/apis/{GROUP}/v1/{PLURAL}/{}{subresource}", meta::name(definition));
        let status = match self.loopback.send(Method::PUT, &path, Some(definition)).await {
            Ok(response) => response.status(),
            Err(error) => {
                tracing::error!(definition = meta::name(definition), %error, "definition not written");
                return Rest::Nothing;
            }
        };
        match status {
            status if status.is_success() => Rest::Nothing,
            StatusCode::CONFLICT | StatusCode::NOT_FOUND => Rest::Nothing,
            status => {
                tracing::warn!(definition = meta::name(definition), %status, "definition not written");
                Rest::Retry
            }
        }
    }
}

/// One stored definition, with the status that it should have if that differs.
struct Definition {
    object: Arc<Object>,
    value: Arc<Value>,
    status: Option<Value>,
}

impl Definition {
    /// The definition with the status that it should have.
    fn wanted(&self) -> Value {
        let mut wanted = (*self.value).clone();
        if let Some(status) = &self.status {
            api_wire::json::set(&mut wanted, &["status"], status.clone());
        }
        wanted
    }

    /// The revision at which the versions need not be computed again; 0 while the status is still to be written.
    fn seen_at(&self) -> u64 {
        if self.status.is_none() { self.object.revision } else { 0 }
    }
}

impl Rest {
    fn max(self, other: Self) -> Self {
        match (self, other) {
            (Self::Retry, _) | (_, Self::Retry) => Self::Retry,
            (Self::Objects, _) | (_, Self::Objects) => Self::Objects,
            _ => Self::Nothing,
        }
    }
}
