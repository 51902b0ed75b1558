//! How many requests the credentials of triggers cost, and how long triggers are read.

use std::convert::Infallible;

use ::http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::service_fn;

use super::*;

/// A server with a TriggerAuthentication of any name and a Secret of any name. Lists the paths of the requests.
fn server(spec: Value) -> (kube::Client, Arc<Mutex<Vec<String>>>) {
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&requests);
    let service = service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let metadata = json!({"name": "any", "namespace": "default"});
        let object = match path.contains("triggerauthentications") {
            true => json!({"apiVersion": "keda.sh/v1alpha1", "kind": "TriggerAuthentication", "metadata": metadata, "spec": spec}),
            false => json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"a": "YQ==", "b": "Yg=="}}),
        };
        log.lock().push(path);
        async move { Ok::<_, Infallible>(Response::new(Body::from(object.to_string().into_bytes()))) }
    });
    (kube::Client::new(service, "default"), requests)
}

fn entry(parameter: &str, name: &str, key: &str) -> Value {
    json!({"parameter": parameter, "name": name, "key": key})
}

fn api(location: &str, authentication: &str) -> TriggerSpec {
    let metadata = json!({"url": "http://a", "valueLocation": location, "targetValue": "1", "authMode": "basic"});
    let spec = json!({"type": "metrics-api", "metadata": metadata, "authenticationRef": {"name": authentication}});
    serde_json::from_value(spec).expect("a trigger")
}

#[tokio::test]
async fn an_object_is_read_once() {
    let entries = [entry("username", "login", "a"), entry("password", "login", "b"), entry("ca", "more", "a")];
    let (client, requests) = server(json!({"secretTargetRef": entries}));
    let reference = AuthenticationRef { name: "one".to_owned(), ..AuthenticationRef::default() };
    let credentials = auth::credentials(&client, "default", &reference).await.expect("credentials");
    let wanted = [("ca", "a"), ("password", "b"), ("username", "a")];
    assert_eq!(credentials, wanted.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
    let authentication = "/apis/keda.sh/v1alpha1/namespaces/default/triggerauthentications/one";
    let paths = [authentication, "/api/v1/namespaces/default/secrets/login", "/api/v1/namespaces/default/secrets/more"];
    assert_eq!(*requests.lock(), paths);

    requests.lock().clear();
    let triggers = build_all(&client, "default", &[api("x", "one"), api("y", "one"), api("z", "one")]).await.expect("triggers");
    assert_eq!((triggers.len(), requests.lock().len()), (3, 3), "triggers share their credentials");

    requests.lock().clear();
    let specs = [api("x", "zero"), api("y", "one"), api("z", "two")];
    let named = build_of(&client, "default", &specs, "s1-metric-api-y").await.expect("built").expect("a trigger");
    assert_eq!(named.external_name(), Some("s1-metric-api-y"));
    assert_eq!(*requests.lock(), paths, "the other triggers are not built");
    for metric in ["s1-metric-api-x", "s3-metric-api-y", "metric", "s-1-a", ""] {
        assert!(build_of(&client, "default", &specs, metric).await.expect("built").is_none(), "{metric}");
    }
}

#[tokio::test]
async fn credentials_have_a_number() {
    let entries: Vec<Value> = (0..51).map(|index| entry(&format!("p{index}"), &format!("s{index}"), "a")).collect();
    let (client, requests) = server(json!({"secretTargetRef": entries}));
    let reference = AuthenticationRef { name: "one".to_owned(), ..AuthenticationRef::default() };
    let error = auth::credentials(&client, "default", &reference).await.expect_err("too many");
    assert_eq!(error, "error getting triggerAuth one: 51 entries of secretTargetRef are more than 50");
    assert_eq!(requests.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn all_triggers_have_one_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let metadata = json!({"url": url, "valueLocation": "a", "targetValue": "1", "timeout": "30s"});
    let spec: TriggerSpec = serde_json::from_value(json!({"type": "metrics-api", "metadata": metadata})).expect("a trigger");
    let build = |index| Trigger::build(&Config { index, namespace: "default", spec: &spec, credentials: Credentials::new() });
    let triggers: Vec<Arc<Trigger>> = (0..TRIGGERS_MAX).map(|index| Arc::new(build(index).expect("a trigger"))).collect();
    let start = Instant::now();
    let results = read_all(&triggers, &super::tests::sources_reaching("127.0.0.0/8"), Timestamp::UNIX_EPOCH).await;
    assert!(start.elapsed() <= READS_TIME_MAX, "{:?}", start.elapsed());
    assert!(results.len() == TRIGGERS_MAX && results.iter().all(|result| result.as_ref().is_err_and(|why| why.contains(DEADLINE))));
    drop(listener);
}
