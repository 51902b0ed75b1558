//! Clients that speak protobuf. The test reads and writes with the structs of the crate k8s-pb.

use k8s_pb::api::{apidiscovery, apps, authentication, authorization, autoscaling, core, policy};
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_pb::apimachinery::pkg::runtime;
use prost::Message;

use super::*;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const EITHER: &str = "application/vnd.kubernetes.protobuf,application/json";

/// An answer with its raw body.
struct Raw {
    status: StatusCode,
    media: String,
    bytes: Vec<u8>,
}

impl Raw {
    /// The message of that kind, from its envelope.
    fn message<T: Message + Default>(&self, kind: &str) -> T {
        message(&self.bytes, kind)
    }

    fn status(&self) -> meta::Status {
        assert_eq!(self.media, PROTOBUF);
        self.message("Status")
    }
}

fn message<T: Message + Default>(bytes: &[u8], kind: &str) -> T {
    let unknown = runtime::Unknown::decode(bytes.strip_prefix(b"k8s\0").expect("an envelope")).expect("an envelope");
    assert_eq!(unknown.type_meta.as_ref().expect("a kind").kind(), kind);
    T::decode(unknown.raw()).expect("a message")
}

fn envelope(api_version: &str, kind: &str, message: &impl Message) -> Vec<u8> {
    let type_meta = runtime::TypeMeta { api_version: Some(api_version.to_owned()), kind: Some(kind.to_owned()) };
    let unknown = runtime::Unknown {
        type_meta: Some(type_meta),
        raw: Some(message.encode_to_vec()),
        content_encoding: Some(String::new()),
        content_type: Some(String::new()),
    };
    [b"k8s\0".as_slice(), &unknown.encode_to_vec()].concat()
}

async fn ask(cluster: &Cluster, method: Method, path: &str, accept: &str, body: Vec<u8>) -> Raw {
    let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept).header(header::CONTENT_TYPE, PROTOBUF);
    let response = cluster.raw(request.body(Body::from(body)).expect("a request")).await;
    let (parts, body) = response.into_parts();
    let media = parts.headers[header::CONTENT_TYPE].to_str().expect("text").to_owned();
    Raw { status: parts.status, media, bytes: body.collect().await.expect("a body").to_bytes().to_vec() }
}

async fn get(cluster: &Cluster, path: &str, accept: &str) -> Raw {
    ask(cluster, Method::GET, path, accept, Vec::new()).await
}

fn named(name: &str) -> Option<meta::ObjectMeta> {
    Some(meta::ObjectMeta { name: Some(name.to_owned()), ..Default::default() })
}

#[tokio::test]
async fn objects_are_created_read_replaced_and_deleted() {
    let cluster = cluster().await;
    let mut map = core::v1::ConfigMap { metadata: named("m"), ..Default::default() };
    map.data.insert("k".to_owned(), "v".to_owned());
    map.binary_data.insert("b".to_owned(), vec![0, 255]);
    let created = ask(&cluster, Method::POST, CONFIG_MAPS, PROTOBUF, envelope("v1", "ConfigMap", &map)).await;
    assert_eq!((created.status, created.media.as_str()), (StatusCode::CREATED, PROTOBUF));
    let mut created: core::v1::ConfigMap = created.message("ConfigMap");
    assert!(created.metadata.as_ref().expect("metadata").uid.is_some());
    let path = format!("{CONFIG_MAPS}/m");
    assert_eq!(cluster.get(&path).await.ok()["binaryData"], json!({"b": "AP8="}));

    created.data.insert("k".to_owned(), "w".to_owned());
    let replaced = ask(&cluster, Method::PUT, &path, PROTOBUF, envelope("v1", "ConfigMap", &created)).await;
    assert_eq!(replaced.status, StatusCode::OK);
    let read: core::v1::ConfigMap = get(&cluster, &path, EITHER).await.message("ConfigMap");
    assert_eq!(read, replaced.message("ConfigMap"));
    assert_eq!((read.data["k"].as_str(), read.binary_data["b"].as_slice()), ("w", [0, 255].as_slice()));
    // An update with an older version.
    let conflict = ask(&cluster, Method::PUT, &path, PROTOBUF, envelope("v1", "ConfigMap", &created)).await;
    assert_eq!((conflict.status, conflict.status().reason()), (StatusCode::CONFLICT, "Conflict"));

    let uid = |uid: &str| {
        let preconditions = meta::Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let options = meta::DeleteOptions { preconditions: Some(preconditions), ..Default::default() };
        envelope("v1", "DeleteOptions", &options)
    };
    let other = ask(&cluster, Method::DELETE, &path, PROTOBUF, uid("other")).await;
    assert_eq!(other.status, StatusCode::CONFLICT);
    let gone = ask(&cluster, Method::DELETE, &path, PROTOBUF, uid(read.metadata.as_ref().expect("metadata").uid())).await;
    assert_eq!((gone.status, gone.status().status()), (StatusCode::OK, "Success"));
    let missing = get(&cluster, &path, EITHER).await;
    assert_eq!((missing.status, missing.status().message()), (StatusCode::NOT_FOUND, "configmaps \"m\" not found"));
}

