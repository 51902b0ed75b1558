//! Extenders that fail, and what becomes of their Pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use serde_json::{Value, json};

use crate::extender::{Extender, Reply};
use crate::support::Cluster;

/// A cluster whose extender answers so until `repaired`. The Pod says why it has no node, and gets one later.
async fn says(reply: fn(&Extender) -> Reply, wanted: fn(&Extender) -> String) {
    // A redirect leads here; nobody follows it.
    let elsewhere = Extender::start(|_, _| Reply::Json(json!({"NodeNames": ["a"]}))).await;
    let is_repaired = Arc::new(AtomicBool::new(false));
    let (repaired, target) = (Arc::clone(&is_repaired), elsewhere.clone());
    let extender = Extender::start(move |_, _| match repaired.load(Ordering::SeqCst) {
        true => Reply::Json(json!({"NodeNames": ["a"]})),
        false => reply(&target),
    })
    .await;
    let extenders = json!([{"urlPrefix": extender.url(), "filterVerb": "filter", "nodeCacheCapable": true, "httpTimeout": "20s"}]);
    let cluster = Cluster::start(&["a"], extenders).await;
    cluster.pod("p", json!({})).await;
    cluster.until_unscheduled("p", "SchedulerError", &wanted(&extender)).await;
    is_repaired.store(true, Ordering::SeqCst);
    assert_eq!(cluster.node_of("p").await, "a");
    assert!(elsewhere.requests("filter").is_empty(), "no redirect is followed");
    cluster.stop().await;
}

fn status(code: u16) -> impl Fn(&Extender) -> String {
    move |extender| format!("failed filter with extender at URL {}/filter, code {code}", extender.url())
}

#[tokio::test]
async fn an_error_is_the_reason_of_the_pod_until_the_extender_works() {
    says(|_| Reply::Status(500), |extender| status(500)(extender)).await;
    says(|_| Reply::Json(json!({"Error": "the rack burns"})), |_| "the rack burns".to_owned()).await;
}

#[tokio::test]
async fn answers_that_are_none_are_errors() {
    let cannot = |extender: &Extender| format!("the answer of the extender at URL {}/filter cannot be decoded", extender.url());
    says(|_| Reply::Text("<html>"), cannot).await;
    says(|_| Reply::Text(""), cannot).await;
    says(|_| Reply::Json(json!({"NodeNames": {"a": 1}})), cannot).await;
    says(
        |_| Reply::Json(json!({"NodeNames": ["a", "elsewhere"]})),
        |extender| format!("extender {:?} claims a filtered node \"elsewhere\" which is not found in the input node list", extender.url()),
    )
    .await;
}

#[tokio::test]
async fn no_redirect_is_followed() {
    says(|elsewhere| Reply::Redirect(format!("{}/filter", elsewhere.url())), |extender| status(307)(extender)).await;
}

#[tokio::test]
async fn a_body_without_an_end_is_cut_off() {
    says(|_| Reply::Endless, |extender| format!("Post \"{}/filter\": the answer has more than ", extender.url())).await;
}

#[tokio::test]
async fn nobody_at_the_address_is_an_error() {
    let cluster = Cluster::start(&["a"], json!([{"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter"}])).await;
    cluster.pod("p", json!({})).await;
    let message = cluster.until_unscheduled("p", "SchedulerError", "Post \"http://127.0.0.1:1/filter\": ").await;
    assert!(message.contains("refused"), "{message}");
    cluster.stop().await;
}

#[tokio::test]
async fn a_call_has_a_time_limit() {
    let extender = Extender::serve(None, |_, _| futures::future::pending().boxed()).await;
    let extenders = json!([{"urlPrefix": extender.url(), "filterVerb": "filter", "httpTimeout": "200ms"}]);
    let cluster = Cluster::start(&["a"], extenders).await;
    cluster.pod("p", json!({})).await;
    let wanted = format!("Post \"{}/filter\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)", extender.url());
    cluster.until_unscheduled("p", "SchedulerError", &wanted).await;
    cluster.stop().await;
}

