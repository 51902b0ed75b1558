//! `metrics.k8s.io` from nodes that are sockets on loopback, with a certificate of the cluster each.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::*;

const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
const METRICS_OF_PODS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";
const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";
/// The time between two passes. A hostile node may take most of it.
const RESOLUTION: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(60);

/// What a node answers.
#[derive(Clone, Copy, Debug)]
enum Reply {
    /// Its own use, and that of the container `c` of these Pods: a fifth of a CPU and 8 MiB.
    Good(&'static [&'static str]),
    Text(&'static str),
    Failure,
    Endless(&'static [u8]),
    Silent,
}

/// A node's server.
struct FakeNode {
    port: u16,
    reply: Arc<Mutex<Reply>>,
    /// The users that asked.
    users: Arc<Mutex<Vec<String>>>,
}

impl FakeNode {
    async fn start(name: &str, reply: Reply) -> Self {
        let names = PkiConfig { names: Default::default(), addresses: [IpAddr::V4(Ipv4Addr::LOCALHOST)].into() };
        let subject = api_auth::pki::Subject::server(&format!("system:node:{name}"), &names);
        let identity = PKI.issue(&subject, Duration::from_secs(3_600)).expect("a certificate");
        let acceptor = crate::tls::tests_acceptor(&PKI, &identity);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        let node = Self { port, reply: Arc::new(Mutex::new(reply)), users: Arc::default() };
        let (reply, users) = (Arc::clone(&node.reply), Arc::clone(&node.users));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, reply, users) = (acceptor.clone(), Arc::clone(&reply), Arc::clone(&users));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                    let user = leaf.and_then(|leaf| api_auth::authenticate::certificate_user(leaf)).expect("a user");
                    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                        assert_eq!(request.uri(), "/metrics/resource");
                        users.lock().push(user.username.clone());
                        let (reply, round) = (*reply.lock(), users.lock().len());
                        async move { Ok::<_, Infallible>(answer(reply, round).await) }
                    });
                    // A server that has read enough ends the connection.
                    let _ended = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        node
    }

    fn reply(&self, reply: Reply) {
        *self.reply.lock() = reply;
    }

    /// Registers the node, which is ready.
    async fn join(&self, cluster: &Cluster, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": name}}});
        cluster.post("/api/v1/nodes", node).await.ok();
        let status = json!({"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}}});
        cluster.patch(&format!("/api/v1/nodes/{name}/status"), "merge", json!({"status": status})).await.ok();
    }

    /// Waits until the node has answered two more times.
    async fn two_rounds(&self) {
        let before = self.users.lock().len();
        until("two more rounds", async || self.users.lock().len() > before + 2).await;
    }
}

async fn answer(reply: Reply, round: usize) -> Response<Body> {
    match reply {
        Reply::Good(pods) => Response::new(Body::from(good(pods, round))),
        Reply::Text(text) => Response::new(Body::from(text)),
        Reply::Failure => Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR).body(Body::empty()).expect("a response"),
        Reply::Endless(piece) => {
            let pieces = futures::stream::repeat_with(move || Ok::<_, Infallible>(Bytes::from_static(piece)));
            Response::new(Body::from_stream(pieces))
        }
        Reply::Silent => std::future::pending().await,
    }
}

/// Counters as they are after so many rounds of 15 s each.
fn good(pods: &[&str], round: usize) -> String {
    let (cpu, at) = (3 * round, 1_700_000_000_000 + 15_000 * round);
    let mut text = format!("node_cpu_usage_seconds_total {cpu} {at}\nnode_memory_working_set_bytes 1073741824 {at}\n");
    for pod in pods {
        let labels = format!("{{container=\"c\",namespace=\"default\",pod=\"{pod}\"}}");
        text.push_str(&format!(
            "container_start_time_seconds{labels} 1600000000\ncontainer_cpu_usage_seconds_total{labels} {cpu} {at}\n\
             container_memory_working_set_bytes{labels} 8388608 {at}\n"
        ));
    }
    text
}

