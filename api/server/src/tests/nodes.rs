//! Connections to a node: here a socket on loopback with a certificate of the cluster.

use std::net::{IpAddr, Ipv4Addr};

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::*;

/// A node's server: it answers requests for logs with the request's path, and echoes on upgraded connections.
pub(super) async fn node() -> u16 {
    node_that_tells().await.0
}

/// The same server, with a message for every request that it gets.
async fn node_that_tells() -> (u16, tokio::sync::mpsc::UnboundedReceiver<()>) {
    let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
    let subject = api_auth::pki::Subject::server(
        "system:node:n1",
        &PkiConfig { names: Default::default(), addresses: [IpAddr::V4(Ipv4Addr::LOCALHOST)].into() },
    );
    let identity = PKI.issue(&subject, std::time::Duration::from_secs(3_600)).expect("a certificate");
    let acceptor = crate::tls::tests_acceptor(&PKI, &identity);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.expect("a handshake");
                let user = stream
                    .get_ref()
                    .1
                    .peer_certificates()
                    .and_then(<[_]>::first)
                    .and_then(|leaf| api_auth::authenticate::certificate_user(leaf));
                assert_eq!(
                    user.map(|user| user.username).as_deref(),
                    Some("kube-apiserver-kubelet-client"),
                    "the API server shows who it is"
                );
                let answer = service_fn(move |request| {
                    // Most tests have dropped the receiver.
                    let _ = sender.send(());
                    node_answer(request)
                });
                let service = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                service.with_upgrades().await.expect("served");
            });
        }
    });
    (port, requests)
}

pub(super) async fn node_answer(mut request: Request<hyper::body::Incoming>) -> Result<Response<Body>, std::convert::Infallible> {
    let uri = request.uri().to_string();
    if uri.contains("/silent") {
        std::future::pending::<()>().await;
    }
    if uri.contains("/endless") {
        let chunks = futures::stream::repeat_with(|| Ok::<_, std::convert::Infallible>(bytes::Bytes::from_static(&[b'x'; 4_096])));
        let mut response = Response::new(Body::from_stream(chunks));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return Ok(response);
    }
    if uri.contains("/missing") {
        let mut response = Response::new(Body::from("container not found"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return Ok(response);
    }
    if !request.headers().contains_key(header::UPGRADE) {
        return Ok(Response::new(Body::from(uri)));
    }
    let protocol = request.headers()[header::SEC_WEBSOCKET_PROTOCOL].clone();
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgrade.await.expect("upgraded"));
        stream.write_all(uri.as_bytes()).await.expect("written");
        let mut buffer = [0; 5];
        stream.read_exact(&mut buffer).await.expect("read");
        stream.write_all(&buffer).await.expect("written");
        stream.shutdown().await.expect("closed");
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::CONNECTION, "Upgrade".parse().expect("a value"));
    response.headers_mut().insert(header::UPGRADE, "websocket".parse().expect("a value"));
    response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    Ok(response)
}

pub(super) async fn with_pod(cluster: &Cluster, port: u16) {
    node_at(cluster, "n1", ("InternalIP", "127.0.0.1"), port).await;
    cluster.pod("p", "n1").await;
}

/// Creates a Node whose server is at that address.
async fn node_at(cluster: &Cluster, name: &str, (kind, address): (&str, &str), port: u16) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {
        "addresses": [{"type": kind, "address": address}], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    cluster.post("/api/v1/nodes", node.clone()).await.ok();
    cluster.patch(&format!("/api/v1/nodes/{name}/status"), "merge", json!({"status": node["status"]})).await.ok();
}

