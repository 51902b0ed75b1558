//! Reading and writing objects of any kind by their metadata alone.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, Preconditions};
use parking_lot::RwLock;
use serde_json::{Value, json};

use super::graph::Identity;
use super::plan::Owner;
use crate::discovery::api_resource;
use crate::failure::{During, Failure, gone_is_fine};
use crate::kind::KindInfo;
use crate::writes;

/// The period after which a kind whose owners cannot be looked up is tried again.
const UNKNOWN_KIND_RETRY: std::time::Duration = std::time::Duration::from_secs(60);

/// Served kinds by group and kind, as the monitor last discovered them.
pub type Kinds = Arc<RwLock<HashMap<(String, String), Arc<KindInfo>>>>;

/// The server, for objects of any kind.
pub struct Remote {
    client: kube::Client,
    kinds: Kinds,
}

impl Remote {
    /// A client that knows no kinds yet.
    pub fn new(client: kube::Client) -> Self {
        Self { client, kinds: Kinds::default() }
    }

    /// The kinds that owners may be of: for the monitor to fill.
    pub fn kinds(&self) -> Kinds {
        Arc::clone(&self.kinds)
    }

    fn api(&self, kind: &KindInfo, namespace: &str) -> Api<DynamicObject> {
        let resource = api_resource(kind);
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    /// The object's present metadata; `None` when it is gone.
    pub async fn read(&self, identity: &Identity) -> Result<Option<ObjectMeta>, Failure> {
        let api = self.api(&identity.kind, &identity.namespace);
        let found = api.get_metadata_opt(&identity.name).await.during("reading", identity)?;
        Ok(found.map(|found| found.metadata))
    }

    /// The state of an owner, from the server; an error when that cannot be found out.
    pub async fn look_up(&self, item: &Identity, reference: &OwnerReference) -> Result<Owner, Failure> {
        let group = reference.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let kind = self.kinds.read().get(&(group.to_owned(), reference.kind.clone())).cloned();
        let unknown = |waiting_for: String| Failure::Unfinished { object: item.to_string(), waiting_for, at_most: UNKNOWN_KIND_RETRY };
        let Some(kind) = kind else {
            return Err(unknown(format!("owner kind {}/{} to be served", reference.api_version, reference.kind)));
        };
        if kind.namespaced && !item.kind.namespaced {
            return Err(unknown(format!("owner {} is namespaced and cannot own a cluster-scoped object", reference.name)));
        }
        let owner = Identity { kind, namespace: item.namespace.clone(), name: reference.name.clone() };
        Ok(match self.read(&owner).await? {
            Some(found) if found.uid.as_deref() == Some(&reference.uid) => {
                let waits = crate::meta::is_deleting(&found) && crate::meta::has_finalizer(&found, super::FOREGROUND);
                if waits { Owner::WaitsForUs } else { Owner::Solid }
            }
            _ => Owner::Absent,
        })
    }

    /// Writes `owners` as the object's owners, provided that the object has not changed since it was read.
    pub async fn set_owners(&self, identity: &Identity, latest: &ObjectMeta, owners: Vec<OwnerReference>) -> Result<(), Failure> {
        self.patch(identity, latest, json!({"ownerReferences": crate::meta::list_or_null(&owners)})).await
    }

    async fn patch(&self, identity: &Identity, latest: &ObjectMeta, mut metadata: Value) -> Result<(), Failure> {
        crate::meta::overlay(&mut metadata, &json!({"resourceVersion": latest.resource_version, "uid": latest.uid}));
        let api = self.api(&identity.kind, &identity.namespace);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        gone_is_fine(api.patch_metadata(&identity.name, &writes::patching(), &patch).await.during("patching", identity))
    }

    /// Removes a finalizer from the object of that UID.
    pub async fn remove_finalizer(&self, identity: &Identity, uid: &str, finalizer: &str) -> Result<(), Failure> {
        let Some(latest) = self.read(identity).await? else { return Ok(()) };
        if latest.uid.as_deref() != Some(uid) || !crate::meta::has_finalizer(&latest, finalizer) {
            return Ok(());
        }
        let remaining: Vec<&String> = latest.finalizers.iter().flatten().filter(|other| *other != finalizer).collect();
        self.patch(identity, &latest, json!({"finalizers": crate::meta::list_or_null(&remaining)})).await
    }

    /// Deletes the object of that UID, provided that it still has `version`; returns `false` when it was gone.
    pub async fn delete(&self, identity: &Identity, uid: &str, version: Option<String>, params: DeleteParams) -> Result<bool, Failure> {
        let params = params.preconditions(Preconditions { uid: Some(uid.to_owned()), resource_version: version });
        let api = self.api(&identity.kind, &identity.namespace);
        match api.delete(&identity.name, &params).await.during("deleting", identity) {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_not_found() => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}