pub(super) async fn until(what: &str, look: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !look().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn measured() -> Cluster {
    cluster_with(Config { metric_resolution: RESOLUTION, ..config() }, Arc::new(MemoryStore::new())).await
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().expect("items").iter().map(|item| item["metadata"]["name"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn nodes_and_pods_have_metrics_after_two_readings() {
    let cluster = measured().await;
    assert_eq!(cluster.get(NODES).await.ok()["items"], json!([]));
    let node = FakeNode::start("n1", Reply::Good(&["p", "q"])).await;
    node.join(&cluster, "n1").await;
    cluster.post("/api/v1/nodes", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "away"}})).await.ok();
    for (name, node) in [("p", "n1"), ("q", "n1"), ("waits", "")] {
        cluster.pod(name, node).await;
    }
    cluster.patch("/api/v1/namespaces/default/pods/p", "merge", json!({"metadata": {"labels": {"app": "web"}}})).await.ok();
    until("metrics of both Pods", async || names(&cluster.get(METRICS_OF_PODS).await.ok()) == ["p", "q"]).await;
    assert!(node.users.lock().iter().all(|user| user == "skiff:metrics-scraper"));

    let mut list = cluster.get(NODES).await.ok();
    assert_eq!(
        (&list["kind"], &list["apiVersion"], &list["metadata"]),
        (&json!("NodeMetricsList"), &json!("metrics.k8s.io/v1beta1"), &json!({}))
    );
    let item = &mut list["items"][0];
    assert!(item["metadata"]["creationTimestamp"].take().is_string() && item["timestamp"].take().is_string());
    let metadata = json!({"name": "n1", "creationTimestamp": null, "labels": {"zone": "n1"}});
    assert_eq!(*item, json!({"metadata": metadata, "timestamp": null, "window": "15s", "usage": {"cpu": "200m", "memory": "1Gi"}}));
    let pod = cluster.get(&format!("{METRICS_OF_PODS}/p")).await.ok();
    assert_eq!((&pod["kind"], &pod["window"]), (&json!("PodMetrics"), &json!("15s")));
    assert_eq!(pod["containers"], json!([{"name": "c", "usage": {"cpu": "200m", "memory": "8Mi"}}]));
    assert_eq!((&pod["metadata"]["namespace"], &pod["metadata"]["labels"]), (&json!("default"), &json!({"app": "web"})));

    let everywhere = "/apis/metrics.k8s.io/v1beta1/pods";
    for (path, wanted) in [
        (format!("{everywhere}?labelSelector=app%3Dweb"), vec!["p"]),
        (format!("{everywhere}?fieldSelector=metadata.name%3Dq"), vec!["q"]),
        (format!("{everywhere}?fieldSelector=metadata.namespace%3Dother"), vec![]),
        (format!("{NODES}?labelSelector=zone%3Dn1"), vec!["n1"]),
        (format!("{NODES}?labelSelector=zone%3Dn2"), vec![]),
        ("/apis/metrics.k8s.io/v1beta1/namespaces/other/pods".to_owned(), vec![]),
    ] {
        assert_eq!(names(&cluster.get(&path).await.ok()), wanted, "{path}");
    }
    let table = cluster.get_as(everywhere, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().expect("columns").iter().filter_map(|column| column["name"].as_str()).collect();
    assert_eq!(columns, ["Name", "cpu", "memory", "Window"]);
    assert_eq!(table["rows"][0]["cells"], json!(["p", "200m", "8Mi", "15s"]));
    let counted = cluster.get("/metrics").await.ok();
    let counted = counted.as_str().expect("text");
    assert!(counted.contains("metrics_server_storage_points{type=\"container\"} 2\n"), "{counted}");
    assert!(counted.contains("metrics_server_kubelet_request_total{success=\"true\"} "), "{counted}");
    it_refuses(&cluster).await;
}

/// Requests for what is not there, and verbs that the metrics do not have.
async fn it_refuses(cluster: &Cluster) {
    for (path, code, message) in [
        (format!("{NODES}/none"), 404, "node \"none\" not found"),
        (format!("{NODES}/away"), 404, "nodemetrics.metrics.k8s.io \"away\" not found"),
        (format!("{METRICS_OF_PODS}/none"), 404, "pods \"none\" not found"),
        (format!("{METRICS_OF_PODS}/waits"), 404, "podmetrics.metrics.k8s.io \"default/waits\" not found"),
        (
            format!("{METRICS_OF_PODS}?fieldSelector=spec.nodeName%3Dn1"),
            400,
            "\"spec.nodeName\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (format!("{NODES}?watch=true"), 405, "the server does not allow this method on the requested resource"),
    ] {
        assert_eq!(cluster.get(&path).await.refusal(), (code, message), "{path}");
    }
    assert_eq!(cluster.delete(&format!("{NODES}/n1")).await.status, StatusCode::METHOD_NOT_ALLOWED);
    let written =
        cluster.post(NODES, json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": "x"}})).await;
    assert_eq!(written.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn readers_of_a_namespace_read_its_metrics_and_no_others() {
    let cluster = cluster().await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]});
    cluster.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding).await.ok();
    let jane = cluster.user("jane", &["system:authenticated"]);
    let scraper = cluster.user(api_auth::bootstrap::METRICS_SCRAPER, &[]);
    let get = async |user, path: &str| send(user, Request::builder().uri(path).body(Body::empty()).expect("a request")).await.status();
    assert_eq!(get(&jane, METRICS_OF_PODS).await, StatusCode::OK);
    for path in [NODES, "/apis/metrics.k8s.io/v1beta1/pods", "/apis/metrics.k8s.io/v1beta1/namespaces/other/pods"] {
        assert_eq!(get(&jane, path).await, StatusCode::FORBIDDEN, "{path}");
    }
    for path in [METRICS_OF_PODS, "/api/v1/nodes", "/api/v1/nodes/n1", "/api/v1/nodes/n1/proxy/metrics/resource", "/api/v1/pods"] {
        assert_eq!(get(&scraper, path).await, StatusCode::FORBIDDEN, "{path}");
    }
    let reader = cluster.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregated-metrics-reader").await.ok();
    for whole in ["view", "edit", "admin"] {
        assert_eq!(reader["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{whole}")], "true");
    }
}

/// Whatever a node answers, the other node's metrics stay.
#[tokio::test]
async fn a_hostile_node_harms_only_its_own_metrics() {
    let cluster = measured().await;
    let (good, bad) = (FakeNode::start("n1", Reply::Good(&["p"])).await, FakeNode::start("n2", Reply::Good(&["p", "q", "none"])).await);
    for (node, name) in [(&good, "n1"), (&bad, "n2")] {
        node.join(&cluster, name).await;
    }
    cluster.pod("p", "n1").await;
    cluster.pod("q", "n2").await;
    let of_p = async || cluster.get(&format!("{METRICS_OF_PODS}/p")).await;
    until("metrics of both Pods", async || names(&cluster.get(METRICS_OF_PODS).await.ok()) == ["p", "q"]).await;
    for reply in [
        Reply::Text("node_cpu_usage_seconds_total -1\nnode_memory_working_set_bytes 1\n"),
        Reply::Text("container_cpu_usage_seconds_total{container=\"c\",namespace=\"default\",pod=\"p\"} NaN\n"),
        Reply::Text("\u{0}<html>}{\"'"),
        Reply::Text(""),
        Reply::Failure,
        Reply::Endless(b"x"),
        Reply::Endless(b"node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 1\ncontainer_cpu_usage_seconds_total{} 1\n"),
        Reply::Silent,
    ] {
        bad.reply(reply);
        good.two_rounds().await;
        until("the node is without metrics", async || names(&cluster.get(NODES).await.ok()) == ["n1"]).await;
        assert_eq!(cluster.get(&format!("{METRICS_OF_PODS}/q")).await.status, StatusCode::NOT_FOUND, "{reply:?}");
        assert_eq!(of_p().await.ok()["containers"][0]["usage"]["cpu"], "200m", "{reply:?}");
    }
    // It speaks of the other's Pod, and of a container that its own does not have.
    bad.reply(Reply::Text(
        "container_cpu_usage_seconds_total{container=\"c\",namespace=\"default\",pod=\"p\"} 1e9\n\
         container_memory_working_set_bytes{container=\"c\",namespace=\"default\",pod=\"p\"} 1e18\n",
    ));
    good.two_rounds().await;
    assert_eq!(of_p().await.ok()["containers"], json!([{"name": "c", "usage": {"cpu": "200m", "memory": "8Mi"}}]));
    bad.reply(Reply::Good(&["q"]));
    until("the node is back", async || cluster.get(&format!("{METRICS_OF_PODS}/q")).await.status.is_success()).await;
}

#[tokio::test]
async fn a_node_that_is_not_the_nodes_is_not_read() {
    let cluster = measured().await;
    let (node, other) = (FakeNode::start("n1", Reply::Good(&[])).await, FakeNode::start("n1", Reply::Good(&[])).await);
    node.join(&cluster, "n1").await;
    // Its certificate is another node's.
    other.join(&cluster, "n2").await;
    node.two_rounds().await;
    node.two_rounds().await;
    assert_eq!(names(&cluster.get(NODES).await.ok()), ["n1"]);
    assert_eq!(other.users.lock().len(), 0);
}

#[tokio::test]
async fn an_apiservice_with_a_service_takes_the_metrics_over() {
    let cluster = measured().await;
    let node = FakeNode::start("n1", Reply::Good(&[])).await;
    node.join(&cluster, "n1").await;
    until("metrics of the node", async || names(&cluster.get(NODES).await.ok()) == ["n1"]).await;
    let local = cluster.get(SERVICE).await.ok();
    assert_eq!(
        local["spec"],
        json!({"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100})
    );
    assert_eq!(local["status"]["conditions"][0]["reason"], "Local");

    let service = json!({"service": {"name": "metrics-server", "namespace": "kube-system"}, "insecureSkipTLSVerify": true});
    cluster.patch(SERVICE, "merge", json!({"spec": service})).await.ok();
    let answer = async || cluster.get(NODES).await.status;
    until("the other server answers", async || answer().await == StatusCode::SERVICE_UNAVAILABLE).await;
    let (before, changed) = (Mutex::new(node.users.lock().len()), Mutex::new(Instant::now()));
    until("the node is left alone", async || {
        let now = node.users.lock().len();
        if std::mem::replace(&mut *before.lock(), now) != now {
            *changed.lock() = Instant::now();
        }
        changed.lock().elapsed() > RESOLUTION * 3
    })
    .await;
    assert!(cluster.server.core().readings.load().is_empty());

    cluster.delete(SERVICE).await.ok();
    until("metrics of the node again", async || {
        let answer = cluster.get(NODES).await;
        answer.status.is_success() && names(&answer.body) == ["n1"]
    })
    .await;
    until("the registration is back", async || {
        let service = cluster.get(SERVICE).await;
        service.status.is_success() && service.body["spec"]["service"].is_null()
    })
    .await;
}