/// A user who may write a Node and use its proxy must not act with the server's identity for nodes.
#[tokio::test]
async fn no_node_leads_the_server_to_itself() {
    let cluster = cluster_with(Config { nodes_on_loopback: false, ..config() }, Arc::new(MemoryStore::new())).await;
    let (address, _) = served(&cluster).await;
    let advertised = cluster.server.core().config.advertise_address;
    for (name, at, port) in [
        ("loopback", ("InternalIP", "127.0.0.1"), address.port()),
        ("name", ("Hostname", "localhost"), address.port()),
        ("mapped", ("InternalIP", "::ffff:127.0.0.1"), address.port()),
        ("unspecified", ("InternalIP", "0.0.0.0"), address.port()),
        ("metadata", ("ExternalIP", "169.254.169.254"), 80),
        ("service", ("InternalIP", "10.96.0.1"), 443),
        ("server", ("InternalIP", "10.0.0.1"), advertised.port()),
    ] {
        node_at(&cluster, name, at, port).await;
        cluster.pod(name, name).await;
        let kubelet = format!("/api/v1/nodes/{name}/proxy/api/v1/namespaces/kube-system/secrets");
        let ports = ["https", "http"].map(|scheme| format!("/api/v1/nodes/{scheme}:{name}:{port}/proxy/version"));
        let other = format!("/api/v1/nodes/{name}:{}/proxy/version", if name == "server" { port } else { 9_100 });
        let log = format!("{PODS}/{name}/log");
        for path in [kubelet, log, other].into_iter().chain(ports) {
            assert_eq!(cluster.get(&path).await.refusal(), (400, "address not allowed"), "{path}");
        }
    }
    for name in ["loopback", "name"] {
        for path in ["exec?command=ls", "attach", "portforward?ports=80"] {
            let (_, head) = upgraded(&cluster, &format!("{PODS}/{name}/{path}")).await;
            assert!(head.starts_with("http/1.1 400"), "{path}: {head}");
        }
    }
}

/// A certificate for an address does not prove that its owner is the node that claims the address.
#[tokio::test]
async fn a_node_is_known_by_its_own_certificate() {
    let cluster = cluster().await;
    let (server, node) = (served(&cluster).await.0.port(), node().await);
    for (name, port, certified) in [("n2", node, "system:node:n1"), ("n3", server, "kube-apiserver")] {
        node_at(&cluster, name, ("InternalIP", "127.0.0.1"), port).await;
        cluster.pod(name, name).await;
        let why = format!("tls: certificate is for {certified:?}, not \"system:node:{name}\"");
        let proxied = cluster.get(&format!("/api/v1/nodes/{name}/proxy/version")).await;
        assert_eq!(proxied.refusal(), (503, format!("error trying to reach service: {why}").as_str()));
        let log = cluster.get(&format!("{PODS}/{name}/log")).await;
        assert!(log.status == StatusCode::INTERNAL_SERVER_ERROR && log.refusal().1.ends_with(&why), "{log:?}");
    }
}

/// The server's client certificate for nodes is accepted by nodes only.
#[tokio::test]
async fn the_servers_certificate_for_nodes_opens_nothing_else() {
    let cluster = cluster().await;
    let kubelets = cluster.user("kube-apiserver-kubelet-client", &["system:authenticated"]);
    let ask = async |path: &str| json_of(send(&kubelets, Request::get(path).body(Body::empty()).expect("a request")).await).await;
    for path in ["/api/v1/secrets", "/api/v1/nodes/n1/status", "/apis/rbac.authorization.k8s.io/v1/clusterroles", CONFIG_MAPS] {
        assert_eq!(ask(path).await.status, StatusCode::FORBIDDEN, "{path}");
    }
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": "kube-apiserver-kubelet-client", "resourceAttributes": {"verb": "create", "resource": "nodes", "subresource": "proxy"}}});
    let answer = cluster.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review).await.ok();
    assert_eq!(answer["status"]["allowed"], true, "nodes ask that");
}

#[tokio::test]
async fn a_log_is_the_nodes() {
    let cluster = cluster().await;
    with_pod(&cluster, node().await).await;
    let log = cluster.get(&format!("{PODS}/p/log?follow=true&tailLines=5&timestamps=false")).await.ok();
    assert_eq!(log, "/containerLogs/default/p/c?follow=true&tailLines=5");
    let wrong = cluster.get(&format!("{PODS}/p/log?container=x")).await;
    assert_eq!(wrong.refusal(), (400, "container x is not valid for pod p"));
    let negative = cluster.get(&format!("{PODS}/p/log?tailLines=-1")).await;
    assert_eq!(negative.status, StatusCode::UNPROCESSABLE_ENTITY);
    cluster.pod("unbound", "").await;
    assert_eq!(cluster.get(&format!("{PODS}/unbound/log")).await.ok(), "");
}

