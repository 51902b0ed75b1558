//! How controllers write; each function's errors say what was attempted. Changes are JSON merge patches with the
//! resourceVersion that was read: a stale cache leads to a conflict, never to an overwrite. Where upstream applies a status, so
//! does this crate.

use api_client::informer::{Cached, Informer, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::time::Duration;

use crate::failure::{During, Failure, gone_is_fine};
use crate::meta;

/// The field manager in `managedFields`.
const FIELD_MANAGER: &str = "kube-controller-manager";
/// How long a pass waits until the cache has a write of its own.
const DELIVERED_WITHIN: Duration = Duration::from_secs(10);

/// A typed kind that can be read and written.
pub trait Object: kube::Resource<DynamicType = (), Scope: Scoped<Self>> + Clone + Debug + DeserializeOwned + Serialize {}
impl<K> Object for K where K: kube::Resource<DynamicType = (), Scope: Scoped<K>> + Clone + Debug + DeserializeOwned + Serialize {}

/// How the API of a scope is reached.
pub trait Scoped<K> {
    /// The API of that namespace, or of the cluster.
    fn api(client: &kube::Client, namespace: &str) -> Api<K>;
}

impl<K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>> Scoped<K> for NamespaceResourceScope {
    fn api(client: &kube::Client, namespace: &str) -> Api<K> {
        Api::namespaced(client.clone(), namespace)
    }
}

impl<K: kube::Resource<DynamicType = (), Scope = ClusterResourceScope>> Scoped<K> for ClusterResourceScope {
    fn api(client: &kube::Client, _namespace: &str) -> Api<K> {
        Api::all(client.clone())
    }
}

/// The API of a kind in a namespace; of a cluster-scoped kind, the namespace is left aside.
pub fn api<K: Object>(client: &kube::Client, namespace: &str) -> Api<K> {
    K::Scope::api(client, namespace)
}

fn post() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// The parameters of every patch.
pub fn patching() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

fn named<K: kube::Resource<DynamicType = ()>>(object: &K) -> String {
    let name = object.meta().name.as_deref().or(object.meta().generate_name.as_deref()).unwrap_or_default();
    format!("{} {}", K::kind(&()), ObjectKey::new(meta::namespace(object.meta()), name))
}

/// Reads the object as it is stored now.
pub async fn get<K: Object>(client: &kube::Client, key: &ObjectKey) -> Result<Option<K>, Failure> {
    api::<K>(client, &key.namespace).get_opt(&key.name).await.during("reading", format!("{} {key}", K::kind(&())))
}

/// Creates the object.
pub async fn create<K: Object>(client: &kube::Client, object: &K) -> Result<K, Failure> {
    api::<K>(client, meta::namespace(object.meta())).create(&post(), object).await.during("creating", named(object))
}

/// Deletes exactly this object, by UID; an object that is gone already is no failure.
pub async fn delete<K: Object>(client: &kube::Client, object: &K, params: DeleteParams) -> Result<(), Failure> {
    delete_if(client, object, params, Preconditions { uid: object.meta().uid.clone(), resource_version: None }).await
}

/// Deletes the object, provided that it has not changed since it was read; an object that is gone already is no failure.
pub async fn delete_unchanged<K: Object>(client: &kube::Client, object: &K, params: DeleteParams) -> Result<(), Failure> {
    let resource_version = object.meta().resource_version.clone();
    delete_if(client, object, params, Preconditions { uid: object.meta().uid.clone(), resource_version }).await
}

async fn delete_if<K: Object>(client: &kube::Client, object: &K, params: DeleteParams, only: Preconditions) -> Result<(), Failure> {
    let (name, params) = (meta::name(object.meta()), params.preconditions(only));
    gone_is_fine(api::<K>(client, meta::namespace(object.meta())).delete(name, &params).await.during("deleting", named(object)))
}

/// Merges `patch` into the object, provided that it is still as it was read.
pub async fn patch<K: Object>(client: &kube::Client, object: &K, patch: Value) -> Result<K, Failure> {
    let patch = guarded(object, patch);
    let name = meta::name(object.meta());
    api::<K>(client, meta::namespace(object.meta())).patch(name, &patching(), &Patch::Merge(&patch)).await.during("patching", named(object))
}

/// Writes the status `new`, provided that the object has not changed since it was read. Writes nothing when the status is
/// equal, and returns whether it wrote.
pub async fn set_status<K: Object, S: Serialize>(client: &kube::Client, object: &K, old: Option<&S>, new: &S) -> Result<bool, Failure> {
    let as_value = |status: &S| serde_json::to_value(status).unwrap_or_default();
    let change = meta::merge_patch(&old.map_or_else(|| json!({}), as_value), &as_value(new));
    if change.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(false);
    }
    patch_status(client, object, change).await?;
    Ok(true)
}

