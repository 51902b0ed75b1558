//! Events whose time to live is over.

use jiff::Timestamp;

use super::*;
use crate::expire;

const EVENTS: &str = "/api/v1/namespaces/default/events";

fn event(name: &str, last: Timestamp) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"}, "reason": "Test", "type": "Normal",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "lastTimestamp": last.to_string(),
    })
}

#[tokio::test]
async fn events_are_gone_an_hour_after_they_were_last_seen() {
    let cluster = cluster().await;
    let later = Timestamp::now() + jiff::SignedDuration::from_mins(90);
    cluster.post(EVENTS, event("old", Timestamp::now())).await.ok();
    cluster.post(EVENTS, event("recurring", later)).await.ok();
    cluster.config_map("no-event", json!({})).await;
    let core = cluster.server.core();
    expire::pass(core, Timestamp::now() + jiff::SignedDuration::from_mins(59)).await;
    assert_eq!(names(&cluster.get(EVENTS).await.ok()), ["old", "recurring"]);
    expire::pass(core, Timestamp::now() + jiff::SignedDuration::from_mins(61)).await;
    assert_eq!(names(&cluster.get(EVENTS).await.ok()), ["recurring"]);
    assert_eq!(names(&cluster.get(CONFIG_MAPS).await.ok()), ["no-event"]);
}
