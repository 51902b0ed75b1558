//! A leader that is stopped within the server, between the decision about its request and the write.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join;
use tokio::sync::Semaphore;

use super::*;
use crate::LeaderLease;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const REFUSED: &str = "the write needs the Lease kube-system/x, which \"me\" has lost or released";

/// A store that stops one write of an object whose name begins with `stopped`.
struct Stopping {
    shared: Shared,
    is_armed: AtomicBool,
    stopped: Semaphore,
    goes_on: Semaphore,
}

#[async_trait]
impl StoreWrapper for Stopping {
    fn inner(&self) -> &dyn Store {
        &self.shared
    }

    async fn wrapped_write(&self, write: Write) -> Result<Revision, StoreError> {
        if write.key.contains("/default/stopped") && self.is_armed.swap(false, Ordering::Relaxed) {
            self.stopped.add_permits(1);
            self.goes_on.acquire().await.expect("open").forget();
        }
        self.shared.write(write).await
    }
}

/// Two servers; the leader is a client of the first one.
struct Replicas {
    store: Arc<Stopping>,
    servers: [Cluster; 2],
}

impl Replicas {
    async fn start() -> Self {
        let memory = Arc::new(MemoryStore::new());
        let store = Arc::new(Stopping {
            // So late that the first server does not know of the new leader when the write goes on.
            shared: Shared(Arc::clone(&memory), Duration::from_millis(50)),
            is_armed: AtomicBool::new(false),
            stopped: Semaphore::new(0),
            goes_on: Semaphore::new(0),
        });
        let config = Config::new(Arc::clone(&PKI), SocketAddr::from(([10, 0, 0, 1], 6443)));
        let one = cluster_with(config, Arc::clone(&store) as Arc<dyn Store>).await;
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}});
        one.post(LEASES, lease).await.ok();
        Self { store, servers: [one, cluster_at(2, &memory).await] }
    }

    /// Writes the Lease: the leader through its own server, which knows of its Lease then, and others through theirs.
    async fn lease(&self, holder: &str, transitions: i32) {
        let server = &self.servers[usize::from(holder != "me")];
        let spec = json!({"holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": 15});
        server.patch(&format!("{LEASES}/x"), "merge", json!({"spec": spec})).await.ok();
    }

    fn leader(&self, transitions: i32) -> InProcess {
        self.servers[0].user("leader", &["system:masters"]).under_lease(LeaderLease {
            namespace: "kube-system".to_owned(),
            name: "x".to_owned(),
            holder_identity: "me".to_owned(),
            lease_transitions: transitions,
        })
    }

    /// The leader's request, during whose write something happens.
    async fn stopped(&self, term: i32, request: Request<Body>, meanwhile: impl Future<Output = ()>) -> Answer {
        self.store.is_armed.store(true, Ordering::Relaxed);
        let leader = self.leader(term);
        let happening = async {
            self.store.stopped.acquire().await.expect("open").forget();
            meanwhile.await;
            self.store.goes_on.add_permits(1);
        };
        let (answer, ()) = join(send(&leader, request), happening).await;
        json_of(answer).await
    }

    /// The revisions of the objects whose writes are stopped.
    async fn revisions(&self) -> Vec<(String, Revision)> {
        let entries = self.store.snapshot().await.expect("snapshot").entries;
        let stopped = entries.into_iter().filter(|entry| entry.key.contains("/default/stopped"));
        stopped.map(|entry| (entry.key.to_string(), entry.revision)).collect()
    }

    /// Objects for the [`requests`].
    async fn prepare(&self) {
        let one = &self.servers[0];
        one.config_map("stopped-changed", json!({})).await;
        one.config_map("stopped-deleted", json!({})).await;
        one.pod("stopped-pending", "").await;
        one.pod("stopped-running", "n").await;
        one.pod("evicted", "n").await;
        one.patch(&format!("{PODS}/evicted"), "merge", json!({"metadata": {"labels": {"app": "x"}}})).await.ok();
        let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        one.patch(&format!("{PODS}/evicted/status"), "merge", running).await.ok();
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "stopped"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
        one.post(BUDGETS, budget).await.ok();
        let status = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1});
        one.patch(&format!("{BUDGETS}/stopped/status"), "merge", json!({"status": status})).await.ok();
    }
}