#[tokio::test]
async fn a_node_that_is_away_is_said_to_be() {
    let cluster = cluster().await;
    with_pod(&cluster, 1).await;
    let log = cluster.get(&format!("{PODS}/p/log")).await;
    assert_eq!(log.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(log.refusal().1.ends_with("error dialing backend: dial tcp 127.0.0.1:1: connect: connection refused"), "{log:?}");
    assert_eq!(cluster.get(&format!("{PODS}/p/exec?command=ls")).await.refusal(), (400, "Upgrade request required"));
}

/// A node may accept a request and then hang. The client gets an error in the end.
#[tokio::test]
async fn a_node_that_does_not_answer_is_not_waited_for_for_ever() {
    let cluster = cluster().await;
    let (port, mut requests) = node_that_tells().await;
    with_pod(&cluster, port).await;
    cluster.pod("silent", "n1").await;
    let path = format!("{PODS}/silent/log");
    let asking = cluster.get(&path);
    let passing = async {
        requests.recv().await.expect("the node is asked");
        tokio::time::pause();
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
    };
    let (log, ()) = tokio::join!(asking, passing);
    assert_eq!(log.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(log.refusal().1.ends_with("timed out waiting for an answer"), "{log:?}");
}

/// A websocket starts with a GET, but the right to read must not be enough to run a command.
#[tokio::test]
async fn exec_is_for_those_who_may_create_it() {
    let cluster = cluster().await;
    cluster.pod("p", "").await;
    let (rbac, base) = ("rbac.authorization.k8s.io", "/apis/rbac.authorization.k8s.io/v1");
    for (name, verbs) in [("reader", json!(["get"])), ("worker", json!(["get", "create"]))] {
        let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": verbs}]});
        cluster.post(&format!("{base}/clusterroles"), role).await.ok();
        let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name}, "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}]});
        cluster.post(&format!("{base}/clusterrolebindings"), binding).await.ok();
    }
    let ask = async |name: &str| {
        let request = Request::builder().uri(format!("{PODS}/p/exec?command=ls")).body(Body::empty()).expect("a request");
        json_of(send(&cluster.user(name, &["system:authenticated"]), request).await).await
    };
    let message =
        "pods \"p\" is forbidden: User \"reader\" cannot create resource \"pods/exec\" in API group \"\" in the namespace \"default\"";
    assert_eq!(ask("reader").await.refusal(), (403, message));
    assert_eq!(ask("worker").await.refusal(), (400, "pod p does not have a host assigned"));
}

/// A listening address of the server on loopback, and a connector with the administrator's certificate.
pub(super) async fn served(cluster: &Cluster) -> (std::net::SocketAddr, TlsConnector) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("an address");
    let serving = cluster.server.serving(listener);
    tokio::spawn(async move { serving.await.expect("served") });
    (address, crate::tls::tests_connector(&PKI, Some(&admin_identity())))
}

#[tokio::test]
async fn exec_joins_the_client_and_the_node() {
    let cluster = cluster().await;
    with_pod(&cluster, node().await).await;
    let path = format!("{PODS}/p/exec?command=ls&command=a%20b&stdin=true&stdout=true&tty=false");
    let (mut stream, head) = upgraded(&cluster, &path).await;
    assert!(head.starts_with("http/1.1 101") && head.contains("sec-websocket-protocol: v5.channel.k8s.io"), "{head}");
    stream.write_all(b"hello").await.expect("written");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.expect("read");
    assert_eq!(rest, "/exec/default/p/c?input=1&output=1&command=ls&command=a%20bhello");
}

