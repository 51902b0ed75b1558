//! Large numbers: more simultaneous creations than a quota allows, endless events, a Deployment of two thousand million
//! Pods.

use std::time::{Duration, Instant};

use futures::future::join_all;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tests::{client, eventually, eventually_within};

use super::World;

const ALLOWED: usize = 5;
const RACERS: usize = 50;
/// Number of events in the flood, and the quota for events.
const EVENTS: usize = 2_000;
const EVENTS_MAX: usize = 1_500;
/// The path of the events.
const PATH: &str = "/api/v1/namespaces/crowd/events";
/// How long another tenant's request may take during the flood.
const RESPONSIVE: Duration = Duration::from_secs(5);

/// The tenant's own namespace with a quota. `kube-root-ca.crt` is a ConfigMap in every namespace.
const CROWD: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: crowd, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: admin, namespace: crowd}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: User, name: mallory, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: few, namespace: crowd}
spec: {hard: {pods: '5', services: '5', configmaps: '6', count/events: '1500'}}
";

/// Creates the namespace, and waits for the objects that every namespace gets.
pub(super) fn prepare(world: &World<'_>) {
    world.admin.apply(CROWD).ok();
    world.admin.until_usable("crowd");
    world.admin.ok("create rolebinding viewer -n neighbour --clusterrole=view --user=alice");
    world.admin.until_ok("get configmap kube-root-ca.crt -n crowd");
}

/// Runs a story with mallory's client.
fn as_mallory<T: Send + 'static>(world: &World<'_>, story: impl AsyncFnOnce(Client) -> T + Send + 'static) -> std::thread::JoinHandle<T> {
    let kubeconfig = world.cluster.data_dir().join("mallory.kubeconfig");
    world.cluster.net.enter(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { story(client::with(&kubeconfig).await).await })
    })
}

/// Status and text of the answer to one POST, also of an error.
async fn post(client: &Client, path: &str, object: &Value) -> (u16, String) {
    let request = http::Request::post(path).header("Content-Type", "application/json").body(Body::from(object.to_string().into_bytes()));
    let answer = client.send(request.expect("a request")).await.expect("an answer");
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn racer(resource: &str, n: usize) -> Value {
    let metadata = json!({"name": format!("racer-{n}"), "namespace": "crowd", "labels": {"races": "true"}});
    match resource {
        // Nobody schedules the Pod: it is only counted.
        "pods" => json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "x"}]}}),
        "services" => json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}),
        _ => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}),
    }
}

/// Fifty simultaneous requests for five places, for three kinds at the same time.
pub(super) fn a_race_gains_no_more_than_the_quota(world: &World<'_>) {
    let resources = ["pods", "services", "configmaps"];
    let racers = as_mallory(world, async move |client| {
        let races = resources.map(|resource| {
            let client = client.clone();
            async move {
                let path = format!("/api/v1/namespaces/crowd/{resource}");
                let objects: Vec<Value> = (0..RACERS).map(|n| racer(resource, n)).collect();
                join_all(objects.iter().map(|object| post(&client, &path, object))).await
            }
        });
        join_all(races).await
    });
    for (resource, answers) in resources.iter().zip(racers.join().expect("the race ends")) {
        let made = answers.iter().filter(|(status, _)| *status == 201).count();
        let over = format!("exceeded quota: few, requested: {resource}=1, used: {resource}=");
        let refused = answers.iter().filter(|(status, text)| *status == 403 && text.contains(&over)).count();
        assert_eq!((made, refused), (ALLOWED, RACERS - ALLOWED), "{resource}: {answers:?}");
        let there = world.mallory.ok(&format!("get {resource} -n crowd -l races=true -o name"));
        assert_eq!(there.lines().count(), ALLOWED, "{there}");
    }
    world.mallory.ok("delete pods,services,configmaps -n crowd -l races=true --grace-period=0 --force");
}

fn event(n: usize, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("flood-{n}"), "namespace": "crowd"},
        "involvedObject": {"kind": "Pod", "name": "nobody", "namespace": "crowd"}, "reason": "Flood", "type": "Normal", "message": message,
    })
}

