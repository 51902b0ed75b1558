//! ScaledObjects and ScaledJobs, with the real autoscaler of Pods.

mod faults;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU16, Ordering};
use std::time::Duration;

use futures::StreamExt;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Secret, Service};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use sched_controllers::Autoscaling;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{Cluster, from, until};

/// A cluster whose autoscalers are looked at often, and whose triggers may reach this process.
pub async fn cluster() -> Cluster {
    let cluster = Cluster::start(|config| {
        config.autoscaling = Autoscaling {
            sync_period: Duration::from_millis(200),
            downscale_stabilization: SignedDuration::ZERO,
            ..Autoscaling::default()
        };
        config.triggers_may_reach = vec!["127.0.0.0/8".parse().expect("a range")];
        config.reserved.cluster_domain = "cluster.local".to_owned();
    })
    .await;
    cluster.schedule();
    cluster.node("n1").await;
    cluster
}

pub fn api(cluster: &Cluster, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("keda.sh", "v1alpha1", kind));
    Api::namespaced_with(cluster.client.clone(), "default", &resource)
}

pub async fn deploy(cluster: &Cluster, name: &str, replicas: i32) {
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}});
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec});
    cluster.api::<Deployment>().create(&PostParams::default(), &from(deployment)).await.expect("a Deployment");
}

async fn create(cluster: &Cluster, kind: &str, name: &str, spec: Value) {
    let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    api(cluster, kind).create(&PostParams::default(), &from(object)).await.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
}

pub async fn change(cluster: &Cluster, kind: &str, name: &str, patch: Value) {
    api(cluster, kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("changed");
}

/// A ScaledObject of the Deployment of the same name, which is looked at every second.
pub async fn scale(cluster: &Cluster, name: &str, trigger: Value, more: Value) {
    let mut spec = json!({"scaleTargetRef": {"name": name}, "pollingInterval": 1, "cooldownPeriod": 0, "triggers": [trigger]});
    for (key, value) in more.as_object().expect("an object") {
        spec[key] = value.clone();
    }
    create(cluster, "ScaledObject", name, spec).await;
}

/// Follows an object of a custom kind; null while it does not exist.
pub async fn until_object(cluster: &Cluster, kind: &str, name: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watcher(api(cluster, kind), config).default_backoff());
    let (mut object, mut listed) = (Value::Null, false);
    let follow = async {
        while let Some(event) = events.next().await {
            match event.expect("a watch") {
                watcher::Event::Init => listed = false,
                watcher::Event::InitDone => listed = true,
                watcher::Event::InitApply(one) | watcher::Event::Apply(one) => object = json!(one),
                watcher::Event::Delete(_) => object = Value::Null,
            }
            if listed && done(&object) {
                return;
            }
        }
    };
    if tokio::time::timeout(Duration::from_secs(30), follow).await.is_err() {
        panic!("{what}: never; at the end {object:#}");
    }
    object
}

pub fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

pub async fn until_condition(cluster: &Cluster, kind: &str, name: &str, type_: &str, status: &str, reason: &str) -> String {
    let what = format!("{name} has {type_}={status} for {reason}");
    let is_so = |object: &Value| condition(object, type_)["status"] == status && condition(object, type_)["reason"] == reason;
    let object = until_object(cluster, kind, name, &what, is_so).await;
    condition(&object, type_)["message"].as_str().unwrap_or_default().to_owned()
}

fn replicas(deployments: &BTreeMap<String, Deployment>, name: &str) -> Option<i32> {
    deployments.get(name)?.spec.replicas
}

pub async fn until_replicas(cluster: &Cluster, name: &str, wanted: i32) {
    until(&format!("{name} has {wanted} replicas"), cluster.api::<Deployment>(), |all| replicas(all, name) == Some(wanted)).await;
}

pub async fn until_event(cluster: &Cluster, name: &str, reason: &str, message: &str) {
    until(&format!("{name} has event {reason} {message}"), cluster.api::<Event>(), |events| {
        events.values().any(|event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some(reason)
                && event.message.as_deref().is_some_and(|text| text.contains(message))
        })
    })
    .await;
}

