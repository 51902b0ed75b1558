//! What to do with an object, by the states of its owners.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PropagationPolicy;

use super::graph::Phase;
use super::policy;

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The owner exists and is not waiting for its dependents.
    Solid,
    /// It is proven that the owner does not exist.
    Absent,
    /// The owner exists, is being deleted and waits for its dependents.
    WaitsForUs,
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It stays as it is.
    Nothing,
    /// It stays, with these owners.
    SetOwners(Vec<OwnerReference>),
    /// Delete the object.
    Delete {
        /// The policy for its own dependents.
        policy: PropagationPolicy,
        /// First unblock these owners, which then no longer wait for the object: a circle of waiting would never end.
        unblock: Option<Vec<OwnerReference>>,
    },
}

/// Decides about an object with owners. `dependents` are the phases of the objects that name it as an owner.
pub fn plan(latest: &ObjectMeta, owners: &[(String, Owner)], dependents: &[Phase]) -> Action {
    if owners.is_empty() {
        return Action::Nothing;
    }
    let are = |state: Owner| owners.iter().filter(move |(_, owner)| *owner == state);
    if are(Owner::Solid).next().is_some() {
        let lost: Vec<&str> = owners.iter().filter(|(_, owner)| *owner != Owner::Solid).map(|(uid, _)| uid.as_str()).collect();
        return without_owners(latest, &lost).map_or(Action::Nothing, Action::SetOwners);
    }
    if are(Owner::WaitsForUs).next().is_some() && !dependents.is_empty() {
        let circular = dependents.contains(&Phase::Foreground);
        let unblock = circular.then(|| unblocked(latest));
        return Action::Delete { policy: PropagationPolicy::Foreground, unblock };
    }
    Action::Delete { policy: policy(latest), unblock: None }
}

fn unblocked(latest: &ObjectMeta) -> Vec<OwnerReference> {
    let mut owners = latest.owner_references.clone().unwrap_or_default();
    for owner in &mut owners {
        owner.block_owner_deletion = Some(false);
    }
    owners
}

/// The owners without those UIDs; `None` when the object has none of them.
pub fn without_owners(latest: &ObjectMeta, uids: &[&str]) -> Option<Vec<OwnerReference>> {
    let owners = latest.owner_references.clone().unwrap_or_default();
    let remaining: Vec<OwnerReference> = owners.iter().filter(|owner| !uids.contains(&owner.uid.as_str())).cloned().collect();
    (remaining.len() != owners.len()).then_some(remaining)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn latest(finalizers: Value) -> ObjectMeta {
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "K", "name": uid, "uid": uid, "blockOwnerDeletion": true});
        serde_json::from_value(json!({"name": "x", "ownerReferences": [owner("a"), owner("b")], "finalizers": finalizers}))
            .expect("metadata")
    }

    fn delete(policy: PropagationPolicy) -> Action {
        Action::Delete { policy, unblock: None }
    }

    #[test]
    fn an_object_goes_when_no_owner_stays() {
        use Owner::{Absent, Solid, WaitsForUs};
        let cases = [
            (Solid, Solid, Action::Nothing),
            (Absent, Absent, delete(PropagationPolicy::Background)),
            (Absent, WaitsForUs, delete(PropagationPolicy::Background)),
        ];
        for (a, b, expected) in cases {
            let owners = [("a".to_owned(), a), ("b".to_owned(), b)];
            assert_eq!(plan(&latest(json!([])), &owners, &[]), expected, "{a:?} {b:?}");
        }
        for lost in [Absent, WaitsForUs] {
            let owners = [("a".to_owned(), Solid), ("b".to_owned(), lost)];
            let Action::SetOwners(owners_left) = plan(&latest(json!([])), &owners, &[]) else { panic!("{lost:?}") };
            assert_eq!(owners_left.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), ["a"]);
        }
    }

    #[test]
    fn finalizers_choose_what_happens_to_dependents() {
        let owners = [("a".to_owned(), Owner::Absent)];
        assert_eq!(plan(&latest(json!(["orphan"])), &owners, &[]), delete(PropagationPolicy::Orphan));
        assert_eq!(plan(&latest(json!(["foregroundDeletion"])), &owners, &[]), delete(PropagationPolicy::Foreground));
    }

    #[test]
    fn foreground_deletion_is_passed_on_and_circles_are_broken() {
        let owners = [("a".to_owned(), Owner::WaitsForUs)];
        assert_eq!(plan(&latest(json!([])), &owners, &[Phase::Living]), delete(PropagationPolicy::Foreground));
        let Action::Delete { unblock: Some(unblocked), .. } = plan(&latest(json!([])), &owners, &[Phase::Foreground]) else {
            panic!("not unblocked")
        };
        assert!(unblocked.iter().all(|owner| owner.block_owner_deletion == Some(false)));
    }
}
