//! Users of an OpenID Connect provider. The provider runs in this process and serves TLS.

use std::time::Duration;

use api_auth::OidcConfig;
use api_auth::tokens::{Claims, KubernetesClaims, Tokens, TokensConfig};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use parking_lot::Mutex;
use rcgen::{CertifiedKey, KeyPair};
use tokio::net::TcpListener;

use super::*;
use crate::OidcProvider;

/// How long it may take until the server has the provider's keys.
const LIMIT: Duration = Duration::from_secs(20);

/// A signer with its own key.
fn signer(issuer: &str) -> Tokens {
    let config = TokensConfig { issuer: issuer.to_owned(), api_audiences: Vec::new(), jwks_uri: format!("{issuer}/keys") };
    Tokens::new(&KeyPair::generate().expect("a key").serialize_pem(), config).expect("a P-256 key")
}

fn token(signer: &Tokens, audience: &str, seconds: i64) -> String {
    let now = Timestamp::now().as_second();
    let claims = Claims {
        aud: vec![audience.to_owned()],
        exp: now + seconds,
        iat: now,
        iss: signer.config().issuer.clone(),
        jti: String::new(),
        kubernetes: KubernetesClaims::default(),
        nbf: now,
        sub: "jane".to_owned(),
    };
    signer.sign(&claims).expect("signed")
}

/// Serves discovery and the keys of the current signer; returns URL and authority.
async fn serve(signing: Arc<Mutex<Option<Arc<Tokens>>>>) -> (String, String) {
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let tls = crate::tls::tests_server(&cert.pem(), &signing_key.serialize_pem());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, signing) = (tls.clone(), Arc::clone(&signing));
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let signer = signing.lock().clone().expect("a signer");
                    let body = if request.uri().path() == "/keys" { signer.jwks() } else { signer.discovery() };
                    async move { Ok::<_, std::convert::Infallible>(Response::new(Body::from(body.to_string()))) }
                });
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (url, cert.pem())
}

async fn who(cluster: &Cluster, token: &str) -> Answer {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let request = Request::builder().method(Method::POST).uri("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let request = request.header("content-type", "application/json").header("authorization", format!("Bearer {token}"));
    json_of(crate::handle::handle(Arc::clone(cluster.server.app()), request.body(Body::from(body)).expect("a request")).await).await
}

/// Repeats a request until it gets that status.
async fn until(cluster: &Cluster, token: &str, status: StatusCode) -> Answer {
    let asking = async {
        loop {
            let answer = who(cluster, token).await;
            if answer.status == status {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT, asking).await.expect("in time")
}

#[tokio::test]
async fn users_of_a_provider_are_taken_and_its_keys_followed() {
    let signing = Arc::new(Mutex::new(None));
    let (url, ca_pem) = serve(Arc::clone(&signing)).await;
    let first = Arc::new(signer(&url));
    *signing.lock() = Some(Arc::clone(&first));
    let provider =
        OidcConfig { signing_algs: vec!["ES256".to_owned()], username_prefix: "oidc:".to_owned(), ..OidcConfig::new(&url, "skiff") };
    let config = Config { oidc: Some(OidcProvider { config: provider, ca_pem: Some(ca_pem) }), ..config() };
    let cluster = cluster_with(config, Arc::new(MemoryStore::new())).await;
    let answer = until(&cluster, &token(&first, "skiff", 60), StatusCode::CREATED).await;
    assert_eq!(answer.body["status"]["userInfo"], json!({"username": "oidc:jane", "groups": ["system:authenticated"]}));
    for (audience, seconds) in [("another", 60), ("skiff", -60)] {
        assert_eq!(who(&cluster, &token(&first, audience, seconds)).await.status, StatusCode::UNAUTHORIZED, "{audience} {seconds}");
    }
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token(&first, "skiff", 60)}});
    let review = cluster.post("/apis/authentication.k8s.io/v1/tokenreviews", review).await.ok();
    assert_eq!((&review["status"]["authenticated"], &review["status"]["user"]["username"]), (&true.into(), &"oidc:jane".into()));
    let second = Arc::new(signer(&url));
    *signing.lock() = Some(Arc::clone(&second));
    until(&cluster, &token(&second, "skiff", 60), StatusCode::CREATED).await;
    assert_eq!(who(&cluster, &token(&first, "skiff", 60)).await.status, StatusCode::UNAUTHORIZED, "the old key is gone");
    api_tasks::fault::inject("api-server/oidc", api_tasks::fault::Fault::Panic);
    let failure = tokio::time::timeout(Duration::from_secs(1), cluster.server.failed()).await.expect("within a second");
    assert_eq!(failure.task(), "api-server/oidc", "whoever follows the keys no more is not trusted with them");
    cluster.server.shutdown().await;
}
