//! Which objects a controller owns. Objects whose controller reference names it and whose labels match stay; matching objects
//! without a controller are adopted; owned objects that no longer match are released. Upstream's `ControllerRefManager`.

use std::sync::Arc;

use api_client::informer::{BY_CONTROLLER, Cached, Informer, ObjectKey};
use api_model::selector::Selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::failure::Failure;
use crate::meta;

use crate::writes::{self, Object};

/// The candidates by the necessary action.
#[derive(Debug, PartialEq, Eq)]
pub struct Claims<K> {
    /// Owned and matching.
    pub mine: Vec<Arc<K>>,
    /// Matching and without a controller: to be adopted.
    pub adopt: Vec<Arc<K>>,
    /// Owned and no longer matching: to be released.
    pub release: Vec<Arc<K>>,
}

/// Sorts the candidates in the owner's namespace.
pub fn claims<K: Cached>(owner: &ObjectMeta, selector: &Selector, candidates: Vec<Arc<K>>) -> Claims<K> {
    let mut claims = Claims { mine: Vec::new(), adopt: Vec::new(), release: Vec::new() };
    let leaving = meta::is_deleting(owner);
    for candidate in candidates {
        let object = candidate.meta();
        if object.namespace != owner.namespace {
            continue;
        }
        let matching = meta::matches(selector, object.labels.as_ref());
        match meta::controller_uid(object) {
            "" if matching && !leaving && !meta::is_deleting(object) => claims.adopt.push(candidate),
            "" => {}
            uid if uid != meta::uid(owner) => {}
            _ if matching => claims.mine.push(candidate),
            _ if !leaving => claims.release.push(candidate),
            _ => {}
        }
    }
    claims
}

/// The objects that an owner may claim: those that name it as controller, and those without a controller.
pub fn candidates<K: Cached>(store: &Informer<K>, owner: &ObjectMeta) -> Vec<Arc<K>> {
    let mut candidates = store.indexed(BY_CONTROLLER, meta::uid(owner));
    candidates.extend(store.indexed(BY_CONTROLLER, ""));
    candidates
}

/// The candidates that `owner` owns now, after adopting and releasing as needed.
pub async fn claim<O, K>(client: &kube::Client, candidates: Vec<Arc<K>>, owner: &O, selector: &Selector) -> Result<Vec<Arc<K>>, Failure>
where
    O: Object,
    K: Object + Cached,
{
    let Claims { mine, adopt, release } = claims(owner.meta(), selector, candidates);
    let mut owned = mine;
    let adopting = !adopt.is_empty() && still_there(client, owner).await?;
    for object in adopt.into_iter().filter(|_| adopting) {
        let mut owners = object.meta().owner_references.clone().unwrap_or_default();
        owners.push(meta::controller_reference(owner));
        match writes::set_owners(client, object.as_ref(), &owners).await {
            Ok(adopted) => owned.push(Arc::new(adopted)),
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => return Err(failure),
        }
    }
    for object in release {
        let mut owners: Vec<OwnerReference> = object.meta().owner_references.clone().unwrap_or_default();
        owners.retain(|reference| reference.uid != meta::uid(owner.meta()));
        crate::failure::gone_is_fine(writes::set_owners(client, object.as_ref(), &owners).await)?;
    }
    Ok(owned)
}

/// Whether a live read of the owner returns the same object and it is not being deleted: only then may the owner adopt.
async fn still_there<O: Object>(client: &kube::Client, owner: &O) -> Result<bool, Failure> {
    let fresh: Option<O> = writes::get(client, &ObjectKey::from(owner.meta())).await?;
    Ok(fresh.is_some_and(|fresh| fresh.meta().uid == owner.meta().uid && !meta::is_deleting(fresh.meta())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    fn pod(name: &str, meta: Value) -> Arc<Pod> {
        let mut metadata = json!({"name": name, "namespace": "ns", "labels": {"app": "a"}});
        overlay(&mut metadata, &meta);
        Arc::new(serde_json::from_value(json!({"metadata": metadata})).expect("a Pod"))
    }

    fn overlay(into: &mut Value, from: &Value) {
        for (key, value) in from.as_object().expect("an object") {
            into[key] = value.clone();
        }
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter().map(|p| meta::name(&p.metadata)).collect()
    }

    fn a_namespace() -> Vec<Arc<Pod>> {
        let owner = |uid: &str| json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": uid, "controller": true}]);
        vec![
            pod("mine", json!({"ownerReferences": owner("me")})),
            pod("strayed", json!({"ownerReferences": owner("me"), "labels": {"app": "b"}})),
            pod("other's", json!({"ownerReferences": owner("other")})),
            pod("orphan", json!({})),
            pod("leaving", json!({"deletionTimestamp": "2024-01-01T00:00:00Z"})),
            pod("stranger", json!({"labels": {}})),
            pod("elsewhere", json!({"namespace": "other"})),
        ]
    }

    #[test]
    fn matching_orphans_are_adopted_and_strays_released() {
        let owner = ObjectMeta { uid: Some("me".to_owned()), namespace: Some("ns".to_owned()), ..ObjectMeta::default() };
        let selector = Selector::parse("app=a").expect("a selector");
        let claims = claims(&owner, &selector, a_namespace());
        assert_eq!(names(&claims.mine), ["mine"]);
        assert_eq!(names(&claims.adopt), ["orphan"]);
        assert_eq!(names(&claims.release), ["strayed"]);
    }

    #[test]
    fn an_owner_being_deleted_neither_adopts_nor_releases() {
        let owner: ObjectMeta =
            serde_json::from_value(json!({"uid": "me", "namespace": "ns", "deletionTimestamp": "2024-01-01T00:00:00Z"})).expect("metadata");
        let selector = Selector::parse("app=a").expect("a selector");
        let claims = claims(&owner, &selector, a_namespace());
        assert_eq!(names(&claims.mine), ["mine"]);
        assert!(claims.adopt.is_empty() && claims.release.is_empty());
    }
}
