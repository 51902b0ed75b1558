//! A stand-in for a metrics server and for an adapter of external metrics, aggregated behind the API server: over HTTPS, on
//! loopback.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::{Cluster, from, until};

/// What the servers say: each Pod uses that much CPU, and the queue has that length.
#[derive(Default)]
pub struct Values {
    pub cpu_milli: AtomicI64,
    pub queue_len: AtomicI64,
}

/// Registers the two APIs, and waits until they are available.
pub async fn start(cluster: &Cluster) -> Arc<Values> {
    let values = Arc::new(Values::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(serve(listener, cluster.client.clone(), Arc::clone(&values)));
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    cluster.api::<Service>().create(&PostParams::default(), &from(service)).await.expect("a Service");
    let services: Api<APIService> = cluster.all();
    for group in ["metrics.k8s.io", "external.metrics.k8s.io"] {
        let name = format!("v1beta1.{group}");
        let spec = json!({"group": group, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "metrics", "port": port}});
        let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name}, "spec": spec});
        // The server has a local one for the metrics of resources, which this one takes over.
        let params = PatchParams::apply("story").force();
        services.patch(&name, &params, &Patch::Apply(&service)).await.expect("an APIService");
        until("available", services.clone(), |all| {
            let conditions = all.get(&name).and_then(|one| one.status.as_ref()?.conditions.clone()).unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "Available" && condition.reason.as_deref() == Some("Passed"))
        })
        .await;
    }
    values
}

async fn serve(listener: TcpListener, client: Client, values: Arc<Values>) {
    let acceptor = acceptor();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, client, values) = (acceptor.clone(), client.clone(), Arc::clone(&values));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request: Request<Incoming>| {
                let (client, values) = (client.clone(), Arc::clone(&values));
                async move {
                    let body = answer(&request, client, &values).await.to_string();
                    let response = Response::builder().header("content-type", "application/json").body(Full::new(Bytes::from(body)));
                    Ok::<_, Infallible>(response.expect("a response"))
                }
            });
            // A client may go away at any time.
            let _ended = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn acceptor() -> TlsAcceptor {
    let key = rcgen::generate_simple_self_signed(["metrics.default.svc".to_owned()]).expect("a certificate");
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .expect("a certificate");
    TlsAcceptor::from(Arc::new(config))
}

async fn answer(request: &Request<Incoming>, client: Client, values: &Values) -> Value {
    match request.uri().path() {
        "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods" => {
            let cpu = values.cpu_milli.load(Ordering::SeqCst);
            json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": usage(request, client, cpu).await})
        }
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue" => {
            let item = json!({"metricName": "queue", "metricLabels": {}, "timestamp": jiff::Timestamp::now(), "value": values.queue_len.load(Ordering::SeqCst).to_string()});
            json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}, "items": [item]})
        }
        path => {
            let group_version = path.trim_start_matches("/apis/");
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": []})
        }
    }
}

/// The use of every running Pod that the request's selector selects.
async fn usage(request: &Request<Incoming>, client: Client, cpu: i64) -> Vec<Value> {
    let query = request.uri().query().unwrap_or_default();
    let selector = query.split('&').find_map(|pair| pair.strip_prefix("labelSelector=")).unwrap_or_default().replace("%3D", "=");
    let pods = Api::<Pod>::namespaced(client, "default").list(&ListParams::default().labels(&selector)).await.expect("Pods");
    let of_pod = |pod: &Pod| {
        let containers = json!([{"name": "c", "usage": {"cpu": format!("{cpu}m"), "memory": "1Mi"}}]);
        json!({"metadata": {"name": pod.name_any(), "namespace": "default"}, "timestamp": jiff::Timestamp::now(), "window": "0s", "containers": containers})
    };
    let running = pods.iter().filter(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running"));
    running.map(of_pod).collect()
}
