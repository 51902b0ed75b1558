use std::sync::Arc;

use super::*;
use crate::plugins::fixtures::merge;
use crate::plugins::volume_fixtures::{bound, claim, on_node, volume};

/// A binder of node `a` without an API server: the tests fill its informers.
fn binder() -> (Binder, Handle) {
    let silent = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    let handle = Handle::detached(kube::Client::try_from(silent).expect("a client"));
    let labels = json!({"kubernetes.io/hostname": "a"});
    handle.nodes.put(serde_json::from_value(json!({"metadata": {"name": "a", "labels": labels}})).expect("a Node"));
    (Binder::new(Duration::from_secs(600), &handle), handle)
}

/// The claim with the node that was selected for it, at that revision.
fn selected(node: Option<&str>, revision: &str, more: Value) -> PersistentVolumeClaim {
    let mut merged = json!({"metadata": {"resourceVersion": revision, "annotations": {"volume.kubernetes.io/selected-node": node}}});
    if node.is_none() {
        merged = json!({"metadata": {"resourceVersion": revision}});
    }
    merge(&mut merged, more);
    claim("c", merged)
}

fn message(result: Result<bool, Reason>) -> String {
    result.map_or_else(|reason| reason.into_owned(), |is_bound| is_bound.to_string())
}

#[tokio::test]
async fn a_provisioned_claim_is_waited_for_as_long_as_it_may_be_bound() {
    let complete = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "v"}});
    let named = json!({"spec": {"volumeName": "v"}});
    let on = |node: &str| Some(volume("v", json!({"spec": {"nodeAffinity": on_node(node)}})));
    let elsewhere = "pv \"v\" node affinity doesn't match node \"a\": no matching NodeSelectorTerms";
    for (what, present, volume, wanted) in [
        ("gone", None, None, "failed to check provisioning pvc: could not find v1.PersistentVolumeClaim \"default/c\""),
        ("not read yet", Some(selected(None, "4", json!({}))), None, "false"),
        ("given up", Some(selected(None, "6", json!({}))), None, "provisioning failed for PVC \"c\""),
        ("for another node", Some(selected(Some("b"), "6", json!({}))), None, "provisioning failed for PVC \"c\""),
        ("on its way", Some(selected(Some("a"), "5", json!({}))), None, "false"),
        ("before its volume", Some(selected(Some("a"), "6", complete.clone())), None, "false"),
        ("not complete", Some(selected(Some("a"), "6", named)), on("a"), "false"),
        ("bound", Some(selected(Some("a"), "6", complete.clone())), on("a"), "true"),
        ("bound elsewhere", Some(selected(Some("a"), "6", complete)), on("b"), elsewhere),
    ] {
        let (binder, handle) = binder();
        present.into_iter().for_each(|claim| handle.claims.put(claim));
        volume.into_iter().for_each(|volume| handle.volumes.put(volume));
        let written = Written { bindings: Vec::new(), provisions: vec![selected(Some("a"), "5", json!({}))] };
        assert_eq!(message(binder.check(&written, "a")), wanted, "{what}");
    }
}

#[tokio::test]
async fn a_bound_volume_is_waited_for_as_long_as_it_is_the_claims() {
    let of_claim = |uid: Value, revision: &str| {
        let reference = json!({"namespace": "default", "name": "c", "uid": uid});
        volume("v", json!({"metadata": {"resourceVersion": revision}, "spec": {"claimRef": reference}}))
    };
    let free = |revision: &str| volume("v", json!({"metadata": {"resourceVersion": revision}}));
    let missing = |kind: &str, name: &str| format!("failed to check binding: could not find v1.{kind} {name:?}");
    for (what, present, claim, wanted) in [
        ("no volume", None, Some(claim("c", json!({}))), missing("PersistentVolume", "v")),
        ("no claim", Some(free("6")), None, missing("PersistentVolumeClaim", "default/c")),
        ("not read yet", Some(free("4")), Some(claim("c", json!({}))), "false".to_owned()),
        ("taken back", Some(free("6")), Some(claim("c", json!({}))), "ClaimRef got reset for pv \"v\"".to_owned()),
        ("on its way", Some(of_claim(json!("uid-c"), "5")), Some(claim("c", json!({}))), "false".to_owned()),
        ("bound", Some(of_claim(json!("uid-c"), "6")), Some(bound("c", "v")), "true".to_owned()),
    ] {
        let (binder, handle) = binder();
        present.into_iter().for_each(|volume| handle.volumes.put(volume));
        claim.into_iter().for_each(|claim| handle.claims.put(claim));
        let written = Written { bindings: vec![(of_claim(json!("uid-c"), "5"), ObjectKey::new("default", "c"))], provisions: Vec::new() };
        assert_eq!(message(binder.check(&written, "a")), wanted, "{what}");
    }
    let (binder, _) = binder();
    let nothing = Written { bindings: Vec::new(), provisions: Vec::new() };
    assert_eq!(message(binder.check(&nothing, "b")), "failed to get node \"b\": node \"b\" not found");
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_with_a_change_and_with_the_scheduler() {
    let (binder, handle) = binder();
    let written = || Written { bindings: Vec::new(), provisions: vec![selected(Some("a"), "5", json!({}))] };
    handle.claims.put(selected(Some("a"), "5", json!({})));
    let binder = Arc::new(binder);
    let waiting = Arc::clone(&binder);
    let task = tokio::spawn(async move { waiting.bound(&written(), "a").await });
    tokio::task::yield_now().await;
    assert!(!task.is_finished());
    handle.claims.put(selected(None, "6", json!({})));
    handle.changes.send_modify(|number| *number += 1);
    let message = "binding volumes: provisioning failed for PVC \"c\"".to_owned();
    assert_eq!(task.await.expect("no panic"), Err(Refusal::Error(message.into())));
    handle.claims.put(selected(Some("a"), "7", json!({})));
    drop(handle);
    let ended = Refusal::Error("binding volumes: the scheduler ended".into());
    assert_eq!(binder.bound(&written(), "a").await, Err(ended));
}
