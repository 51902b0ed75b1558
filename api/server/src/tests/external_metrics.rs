//! `external.metrics.k8s.io` over values that the tests make.

use super::resource_metrics::until;
use super::*;
use crate::{ExternalMetrics, NoMetric};

const METRICS: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default";
const SELECTOR: &str = "labelSelector=scaledobject.keda.sh%2Fname%3Dweb";
const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io";

struct Values;

impl ExternalMetrics for Values {
    fn latest(&self, namespace: &str, scaled_object: &str, metric: &str) -> Result<(i64, jiff::Timestamp), NoMetric> {
        match (namespace, scaled_object, metric) {
            ("default", "web", "s0-cron") => Ok((2_500, jiff::Timestamp::UNIX_EPOCH)),
            ("default", "web", "s1-failed") => Err(NoMetric::Failed),
            ("default", "web", "s2-elsewhere") => Err(NoMetric::Elsewhere),
            _ => Err(NoMetric::Unknown),
        }
    }
}

async fn serving() -> Cluster {
    cluster_with(Config { external_metrics: Some(Arc::new(Values)), ..config() }, Arc::new(MemoryStore::new())).await
}

#[tokio::test]
async fn a_metric_is_a_list_of_its_latest_value() {
    let cluster = serving().await;
    let item = json!({"metricName": "s0-cron", "metricLabels": null, "timestamp": "1970-01-01T00:00:00Z", "value": "2500m"});
    let wanted =
        json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}, "items": [item]});
    assert_eq!(cluster.get(&format!("{METRICS}/s0-cron?{SELECTOR}")).await.ok(), wanted);
    let missing = "the server could not find the requested resource";
    for (path, refusal) in [
        (format!("{METRICS}/s3-none?{SELECTOR}"), (404, "no matching metrics found for s3-none")),
        (format!("{METRICS}/s1-failed?{SELECTOR}"), (500, "Internal error occurred: metric:s1-failed encountered error")),
        (format!("{METRICS}/s2-elsewhere?{SELECTOR}"), (503, "the metrics of ScaledObjects are with the server whose controllers lead")),
        (format!("{METRICS}/s0-cron"), (404, missing)),
        (format!("{METRICS}/s0-cron?labelSelector=scaledobject.keda.sh%2Fname%20in%20(web,db)"), (404, missing)),
        (format!("{METRICS}/s0-cron/web?{SELECTOR}"), (404, missing)),
        (format!("/apis/external.metrics.k8s.io/v1beta1/s0-cron?{SELECTOR}"), (404, missing)),
        (format!("/apis/external.metrics.k8s.io/v1/namespaces/default/s0-cron?{SELECTOR}"), (404, missing)),
        (format!("{METRICS}/s0-cron?watch=true&{SELECTOR}"), (405, "the server does not allow this method on the requested resource")),
    ] {
        assert_eq!(cluster.get(&path).await.refusal(), refusal, "{path}");
    }
    assert_eq!(cluster.get(&format!("{METRICS}/s0-cron?labelSelector=%3D%3D")).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(cluster.delete(&format!("{METRICS}/s0-cron")).await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(cluster.post(&format!("{METRICS}/s0-cron"), json!({})).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn discovery_has_the_group_if_it_is_served() {
    let cluster = serving().await;
    let resource =
        json!({"name": "externalmetrics", "singularName": "", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": ["get"]});
    let list = cluster.get("/apis/external.metrics.k8s.io/v1beta1").await.ok();
    assert_eq!(list["resources"], json!([resource]));
    let groups = cluster.get("/apis").await.ok();
    let is_listed = |groups: &Value| {
        let groups = groups["groups"].as_array().expect("groups");
        groups.iter().any(|group| group["name"] == "external.metrics.k8s.io")
    };
    assert!(is_listed(&groups), "{groups}");
    let aggregated = cluster.get_as("/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").await.ok();
    let items = aggregated["items"].as_array().expect("items");
    let group = items.iter().find(|item| item["metadata"]["name"] == "external.metrics.k8s.io").expect("the group");
    assert_eq!(group["versions"][0]["resources"][0]["resource"], "externalmetrics");
    let paths = cluster.get("/").await.ok();
    assert!(paths["paths"].as_array().expect("paths").contains(&json!("/apis/external.metrics.k8s.io/v1beta1")), "{paths}");

    let without = super::cluster().await;
    assert!(!is_listed(&without.get("/apis").await.ok()));
    assert_eq!(without.get("/apis/external.metrics.k8s.io/v1beta1").await.status, StatusCode::NOT_FOUND);
    assert_eq!(without.get(&format!("{METRICS}/s0-cron?{SELECTOR}")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn readers_need_a_rule_for_the_name_of_the_metric() {
    let cluster = serving().await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "metrics"},
        "rules": [{"apiGroups": ["external.metrics.k8s.io"], "resources": ["s0-cron"], "verbs": ["list"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "metrics"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]});
    cluster.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", role).await.ok();
    cluster.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding).await.ok();
    let jane = cluster.user("jane", &["system:authenticated"]);
    for (metric, status) in [("s0-cron", StatusCode::OK), ("s1-failed", StatusCode::FORBIDDEN)] {
        let request = Request::builder().uri(format!("{METRICS}/{metric}?{SELECTOR}")).body(Body::empty()).expect("a request");
        assert_eq!(send(&jane, request).await.status(), status, "{metric}");
    }
}

#[tokio::test]
async fn an_apiservice_with_a_service_takes_the_group_over() {
    let cluster = serving().await;
    let local = async || {
        let service = cluster.get(SERVICE).await;
        service.status.is_success() && service.body["spec"]["service"].is_null()
    };
    until("the registration", &local).await;
    let service = json!({"service": {"name": "keda-operator-metrics-apiserver", "namespace": "keda"}, "insecureSkipTLSVerify": true});
    cluster.patch(SERVICE, "merge", json!({"spec": service})).await.ok();
    let metric = format!("{METRICS}/s0-cron?{SELECTOR}");
    let status = async || cluster.get(&metric).await.status;
    until("the other server answers", async || status().await == StatusCode::SERVICE_UNAVAILABLE).await;
    cluster.delete(SERVICE).await.ok();
    until("Skiff answers again", async || status().await == StatusCode::OK).await;
    until("the registration is back", &local).await;
}
