use futures::{SinkExt as _, StreamExt as _};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::*;

pub(super) type Tls = tokio_rustls::client::TlsStream<TcpStream>;

/// A connection to the node's server with a certificate of this name and these groups.
pub(super) async fn connect(port: u16, who: Option<(&str, &[&str])>) -> std::io::Result<Tls> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(PKI.ca_pem().as_bytes()).expect("a CA")).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let builder = builder.with_root_certificates(roots);
    let config = match who {
        None => builder.with_no_client_auth(),
        Some((name, groups)) => {
            let identity = PKI.issue_client(name, groups, Duration::from_secs(3_600)).expect("a certificate");
            let chain = vec![CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).expect("a certificate")];
            let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).expect("a key");
            builder.with_client_auth_cert(chain, key).expect("a config")
        }
    };
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = rustls_pki_types::ServerName::try_from("localhost").expect("a name");
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

async fn get(port: u16, who: Option<(&str, &[&str])>, path: &str) -> Result<(u16, String), String> {
    send(port, who, http::Method::GET, path).await
}

pub(super) async fn send(port: u16, who: Option<(&str, &[&str])>, method: http::Method, path: &str) -> Result<(u16, String), String> {
    send_authorized(port, who, "", method, path).await
}

/// Sends an object.
pub(super) async fn put(port: u16, who: Option<(&str, &[&str])>, path: &str, object: &Value) -> Result<(u16, String), String> {
    let request = http::Request::builder().method("PUT").uri(path).header("content-type", "application/json");
    exchange(port, who, request, object.to_string().into()).await
}

/// Sends a request with a header `Authorization`, unless that is empty.
async fn send_authorized(
    port: u16,
    who: Option<(&str, &[&str])>,
    authorization: &str,
    method: http::Method,
    path: &str,
) -> Result<(u16, String), String> {
    let mut request = http::Request::builder().method(method).uri(path);
    if !authorization.is_empty() {
        request = request.header("authorization", authorization);
    }
    exchange(port, who, request, bytes::Bytes::new()).await
}

