//! A client that speaks protobuf over HTTPS, as controllers in Go do: it creates a Pod, watches it run, then lists,
//! replaces and deletes it. prost generated its structs from upstream's definitions.

use std::time::Duration;

use http_body_util::BodyExt as _;
use k8s_pb::api::core::v1::{Container, Pod, PodList, PodSpec};
use k8s_pb::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, WatchEvent};
use k8s_pb::apimachinery::pkg::runtime::{TypeMeta, Unknown};
use kube::Client;
use kube::client::Body;
use prost::Message;
use tests::{Cluster, Net, client};

const MEDIA: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// How long the Pod may take for each change of its state.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_client_that_speaks_protobuf_runs_a_pod() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    cluster.start();
    cluster.load_samples();
    client::story(&cluster, async |client| run(&client).await);
    // Other clients see the same.
    assert_eq!(cluster.kubectl().ok("get pods --no-headers --ignore-not-found"), "");
}

async fn run(client: &Client) {
    let listed: PodList = ask(client, "GET", PODS, &[]).await;
    let from = listed.metadata.expect("metadata").resource_version.expect("a revision");
    let mut watch = Watch::begin(client, &format!("{PODS}?watch=true&resourceVersion={from}")).await;

    let created: Pod = ask(client, "POST", PODS, &envelope("Pod", &pod())).await;
    assert_eq!(created.spec.as_ref().and_then(|spec| spec.dns_policy.as_deref()), Some("ClusterFirst"), "defaults are made");
    assert_eq!(created.metadata.as_ref().expect("metadata").managed_fields.len(), 1);
    assert_eq!(watch.until(|_, _| true).await.0, "ADDED");
    let (kind, running) = watch.until(|_, pod| phase(pod) == "Running" && is_ready(pod)).await;
    assert_eq!(kind, "MODIFIED");

    let path = format!("{PODS}/tools");
    let mut read: Pod = ask(client, "GET", &path, &[]).await;
    assert_eq!(read, running, "a watch tells what a get reads");
    read.metadata.as_mut().expect("metadata").labels.insert("tier".to_owned(), "test".to_owned());
    let replaced: Pod = ask(client, "PUT", &path, &envelope("Pod", &read)).await;
    let listed: PodList = ask(client, "GET", &format!("{PODS}?labelSelector=tier%3Dtest"), &[]).await;
    assert_eq!(listed.items, [replaced], "a list holds what a write answered");

    let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    let _deleted: Pod = ask(client, "DELETE", &path, &envelope("DeleteOptions", &options)).await;
    watch.until(|kind, _| kind == "DELETED").await;
}

fn pod() -> Pod {
    let text = |text: &str| Some(text.to_owned());
    let container = Container {
        name: text("tools"),
        image: text("samples/tools:latest"),
        image_pull_policy: text("IfNotPresent"),
        command: ["sleep", "1000000"].map(str::to_owned).to_vec(),
        ..Container::default()
    };
    let spec = PodSpec { containers: vec![container], runtime_class_name: text("runc"), ..PodSpec::default() };
    Pod { metadata: Some(ObjectMeta { name: text("tools"), ..ObjectMeta::default() }), spec: Some(spec), status: None }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().map(|status| status.phase()).unwrap_or_default()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.r#type() == "Ready" && condition.status() == "True")
}

/// The message in its envelope.
fn envelope(kind: &str, message: &impl Message) -> Vec<u8> {
    let type_meta = TypeMeta { api_version: Some("v1".to_owned()), kind: Some(kind.to_owned()) };
    let unknown = Unknown { type_meta: Some(type_meta), raw: Some(message.encode_to_vec()), ..Unknown::default() };
    [MAGIC, &unknown.encode_to_vec()].concat()
}

fn opened<T: Message + Default>(bytes: &[u8]) -> T {
    let unknown = Unknown::decode(bytes.strip_prefix(MAGIC).expect("an envelope")).expect("an envelope");
    T::decode(unknown.raw()).unwrap_or_else(|error| panic!("{:?}: {error}", unknown.type_meta))
}

async fn send(client: &Client, method: &str, path: &str, accept: &str, body: &[u8]) -> http::Response<Body> {
    let request = http::Request::builder().method(method).uri(path).header("Accept", accept).header("Content-Type", MEDIA);
    let answer = client.send(request.body(Body::from(body.to_vec())).expect("a request")).await.expect("an answer");
    assert!(answer.status().is_success(), "{method} {path}: {answer:?}");
    assert_eq!(answer.headers()["content-type"], accept, "{method} {path}");
    answer
}

async fn ask<T: Message + Default>(client: &Client, method: &str, path: &str, body: &[u8]) -> T {
    let answer = send(client, method, path, MEDIA, body).await;
    opened(&answer.into_body().collect().await.expect("a body").to_bytes())
}

/// A watch: frames, each after its length.
struct Watch {
    body: Body,
    unread: Vec<u8>,
}

impl Watch {
    async fn begin(client: &Client, path: &str) -> Self {
        let answer = send(client, "GET", path, &format!("{MEDIA};stream=watch"), &[]).await;
        Self { body: answer.into_body(), unread: Vec::new() }
    }

    /// Reads events until the predicate accepts one; returns the type and the Pod.
    async fn until(&mut self, wanted: impl Fn(&str, &Pod) -> bool) -> (String, Pod) {
        let read = async {
            loop {
                let event = self.next().await;
                let pod: Pod = opened(event.object.as_ref().expect("an object").raw());
                if wanted(event.r#type(), &pod) {
                    return (event.r#type().to_owned(), pod);
                }
            }
        };
        tokio::time::timeout(PATIENCE, read).await.expect("the event comes")
    }

    async fn next(&mut self) -> WatchEvent {
        loop {
            let len = self.unread.first_chunk::<4>().map(|len| 4 + u32::from_be_bytes(*len) as usize);
            if let Some(len) = len.filter(|len| *len <= self.unread.len()) {
                let event = WatchEvent::decode(&self.unread[4..len]).expect("an event");
                self.unread.drain(..len);
                return event;
            }
            let frame = self.body.frame().await.expect("the watch goes on").expect("a frame");
            self.unread.extend_from_slice(&frame.into_data().expect("data"));
        }
    }
}
