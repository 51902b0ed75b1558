//! Aggregated API servers: over real HTTPS, on loopback. They accept this server by the front proxy's certificate.

mod authorities;
mod connections;
mod openapi;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt as _, stream};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::nodes::{node_answer, upgraded};
use super::watches::watch;
use super::*;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const GADGETS: &str = "/apis/others.example.com/v1/gadgets";

/// A request that a backing server received.
#[derive(Debug)]
struct ReceivedRequest {
    /// The path with its query.
    path: String,
    headers: http::HeaderMap,
    /// The number of the request's connection, and the client certificate on it.
    connection: usize,
    certificate: Vec<u8>,
}

/// A backing server. The test can set the answers of its discovery.
struct Backing {
    port: u16,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    discovery: Arc<AtomicU16>,
    /// Its OpenAPI v2 document, and the document's ETag.
    openapi: Arc<Mutex<(String, String)>>,
    /// The status for its OpenAPI documents: 0 for no answer at all, 200 for the documents.
    openapi_code: Arc<AtomicU16>,
    /// Makes it end all its connections.
    hang_up: Arc<Notify>,
    /// The connections that have ended.
    ended: Arc<Mutex<BTreeSet<usize>>>,
}

impl Backing {
    async fn new() -> Self {
        Self::of(&PKI).await
    }

    /// A server with a certificate of this authority. It trusts the authority's front proxy.
    async fn of(pki: &Pki) -> Self {
        let names = PkiConfig { names: ["gadgets.default.svc".to_owned()].into(), addresses: [IpAddr::V4(Ipv4Addr::LOCALHOST)].into() };
        let subject = api_auth::pki::Subject::server("gadgets", &names);
        let identity = pki.issue(&subject, Duration::from_secs(3_600)).expect("a certificate");
        let acceptor = acceptor(pki, &identity);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        let backing = Self {
            port,
            received: Arc::default(),
            discovery: Arc::new(AtomicU16::new(200)),
            openapi: Arc::default(),
            openapi_code: Arc::new(AtomicU16::new(200)),
            hang_up: Arc::default(),
            ended: Arc::default(),
        };
        let (received, discovery, openapi_code) =
            (Arc::clone(&backing.received), Arc::clone(&backing.discovery), Arc::clone(&backing.openapi_code));
        let (hang_up, ended, openapi) = (Arc::clone(&backing.hang_up), Arc::clone(&backing.ended), Arc::clone(&backing.openapi));
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (acceptor, received) = (acceptor.clone(), Arc::clone(&received));
                let (discovery, openapi_code) = (Arc::clone(&discovery), Arc::clone(&openapi_code));
                let (hang_up, ended, openapi) = (Arc::clone(&hang_up), Arc::clone(&ended), Arc::clone(&openapi));
                tokio::spawn(async move {
                    let (stream, mut beside) = twice(stream);
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(|leaf| leaf.to_vec());
                    let service = service_fn(|request: Request<hyper::body::Incoming>| {
                        let (path, headers) = (request.uri().to_string(), request.headers().clone());
                        let certificate = certificate.clone().unwrap_or_default();
                        let is_first = !received.lock().iter().any(|request| request.path == path);
                        received.lock().push(ReceivedRequest { path: path.clone(), headers, connection, certificate });
                        let code = discovery.load(Ordering::SeqCst);
                        let (openapi, openapi_code) = (openapi.lock().clone(), openapi_code.load(Ordering::SeqCst));
                        async move {
                            if openapi_code != 200 && matches!(path.as_str(), "/openapi/v2" | "/openapi/v3") {
                                return Ok(failure(openapi_code).await);
                            }
                            if path == "/openapi/v2" {
                                return Ok(tagged(request.headers(), openapi));
                            }
                            if request.headers().contains_key(header::UPGRADE) && !path.contains("/redirect-") {
                                return node_answer(request).await.map_err(|never| match never {});
                            }
                            let body = request.into_body().collect().await.map_err(|_| "half a body")?.to_bytes();
                            if path.ends_with("silent") {
                                std::future::pending::<()>().await;
                            }
                            let is_broken = path.ends_with("break") || (path.ends_with("break-once") && is_first);
                            if is_broken { Err("broken off") } else { Ok(answer(&path, &body, code)) }
                        }
                    });
                    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    let mut serving = std::pin::pin!(serving.with_upgrades());
                    // A client may close the connection at any time.
                    tokio::select! {
                        _ended = &mut serving => {}
                        () = hang_up.notified() => {
                            serving.as_mut().graceful_shutdown();
                            let _ended = serving.await;
                            // Wait until the client has closed the connection too.
                            let _rest = beside.read_to_end(&mut Vec::new()).await;
                        }
                    }
                    ended.lock().insert(connection);
                });
            }
        });
        backing
    }

    /// Creates a Service for the server, and its APIService.
    async fn register(&self, cluster: &Cluster, bundle: &str) {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "gadgets"},
            "spec": {"type": "ExternalName", "externalName": "localhost"}});
        cluster.post("/api/v1/namespaces/default/services", service).await.ok();
        cluster.post(SERVICES, self.registration(bundle)).await.ok();
    }

    fn registration(&self, bundle: &str) -> Value {
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.others.example.com"},
            "spec": {"group": "others.example.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 10,
                "service": {"namespace": "default", "name": "gadgets", "port": self.port}, "caBundle": STANDARD.encode(bundle)}})
    }

    /// How often the loop has checked the server.
    fn looks(&self) -> usize {
        self.received.lock().iter().filter(|request| request.path == "/apis/others.example.com/v1").count()
    }

    async fn until_looked_at(&self, before: usize) {
        let looked = async {
            while self.looks() == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), looked).await.expect("looked at");
    }

    /// Registers a further server and waits until the loop has checked it. A check of this server that was due would
    /// have happened by then.
    async fn until_another_is_looked_at(&self, cluster: &Cluster) {
        let mut another = self.registration(PKI.ca_pem());
        another["metadata"]["name"] = "v2.others.example.com".into();
        another["spec"]["version"] = "v2".into();
        another["spec"]["service"]["name"] = "nothing".into();
        cluster.post(SERVICES, another).await.ok();
        until(cluster, "v2.others.example.com", |condition| condition["status"] == "False").await;
    }

    /// The headers of the last request for a path.
    fn headers(&self, path: &str) -> http::HeaderMap {
        let received = self.received.lock();
        received.iter().rev().find(|request| request.path == path).unwrap_or_else(|| panic!("{path} in {received:?}")).headers.clone()
    }
}