#[tokio::test]
async fn connections_show_who_the_client_is() {
    let cluster = cluster().await;
    let (address, connector) = served(&cluster).await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let ask = async |connector: &TlsConnector, token: &str| {
        let stream = TcpStream::connect(address).await.expect("connected");
        let stream = connector.connect("127.0.0.1".try_into().expect("a name"), stream).await.expect("a handshake");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        let request =
            Request::builder().method(Method::POST).uri(path).header(header::HOST, "x").header(header::CONTENT_TYPE, "application/json");
        let request = if token.is_empty() { request } else { request.header(header::AUTHORIZATION, format!("Bearer {token}")) };
        json_of(sender.send_request(request.body(Body::from(body.clone())).expect("a request")).await.expect("an answer").map(Body::new))
            .await
    };
    let review = ask(&connector, "").await.ok();
    assert_eq!(review["status"]["userInfo"]["username"], "kubernetes-admin");
    assert!(review["metadata"]["creationTimestamp"].is_string(), "{review}");
    let nobody = crate::tls::tests_connector(&PKI, None);
    assert_eq!(ask(&nobody, "").await.refusal().0, 403);
    assert_eq!(ask(&nobody, "bogus").await.refusal(), (401, "Unauthorized"));
    let other = tempfile::tempdir().expect("a directory");
    let other = Pki::open(other.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys");
    let foreign = crate::tls::tests_connector(&PKI, Some(other.kubelet_client()));
    assert_eq!(ask(&foreign, "").await.refusal(), (401, "Unauthorized"));
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn a_proxy_leads_to_the_nodes_own_server() {
    let cluster = cluster().await;
    with_pod(&cluster, node().await).await;
    let answer = cluster.get("/api/v1/nodes/n1/proxy/stats/summary?only=cpu&x=a%20b").await;
    assert_eq!(answer.ok(), "/stats/summary?only=cpu&x=a%20b");
    assert_eq!(cluster.post("/api/v1/nodes/n1/proxy/run", json!({})).await.ok(), "/run");
    assert_eq!(cluster.get("/api/v1/nodes/n1/proxy/").await.ok(), "/");
    let options = async |path: &str| cluster.request(Method::OPTIONS, path, "application/json", Body::empty()).await;
    assert_eq!(options("/api/v1/nodes/n1/proxy/x").await.ok(), "/x");
    assert_eq!(options("/api/v1/nodes/n1/status").await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(options("/api/v1/namespaces/default/pods/p/log").await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(cluster.get("/api/v1/nodes/n1/proxy/missing").await.status, StatusCode::NOT_FOUND);
    let to_root = cluster.get("/api/v1/nodes/n1/proxy?a=b").await;
    assert_eq!(to_root.status, StatusCode::MOVED_PERMANENTLY);
    assert_eq!(to_root.headers[header::LOCATION], "/api/v1/nodes/n1/proxy/?a=b");
    let port = cluster.get("/api/v1/nodes/n1").await.ok()["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].clone();
    assert_eq!(cluster.get(&format!("/api/v1/nodes/https:n1:{port}/proxy/x")).await.ok(), "/x");
    for (path, wanted) in [
        ("/api/v1/nodes/n2/proxy/", (404, "nodes \"n2\" not found")),
        ("/api/v1/nodes/ftp:n1:21/proxy/", (400, "invalid node request \"ftp:n1:21\"")),
        ("/api/v1/nodes/n1:9100/proxy/", (400, "address not allowed")),
        ("/api/v1/namespaces/default/pods/p/proxy/", (400, "address not allowed")),
        ("/api/v1/namespaces/default/pods/q:80/proxy/", (404, "pods \"q\" not found")),
        ("/api/v1/namespaces/default/services/kubernetes:80/proxy/", (503, "no service port 80 found for service \"kubernetes\"")),
    ] {
        assert_eq!(cluster.get(path).await.refusal(), wanted, "{path}");
    }
}

/// An upgraded connection, and the head of the answer.
pub(super) async fn upgraded(cluster: &Cluster, path: &str) -> (tokio_rustls::client::TlsStream<TcpStream>, String) {
    let (address, connector) = served(cluster).await;
    let stream = TcpStream::connect(address).await.expect("connected");
    let mut stream = connector.connect("127.0.0.1".try_into().expect("a name"), stream).await.expect("a handshake");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a byte"));
    }
    (stream, String::from_utf8(head).expect("text").to_lowercase())
}

#[tokio::test]
async fn a_proxy_joins_upgraded_connections() {
    let cluster = cluster().await;
    with_pod(&cluster, node().await).await;
    let (mut stream, head) = upgraded(&cluster, "/api/v1/nodes/n1/proxy/any/where?a=b").await;
    assert!(head.starts_with("http/1.1 101") && head.contains("sec-websocket-protocol: v5.channel.k8s.io"), "{head}");
    stream.write_all(b"hello").await.expect("written");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.expect("read");
    assert_eq!(rest, "/any/where?a=bhello");
}

#[tokio::test]
async fn who_may_only_get_pods_runs_nothing_in_them_by_a_websocket() {
    let cluster = cluster().await;
    with_pod(&cluster, node().await).await;
    let streams = ["pods/exec", "pods/attach", "pods/portforward", "pods/log"];
    for (name, verbs) in [("reader", vec!["get"]), ("runner", vec!["get", "create"])] {
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": streams, "verbs": verbs}]});
        cluster.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await.ok();
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]});
        cluster.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.ok();
    }
    let get = async |user: &str, path: &str| {
        let request = Request::builder().uri(format!("{PODS}/p/{path}")).body(Body::empty()).expect("a request");
        json_of(send(&cluster.user(user, &["system:authenticated"]), request).await).await
    };
    for path in ["exec?command=ls&stdout=1", "attach?stdout=1", "portforward"] {
        let refused = get("reader", path).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        let subresource = path.split('?').next().expect("a path");
        let wanted = format!("User \"reader\" cannot create resource \"pods/{subresource}\"");
        assert!(refused.refusal().1.contains(&wanted), "{refused:?}");
        assert_eq!(get("runner", path).await.refusal(), (400, "Upgrade request required"), "{path}");
    }
    assert!(get("reader", "log").await.status.is_success());
}