#[tokio::test]
async fn lists_and_pages() {
    let cluster = cluster().await;
    // More than the bytes of encoded items that a list keeps.
    let big = "x".repeat(300_000);
    for number in 0..6 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{number}")}, "data": {"big": big}});
        cluster.post(CONFIG_MAPS, map).await.ok();
    }
    let answer = get(&cluster, CONFIG_MAPS, PROTOBUF).await;
    assert_eq!(answer.media, PROTOBUF);
    let list: core::v1::ConfigMapList = answer.message("ConfigMapList");
    let names: Vec<&str> = list.items.iter().map(|item| item.metadata.as_ref().expect("metadata").name()).collect();
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4", "m5"]);
    assert!(list.items.iter().all(|item| item.data["big"] == big));
    let json = cluster.get(CONFIG_MAPS).await.ok();
    assert_eq!(list.metadata.expect("metadata").resource_version(), json["metadata"]["resourceVersion"]);

    let page: core::v1::ConfigMapList = get(&cluster, &format!("{CONFIG_MAPS}?limit=2"), PROTOBUF).await.message("ConfigMapList");
    let metadata = page.metadata.expect("metadata");
    assert_eq!((page.items.len(), metadata.remaining_item_count()), (2, 4));
    let next = format!("{CONFIG_MAPS}?limit=5&continue={}", metadata.r#continue());
    let page: core::v1::ConfigMapList = get(&cluster, &next, PROTOBUF).await.message("ConfigMapList");
    assert_eq!(page.items.len(), 4);
    let none: core::v1::ConfigMapList =
        get(&cluster, &format!("{CONFIG_MAPS}?labelSelector=a%3Db"), PROTOBUF).await.message("ConfigMapList");
    assert_eq!(none.items.len(), 0);
}

#[tokio::test]
async fn watches_are_frames() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    let request = Request::builder()
        .uri(format!("{CONFIG_MAPS}?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"));
    let request = request.header(header::ACCEPT, "application/vnd.kubernetes.protobuf;stream=watch,application/json");
    let response = cluster.raw(request.body(Body::empty()).expect("a request")).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/vnd.kubernetes.protobuf;stream=watch");
    let mut events = Frames { body: response.into_body(), buffer: Vec::new() };
    assert_eq!(events.next().await, ("ADDED".to_owned(), "a".to_owned()));
    assert_eq!(events.next().await, ("BOOKMARK".to_owned(), String::new()));
    let mut changed = cluster.config_map("b", json!({})).await;
    changed["data"]["key"] = "x".into();
    cluster.put(&format!("{CONFIG_MAPS}/b"), &changed).await.ok();
    cluster.delete(&format!("{CONFIG_MAPS}/b")).await.ok();
    for word in ["ADDED", "MODIFIED", "DELETED"] {
        assert_eq!(events.next().await, (word.to_owned(), "b".to_owned()));
    }
}

#[tokio::test]
async fn a_watch_that_starts_too_early_gets_gone() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    let core = cluster.server.core();
    core.cache.resource(&api_model::kind::GroupResource::new("", "configmaps")).reset(core.cache.applied(), Vec::new());
    let answer = get(&cluster, &format!("{CONFIG_MAPS}?watch=true&resourceVersion=1"), PROTOBUF).await;
    let event = meta::WatchEvent::decode(&answer.bytes[4..]).expect("an event");
    let status: meta::Status = message(event.object.expect("an object").raw(), "Status");
    assert_eq!((event.r#type.as_deref(), status.reason()), (Some("ERROR"), "Expired"));
}

/// A watch's events: type and name.
struct Frames {
    body: Body,
    buffer: Vec<u8>,
}

impl Frames {
    async fn next(&mut self) -> (String, String) {
        loop {
            if let Some(len) = self.buffer.first_chunk::<4>().map(|len| u32::from_be_bytes(*len) as usize)
                && self.buffer.len() >= 4 + len
            {
                let event = meta::WatchEvent::decode(&self.buffer[4..4 + len]).expect("an event");
                self.buffer.drain(..4 + len);
                let map: core::v1::ConfigMap = message(event.object.as_ref().expect("an object").raw(), "ConfigMap");
                return (event.r#type().to_owned(), map.metadata.expect("metadata").name().to_owned());
            }
            let frame = self.body.frame().await.expect("more").expect("a frame");
            self.buffer.extend_from_slice(&frame.into_data().expect("data"));
        }
    }
}

#[tokio::test]
async fn metadata_alone_of_any_kind() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({"l": "v"})).await;
    let one =
        format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let found: meta::PartialObjectMetadata = get(&cluster, &format!("{CONFIG_MAPS}/a"), &one).await.message("PartialObjectMetadata");
    assert_eq!(found.metadata.expect("metadata").labels["l"], "v");
    let many = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json");
    let list: meta::PartialObjectMetadataList = get(&cluster, CONFIG_MAPS, &many).await.message("PartialObjectMetadataList");
    assert_eq!(list.items.len(), 1);
    let beta = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1");
    let list: k8s_pb::apimachinery::pkg::apis::meta::v1beta1::PartialObjectMetadataList =
        get(&cluster, CONFIG_MAPS, &beta).await.message("PartialObjectMetadataList");
    assert_eq!(list.items.len(), 1);
}

