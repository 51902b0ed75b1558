//! An extender: an HTTP server on loopback that answers as a test says, and records what it was sent.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, stream};
use http::{Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// An answer.
pub enum Reply {
    Json(Value),
    /// Another body.
    Text(&'static str),
    /// A status without a body.
    Status(u16),
    /// A redirect to this URL.
    Redirect(String),
    /// A body without an end.
    Endless,
}

type Answer = Arc<dyn Fn(&str, Value) -> BoxFuture<'static, Reply> + Send + Sync>;

#[derive(Clone)]
pub struct Extender {
    pub port: u16,
    /// The verb and the body of each request.
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    count: watch::Receiver<usize>,
}

impl Extender {
    /// An extender that answers at once. The function gets the verb and the request.
    pub async fn start(answer: impl Fn(&str, Value) -> Reply + Send + Sync + 'static) -> Self {
        Self::serve(None, move |verb, request| futures::future::ready(answer(verb, request)).boxed()).await
    }

    /// An extender that may take time, over TLS if that is configured.
    pub async fn serve(
        tls: Option<ServerConfig>,
        answer: impl Fn(&str, Value) -> BoxFuture<'static, Reply> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        let (sender, count) = watch::channel(0);
        let extender = Self { port, requests: Arc::default(), count };
        let (requests, answer): (_, Answer) = (Arc::clone(&extender.requests), Arc::new(answer));
        let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        tokio::spawn(async move {
            let sender = Arc::new(sender);
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, requests, sender) =
                    (acceptor.clone(), Arc::clone(&answer), Arc::clone(&requests), Arc::clone(&sender));
                tokio::spawn(async move {
                    match acceptor {
                        None => connection(stream, answer, requests, sender).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                connection(stream, answer, requests, sender).await;
                            }
                        }
                    }
                });
            }
        });
        extender
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/scheduler", self.port)
    }

    /// The requests of a verb.
    pub fn requests(&self, verb: &str) -> Vec<Value> {
        let requests = self.requests.lock().expect("no panic");
        requests.iter().filter(|(other, _)| other == verb).map(|(_, request)| request.clone()).collect()
    }

    /// Waits for so many requests in total.
    pub async fn until_called(&self, times: usize) {
        crate::support::in_time("a request", self.count.clone().wait_for(|count| *count >= times)).await.expect("an extender");
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: Answer,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    count: Arc<watch::Sender<usize>>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (answer, requests, count) = (Arc::clone(&answer), Arc::clone(&requests), Arc::clone(&count));
        async move {
            let verb = request.uri().path().trim_start_matches("/scheduler/").to_owned();
            assert_eq!(request.headers().get(header::CONTENT_TYPE).map(|value| value.as_bytes()), Some(b"application/json".as_slice()));
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let request: Value = serde_json::from_slice(&body).expect("JSON");
            requests.lock().expect("no panic").push((verb.clone(), request.clone()));
            count.send_modify(|count| *count += 1);
            Ok::<_, Infallible>(response(answer(&verb, request).await))
        }
    });
    // A client may go away at any time.
    let _ended = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn response(reply: Reply) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let full = |text: String| Full::new(Bytes::from(text)).boxed_unsync();
    let builder = Response::builder();
    let response = match reply {
        Reply::Json(value) => builder.header(header::CONTENT_TYPE, "application/json").body(full(value.to_string())),
        Reply::Text(text) => builder.body(full(text.to_owned())),
        Reply::Status(status) => builder.status(status).body(full(String::new())),
        Reply::Redirect(url) => builder.status(307).header(header::LOCATION, url).body(full(String::new())),
        Reply::Endless => {
            let frames = stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b' '; 1 << 16]))));
            builder.body(BodyExt::boxed_unsync(StreamBody::new(frames)))
        }
    };
    response.expect("a response")
}