/// A connection, and a second handle of it.
fn twice(stream: TcpStream) -> (TcpStream, TcpStream) {
    let stream = stream.into_std().expect("a stream");
    let again = stream.try_clone().expect("a stream");
    (TcpStream::from_std(stream).expect("a stream"), TcpStream::from_std(again).expect("a stream"))
}

fn acceptor(pki: &Pki, identity: &api_auth::Identity) -> tokio_rustls::TlsAcceptor {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.front_proxy_ca_pem().as_bytes()).expect("PEM")).expect("an authority");
    let provider = api_upstream::tls::provider();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().expect("a verifier");
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let certificate = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).expect("PEM");
    let config = config.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).expect("a certificate");
    tokio_rustls::TlsAcceptor::from(Arc::new(config))
}

/// An answer with that status; 0: no answer ever.
async fn failure(code: u16) -> Response<Body> {
    if code == 0 {
        std::future::pending::<()>().await;
    }
    let mut response = Response::new(Body::from("no document"));
    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
    response
}

/// The document, or an empty body if the client has it already.
fn tagged(headers: &http::HeaderMap, (tag, document): (String, String)) -> Response<Body> {
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag);
    let mut response = Response::new(Body::from(if is_known { String::new() } else { document }));
    *response.status_mut() = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    response.headers_mut().insert(header::ETAG, tag.parse().expect("a value"));
    response
}

fn answer(path: &str, body: &[u8], discovery: u16) -> Response<Body> {
    let row = json!({"name": "gadgets", "singularName": "gadget", "namespaced": false, "kind": "Gadget", "verbs": ["get", "list", "watch"], "shortNames": ["gd"]});
    if let Some(code) = path.strip_prefix(&format!("{GADGETS}/redirect-")) {
        let mut response = Response::new(Body::from("this way"));
        *response.status_mut() = code.parse().expect("a code");
        response.headers_mut().insert(header::LOCATION, "https://elsewhere.example.com/token".parse().expect("a value"));
        return response;
    }
    let value = match path {
        "/apis/others.example.com/v1" => {
            let mut response = Response::new(Body::from(
                json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "others.example.com/v1", "resources": [row]})
                    .to_string(),
            ));
            *response.status_mut() = StatusCode::from_u16(discovery).expect("a code");
            return response;
        }
        "/openapi/v3" => {
            json!({"paths": {"apis/others.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/others.example.com/v1?hash=7"},
            "apis/apps/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=8"}}})
        }
        "/openapi/v3/apis/others.example.com/v1?hash=7" => json!({"openapi": "3.0.0", "info": {"title": "others"}}),
        path if path.contains("watch=true") => {
            let line = |name: &str| format!("{}\n", json!({"type": "ADDED", "object": {"metadata": {"name": name}}}));
            let lines = line("a") + &line("b");
            return Response::new(match path.ends_with("open") {
                true => Body::from_stream(stream::once(async { Ok::<_, Infallible>(lines) }).chain(stream::pending())),
                false => Body::from(lines),
            });
        }
        _ => json!({"asked": path, "sent": String::from_utf8_lossy(body)}),
    };
    let mut response = Response::new(Body::from(value.to_string()));
    response.headers_mut().insert("x-of-the-backend", "yes".parse().expect("a value"));
    response
}