#[tokio::test]
async fn tables_and_patches_stay_what_they_are() {
    let cluster = cluster().await;
    cluster.config_map("a", json!({})).await;
    let table = format!("{PROTOBUF};as=Table;v=v1;g=meta.k8s.io");
    assert_eq!(get(&cluster, CONFIG_MAPS, &table).await.status, StatusCode::NOT_ACCEPTABLE);
    let answer = cluster.get_as(CONFIG_MAPS, &format!("{table},application/json;as=Table;v=v1;g=meta.k8s.io")).await;
    assert_eq!(answer.ok()["kind"], "Table");
    let body = envelope("v1", "ConfigMap", &core::v1::ConfigMap::default());
    let patch = ask(&cluster, Method::PATCH, &format!("{CONFIG_MAPS}/a"), PROTOBUF, body).await;
    assert_eq!(patch.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

/// The structs of the other crate have an older version than the server.
#[tokio::test]
async fn what_is_newer_than_the_client_is_sent_and_taken_too() {
    let cluster = cluster().await;
    cluster.service_account().await;
    let mut newer = pod("newer");
    newer["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {"mode": 448}}]);
    cluster.post(PODS, newer).await.ok();
    let path = format!("{PODS}/newer");
    let read = get(&cluster, &path, EITHER).await;
    let pod: core::v1::Pod = read.message("Pod");
    assert_eq!(pod.metadata.expect("metadata").name(), "newer");
    let replaced = ask(&cluster, Method::PUT, &path, PROTOBUF, read.bytes).await;
    assert_eq!(replaced.status, StatusCode::OK);
    assert_eq!(cluster.get(&path).await.ok()["spec"]["volumes"][0]["emptyDir"], json!({"mode": 448}));

    let bundles = "/apis/certificates.k8s.io/v1/clustertrustbundles";
    let listed = get(&cluster, bundles, PROTOBUF).await;
    assert_eq!((listed.status, listed.media.as_str()), (StatusCode::OK, PROTOBUF));
}

#[tokio::test]
async fn subresources_and_questions() {
    let cluster = cluster().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}}});
    cluster.post(deployments, deployment).await.ok();
    let path = format!("{deployments}/d/scale");
    let mut scale: autoscaling::v1::Scale = get(&cluster, &path, PROTOBUF).await.message("Scale");
    scale.spec = Some(autoscaling::v1::ScaleSpec { replicas: Some(0) });
    let scaled = ask(&cluster, Method::PUT, &path, PROTOBUF, envelope("autoscaling/v1", "Scale", &scale)).await;
    assert_eq!(scaled.status, StatusCode::OK);
    let read: apps::v1::Deployment = get(&cluster, &format!("{deployments}/d"), PROTOBUF).await.message("Deployment");
    assert_eq!(read.spec.expect("a spec").replicas, Some(0));

    cluster.pod("p", "").await;
    let target = core::v1::ObjectReference { kind: Some("Node".to_owned()), name: Some("n".to_owned()), ..Default::default() };
    let binding = core::v1::Binding { metadata: named("p"), target: Some(target) };
    let bound = ask(&cluster, Method::POST, &format!("{PODS}/p/binding"), PROTOBUF, envelope("v1", "Binding", &binding)).await;
    assert_eq!((bound.status, bound.status().status()), (StatusCode::CREATED, "Success"));
    let status = core::v1::Pod {
        metadata: named("p"),
        status: Some(core::v1::PodStatus { phase: Some("Running".to_owned()), ..Default::default() }),
        ..Default::default()
    };
    let updated = ask(&cluster, Method::PUT, &format!("{PODS}/p/status"), PROTOBUF, envelope("v1", "Pod", &status)).await;
    let pod: core::v1::Pod = updated.message("Pod");
    assert_eq!((pod.status.expect("a status").phase(), pod.spec.expect("a spec").node_name()), ("Running", "n"));
    let eviction = policy::v1::Eviction { metadata: named("p"), delete_options: None };
    let evicted = ask(&cluster, Method::POST, &format!("{PODS}/p/eviction"), PROTOBUF, envelope("policy/v1", "Eviction", &eviction)).await;
    assert_eq!(evicted.status().status(), "Success");

    let spec = authentication::v1::TokenRequestSpec { expiration_seconds: Some(3_600), ..Default::default() };
    let request = authentication::v1::TokenRequest { spec: Some(spec), ..Default::default() };
    let body = envelope("authentication.k8s.io/v1", "TokenRequest", &request);
    let token = ask(&cluster, Method::POST, "/api/v1/namespaces/default/serviceaccounts/default/token", PROTOBUF, body).await;
    let token: authentication::v1::TokenRequest = token.message("TokenRequest");
    assert!(!token.status.expect("a status").token().is_empty());

    let wanted =
        authorization::v1::ResourceAttributes { verb: Some("get".to_owned()), resource: Some("pods".to_owned()), ..Default::default() };
    let spec = authorization::v1::SelfSubjectAccessReviewSpec { resource_attributes: Some(wanted), non_resource_attributes: None };
    let review = authorization::v1::SelfSubjectAccessReview { spec: Some(spec), ..Default::default() };
    let body = envelope("authorization.k8s.io/v1", "SelfSubjectAccessReview", &review);
    let answer = ask(&cluster, Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", PROTOBUF, body).await;
    let review: authorization::v1::SelfSubjectAccessReview = answer.message("SelfSubjectAccessReview");
    assert!(review.status.expect("a status").allowed());
}