/// All that an ignorable extender can do wrong, and a prioritize call that fails: the Pod gets a node.
#[tokio::test]
async fn pods_are_scheduled_without_an_extender_that_is_ignorable_or_gives_no_scores() {
    let broken = Extender::start(|_, _| Reply::Text("garbage")).await;
    let silent = Extender::serve(None, |_, _| futures::future::pending().boxed()).await;
    let working = Extender::start(|_, _| Reply::Json(json!({"NodeNames": ["b", "c"]}))).await;
    let ignorable = |extender: &Extender| {
        json!({"urlPrefix": extender.url(), "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1, "bindVerb": "",
            "httpTimeout": "200ms", "nodeCacheCapable": true, "ignorable": true})
    };
    let scores = json!({"urlPrefix": broken.url(), "prioritizeVerb": "prioritize", "weight": 1});
    let filters = json!({"urlPrefix": working.url(), "filterVerb": "filter", "nodeCacheCapable": true});
    let cluster = Cluster::start(&["a", "b", "c"], json!([ignorable(&broken), ignorable(&silent), scores, filters])).await;
    cluster.pod("p", json!({})).await;
    assert_ne!(cluster.node_of("p").await, "a");
    let calls = |extender: &Extender| (extender.requests("filter").len(), extender.requests("prioritize").len());
    assert_eq!((calls(&broken), calls(&silent), calls(&working)), ((1, 2), (1, 1), (1, 0)));
    let names = |request: &Value| crate::support::offered(request).join(" ");
    assert_eq!(broken.requests("filter").first().map(names).as_deref(), Some("b c"), "extenders that are ignorable go last");
    cluster.stop().await;
}

/// More Pods than an extender is called for at the same time wait for one that hangs. Those of another extender, and of none, go on.
#[tokio::test]
async fn an_extender_that_hangs_keeps_only_its_own_pods_waiting() {
    const VISITS_MAX: usize = 32;
    let hanging = Extender::serve(None, |_, _| futures::future::pending().boxed()).await;
    let working = Extender::start(|_, _| Reply::Json(json!({"NodeNames": ["b"]}))).await;
    let extender = |extender: &Extender, resource: &str| {
        json!({"urlPrefix": extender.url(), "filterVerb": "filter", "nodeCacheCapable": true, "httpTimeout": "10m",
            "managedResources": [{"name": resource, "ignoredByScheduler": true}]})
    };
    // The one that hangs is the last of the two that are called for the Pods of both.
    let extenders = json!([extender(&working, "example.com/fpga"), extender(&hanging, "example.com/gpu")]);
    let cluster = Cluster::start(&["a", "b"], extenders).await;
    let requesting = |resources: &[&str]| {
        let limits: serde_json::Map<String, Value> = resources.iter().map(|name| ((*name).to_owned(), json!("1"))).collect();
        json!({"containers": [{"name": "c", "image": "none", "resources": {"limits": limits}}]})
    };
    for number in 0..VISITS_MAX + 8 {
        let both: &[&str] = if number % 2 == 0 { &["example.com/gpu"] } else { &["example.com/gpu", "example.com/fpga"] };
        cluster.pod(&format!("gpu-{number}"), requesting(both)).await;
    }
    hanging.until_called(VISITS_MAX).await;
    for number in 0..3 {
        let name = format!("fpga-{number}");
        cluster.pod(&name, requesting(&["example.com/fpga"])).await;
        assert_eq!(cluster.node_of(&name).await, "b", "another extender is called for it");
    }
    cluster.pod("plain", json!({})).await;
    assert!(!cluster.node_of("plain").await.is_empty(), "no extender is called for it");
    assert!(hanging.requests("filter").len() <= 2 * VISITS_MAX, "those that came from the other extender are more than the bound at most");
    cluster.stop().await;
}