/// Merges `status` into the status, provided that the object is still as it was read.
pub async fn patch_status<K: Object>(client: &kube::Client, object: &K, status: Value) -> Result<K, Failure> {
    let patch = guarded(object, json!({"status": status}));
    let name = meta::name(object.meta());
    api::<K>(client, meta::namespace(object.meta()))
        .patch_status(name, &patching(), &Patch::Merge(&patch))
        .await
        .during("patching the status of", named(object))
}

/// Waits until the cache has a write of this controller's own, for passes that must not decide from an older object. Fails after
/// ten seconds, which an interrupted watch may take.
pub async fn delivered<K: Object + Cached>(informer: &Informer<K>, written: &K) -> Result<(), Failure> {
    if informer.wait_for_write(written, DELIVERED_WITHIN).await {
        return Ok(());
    }
    let waiting_for = "the cache does not have the last write yet".to_owned();
    Err(Failure::Unfinished { object: named(written), waiting_for, at_most: DELIVERED_WITHIN })
}

/// Applies `status` as a field manager, which then owns these fields and no others: for controllers that do so upstream.
pub async fn apply_status<K: Object>(client: &kube::Client, object: &K, manager: &str, status: Value) -> Result<K, Failure> {
    let (api_version, kind, name) = (K::api_version(&()), K::kind(&()), meta::name(object.meta()));
    let config = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "status": status});
    api::<K>(client, meta::namespace(object.meta()))
        .patch_status(name, &PatchParams::apply(manager).force(), &Patch::Apply(&config))
        .await
        .during("applying the status of", named(object))
}

/// Adds a finalizer that the object does not have; an object that is gone already is no failure.
pub async fn add_finalizer<K: Object>(client: &kube::Client, object: &K, finalizer: &str) -> Result<(), Failure> {
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    finalizers.push(finalizer.to_owned());
    gone_is_fine(patch(client, object, json!({"metadata": {"finalizers": finalizers}})).await)
}

/// Removes a finalizer. Returns the object as it is then, or `None` when it is gone already.
pub async fn remove_finalizer<K: Object>(client: &kube::Client, object: &K, finalizer: &str) -> Result<Option<K>, Failure> {
    let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
    finalizers.retain(|other| other != finalizer);
    match patch(client, object, json!({"metadata": {"finalizers": meta::list_or_null(&finalizers)}})).await {
        Ok(left) => Ok(Some(left)),
        Err(failure) if failure.is_not_found() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Writes `owners` as the object's owners, provided that the object has not changed since it was read.
pub async fn set_owners<K: Object>(client: &kube::Client, object: &K, owners: &[OwnerReference]) -> Result<K, Failure> {
    patch(client, object, json!({"metadata": {"ownerReferences": meta::list_or_null(owners)}})).await
}

fn guarded<K: Object>(object: &K, mut patch: Value) -> Value {
    if let Some(version) = &object.meta().resource_version {
        api_model::meta::set(&mut patch, "resourceVersion", version.clone());
    }
    if let Some(uid) = &object.meta().uid {
        api_model::meta::set(&mut patch, "uid", uid.clone());
    }
    patch
}