/// The condition of an APIService, as soon as it satisfies `wish`.
async fn until(cluster: &Cluster, name: &str, wish: impl Fn(&Value) -> bool) -> Value {
    let asking = async {
        loop {
            let answer = cluster.get(&format!("{SERVICES}/{name}")).await;
            let condition = answer.body["status"]["conditions"][0].clone();
            if wish(&condition) {
                return condition;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asking).await.unwrap_or_else(|_| panic!("{name} never came to be as wished"))
}

/// Changes the APIService, so that the loop checks it again.
async fn look_again(cluster: &Cluster) {
    let path = format!("{SERVICES}/v1.others.example.com");
    let priority = cluster.get(&path).await.ok()["spec"]["versionPriority"].as_u64().expect("a number");
    cluster.patch(&path, "merge", json!({"spec": {"versionPriority": priority + 1}})).await.ok();
}

async fn registered() -> (Cluster, Backing) {
    registered_with(config()).await
}

async fn registered_with(config: Config) -> (Cluster, Backing) {
    let (cluster, backing) = (cluster_with(config, Arc::new(MemoryStore::new())).await, Backing::new().await);
    backing.register(&cluster, PKI.ca_pem()).await;
    until(&cluster, "v1.others.example.com", |condition| condition["status"] == "True").await;
    (cluster, backing)
}

#[tokio::test]
async fn what_is_served_here_is_registered_as_local() {
    let cluster = cluster().await;
    let all = cluster.get(SERVICES).await.ok();
    let names = names(&all);
    assert!(names.contains(&"v1.") && names.contains(&"v1.apps") && !names.contains(&"v1.apiregistration.k8s.io"), "{names:?}");
    let apps = cluster.get(&format!("{SERVICES}/v1.apps")).await.ok();
    assert_eq!(apps["metadata"]["labels"], json!({"kube-aggregator.kubernetes.io/automanaged": "onstart"}));
    assert_eq!(apps["spec"], json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15}));
    let condition = &apps["status"]["conditions"][0];
    assert_eq!((&condition["reason"], &condition["message"]), (&json!("Local"), &json!("Local APIServices are always available")));
    let table = cluster.get_as(&format!("{SERVICES}/v1.apps"), "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(
        table["rows"][0]["cells"].as_array().map(|cells| cells[..3].to_vec()),
        Some(vec!["v1.apps".into(), "Local".into(), "True".into()])
    );
}

#[tokio::test]
async fn custom_resources_are_registered_for_as_long_as_they_are_served() {
    let cluster = cluster().await;
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "toys.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "toys", "kind": "Toy"}, "versions": [version]}});
    cluster.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await.ok();
    until(&cluster, "v1.example.com", |condition| condition["reason"] == "Local").await;
    let service = cluster.get(&format!("{SERVICES}/v1.example.com")).await.ok();
    assert_eq!((&service["spec"]["groupPriorityMinimum"], &service["spec"]["versionPriority"]), (&json!(1000), &json!(100)));
    cluster.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/toys.example.com").await.ok();
    until(&cluster, "v1.example.com", |condition| condition.is_null()).await;
}

/// A client that followed the redirect would send its token to any host that the backing server names (CVE-2022-3172).
#[tokio::test]
async fn a_server_behind_leads_nobody_elsewhere() {
    let (cluster, _backing) = registered().await;
    for code in [300, 301, 302, 303, 307, 308] {
        for upgrade in [false, true] {
            let request = Request::get(format!("{GADGETS}/redirect-{code}"));
            let request = if upgrade { request.header("connection", "Upgrade").header("upgrade", "x") } else { request };
            let response = cluster.raw(request.body(Body::empty()).expect("a request")).await;
            assert!(!response.headers().contains_key(header::LOCATION), "{code} {upgrade}");
            let answer = json_of(response).await;
            let message = "the backend attempted to redirect this request, which is not permitted";
            assert_eq!((answer.status, answer.body.as_str()), (StatusCode::BAD_GATEWAY, Some(message)), "{code} {upgrade}");
        }
    }
}

