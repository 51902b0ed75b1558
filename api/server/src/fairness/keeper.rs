//! Keeps the stored configuration complete: creates mandatory objects again that somebody deleted, and writes into each
//! FlowSchema whether its priority level exists.

use std::time::Duration;

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::view::View;
use api_store::Expect;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::core::{Core, WriteError};
use crate::loopback::Loopback;
use api_cache::{Filter, Since, Subscription};
use api_wire::json;

/// Pause after the events ended.
const RESUBSCRIBE: Duration = Duration::from_secs(1);
const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Reconciles whenever something changes, until the server stops.
pub(crate) async fn keep(loopback: Loopback) {
    let core = &*loopback.core;
    loop {
        let Some((mut schemas, mut levels)) = subscribe(core) else { return };
        // This sees all changes before the subscription. All later ones are events.
        reconcile(&loopback).await;
        let changed = tokio::select! {
            () = core.shutdown.cancelled() => return,
            changed = schemas.events.changed() => changed,
            changed = levels.events.changed() => changed,
        };
        if !changed {
            tokio::select! {
                () = core.shutdown.cancelled() => return,
                () = tokio::time::sleep(RESUBSCRIBE) => {}
            }
        }
    }
}

fn subscribe(core: &Core) -> Option<(Subscription, Subscription)> {
    let watch = |plural: &str| {
        let resource = core.cache.resource(&GroupResource::new(GROUP, plural));
        resource.watch(Filter::default(), Since::Now, false, core.cache.applied()).ok()
    };
    Some((watch("flowschemas")?.1, watch("prioritylevelconfigurations")?.1))
}

/// Reconciles the stored objects once.
pub(crate) async fn reconcile(loopback: &Loopback) {
    let core = &*loopback.core;
    if let Err(error) = loopback.ensure(api_rules::mandatory_flow_control()).await {
        tracing::warn!(%error, "a mandatory object of flow control is missing");
    }
    let levels = GroupResource::new(GROUP, "prioritylevelconfigurations");
    for schema in core.cache.scan(&GroupResource::new(GROUP, "flowschemas"), None) {
        let level = json::text(&schema, &["spec", "priorityLevelConfiguration", "name"]);
        let exists = core.cache.get(&levels, None, level).is_some();
        if let Some(changed) = with_condition(&schema, level, exists, api_clock::now()) {
            write(core, changed).await;
        }
    }
}

/// The schema with its condition; `None`: the condition is right already.
fn with_condition(schema: &Value, level: &str, exists: bool, now: Timestamp) -> Option<Value> {
    let (status, reason, end) = match exists {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let mut conditions = schema.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_ours = |condition: &Value| condition.get("type").is_some_and(|found| found == "Dangling");
    if conditions.iter().any(|condition| is_ours(condition) && condition.get("status").is_some_and(|found| found == status)) {
        return None;
    }
    conditions.retain(|condition| !is_ours(condition));
    conditions.push(json!({
        "type": "Dangling", "status": status, "reason": reason, "lastTransitionTime": meta::time(now),
        "message": format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}"),
    }));
    let mut changed = schema.clone();
    json::set(&mut changed, &["status", "conditions"], conditions);
    Some(changed)
}

/// Writes a schema. After a conflict, the faster change causes another pass.
async fn write(core: &Core, schema: Value) {
    let Some(served) = core.registry.find(GROUP, "v1", "flowschemas") else { return };
    let (name, revision) = (meta::name(&schema).to_owned(), meta::resource_version(&schema).parse().unwrap_or_default());
    match core.put(&served, ("", &name), Expect::At(revision), schema, None).await {
        Ok(_) | Err(WriteError::Conflict) => {}
        Err(WriteError::Api(error)) => tracing::warn!(schema = name, error = error.message(), "writing a condition failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_changes_only_with_what_it_says() {
        let schema = json!({"spec": {}, "status": {"conditions": [{"type": "Other"}]}});
        let now = Timestamp::UNIX_EPOCH;
        let found = with_condition(&schema, "mine", true, now).expect("new");
        assert_eq!(with_condition(&found, "mine", true, now), None);
        let dangling = with_condition(&found, "mine", false, now).expect("changed");
        let conditions = dangling["status"]["conditions"].as_array().expect("a list");
        assert_eq!((conditions.len(), &conditions[1]["status"], &conditions[1]["reason"]), (2, &json!("True"), &json!("NotFound")));
        let message = "This FlowSchema references the PriorityLevelConfiguration object named \"mine\" but there is no such object";
        assert_eq!(conditions[1]["message"], message);
    }
}
