//! Passes against a server in memory: a target whose scale others write too, and an external metric.

use std::time::Duration;

use api_tasks::Tasks;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::*;

const TARGET: &str = "/apis/apps/v1/namespaces/ns/deployments/web/scale";
const AUTOSCALER: &str = "/apis/autoscaling/v2/namespaces/ns/horizontalpodautoscalers/web";
const QUEUE: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/queue";

/// What the server has, and how it answers the next writes.
struct Stored {
    autoscaler: Value,
    scale: Value,
    /// Writes of the scale and of the status that conflict before one succeeds.
    conflicts: (usize, usize),
    refuses_scale: bool,
}

fn failed(code: u16, message: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "reason": "Some", "message": message, "code": code}))
}

fn answer(stored: &mut Stored, method: &Method, path: &str, body: Value) -> (u16, Value) {
    match (method, path) {
        (&Method::GET, "/api") => (200, json!({"items": []})),
        (&Method::GET, "/apis") => {
            let row = json!({"resource": "deployments", "responseKind": {"kind": "Deployment"}, "scope": "Namespaced", "verbs": ["get"]});
            (200, json!({"items": [{"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [row]}]}]}))
        }
        (&Method::GET, QUEUE) => (200, json!({"items": [{"metricName": "queue", "value": "7"}]})),
        (&Method::GET, TARGET) => (200, stored.scale.clone()),
        (&Method::GET, AUTOSCALER) => (200, stored.autoscaler.clone()),
        (&Method::PUT, TARGET) if stored.refuses_scale => failed(403, "not yours"),
        (&Method::PUT, TARGET) if stored.conflicts.0 > 0 => {
            stored.conflicts.0 -= 1;
            stored.scale["metadata"]["resourceVersion"] = json!(format!("scale-{}", stored.conflicts.0));
            failed(409, "changed")
        }
        (&Method::PUT, TARGET) => {
            assert_eq!(body["metadata"]["resourceVersion"], stored.scale["metadata"]["resourceVersion"], "the newest is written");
            stored.scale = body.clone();
            (200, body)
        }
        (&Method::PATCH, _) if stored.conflicts.1 > 0 => {
            stored.conflicts.1 -= 1;
            failed(409, "changed")
        }
        (&Method::PATCH, path) => {
            assert_eq!(path, format!("{AUTOSCALER}/status"));
            meta::overlay(&mut stored.autoscaler, &json!({"status": body["status"]}));
            (200, stored.autoscaler.clone())
        }
        (&Method::POST, _) => (201, body),
        _ => failed(404, "nothing there"),
    }
}

struct Bench {
    stored: Arc<Mutex<Stored>>,
    controller: Autoscalers,
}

impl Bench {
    /// An autoscaler of a Deployment with one replica, for a queue of seven.
    fn new(conflicts: (usize, usize), refuses_scale: bool) -> Self {
        let queue = json!({"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "2"}});
        let spec = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 10,
            "metrics": [{"type": "External", "external": queue}]});
        let metadata = json!({"name": "web", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1});
        let autoscaler = json!({"metadata": metadata, "spec": spec, "status": {"desiredReplicas": 0}});
        let scale = json!({"metadata": {"name": "web", "namespace": "ns", "resourceVersion": "scale"}, "spec": {"replicas": 1},
            "status": {"replicas": 1, "selector": "app=web"}});
        let stored = Arc::new(Mutex::new(Stored { autoscaler: autoscaler.clone(), scale, conflicts, refuses_scale }));
        let autoscalers = Informer::detached();
        autoscalers.put(serde_json::from_value::<HorizontalPodAutoscaler>(autoscaler).expect("an autoscaler"));
        let client = server(Arc::clone(&stored), autoscalers.clone());
        let resources = Arc::new(Resources::new(client.clone()));
        let controller = Autoscalers {
            metrics: Metrics::new(client.clone(), Arc::clone(&resources), Default::default()),
            recorder: Recorder::new(client.clone(), "test", None, &Tasks::new(CancellationToken::new())),
            client,
            config: Arc::default(),
            autoscalers,
            pods: Informer::detached(),
            resources,
            selectors: Selectors::default(),
            histories: Mutex::default(),
        };
        Self { stored, controller }
    }

    async fn pass(&self) -> (Value, Value) {
        let next = self.controller.reconcile(&ObjectKey::new("ns", "web")).await.expect("no back-off");
        assert_eq!(next, Next::After(Duration::from_secs(15)));
        let stored = self.stored.lock();
        (stored.scale["spec"]["replicas"].clone(), stored.autoscaler["status"].clone())
    }
}

/// The server. The cache has each change at once.
fn server(stored: Arc<Mutex<Stored>>, cache: Informer<HorizontalPodAutoscaler>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (stored, cache) = (Arc::clone(&stored), cache.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, object) = answer(&mut stored.lock(), &parts.method, parts.uri.path(), body);
            if parts.method == Method::PATCH && code == 200 {
                cache.put(serde_json::from_value(object.clone()).expect("an autoscaler"));
            }
            Ok::<_, kube::Error>(Response::builder().status(code).body(Body::from(object.to_string().into_bytes())).expect("a response"))
        }
    });
    kube::Client::new(service, "default")
}

fn says(status: &Value, kind: &str) -> String {
    let conditions = status["conditions"].as_array().expect("conditions");
    let condition = conditions.iter().find(|condition| condition["type"] == kind).expect("the condition");
    format!("{} {}: {}", condition["status"], condition["reason"], condition["message"]).replace('"', "")
}

#[tokio::test]
async fn what_others_changed_meanwhile_is_read_and_written_again() {
    let bench = Bench::new((2, 1), false);
    let (replicas, status) = bench.pass().await;
    assert_eq!((replicas, &status["desiredReplicas"]), (json!(4), &json!(4)));
    assert_eq!(says(&status, "AbleToScale"), "True SucceededRescale: the HPA controller was able to update the target scale to 4");
    assert_eq!(bench.controller.histories.lock().len(), 1);
}

#[tokio::test]
async fn a_refused_change_is_reported_and_tried_in_the_next_period() {
    let bench = Bench::new((0, 0), true);
    let (replicas, status) = bench.pass().await;
    assert_eq!((replicas, &status["desiredReplicas"], &status["currentReplicas"]), (json!(1), &json!(0), &json!(1)));
    assert_eq!(
        says(&status, "AbleToScale"),
        "False FailedUpdateScale: the HPA controller was unable to update the target scale: not yours"
    );
    assert_eq!(status["currentMetrics"][0]["external"]["current"]["averageValue"], "7");
    bench.stored.lock().refuses_scale = false;
    assert_eq!(bench.pass().await.0, json!(4));
}

#[tokio::test]
async fn a_change_that_keeps_conflicting_waits_for_the_next_period() {
    let bench = Bench::new((5, 0), false);
    let (replicas, status) = bench.pass().await;
    assert_eq!(replicas, json!(1));
    assert_eq!(says(&status, "AbleToScale"), "False FailedUpdateScale: the HPA controller was unable to update the target scale: changed");
}

#[tokio::test]
async fn an_autoscaler_that_is_gone_leaves_nothing_behind() {
    let bench = Bench::new((0, 0), false);
    bench.pass().await;
    let key = ObjectKey::new("ns", "web");
    bench.controller.autoscalers.remove(&key);
    assert_eq!(bench.controller.reconcile(&key).await.expect("a pass"), Next::OnChange);
    assert!(bench.controller.histories.lock().is_empty());
    let labels = |pod: Value| Arc::new(serde_json::from_value::<Pod>(pod).expect("a Pod"));
    let pods = [labels(json!({"metadata": {"labels": {"app": "web"}}}))];
    assert!(bench.controller.selectors.selecting("ns", &pods).is_empty());
}