async fn exchange(
    port: u16,
    who: Option<(&str, &[&str])>,
    request: http::request::Builder,
    body: bytes::Bytes,
) -> Result<(u16, String), String> {
    let stream = connect(port, who).await.map_err(|error| error.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    let request = request.header("host", "localhost").body(http_body_util::Full::new(body)).expect("a request");
    let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

pub(super) async fn port(cluster: &Cluster) -> u16 {
    let node = cluster.nodes().get(NODE).await.expect("the node");
    let endpoint = node.status.and_then(|status| status.daemon_endpoints?.kubelet_endpoint).expect("an endpoint");
    u16::try_from(endpoint.port).expect("a port")
}

pub(super) const ADMIN: Option<(&str, &[&str])> = Some(("admin", &["system:masters"]));

#[tokio::test]
async fn who_may_ask_and_who_may_not() {
    let (cluster, _agent) = Cluster::running().await;
    let port = port(&cluster).await;
    for path in ["/healthz", "/pods", "/metrics", "/nonsense"] {
        assert_eq!(get(port, None, path).await, Ok((401, "Unauthorized".to_owned())), "{path}");
    }
    assert_eq!(get(port, ADMIN, "/healthz").await, Ok((200, "ok".to_owned())));
    assert_eq!(get(port, ADMIN, "/pods").await.map(|(status, _)| status), Ok(200));
    let server: Option<(&str, &[&str])> = Some(("kube-apiserver-kubelet-client", &[]));
    assert_eq!(get(port, server, "/pods").await.map(|(status, _)| status), Ok(200));
    let nobody: Option<(&str, &[&str])> = Some(("nobody", &["dev"]));
    let refused = get(port, nobody, "/pods").await.expect("an answer");
    assert_eq!(refused, (403, "Forbidden (user=nobody, verb=get, resource=nodes, subresource(s)=[pods proxy])".to_owned()));
}

#[tokio::test]
async fn tokens_of_service_accounts_are_reviewed() {
    let (cluster, _agent) = Cluster::running().await;
    let port = port(&cluster).await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client.clone());
    let reader = serde_json::from_value(json!({"metadata": {"name": "reader"}})).expect("an account");
    accounts.create(&PostParams::default(), &reader).await.expect("created");
    let wanted = serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": 600}})).expect("a request");
    let issued = accounts.create_token_request("reader", &PostParams::default(), &wanted).await.expect("a token");
    let token = format!("bearer {}", issued.status.and_then(|status| status.token).expect("a token"));
    let ask = async |authorization: &str, path: &str| send_authorized(port, None, authorization, http::Method::GET, path).await;

    for wrong in ["Bearer nonsense", "Bearer", "Basic YTpi", &token[..token.len() - 4]] {
        assert_eq!(ask(wrong, "/metrics").await, Ok((401, "Unauthorized".to_owned())), "{wrong}");
    }
    let user = "system:serviceaccount:default:reader";
    for (path, subresources) in [("/stats/summary", "stats"), ("/healthz", "healthz proxy"), ("/exec/default/web/c?command=id", "proxy")] {
        let refused = format!("Forbidden (user={user}, verb=get, resource=nodes, subresource(s)=[{subresources}])");
        assert_eq!(ask(&token, path).await, Ok((403, refused)), "{path}");
    }

    let rules = json!([{"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}]);
    let role = serde_json::from_value(json!({"metadata": {"name": "scrape"}, "rules": rules})).expect("a role");
    Api::<ClusterRole>::all(cluster.client.clone()).create(&PostParams::default(), &role).await.expect("created");
    let (role, subject) = (
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scrape"}),
        json!({"kind": "ServiceAccount", "name": "reader", "namespace": "default"}),
    );
    let binding = json!({"metadata": {"name": "scrape"}, "roleRef": role, "subjects": [subject]});
    let binding = serde_json::from_value(binding).expect("a binding");
    Api::<ClusterRoleBinding>::all(cluster.client.clone()).create(&PostParams::default(), &binding).await.expect("created");
    let (status, metrics) = ask(&token, "/metrics").await.expect("an answer");
    assert!(status == 200 && metrics.contains("kubelet_node_name{"), "{metrics}");
    // The certificate counts where there are both.
    let nobody: Option<(&str, &[&str])> = Some(("nobody", &["dev"]));
    let refused = send_authorized(port, nobody, &token, http::Method::GET, "/metrics").await.expect("an answer");
    assert_eq!(refused.0, 403);
}

/// A Pod reaches the node's port, and needs no certificate to take up its time.
#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let (cluster, _agent) = Cluster::running().await;
    let port = port(&cluster).await;
    let mut silent = Vec::new();
    for _ in 0..1_100 {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.2:0".parse().expect("an address")).expect("bound");
        silent.push(socket.connect(([127, 0, 0, 1], port).into()).await.expect("connected"));
    }
    let answer = tokio::time::timeout(Duration::from_secs(5), get(port, ADMIN, "/pods")).await;
    assert_eq!(answer.expect("in time").map(|(status, _)| status), Ok(200));
}

#[tokio::test]
async fn a_manager_that_stands_still_is_seen() {
    let mut cluster = Cluster::new(Script::default()).await;
    cluster.config.sync_loop_max = Duration::from_secs(2);
    cluster.config.status_check = Duration::from_millis(200);
    let _agent = cluster.start();
    cluster.node_ready().await;
    let port = port(&cluster).await;
    for path in ["/healthz", "/livez", "/readyz", "/livez/syncloop", "/readyz/informer-sync"] {
        until(path, async || get(port, ADMIN, path).await == Ok((200, "ok".to_owned()))).await;
    }
    let verbose = get(port, ADMIN, "/readyz?verbose").await;
    let lines = "[+]ping ok\n[+]log ok\n[+]syncloop ok\n[+]informer-sync ok\nreadyz check passed\n";
    assert_eq!(verbose, Ok((200, lines.to_owned())));
    assert_eq!(get(port, ADMIN, "/livez/informer-sync").await.map(|(status, _)| status), Ok(404));

    api_tasks::fault::inject("node-agent/pod-manager", api_tasks::fault::Fault::Stall);
    let lines = "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nlivez check failed\n";
    until("the node is not well", async || get(port, ADMIN, "/livez").await == Ok((500, lines.to_owned()))).await;
    assert_eq!(get(port, ADMIN, "/healthz").await.map(|(status, _)| status), Ok(500));
    assert_eq!(get(port, ADMIN, "/readyz?exclude=syncloop").await, Ok((200, "ok".to_owned())));
    until("the Node says so", async || {
        let [status, _, message] = cluster.node_condition("Ready").await;
        status == "False" && message.contains("Pod manager is not healthy")
    })
    .await;
}

#[tokio::test]
async fn a_failed_task_ends_the_agent() {
    let (cluster, mut agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    api_tasks::fault::inject("node-agent/pod-manager", api_tasks::fault::Fault::Panic);
    let ended = tokio::time::timeout(Duration::from_secs(1), &mut agent.task).await.expect("within a second").expect("joined");
    let failure = ended.expect_err("an error").to_string();
    assert!(failure.starts_with("task node-agent/pod-manager panicked"), "{failure}");
}

#[tokio::test]
async fn logs_follow_the_options() {
    let (cluster, _agent) = Cluster::running().await;
    let pod = cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    let dir = cluster.data.path().join(format!("pods/default_web_{}/c", pod.metadata.uid.unwrap_or_default()));
    std::fs::write(dir.join("0.log"), "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:01Z stdout F two\n").expect("writing");
    let port = port(&cluster).await;
    for (query, wanted) in [
        ("/containerLogs/default/web/c", (200, "one\ntwo\n")),
        ("/containerLogs/default/web/c?tailLines=1&timestamps=true", (200, "2026-01-01T00:00:01Z two\n")),
        ("/containerLogs/default/web/x", (400, "container \"x\" in pod \"web\" not found")),
        ("/containerLogs/default/none/c", (404, "pod \"default/none\" not found")),
        ("/containerLogs/default/web/c?previous=true", (400, "previous terminated container \"c\" in pod \"web\" not found")),
    ] {
        assert_eq!(get(port, ADMIN, query).await, Ok((wanted.0, wanted.1.to_owned())), "{query}");
    }
    let (status, metrics) = get(port, ADMIN, "/metrics").await.expect("metrics");
    assert!(status == 200 && metrics.contains("kubelet_running_containers{container_state=\"running\"} 1"), "{metrics}");
    let (_, summary) = get(port, ADMIN, "/stats/summary").await.expect("a summary");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    let (pod, of_node) = (&summary["pods"][0], &summary["node"]);
    assert_eq!((&pod["podRef"]["name"], &pod["containers"][0]["name"]), (&json!("web"), &json!("c")));
    assert!(pod["containers"][0]["logs"]["usedBytes"].as_u64() > Some(0), "{summary}");
    assert!(of_node["fs"]["capacityBytes"].as_u64() > of_node["fs"]["usedBytes"].as_u64(), "{summary}");
    assert_eq!(of_node["systemContainers"][0]["name"], "kubelet");
    assert_eq!(of_node["runtime"]["imageFs"]["usedBytes"], 4_096, "{summary}");
    let numbers = [&of_node["runtime"]["containerFs"]["usedBytes"], &of_node["rlimit"]["maxpid"], &of_node["swap"]["swapUsageBytes"]];
    assert!(numbers.iter().all(|number| number.is_u64()) && pod["process_stats"]["process_count"].is_u64(), "{summary}");
    // Not every machine measures pressure, and the Pods of this node have no cgroups.
    for resource in ["cpu", "memory", "io"] {
        let is_measured = std::fs::read(format!("/proc/pressure/{resource}")).is_ok();
        assert_eq!(of_node[resource]["psi"]["some"]["total"].is_u64(), is_measured, "{summary}");
        assert_eq!((&pod[resource]["psi"], &pod["swap"]), (&Value::Null, &Value::Null), "{summary}");
    }
    let (_, short) = get(port, ADMIN, "/stats/summary?only_cpu_and_memory=true").await.expect("a summary");
    assert!(short.contains("\"workingSetBytes\"") && !short.contains("usedBytes") && !short.contains("rxBytes"), "{short}");
    assert!(short.contains("\"swap\"") && !short.contains("\"io\""), "{short}");
    let (status, resource) = get(port, ADMIN, "/metrics/resource").await.expect("metrics");
    let of_container = "container_memory_working_set_bytes{container=\"c\",namespace=\"default\",pod=\"web\"} 1048576 1";
    let (_, cadvisor) = get(port, ADMIN, "/metrics/cadvisor").await.expect("metrics");
    let labels =
        ["container_memory_working_set_bytes{container=\"c\",id=\"/skiff/test/besteffort/pod", "image=\"web:1\"", "container_processes{"];
    assert!(labels.iter().all(|text| cadvisor.contains(text)), "{cadvisor}");
    assert!(status == 200 && resource.contains(of_container) && resource.contains("\nnode_cpu_usage_seconds_total "), "{resource}");
}

#[tokio::test]
async fn exec_runs_over_every_websocket_protocol() {
    let script = Script::default().execs(|spec| {
        let code = i32::from(spec.args.contains(&"fail".to_owned())) * 5;
        Ok(runtimes_fake::ExecReply { stdout: spec.args.join(" ").into_bytes(), stderr: b"warn".to_vec(), code })
    });
    let cluster = Cluster::new(script).await;
    let _agent = cluster.start();
    cluster.node_ready().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    let port = port(&cluster).await;
    for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io"] {
        for (command, code) in [("ok", 0), ("fail", 5)] {
            let stream = connect(port, ADMIN).await.expect("connected");
            let url = format!("wss://localhost/exec/default/web/c?command={command}&command=a%20b&output=1&error=1");
            let mut request = url.into_client_request().expect("a request");
            request.headers_mut().insert("sec-websocket-protocol", protocol.parse().expect("a header"));
            let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("upgraded");
            let mut channels: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
            while let Some(Ok(message)) = socket.next().await {
                if let Message::Binary(frame) = message {
                    channels.entry(frame[0]).or_default().extend_from_slice(&frame[1..]);
                }
            }
            assert_eq!(channels[&1], format!("{command} a b").into_bytes());
            assert_eq!(channels[&2], b"warn");
            let end = String::from_utf8(channels.remove(&3).unwrap_or_default()).expect("text");
            match (protocol, code) {
                ("channel.k8s.io", 0) => assert_eq!(end, ""),
                ("channel.k8s.io", _) => assert!(end.ends_with("exit code 5"), "{end}"),
                (_, 0) => assert!(end.contains("Success"), "{end}"),
                _ => assert!(end.contains("NonZeroExitCode") && end.contains("\"message\":\"5\""), "{end}"),
            }
        }
    }
}

#[tokio::test]
async fn ports_are_forwarded() {
    let (cluster, _agent) = Cluster::running().await;
    cluster.create("web", one("web:1")).await;
    cluster.ready("web").await;
    // The fake network has no namespaces, so the Pod's loopback is this machine's.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let target = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        let (mut from, mut to) = stream.split();
        tokio::io::copy(&mut from, &mut to).await.expect("echoed");
    });
    let stream = connect(port(&cluster).await, ADMIN).await.expect("connected");
    let url = format!("wss://localhost/portForward/default/web?port={target}");
    let mut request = url.into_client_request().expect("a request");
    request.headers_mut().insert("sec-websocket-protocol", "v4.channel.k8s.io".parse().expect("a header"));
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("upgraded");
    let mut next = async || match socket.next().await.expect("a frame").expect("a message") {
        Message::Binary(frame) => frame.to_vec(),
        other => panic!("{other:?}"),
    };
    let [low, high] = target.to_le_bytes();
    assert_eq!(next().await, [0, low, high]);
    assert_eq!(next().await, [1, low, high]);
    socket.send(Message::binary(b"\0hello".to_vec())).await.expect("sent");
    let echoed = socket.next().await.expect("a frame").expect("a message");
    assert_eq!(echoed, Message::binary(b"\0hello".to_vec()));
}