/// A trigger of a day that has begun, or that begins tomorrow.
fn cron(is_active: bool, replicas: i32) -> Value {
    let now = jiff::Timestamp::now().to_zoned(TimeZone::UTC);
    let at = |hours: i64| now.checked_add(SignedDuration::from_hours(hours)).expect("in range").strftime("0 %H * * *").to_string();
    let (start, end) = if is_active { (at(-2), at(3)) } else { (at(3), at(5)) };
    json!({"type": "cron", "metadata": {"timezone": "Etc/UTC", "start": start, "end": end, "desiredReplicas": replicas.to_string()}})
}

/// A server in this process: `value` for Prometheus' and for other clients, or a broken answer.
struct Backend {
    port: u16,
    value: AtomicI64,
    status: AtomicU16,
    /// The last request's path and headers.
    last: std::sync::Mutex<(String, http::HeaderMap)>,
}

impl Backend {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        let backend = Arc::new(Self { port, value: AtomicI64::new(0), status: AtomicU16::new(200), last: Default::default() });
        tokio::spawn(Arc::clone(&backend).serve(listener));
        backend
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let backend = Arc::clone(&self);
            tokio::spawn(async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let answer = backend.answer(&request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                // A client may go away at any time.
                let _ended = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        *self.last.lock().expect("a lock") = (request.uri().to_string(), request.headers().clone());
        let value = self.value.load(Ordering::SeqCst);
        let body = match request.uri().path() {
            "/api/v1/query" => {
                json!({"status": "success", "data": {"result": [{"metric": {}, "value": [0, value.to_string()]}]}}).to_string()
            }
            "/endless" => " ".repeat(2 << 20),
            "/secret" => "root:x:0:0:".to_owned(),
            _ => json!({"queue": {"length": value}}).to_string(),
        };
        let response = Response::builder().status(self.status.load(Ordering::SeqCst));
        let response = if request.uri().path() == "/redirect" { response.status(302).header("location", "/value") } else { response };
        response.body(Full::new(Bytes::from(body))).expect("a response")
    }

    fn prometheus(&self) -> Value {
        json!({"type": "prometheus", "metadata": {"serverAddress": format!("http://127.0.0.1:{}", self.port), "query": "sum(a)", "threshold": "2"}})
    }

    fn metrics_api(&self, path: &str) -> Value {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        json!({"type": "metrics-api", "metadata": {"url": url, "valueLocation": "queue.length", "targetValue": "2"}})
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cron_scales_to_zero_and_back() {
    let cluster = cluster().await;
    deploy(&cluster, "web", 1).await;
    scale(&cluster, "web", cron(false, 3), json!({})).await;
    until_replicas(&cluster, "web", 0).await;
    until_event(&cluster, "web", "KEDAScaleTargetDeactivated", "Deactivated apps/v1.Deployment default/web from 1 to 0").await;
    until_event(&cluster, "web", "ScaledObjectReady", "ScaledObject is ready for scaling").await;
    until_event(&cluster, "web", "KEDAScalersStarted", "Scaler cron is built").await;
    until_condition(&cluster, "ScaledObject", "web", "Active", "False", "ScalerNotActive").await;
    until_condition(&cluster, "ScaledObject", "web", "Fallback", "False", "NoFallbackFound").await;

    change(&cluster, "ScaledObject", "web", json!({"spec": {"triggers": [cron(true, 3)]}})).await;
    // From zero to one by this controller, then to three by the autoscaler, which reads the metric in this process.
    until_event(&cluster, "web", "KEDAScaleTargetActivated", "Scaled apps/v1.Deployment default/web from 0 to 1, triggered by s0-cron-")
        .await;
    until_replicas(&cluster, "web", 3).await;
    let object =
        until_object(&cluster, "ScaledObject", "web", "it is active", |object| condition(object, "Active")["status"] == "True").await;
    let status = &object["status"];
    assert_eq!((&status["scaleTargetKind"], &status["hpaName"]), (&json!("apps/v1.Deployment"), &json!("keda-hpa-web")));
    let kind = json!({"group": "apps", "version": "v1", "kind": "Deployment", "resource": "deployments"});
    assert_eq!((&status["scaleTargetGVKR"], &status["originalReplicaCount"], &status["triggersTypes"]), (&kind, &json!(1), &json!("cron")));
    assert!(status["lastActiveTime"].is_string(), "{status}");
    assert_eq!(object["metadata"]["finalizers"], json!(["finalizer.keda.sh"]));
    assert_eq!(object["metadata"]["labels"], json!({"scaledobject.keda.sh/name": "web"}));

    let autoscaler = cluster.api::<HorizontalPodAutoscaler>().get("keda-hpa-web").await.expect("an autoscaler");
    assert_eq!((autoscaler.spec.min_replicas, autoscaler.spec.max_replicas), (Some(1), 100));
    let metric = json!(autoscaler.spec.metrics)[0]["external"]["metric"].clone();
    assert_eq!(metric["selector"]["matchLabels"], json!({"scaledobject.keda.sh/name": "web"}));
    assert_eq!(status["externalMetricNames"], json!([metric["name"]]));
    until_condition(&cluster, "ScaledObject", "web", "HPAActive", "True", "HPAActive").await;

    change(&cluster, "ScaledObject", "web", json!({"spec": {"triggers": [cron(false, 3)]}})).await;
    until_replicas(&cluster, "web", 0).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prometheus_server_scales_and_its_failure_falls_back() {
    let cluster = cluster().await;
    let backend = Backend::start().await;
    deploy(&cluster, "web", 1).await;
    scale(&cluster, "web", backend.prometheus(), json!({"fallback": {"failureThreshold": 1, "replicas": 4}})).await;
    until_replicas(&cluster, "web", 0).await;
    backend.value.store(5, Ordering::SeqCst);
    until_replicas(&cluster, "web", 3).await;
    let path = backend.last.lock().expect("a lock").0.clone();
    assert!(path.starts_with("/api/v1/query?query=sum%28a%29&time=20"), "{path}");

    backend.status.store(500, Ordering::SeqCst);
    until_event(&cluster, "web", "KEDAScalerFailed", "prometheus query api returned error. status: 500").await;
    until_condition(&cluster, "ScaledObject", "web", "Fallback", "True", "FallbackExists").await;
    until_event(&cluster, "web", "ScaledObjectFallbackActivated", "ScaledObject fallback is active").await;
    until_replicas(&cluster, "web", 4).await;
    let health = |object: &Value| object["status"]["health"]["s0-prometheus"]["status"].clone();
    until_object(&cluster, "ScaledObject", "web", "its health is told", |object| health(object) == "Failing").await;

    backend.status.store(200, Ordering::SeqCst);
    until_condition(&cluster, "ScaledObject", "web", "Fallback", "False", "NoFallbackFound").await;
    until_event(&cluster, "web", "ScaledObjectFallbackDeactivated", "ScaledObject fallback is no longer active").await;
    until_replicas(&cluster, "web", 3).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_come_from_secrets_and_a_service_has_a_name() {
    let cluster = cluster().await;
    let backend = Backend::start().await;
    backend.value.store(3, Ordering::SeqCst);
    deploy(&cluster, "web", 0).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": {"token": "s3cret"}});
    cluster.api::<Secret>().create(&PostParams::default(), &from(secret)).await.expect("a Secret");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "queue"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    cluster.api::<Service>().create(&PostParams::default(), &from(service)).await.expect("a Service");
    let mut trigger = backend.metrics_api("/value");
    trigger["metadata"]["url"] = json!(format!("http://queue.default.svc.cluster.local:{}/value", backend.port));
    trigger["metadata"]["authMode"] = json!("bearer");
    trigger["authenticationRef"] = json!({"name": "login"});
    scale(&cluster, "web", trigger, json!({})).await;
    let message = until_condition(&cluster, "ScaledObject", "web", "Ready", "False", "ScaledObjectCheckFailed").await;
    assert!(message.contains("triggerauthentications.keda.sh \"login\" not found"), "{message}");
    let reference = json!([{"parameter": "token", "name": "login", "key": "token"}]);
    create(&cluster, "TriggerAuthentication", "login", json!({"secretTargetRef": reference})).await;
    until_replicas(&cluster, "web", 2).await;
    let (path, headers) = backend.last.lock().expect("a lock").clone();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    assert_eq!((path.as_str(), header("authorization")), ("/value", Some("Bearer s3cret".to_owned())));
    assert_eq!(header("host"), Some(format!("queue.default.svc.cluster.local:{}", backend.port)));
    let events = cluster.api::<Event>().list(&Default::default()).await.expect("events");
    assert!(!json!(events.items).to_string().contains("s3cret"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_server_scales_nothing_and_says_nothing() {
    let cluster = cluster().await;
    let backend = Backend::start().await;
    deploy(&cluster, "web", 1).await;
    scale(&cluster, "web", backend.metrics_api("/endless"), json!({})).await;
    until_event(&cluster, "web", "KEDAScalerFailed", "the answer is larger than 1048576 bytes").await;
    until_condition(&cluster, "ScaledObject", "web", "Ready", "False", "TriggerError").await;
    for (path, wanted) in [("/redirect", "api returned 302"), ("/secret", "the answer is no valid JSON")] {
        change(&cluster, "ScaledObject", "web", json!({"spec": {"triggers": [backend.metrics_api(path)]}})).await;
        until_event(&cluster, "web", "KEDAScalerFailed", wanted).await;
    }
    let mut metadata = backend.metrics_api("/");
    metadata["metadata"]["url"] = json!("http://169.254.169.254/latest/meta-data/");
    change(&cluster, "ScaledObject", "web", json!({"spec": {"triggers": [metadata]}})).await;
    until_event(&cluster, "web", "KEDAScalerFailed", "address 169.254.169.254 is not allowed for triggers").await;
    let deployments = cluster.api::<Deployment>().get("web").await.expect("a Deployment");
    assert_eq!(deployments.spec.replicas, Some(1));
    let events = cluster.api::<Event>().list(&Default::default()).await.expect("events");
    assert!(!json!(events.items).to_string().contains("root:x"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_of_one_workload_scale_another() {
    let cluster = cluster().await;
    deploy(&cluster, "front", 3).await;
    deploy(&cluster, "back", 0).await;
    let trigger = json!({"type": "kubernetes-workload", "metadata": {"podSelector": "app=front", "value": "1"}});
    scale(&cluster, "back", trigger, json!({"maxReplicaCount": 2})).await;
    until_replicas(&cluster, "back", 2).await;
    cluster.api::<Deployment>().delete("front", &DeleteParams::background()).await.expect("deleted");
    until_replicas(&cluster, "back", 0).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_object_has_no_autoscaler() {
    let cluster = cluster().await;
    deploy(&cluster, "web", 1).await;
    scale(&cluster, "web", cron(true, 2), json!({})).await;
    until_replicas(&cluster, "web", 2).await;
    // The autoscaler may have scaled before the triggers are watched.
    until_event(&cluster, "web", "KEDAScalersStarted", "Started scalers watch").await;
    change(&cluster, "ScaledObject", "web", json!({"metadata": {"annotations": {"autoscaling.keda.sh/paused-replicas": "5"}}})).await;
    until_condition(&cluster, "ScaledObject", "web", "Paused", "True", "ScaledObjectPaused").await;
    until_replicas(&cluster, "web", 5).await;
    until("the autoscaler is gone", cluster.api::<HorizontalPodAutoscaler>(), |all| all.is_empty()).await;
    until_event(&cluster, "web", "KEDAScalersStopped", "Stopped scalers watch").await;
    let paused = until_object(&cluster, "ScaledObject", "web", "it is counted", |object| object["status"]["pausedReplicaCount"] == 5).await;
    assert_eq!(condition(&paused, "Ready")["message"], "ScaledObject is paused");
    change(&cluster, "ScaledObject", "web", json!({"metadata": {"annotations": {"autoscaling.keda.sh/paused-replicas": null}}})).await;
    until_event(&cluster, "web", "ScaledObjectUnpaused", "pause annotation removed for ScaledObject").await;
    until_replicas(&cluster, "web", 2).await;
    let object =
        until_object(&cluster, "ScaledObject", "web", "it goes on", |object| condition(object, "Paused")["status"] == "False").await;
    assert_eq!(object["status"]["pausedReplicaCount"], Value::Null);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_object_restores_its_target() {
    let cluster = cluster().await;
    for (name, restores) in [("restored", true), ("left", false)] {
        deploy(&cluster, name, 5).await;
        scale(&cluster, name, cron(false, 2), json!({"advanced": {"restoreToOriginalReplicaCount": restores}})).await;
        until_replicas(&cluster, name, 0).await;
        api(&cluster, "ScaledObject").delete(name, &DeleteParams::default()).await.expect("deleted");
        until_object(&cluster, "ScaledObject", name, "it is gone", Value::is_null).await;
        until_event(&cluster, name, "ScaledObjectDeleted", "ScaledObject was deleted").await;
    }
    until("the autoscalers are gone", cluster.api::<HorizontalPodAutoscaler>(), |all| all.is_empty()).await;
    let all = until("one is restored", cluster.api::<Deployment>(), |all| replicas(all, "restored") == Some(5)).await;
    assert_eq!(replicas(&all, "left"), Some(0));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_in_the_conditions() {
    let cluster = cluster().await;
    let failed = async |name: &str| until_condition(&cluster, "ScaledObject", name, "Ready", "False", "ScaledObjectCheckFailed").await;
    // Upstream's sample, unchanged but for its names.
    scale(&cluster, "web", json!({"type": "example-trigger", "metadata": {"property": "example-property"}}), json!({})).await;
    let target = "ScaledObject doesn't have correct scaleTargetRef specification";
    assert_eq!(failed("web").await, format!("{target}: deployments.apps \"web\" not found"));
    until_event(&cluster, "web", "ScaledObjectCheckFailed", "Target resource doesn't exist").await;
    until_condition(&cluster, "ScaledObject", "web", "Active", "Unknown", "UnknownState").await;
    // The target comes, and the object is looked at again without a change of its own.
    deploy(&cluster, "web", 1).await;
    let wanted = "failed to ensure HPA is correctly created for ScaledObject: no scaler found for type: example-trigger";
    let says = |object: &Value| condition(object, "Ready")["message"] == wanted;
    until_object(&cluster, "ScaledObject", "web", wanted, says).await;
    until_event(&cluster, "web", "KEDAScalerFailed", "no scaler found for type: example-trigger").await;

    change(&cluster, "ScaledObject", "web", json!({"spec": {"triggers": [cron(true, 1)]}})).await;
    until_condition(&cluster, "ScaledObject", "web", "Ready", "True", "ScaledObjectReady").await;
    create(&cluster, "ScaledObject", "zz-rival", json!({"scaleTargetRef": {"name": "web"}, "triggers": [cron(true, 1)]})).await;
    let message = failed("zz-rival").await;
    assert!(message.ends_with("the workload 'web' of type 'apps/v1.Deployment' is already managed by the ScaledObject 'web'"), "{message}");
    create(
        &cluster,
        "ScaledObject",
        "odd",
        json!({"scaleTargetRef": {"name": "a", "kind": "Web", "apiVersion": "x.io/v1"}, "triggers": [cron(true, 1)]}),
    )
    .await;
    assert_eq!(failed("odd").await, format!("{target}: no matches for kind \"Web\" in version \"x.io/v1\""));
    create(
        &cluster,
        "ScaledObject",
        "still",
        json!({"scaleTargetRef": {"name": "a", "kind": "ConfigMap", "apiVersion": "v1"}, "triggers": [cron(true, 1)]}),
    )
    .await;
    assert!(failed("still").await.starts_with(target));
    until_event(&cluster, "still", "ScaledObjectCheckFailed", "Target resource doesn't expose /scale subresource").await;

    let cpu = json!({"type": "cpu", "metricType": "Utilization", "metadata": {"value": "50"}});
    for (spec, wanted) in [
        (json!({"minReplicaCount": 5, "maxReplicaCount": 2}), "minReplicaCount must be less than or equal to maxReplicaCount"),
        (json!({"minReplicaCount": 2, "idleReplicaCount": 2}), "IdleReplicaCount=2 must be less than MinReplicaCount=2"),
        (json!({"idleReplicaCount": 0}), "IdleReplicaCount=0 must be less than MinReplicaCount=0"),
        (json!({"triggers": [cpu]}), "scaledobject has only cpu/memory triggers AND minReplica is 0"),
        (json!({"triggers": []}), "spec.triggers: Invalid value: 0: spec.triggers in body should have at least 1 items"),
        (json!({"pollingInterval": 0}), "should be greater than or equal to 1"),
    ] {
        let mut whole = json!({"scaleTargetRef": {"name": "a"}, "triggers": [cron(true, 1)]});
        for (key, value) in spec.as_object().expect("an object") {
            whole[key] = value.clone();
        }
        let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "bounds"}, "spec": whole});
        let error = api(&cluster, "ScaledObject").create(&PostParams::default(), &from(object)).await.expect_err("rejected").to_string();
        assert!(error.contains(wanted), "{error}");
    }
    cluster.stop().await;
}

fn job_names(jobs: &BTreeMap<String, Job>) -> Vec<&String> {
    jobs.iter().filter(|(_, job)| job.metadata.deletion_timestamp.is_none()).map(|(name, _)| name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_becomes_jobs() {
    let cluster = cluster().await;
    let backend = Backend::start().await;
    let template = json!({"spec": {"containers": [{"name": "c", "image": "v1"}]}});
    let spec = json!({"jobTargetRef": {"template": template}, "pollingInterval": 1, "maxReplicaCount": 3, "successfulJobsHistoryLimit": 1,
        "triggers": [backend.metrics_api("/value")]});
    create(&cluster, "ScaledJob", "work", spec).await;
    until_condition(&cluster, "ScaledJob", "work", "Active", "False", "ScalerNotActive").await;
    assert!(cluster.api::<Job>().list(&Default::default()).await.expect("Jobs").items.is_empty());
    backend.value.store(4, Ordering::SeqCst);
    let jobs = until("two Jobs", cluster.api::<Job>(), |jobs| jobs.len() == 2).await;
    until_event(&cluster, "work", "KEDAJobsCreated", "Created 2 jobs").await;
    until_event(&cluster, "work", "ScaledJobActive", "Scaling is performed because triggers are active").await;
    for job in jobs.values() {
        let labels = job.metadata.labels.clone().unwrap_or_default();
        assert_eq!((labels["scaledjob.keda.sh/name"].as_str(), labels["app.kubernetes.io/managed-by"].as_str()), ("work", "keda-operator"));
        assert_eq!(job.metadata.annotations.as_ref().expect("annotations")["scaledjob.keda.sh/generation"], "1");
    }
    backend.value.store(100, Ordering::SeqCst);
    until("no more than the maximum", cluster.api::<Job>(), |jobs| jobs.len() == 3).await;
    backend.value.store(0, Ordering::SeqCst);
    until_condition(&cluster, "ScaledJob", "work", "Active", "False", "ScalerNotActive").await;

    for name in job_names(
        &cluster
            .api::<Job>()
            .list(&Default::default())
            .await
            .expect("Jobs")
            .into_iter()
            .map(|job| (job.metadata.name.clone().unwrap_or_default(), job))
            .collect(),
    )
    .into_iter()
    .take(2)
    {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let of = |type_: &str| json!({"type": type_, "status": "True", "lastProbeTime": now, "lastTransitionTime": now});
        let status = json!({"startTime": now, "completionTime": now, "conditions": [of("SuccessCriteriaMet"), of("Complete")], "uncountedTerminatedPods": {}});
        cluster.api::<Job>().patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await.expect("finished");
    }
    until("the history has one", cluster.api::<Job>(), |jobs| job_names(jobs).len() == 2).await;

    change(&cluster, "ScaledJob", "work", json!({"spec": {"maxReplicaCount": 2}})).await;
    until("the Jobs of the earlier spec go", cluster.api::<Job>(), |jobs| job_names(jobs).is_empty()).await;
    until_event(&cluster, "work", "ScaledJobRolloutCleanupCompleted", "Deleted 2 jobs owned by the previous version of the scaledJob")
        .await;
    change(&cluster, "ScaledJob", "work", json!({"metadata": {"annotations": {"autoscaling.keda.sh/paused": "true"}}})).await;
    until_condition(&cluster, "ScaledJob", "work", "Paused", "True", "ScaledJobPaused").await;
    backend.value.store(4, Ordering::SeqCst);
    change(&cluster, "ScaledJob", "work", json!({"metadata": {"annotations": {"autoscaling.keda.sh/paused": null}}})).await;
    until("they come back", cluster.api::<Job>(), |jobs| job_names(jobs).len() == 2).await;
    api(&cluster, "ScaledJob").delete("work", &DeleteParams::default()).await.expect("deleted");
    until("the Jobs go with it", cluster.api::<Job>(), |jobs| job_names(jobs).is_empty()).await;
    until_event(&cluster, "work", "ScaledJobDeleted", "ScaledJob was deleted").await;
    cluster.stop().await;
}
