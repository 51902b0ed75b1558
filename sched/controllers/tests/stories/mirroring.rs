//! Endpoints that a user writes for a Service without a selector.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Cluster, from, until};

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";

/// The mirrored slices of the Service `db`.
fn mirrored(slices: &BTreeMap<String, EndpointSlice>) -> Vec<&EndpointSlice> {
    let has = |slice: &EndpointSlice, label: &str, value: &str| slice.labels().get(label).is_some_and(|actual| actual == value);
    let own = |slice: &&EndpointSlice| {
        has(slice, "endpointslice.kubernetes.io/managed-by", MANAGER) && has(slice, "kubernetes.io/service-name", "db")
    };
    slices.values().filter(own).collect()
}

fn addresses(slices: &BTreeMap<String, EndpointSlice>) -> Vec<String> {
    mirrored(slices).iter().flat_map(|slice| &slice.endpoints).flatten().flat_map(|endpoint| endpoint.addresses.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_written_by_hand_become_slices() {
    let cluster = Cluster::start(|_| {}).await;
    let (services, endpoints, slices) = (cluster.api::<Service>(), cluster.api::<Endpoints>(), cluster.api::<EndpointSlice>());
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}});
    services.create(&PostParams::default(), &from(service)).await.expect("a Service");
    let subsets = |ips: &[&str]| -> Value {
        let addresses: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        json!([{"addresses": addresses, "ports": [{"port": 5432}]}])
    };
    let by_hand = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "db", "annotations": {"note": "x"}},
        "subsets": subsets(&["192.0.2.1"])});
    endpoints.create(&PostParams::default(), &from(by_hand)).await.expect("Endpoints");
    let made = until("a slice", slices.clone(), |slices| addresses(slices) == ["192.0.2.1"]).await;
    let slice = mirrored(&made).first().map(|slice| (*slice).clone()).expect("it was waited for");
    assert_eq!(slice.annotations().get("note").map(String::as_str), Some("x"));
    let patch = |patch: Value| {
        let endpoints = endpoints.clone();
        async move { endpoints.patch("db", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched") }
    };
    patch(json!({"subsets": subsets(&["192.0.2.1", "192.0.2.2"])})).await;
    let changed = until("two addresses", slices.clone(), |slices| addresses(slices).len() == 2).await;
    assert_eq!(mirrored(&changed).iter().map(|slice| slice.name_any()).collect::<Vec<_>>(), [slice.name_any()], "the same slice");
    slices.delete(&slice.name_any(), &DeleteParams::default()).await.expect("deleted");
    until("made again", slices.clone(), |all| addresses(all).len() == 2 && !all.contains_key(&slice.name_any())).await;

    patch(json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}})).await;
    until("excluded", slices.clone(), |slices| mirrored(slices).is_empty()).await;
    patch(json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": null}}})).await;
    until("mirrored again", slices.clone(), |slices| addresses(slices).len() == 2).await;
    let selecting = Patch::Merge(json!({"spec": {"selector": {"app": "db"}}}));
    services.patch("db", &PatchParams::default(), &selecting).await.expect("a selector");
    until("the other controller's", slices.clone(), |slices| mirrored(slices).is_empty()).await;
    let kubernetes = slices.list(&Default::default()).await.expect("slices");
    let own = kubernetes.iter().filter(|slice| slice.labels().get("kubernetes.io/service-name").is_some_and(|name| name == "kubernetes"));
    assert!(own.into_iter().all(|slice| slice.labels().get("endpointslice.kubernetes.io/managed-by").is_none_or(|by| by != MANAGER)));
    cluster.stop().await;
}
