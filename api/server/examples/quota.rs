//! What creating Pods costs in a namespace that has a quota, by how many are there already: `quota [SIZE …]`,
//! 10000 and 100000 unless said. The server is in this process and its store in memory, so that what is
//! measured is the server's own work; one Pod is created after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api_auth::{Pki, PkiConfig};
use api_model::request::UserInfo;
use api_server::{Config, InProcess, Server};
use api_store::MemoryStore;
use axum::body::Body;
use http::{Request, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

type Error = Box<dyn std::error::Error>;

/// Pods that are timed.
const TIMED: usize = 1_000;
const QUOTA: &str = "resourcequotas/few";

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut sizes = std::env::args().skip(1).map(|size| size.parse()).collect::<Result<Vec<usize>, _>>()?;
    if sizes.is_empty() {
        sizes = vec![10_000, 100_000];
    }
    let directory = tempfile::tempdir()?;
    let pki = Arc::new(Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local"))?);
    let server = Server::start(Config::new(pki, SocketAddr::from(([127, 0, 0, 1], 6443))), Arc::new(MemoryStore::new())).await?;
    let client = server.client(UserInfo::new("admin", &["system:masters", "system:authenticated"]));
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    call(&client, "POST", "serviceaccounts", &account).await?;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
        "spec": {"hard": {"pods": "1M", "count/pods": "1M", "requests.cpu": "1M"}}});
    let mut have = 0;
    for size in sizes {
        have = create(&client, have..size).await?;
        let without = timed(&client, &mut have).await?;
        call(&client, "POST", "resourcequotas", &quota).await?;
        let start = Instant::now();
        have = create(&client, have..have + 1).await?;
        let first = start.elapsed();
        until_warned(&client).await?;
        let with = timed(&client, &mut have).await?;
        call(&client, "DELETE", QUOTA, &Value::Null).await?;
        println!("{size} Pods: one more {without:?} without a quota, {with:?} with one; the first {first:?}");
    }
    server.shutdown().await;
    Ok(())
}

/// Waits for the quota's status, which is counted beside the first Pod.
async fn until_warned(client: &InProcess) -> Result<(), Error> {
    while call(client, "GET", QUOTA, &Value::Null).await?.pointer("/status/used").is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// How long one more takes.
async fn timed(client: &InProcess, have: &mut usize) -> Result<Duration, Error> {
    let start = Instant::now();
    *have = create(client, *have..*have + TIMED).await?;
    Ok(start.elapsed() / u32::try_from(TIMED)?)
}

/// Creates Pods of these numbers; answers the next one.
async fn create(client: &InProcess, numbers: std::ops::Range<usize>) -> Result<usize, Error> {
    let end = numbers.end;
    for number in numbers {
        let container = json!({"name": "web", "image": "registry.example.com/web:1.2.3", "resources": {"requests": {"cpu": "100m"}}});
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{number}")}, "spec": {"containers": [container]}});
        call(client, "POST", "pods", &pod).await?;
    }
    Ok(end)
}

async fn call(client: &InProcess, method: &str, path: &str, body: &Value) -> Result<Value, Error> {
    let request = Request::builder().method(method).uri(format!("/api/v1/namespaces/default/{path}"));
    let request = request.header(header::CONTENT_TYPE, "application/json");
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let answer = client.clone().oneshot(request.body(body)?).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    match status.is_success() {
        true => Ok(serde_json::from_slice(&body)?),
        false => Err(format!("{method} {path}: {status}").into()),
    }
}