#[tokio::test]
async fn discovery() {
    let cluster = cluster().await;
    let groups: meta::APIGroupList = get(&cluster, "/apis", PROTOBUF).await.message("APIGroupList");
    assert!(groups.groups.iter().any(|group| group.name() == "apps" && group.versions[0].group_version() == "apps/v1"));
    let versions: meta::APIVersions = get(&cluster, "/api", PROTOBUF).await.message("APIVersions");
    assert_eq!((versions.versions[0].as_str(), versions.server_address_by_client_cid_rs[0].client_cidr()), ("v1", "0.0.0.0/0"));
    let resources: meta::APIResourceList = get(&cluster, "/api/v1", EITHER).await.message("APIResourceList");
    let pods = resources.resources.iter().find(|resource| resource.name() == "pods").expect("pods");
    assert_eq!((pods.kind(), pods.namespaced(), pods.short_names.as_slice()), ("Pod", true, ["po".to_owned()].as_slice()));
    assert!(pods.verbs.as_ref().expect("verbs").items.iter().any(|verb| verb == "watch"));
    let group: meta::APIGroup = get(&cluster, "/apis/apps", PROTOBUF).await.message("APIGroup");
    assert_eq!(group.preferred_version.expect("a version").version(), "v1");
    let aggregated = format!("{PROTOBUF};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    let answer = get(&cluster, "/apis", &aggregated).await;
    assert_eq!(answer.media, aggregated);
    let list: apidiscovery::v2::APIGroupDiscoveryList = answer.message("APIGroupDiscoveryList");
    let apps = list.items.iter().find(|group| group.metadata.as_ref().is_some_and(|metadata| metadata.name() == "apps")).expect("apps");
    let resource = &apps.versions[0].resources[0];
    assert!(!resource.resource().is_empty() && !resource.response_kind.as_ref().expect("a kind").kind().is_empty());
    assert!(!resource.scope().is_empty() && !resource.verbs.is_empty());
}

#[tokio::test]
async fn bodies_that_are_none_are_rejected_in_upstreams_words() {
    let cluster = cluster().await;
    let refused = |body: Vec<u8>| ask(&cluster, Method::POST, CONFIG_MAPS, PROTOBUF, body);
    for (body, code, why) in [
        (b"{}".to_vec(), 400, "provided data does not appear to be a protobuf message"),
        (b"k8s\0\x0a\xff".to_vec(), 400, "unexpected EOF"),
        (envelope("v1", "ConfigMap", &meta::Time { seconds: Some(1), nanos: None }), 400, "proto: wrong wireType = 0 for field metadata"),
        (envelope("v1", "Bogus", &meta::Time::default()), 415, ""),
    ] {
        let answer = refused(body).await;
        let status = answer.status();
        assert_eq!((status.code(), answer.status.as_u16()), (i32::from(code), code), "{status:?}");
        assert!(status.message().contains(why), "{status:?}");
    }
    let forbidden = {
        let request = Request::builder().uri("/api/v1/secrets").header(header::ACCEPT, PROTOBUF).body(Body::empty()).expect("a request");
        send(&cluster.user("nobody", &[]), request).await
    };
    assert_eq!((forbidden.status(), forbidden.headers()[header::CONTENT_TYPE].to_str().expect("text")), (StatusCode::FORBIDDEN, PROTOBUF));
}
