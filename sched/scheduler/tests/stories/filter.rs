//! Filter and prioritize.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::extender::{Extender, Reply};
use crate::support::{Cluster, offered};

#[tokio::test]
async fn extenders_filter_one_after_the_other_and_score_together() {
    // Names alone, in the case that older extenders write.
    let names = Extender::start(|verb, request| match verb {
        "filter" => Reply::Json(json!({"nodenames": ["b", "c", "d"], "failedNodes": {"a": "too far"}, "error": ""})),
        "prioritize" => {
            let nodes = offered(&request);
            Reply::Json(nodes.iter().map(|name| json!({"Host": name, "Score": if name == "b" { 10 } else { 0 }})).collect())
        }
        _ => Reply::Status(404),
    })
    .await;
    let whole = Extender::start(|verb, request| match verb {
        "filter" => {
            let mut nodes = request["Nodes"].clone();
            nodes["items"].as_array_mut().expect("nodes").retain(|node| node["metadata"]["name"] != "d");
            Reply::Json(json!({"Nodes": nodes, "FailedAndUnresolvableNodes": {"d": "too old"}}))
        }
        _ => Reply::Json(json!([{"host": "c", "score": 10}, {"host": "unknown", "score": 10}])),
    })
    .await;
    let extenders = json!([
        {"urlPrefix": names.url(), "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1, "nodeCacheCapable": true},
        {"urlPrefix": whole.url(), "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 2},
    ]);
    let cluster = Cluster::start(&["a", "b", "c", "d"], extenders).await;
    cluster.pod("p", json!({})).await;
    assert_eq!(cluster.node_of("p").await, "c", "the second extender has more weight");
    let [first] = names.requests("filter").try_into().expect("one request");
    assert_eq!((offered(&first), &first["Nodes"]), (["a", "b", "c", "d"].map(str::to_owned).to_vec(), &Value::Null));
    let pod = &first["Pod"];
    assert_eq!((&pod["metadata"]["name"], &pod["spec"]["containers"][0]["env"][0]["name"]), (&json!("p"), &json!("A")), "the whole Pod");
    assert_eq!(pod["metadata"]["managedFields"], Value::Null, "as upstream");
    let [second] = whole.requests("filter").try_into().expect("one request");
    assert_eq!(offered(&second), ["b", "c", "d"], "what the first one has left");
    assert_eq!(second["Nodes"]["items"][0]["status"]["images"][0]["sizeBytes"], 1, "whole Nodes");
    assert_eq!(second["NodeNames"], Value::Null);
    for extender in [&names, &whole] {
        let [request] = extender.requests("prioritize").try_into().expect("one request");
        assert_eq!(offered(&request), ["b", "c"]);
    }
    assert_eq!(cluster.events("p", "Scheduled").await, ["Successfully assigned default/p to c"]);
    cluster.stop().await;
}

#[tokio::test]
async fn a_pod_that_extenders_reject_says_why_and_is_tried_again_after_any_change() {
    let is_open = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&is_open);
    let extender = Extender::start(move |_, _| {
        Reply::Json(match open.load(Ordering::SeqCst) {
            true => json!({"NodeNames": ["a"]}),
            false => json!({"NodeNames": [], "FailedNodes": {"a": "no GPU"}, "FailedAndUnresolvableNodes": {"b": "no GPU at all"}}),
        })
    })
    .await;
    let extenders = json!([{"urlPrefix": extender.url(), "filterVerb": "filter", "nodeCacheCapable": true}]);
    let cluster = Cluster::start(&["a", "b"], extenders).await;
    cluster.pod("p", json!({})).await;
    let message = cluster.until_unscheduled("p", "Unschedulable", "0/2 nodes are available").await;
    let wanted = "0/2 nodes are available: 1 no GPU, 1 no GPU at all. preemption: 0/2 nodes are available: 2 Preemption is not helpful \
                  for scheduling.";
    assert_eq!(message, wanted);
    assert_eq!(cluster.events("p", "FailedScheduling").await.first().map(String::as_str), Some(wanted));
    is_open.store(true, Ordering::SeqCst);
    // A Pod on a node helps no Pod that only plugins reject.
    cluster.pod("other", json!({"nodeName": "b"})).await;
    assert_eq!(cluster.node_of("p").await, "a");
    cluster.stop().await;
}

#[tokio::test]
async fn an_extender_gets_the_pods_that_request_its_resources() {
    let extender = Extender::start(|_, _| Reply::Json(json!({"NodeNames": ["b"]}))).await;
    let managed = json!([{"name": "example.com/gpu", "ignoredByScheduler": true}]);
    let extenders = json!([{"urlPrefix": extender.url(), "filterVerb": "filter", "nodeCacheCapable": true, "managedResources": managed}]);
    let cluster = Cluster::start(&["a", "b"], extenders).await;
    cluster.pod("plain", json!({"nodeSelector": {"kubernetes.io/hostname": "a"}})).await;
    assert_eq!(cluster.node_of("plain").await, "a");
    assert!(extender.requests("filter").is_empty());
    // No node has the resource: the extender alone counts it.
    let gpu = json!([{"name": "c", "image": "none", "resources": {"limits": {"example.com/gpu": "1"}}}]);
    cluster.pod("gpu", json!({"containers": gpu})).await;
    assert_eq!(cluster.node_of("gpu").await, "b");
    cluster.pod("fpga", json!({"containers": [{"name": "c", "image": "none", "resources": {"limits": {"example.com/fpga": "1"}}}]})).await;
    cluster.until_unscheduled("fpga", "Unschedulable", "2 Insufficient example.com/fpga").await;
    assert_eq!(extender.requests("filter").len(), 1);
    cluster.stop().await;
}

#[tokio::test]
async fn a_slow_extender_keeps_its_own_pods_waiting_alone_and_never_overfills_a_node() {
    let permits = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&permits);
    let extender = Extender::serve(None, move |_, request| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.expect("open").forget();
            Reply::Json(json!({"NodeNames": offered(&request)}))
        }
        .boxed()
    })
    .await;
    let managed = json!([{"name": "example.com/gpu", "ignoredByScheduler": true}]);
    let extenders = json!([{"urlPrefix": extender.url(), "filterVerb": "filter", "nodeCacheCapable": true, "managedResources": managed,
        "httpTimeout": "10m"}]);
    let cluster = Cluster::start(&["a", "b"], extenders).await;
    let wanting = |cpu: &str| json!({"containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}]});
    let resources = json!({"requests": {"cpu": "3", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}});
    cluster.pod("first", json!({"containers": [{"name": "c", "image": "none", "resources": resources.clone()}]})).await;
    extender.until_called(1).await;
    cluster.pod("plain", wanting("2")).await;
    let taken = cluster.node_of("plain").await;
    permits.add_permits(1);
    let free = cluster.node_of("first").await;
    assert_ne!(free, taken, "the extender allowed both nodes, and one of them has no room any more");

    // More Pods than calls that may be under way.
    let small = json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}});
    for number in 0..40 {
        cluster
            .pod(&format!("waiting-{number}"), json!({"containers": [{"name": "c", "image": "none", "resources": small.clone()}]}))
            .await;
    }
    extender.until_called(1 + 32).await;
    cluster.pod("other", wanting("1m")).await;
    cluster.node_of("other").await;
    assert_eq!(extender.requests("filter").len(), 1 + 32, "the others wait");
    permits.add_permits(40);
    for number in 0..40 {
        cluster.node_of(&format!("waiting-{number}")).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_answers_about_nodes() {
    let extender = Extender::serve(None, |_, _| futures::future::pending().boxed()).await;
    let extenders = json!([{"urlPrefix": extender.url(), "filterVerb": "filter", "httpTimeout": "10m"}]);
    let cluster = Cluster::start(&["a"], extenders).await;
    cluster.pod("p", json!({})).await;
    extender.until_called(1).await;
    cluster.stop().await;
}