#[tokio::test]
async fn requests_are_passed_on_with_the_users_name() {
    let (cluster, backing) = registered().await;
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{GADGETS}?x=y"))
        .header("x-remote-user", "forged")
        .header("x-remote-group", "forged")
        .header("authorization", "Bearer secret")
        .header("x-own", "kept")
        .body(Body::from("whatever it is"))
        .expect("a request");
    let response = cluster.raw(request).await;
    assert_eq!(response.headers()["x-of-the-backend"], "yes");
    let answer = json_of(response).await.ok();
    assert_eq!(answer, json!({"asked": format!("{GADGETS}?x=y"), "sent": "whatever it is"}));
    let headers = backing.headers(&format!("{GADGETS}?x=y"));
    let all = |name: &str| -> Vec<String> { headers.get_all(name).iter().map(|value| value.to_str().expect("text").to_owned()).collect() };
    assert_eq!(all("x-remote-user"), ["admin"]);
    assert_eq!(all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert_eq!(
        (all("authorization"), all("x-own"), all("host")),
        (vec![], vec!["kept".to_owned()], vec!["gadgets.default.svc".to_owned()])
    );
    // A request without authorization is not forwarded.
    let jane = cluster.user("jane", &["system:authenticated"]);
    let request = Request::builder().uri(GADGETS).body(Body::empty()).expect("a request");
    let refused = json_of(send(&jane, request).await).await;
    assert!(refused.refusal().1.starts_with("gadgets.others.example.com is forbidden: User \"jane\" cannot list"), "{refused:?}");
    let mut watch = watch(&cluster, &format!("{GADGETS}?watch=true")).await;
    assert_eq!(watch.next().await.expect("an event")["object"]["metadata"]["name"], "a");
    assert_eq!(watch.next().await.expect("an event")["object"]["metadata"]["name"], "b");
}

#[tokio::test]
async fn upgraded_connections_are_joined() {
    let (cluster, _backing) = registered().await;
    let (mut stream, head) = upgraded(&cluster, &format!("{GADGETS}/g/exec?a=b")).await;
    assert!(head.starts_with("http/1.1 101") && head.contains("sec-websocket-protocol: v5.channel.k8s.io"), "{head}");
    stream.write_all(b"hello").await.expect("written");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.expect("read");
    assert_eq!(rest, format!("{GADGETS}/g/exec?a=bhello"));
}

#[tokio::test]
async fn discovery_and_openapi_tell_of_it() {
    let (cluster, backing) = registered().await;
    let groups = cluster.get("/apis").await.ok();
    let ours =
        groups["groups"].as_array().expect("groups").iter().find(|group| group["name"] == "others.example.com").expect("there").clone();
    assert_eq!(ours["preferredVersion"], json!({"groupVersion": "others.example.com/v1", "version": "v1"}));
    assert_eq!(cluster.get("/apis/others.example.com").await.ok()["kind"], "APIGroup");
    assert_eq!(cluster.get("/apis/others.example.com/v1").await.ok()["resources"][0]["name"], "gadgets");
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let version = async || {
        let list = cluster.get_as("/apis", aggregated).await.ok();
        let items = list["items"].as_array().expect("groups").clone();
        items.iter().find(|item| item["metadata"]["name"] == "others.example.com").expect("there")["versions"][0].clone()
    };
    let current = version().await;
    assert_eq!((&current["freshness"], &current["resources"][0]["resource"]), (&json!("Current"), &json!("gadgets")));
    assert_eq!(current["resources"][0]["shortNames"], json!(["gd"]));
    // The server is available before its documents are read.
    openapi::until_in_index(&cluster, true).await;
    let index = cluster.get("/openapi/v3").await.ok();
    let url = index["paths"]["apis/others.example.com/v1"]["serverRelativeURL"].as_str().expect("a document").to_owned();
    assert_eq!(cluster.get(&url).await.ok()["info"]["title"], "others");
    assert!(!index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().expect("ours").ends_with("hash=8"), "it speaks for itself alone");
    // A server that no longer answers is still listed with its previous resources.
    backing.discovery.store(500, Ordering::SeqCst);
    look_again(&cluster).await;
    until(&cluster, "v1.others.example.com", |condition| condition["status"] == "False").await;
    let stale = version().await;
    assert_eq!((&stale["freshness"], &stale["resources"]), (&json!("Stale"), &current["resources"]));
    cluster.delete(&format!("{SERVICES}/v1.others.example.com")).await.ok();
    assert_eq!(cluster.get("/apis/others.example.com").await.status, StatusCode::NOT_FOUND);
    assert_eq!(cluster.get(GADGETS).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_unreachable_server_is_reported_as_unavailable() {
    let (cluster, backing) = (cluster().await, Backing::new().await);
    cluster.post(SERVICES, backing.registration(PKI.ca_pem())).await.ok();
    let condition = until(&cluster, "v1.others.example.com", |condition| condition["status"] == "False").await;
    assert_eq!(
        (&condition["reason"], &condition["message"]),
        (&json!("ServiceNotFound"), &json!("service/gadgets in \"default\" is not present"))
    );
    let refused = cluster.get(GADGETS).await;
    assert_eq!((refused.status, &refused.body), (StatusCode::SERVICE_UNAVAILABLE, &json!("service unavailable\n")));
    assert_eq!(cluster.get("/apis/others.example.com/v1").await.status, StatusCode::SERVICE_UNAVAILABLE);
    backing.discovery.store(403, Ordering::SeqCst);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "gadgets"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    cluster.post("/api/v1/namespaces/default/services", service).await.ok();
    let condition = until(&cluster, "v1.others.example.com", |condition| condition["reason"] == "FailedDiscoveryCheck").await;
    let url = format!("https://gadgets.default.svc:{}/apis/others.example.com/v1", backing.port);
    assert_eq!(condition["message"], format!("failing or missing response from {url}: bad status from {url}: 403"));
    let headers = backing.headers("/apis/others.example.com/v1");
    assert_eq!(headers["x-remote-user"], "system:kube-aggregator");
    assert_eq!(headers["x-remote-group"], "system:masters");
}

#[tokio::test]
async fn only_a_server_that_is_concerned_is_looked_at() {
    let (cluster, backing) = registered().await;
    let before = backing.looks();
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "other-1", "labels": {"kubernetes.io/service-name": "other"}},
        "ports": [{"name": "", "port": 80}], "endpoints": [{"addresses": ["10.0.0.9"]}]});
    cluster.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await.ok();
    backing.until_another_is_looked_at(&cluster).await;
    assert_eq!(backing.looks(), before);
    let elsewhere = json!({"spec": {"externalName": "127.0.0.1"}});
    cluster.patch("/api/v1/namespaces/default/services/gadgets", "merge", elsewhere).await.ok();
    backing.until_looked_at(before).await;
}