/// A request for each way to the store.
fn requests() -> Vec<Request<Body>> {
    let request = |method: Method, path: String, media: &str, body: Value| {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media);
        request.body(if body.is_null() { Body::empty() } else { body.to_string().into() }).expect("a request")
    };
    let (json, merge) = ("application/json", "application/merge-patch+json");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "stopped"}, "spec": {"ports": [{"port": 80}]}});
    let binding =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "stopped-pending"}, "target": {"kind": "Node", "name": "n"}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}});
    vec![
        request(Method::POST, CONFIG_MAPS.to_owned(), json, config_map("stopped-created", json!({}))),
        // With a lock for its address.
        request(Method::POST, "/api/v1/namespaces/default/services".to_owned(), json, service),
        request(Method::PUT, format!("{CONFIG_MAPS}/stopped-changed"), json, config_map("stopped-changed", json!({"a": "b"}))),
        request(Method::PATCH, format!("{CONFIG_MAPS}/stopped-changed"), merge, json!({"data": {"key": "other"}})),
        request(Method::POST, format!("{PODS}/stopped-pending/binding"), json, binding),
        request(Method::DELETE, format!("{CONFIG_MAPS}/stopped-deleted"), json, Value::Null),
        // The kubelet is to end it.
        request(Method::DELETE, format!("{PODS}/stopped-running"), json, Value::Null),
        request(Method::POST, format!("{PODS}/evicted/eviction"), json, eviction),
    ]
}

#[tokio::test]
async fn a_leader_that_was_stopped_in_its_write_changes_nothing_after_another_took_over() {
    let replicas = Replicas::start().await;
    replicas.prepare().await;
    let before = replicas.revisions().await;
    for (number, request) in requests().into_iter().enumerate() {
        let (what, term) = (format!("{} {}", request.method(), request.uri()), 2 * i32::try_from(number).expect("few"));
        replicas.lease("me", term).await;
        let answer = replicas.stopped(term, request, replicas.lease("other", term + 1)).await;
        assert_eq!(answer.refusal(), (403, REFUSED), "{what}");
        assert_eq!(answer.body["reason"], "Forbidden", "{what}");
        assert_eq!(replicas.revisions().await, before, "{what}");
    }
}

#[tokio::test]
async fn a_renewal_in_the_middle_of_a_write_does_no_harm() {
    let replicas = Replicas::start().await;
    replicas.prepare().await;
    replicas.lease("me", 0).await;
    let renewed = async |number: usize| {
        let spec = json!({"renewTime": format!("2026-01-01T00:00:{number:02}.000000Z")});
        replicas.servers[1].patch(&format!("{LEASES}/x"), "merge", json!({"spec": spec})).await.ok();
    };
    for (number, request) in requests().into_iter().enumerate() {
        let what = format!("{} {}", request.method(), request.uri());
        let before = replicas.revisions().await;
        let answer = replicas.stopped(0, request, renewed(number)).await;
        assert!(answer.status.is_success(), "{what}: {answer:?}");
        assert_ne!(replicas.revisions().await, before, "{what}");
    }
}

#[tokio::test]
async fn a_former_leader_may_read_and_others_write_as_before() {
    let replicas = Replicas::start().await;
    let (former, term) = (replicas.leader(3), 5);
    // It leads again, and another one led in between.
    replicas.lease("me", term).await;
    let request = |method: Method, path: &str, body: Value| {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        request.body(Body::from(body.to_string())).expect("a request")
    };
    let post = |name: &str| request(Method::POST, CONFIG_MAPS, config_map(name, json!({})));
    json_of(send(&replicas.leader(term), post("a")).await).await.ok();
    assert_eq!(json_of(send(&former, post("b")).await).await.refusal(), (403, REFUSED));
    let dry = request(Method::POST, &format!("{CONFIG_MAPS}?dryRun=All"), config_map("b", json!({})));
    assert_eq!(json_of(send(&former, dry).await).await.refusal(), (403, REFUSED));
    assert_eq!(names(&json_of(send(&former, request(Method::GET, CONFIG_MAPS, Value::Null)).await).await.ok()), ["a"]);
    replicas.servers[0].config_map("b", json!({})).await;
    replicas.servers[1].delete(&format!("{LEASES}/x")).await.ok();
    assert_eq!(json_of(send(&replicas.leader(term), post("c")).await).await.refusal(), (403, REFUSED));
    assert_eq!(replicas.servers[1].get(&format!("{CONFIG_MAPS}/c")).await.status, StatusCode::NOT_FOUND);
}