/// Events are objects: a quota limits their number, the server limits their size, and many events of one sender delay
/// no other sender.
pub(super) fn a_flood_of_events_drowns_nobody(world: &World<'_>) {
    let huge = event(EVENTS, &"x".repeat(4 << 20)).to_string();
    world.mallory.with_input("create -f -", &huge).fails();
    assert!(world.admin.fails(&format!("get event flood-{EVENTS} -n crowd")).contains("not found"), "larger than a request may be");
    let flood = as_mallory(world, async |client| {
        // The message of an event with the newer fields has at most 1,024 characters.
        let mut long = event(EVENTS, &"x".repeat(1_025));
        for (field, value) in [
            ("eventTime", "2026-01-01T00:00:00.000000Z"),
            ("reportingComponent", "example.com/flood"),
            ("reportingInstance", "x"),
            ("action", "Flood"),
        ] {
            long[field] = json!(value);
        }
        let (status, text) = post(&client, PATH, &long).await;
        assert!(status == 422 && text.contains("can have at most 1024 characters"), "{status}: {text}");
        let mut answers = Vec::new();
        for chunk in (0..EVENTS).collect::<Vec<_>>().chunks(100) {
            let events: Vec<Value> = chunk.iter().map(|n| event(*n, "water")).collect();
            answers.extend(join_all(events.iter().map(|event| post(&client, PATH, event))).await);
        }
        answers.into_iter().map(|(status, _)| status).collect::<Vec<u16>>()
    });
    let mut slowest = Duration::ZERO;
    while !flood.is_finished() {
        let began = Instant::now();
        world.admin.ok("get configmap secret -n neighbour --as=alice");
        slowest = slowest.max(began.elapsed());
    }
    let answers = flood.join().expect("the flood ends");
    let count = |wanted: u16| answers.iter().filter(|status| **status == wanted).count();
    // Rejected by the quota, or before that because the sender has too many open requests.
    let refused = count(403) + count(429);
    assert_eq!((count(201), refused), (EVENTS_MAX, EVENTS - EVENTS_MAX), "{} were told to come again", count(429));
    assert!(slowest < RESPONSIVE, "a request of another tenant took {slowest:?}");
    let there = world.admin.ok("get events -n crowd -o name --field-selector reason=Flood");
    assert_eq!(there.lines().count(), EVENTS_MAX);
    world.admin.ok("delete resourcequota few -n crowd");
    // One request: kubectl would delete one object after the other and wait for each.
    world.mallory.ok(&format!("delete --raw {PATH}"));
}

const MANY: &str = "
apiVersion: v1
kind: ResourceQuota
metadata: {name: few-pods, namespace: crowd}
spec: {hard: {pods: '3'}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: many, namespace: crowd}
spec:
  replicas: 2147483647
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: 'samples/tools:latest', imagePullPolicy: Never, command: [sleep, '1000']}]
";

const OTHER: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: modest, namespace: neighbour}
spec:
  replicas: 2
  selector: {matchLabels: {app: modest}}
  template:
    metadata: {labels: {app: modest}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: 'samples/tools:latest', imagePullPolicy: Never, command: [sleep, '1000'], env: [{name: V, value: '1'}]}]
";

/// The controllers create what the quota allows, roll out other tenants' Deployments meanwhile, and delete everything
/// in the end.
pub(super) fn two_thousand_million_pods_are_three(world: &World<'_>) {
    world.admin.apply(MANY.split("---").next().expect("the quota")).ok();
    world.mallory.with_input("create -f -", MANY.split("---").nth(1).expect("the Deployment")).ok();
    let running = || world.admin.json("get deployment many -n crowd");
    eventually("as many Pods as the quota allows are ready", || {
        let found = running();
        if found["status"]["readyReplicas"] == 3 { Ok(()) } else { Err(found.to_string()) }
    });
    let failure = "exceeded quota: few-pods, requested: pods=1, used: pods=3, limited: pods=3";
    eventually("the Deployment says why there are no more", || {
        let conditions = running()["status"]["conditions"].to_string();
        if conditions.contains("ReplicaFailure") && conditions.contains(failure) { Ok(()) } else { Err(conditions) }
    });
    // A rollout needs more Pods than the quota allows, too.
    world.mallory.ok("set env deployment/many -n crowd MORE=yes");
    world.admin.apply(OTHER).ok();
    world.admin.ok("rollout status deployment/modest -n neighbour --timeout=20s");
    world.admin.apply(&OTHER.replace("value: '1'", "value: '2'")).ok();
    world.admin.ok("rollout status deployment/modest -n neighbour --timeout=20s");
    assert_eq!(world.admin.ok("get pods -n crowd -o name").lines().count(), 3);
    world.admin.ok("delete deployment modest -n neighbour");
    world.mallory.ok("delete deployment many -n crowd --cascade=foreground --timeout=20s");
    eventually_within(Duration::from_secs(20), "nothing of it is left", || {
        let left = world.admin.ok("get deployments,replicasets,pods -n crowd -o name");
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}