#[tokio::test]
async fn what_a_client_does_wrong_is_no_doubt_about_the_server() {
    let (cluster, backing) = registered().await;
    let before = backing.looks();
    let broken = stream::iter([Ok("a"), Err(std::io::Error::other("no chunk"))]);
    let request = Request::builder().method(Method::POST).uri(GADGETS).body(Body::from_stream(broken)).expect("a request");
    assert_eq!(cluster.raw(request).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    // The longest path that works: an absolute URL, with scheme and host, would be too long.
    let longest = format!("{GADGETS}?{}", "a".repeat(65_533 - GADGETS.len()));
    assert_eq!(cluster.get(&longest).await.ok()["asked"], longest);
    backing.until_another_is_looked_at(&cluster).await;
    assert_eq!(backing.looks(), before);
    // A server that breaks off an answer may have a fault.
    cluster.post(&format!("{GADGETS}?break"), json!({})).await;
    backing.until_looked_at(before).await;
}

#[tokio::test]
async fn a_watch_that_is_never_begun_ends_and_is_a_doubt() {
    let mut config = config();
    config.request_timeout = Duration::from_secs(3);
    let (cluster, backing) = registered_with(config).await;
    let before = backing.looks();
    let path = format!("{GADGETS}?watch=true&silent");
    let ended = tokio::time::timeout(Duration::from_secs(20), cluster.get(&path)).await.expect("in time");
    assert_eq!(ended.refusal().0, 504, "{ended:?}");
    backing.until_looked_at(before).await;
}

#[tokio::test]
async fn forwarded_watches_end_when_the_server_stops() {
    let (cluster, _backing) = registered().await;
    let mut watch = watch(&cluster, &format!("{GADGETS}?watch=true&open")).await;
    for name in ["a", "b"] {
        assert_eq!(watch.next().await.expect("an event")["object"]["metadata"]["name"], name);
    }
    cluster.server.shutdown().await;
    assert_eq!(tokio::time::timeout(Duration::from_secs(5), watch.next()).await.expect("ended"), None);
}
