//! The feeder on a store that compaction overtakes, and what several objects of one revision become.

use api_store::fixtures::StoreWrapper;
use api_store::{Expect, MemoryStore, Revision, Write};
use async_trait::async_trait;
use serde_json::json;

use super::*;
use crate::{Filter, encode};

/// A store whose history is gone up to a revision as soon as a snapshot was read.
struct Overtaken(MemoryStore, Revision);

#[async_trait]
impl StoreWrapper for Overtaken {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn wrapped_snapshot(&self) -> Result<Snapshot, StoreError> {
        let snapshot = self.0.snapshot().await?;
        self.0.compact(self.1).await?;
        Ok(snapshot)
    }
}

#[tokio::test]
async fn history_that_compaction_takes_away_during_the_start_is_rejected_and_not_left_out() {
    let store = MemoryStore::new();
    let key = key::object_key(&GroupResource::new("", "configmaps"), "default", "a");
    let value = encode(&json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "default"}}));
    for expect in [Expect::Absent, Expect::At(1), Expect::At(2)] {
        store.write(Write::new(Arc::clone(&key), Some(value.clone()), expect)).await.expect("writes");
    }
    let (cache, feeding) =
        start(Arc::new(Overtaken(store, 1)), AtRest::default(), CancellationToken::new()).await.expect("starts without the past");
    drop(feeding);
    assert_eq!(cache.applied(), 3);
    // Also of a resource that was never requested.
    for plural in ["configmaps", "secrets"] {
        let resource = cache.resource(&GroupResource::new("", plural));
        for revision in 0..3 {
            assert!(resource.events_after(revision).is_none(), "{plural} after {revision}");
            assert!(resource.past(&Filter::default(), revision, None, None).is_none(), "{plural} at {revision}");
        }
        assert_eq!(resource.events_after(3).map(|events| events.len()), Some(0), "{plural}");
    }
}

#[test]
fn what_one_revision_does_to_a_resource_stays_together() {
    let changed = |revision, key: &str| Change { revision, key: key.into(), value: None, previous: Some(1) };
    let ordered =
        |events: Vec<Change>| together(events).into_iter().map(|event| format!("{} {}", event.revision, event.key)).collect::<Vec<_>>();
    let transaction =
        vec![changed(5, "core/pods/a/x"), changed(6, "core/pods/a/y"), changed(6, "apps/deployments/a/d"), changed(6, "core/pods/a/x")];
    assert_eq!(ordered(transaction), ["5 core/pods/a/x", "6 apps/deployments/a/d", "6 core/pods/a/x", "6 core/pods/a/y"]);
    let ours = vec![changed(5, "core/pods/a/x"), changed(6, "apps/deployments/a/d"), changed(7, "core/pods/a/a")];
    assert_eq!(ordered(ours), ["5 core/pods/a/x", "6 apps/deployments/a/d", "7 core/pods/a/a"]);
}
