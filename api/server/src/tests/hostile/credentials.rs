//! False credentials.

use api_auth::tokens::{Claims, Tokens, TokensConfig};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::KeyPair;

use super::*;

const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";

/// Requests a token's user, over a new connection.
async fn response_to(address: SocketAddr, connector: &TlsConnector, token: &str) -> String {
    let mut stream = connected_to(address, connector).await;
    let credentials = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
    let head = format!("GET /api HTTP/1.1\r\nhost: skiff\r\nconnection: close\r\n{credentials}\r\n");
    response(&mut stream, head.as_bytes()).await
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

#[tokio::test]
async fn tokens_are_believed_only_as_they_were_made() {
    let cluster = cluster().await;
    cluster.service_account().await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let good = cluster.post(&format!("{ACCOUNT}/token"), request).await.ok()["status"]["token"].as_str().expect("a token").to_owned();
    let parts: Vec<&str> = good.split('.').collect();
    let [head, payload, signature] = parts[..] else { panic!("three parts: {good}") };
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).expect("base64")).expect("claims");
    let own = Tokens::new(PKI.service_account_key_pem(), config().tokens()).expect("the cluster's key");
    let other = Tokens::new(&KeyPair::generate().expect("a key").serialize_pem(), config().tokens()).expect("another key");
    let signed = |by: &Tokens, changes: Value| {
        let mut claims = claims.clone();
        claims.as_object_mut().expect("claims").extend(changes.as_object().cloned().expect("changes"));
        by.sign(&serde_json::from_value::<Claims>(claims).expect("claims")).expect("signed")
    };
    let mut admin = claims.clone();
    admin["sub"] = "system:serviceaccount:kube-system:admin".into();
    let past = json!({"iat": 1_000, "nbf": 1_000, "exp": 2_000});
    let cases = [
        ("alg none", format!("{}.{payload}.", part(&json!({"alg": "none"})))),
        ("alg none with a signature", format!("{}.{payload}.{signature}", part(&json!({"alg": "none"})))),
        ("another algorithm", format!("{}.{payload}.{signature}", part(&json!({"alg": "HS256"})))),
        ("other claims", format!("{head}.{}.{signature}", part(&admin))),
        ("no signature", format!("{head}.{payload}.")),
        ("half a signature", format!("{head}.{payload}.{}", &signature[..signature.len() / 2])),
        ("another key", signed(&other, json!({}))),
        ("another audience", signed(&own, json!({"aud": ["elsewhere"]}))),
        ("no audience", signed(&own, json!({"aud": []}))),
        ("another issuer", signed(&own, json!({"iss": "https://elsewhere"}))),
        ("expired", signed(&own, past)),
        ("not yet", signed(&own, json!({"nbf": 4_000_000_000_u64, "exp": 4_000_003_600_u64}))),
        ("no such account", signed(&own, json!({"sub": "system:serviceaccount:default:nobody"}))),
        ("another account", signed(&own, json!({"sub": "system:serviceaccount:kube-system:default"}))),
        ("a key named by the token", format!("{}.{payload}.{signature}", part(&json!({"alg": "ES256", "jku": "https://elsewhere/keys"})))),
        ("garbage", "a.b.c".to_owned()),
        ("long garbage", "x".repeat(60_000)),
    ];
    let (address, _) = served(&cluster).await;
    let connector = crate::tls::tests_connector(&PKI, None);
    for (what, token) in cases {
        let answer = quickly(response_to(address, &connector, &token)).await;
        assert_eq!(status_of(&answer), "401", "{what}: {answer}");
        assert!(answer.contains("\"message\":\"Unauthorized\"") && answer.contains("\"reason\":\"Unauthorized\""), "{what}: {answer}");
    }
    assert_eq!(status_of(&response_to(address, &connector, &good).await), "200");
    assert_eq!(status_of(&response_to(address, &connector, &signed(&own, json!({}))).await), "200", "the cases differ in one thing each");
}

#[tokio::test]
async fn certificates_of_others_count_for_nothing() {
    let cluster = cluster().await;
    let (address, _) = served(&cluster).await;
    let directory = tempfile::tempdir().expect("a directory");
    let stranger = Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys");
    let hour = Duration::from_secs(3_600);
    let masters = &["system:masters"];
    let forged = stranger.issue_client("admin", masters, hour).expect("a certificate");
    let good = PKI.issue_client("admin", masters, hour).expect("a certificate");
    for (identity, wanted) in [(&forged, "401"), (&good, "200")] {
        let connector = crate::tls::tests_connector(&PKI, Some(identity));
        let answer = quickly(response_to(address, &connector, "")).await;
        assert_eq!(status_of(&answer), wanted, "{answer}");
    }
    // A client certificate with another key fails in the handshake.
    let both = crate::tls::tests_connector(&PKI, Some(&forged));
    let answer = response_to(address, &both, "bogus").await;
    assert_eq!(status_of(&answer), "401", "a wrong token does not help a wrong certificate");
}

#[tokio::test]
async fn another_clusters_tokens_are_nobodys() {
    let cluster = cluster().await;
    let elsewhere = TokensConfig::for_cluster("other.local");
    let stranger = Tokens::new(&KeyPair::generate().expect("a key").serialize_pem(), elsewhere).expect("a key");
    let review = |token: String| {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        cluster.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
    };
    let claims = json!({"aud": ["other"], "exp": 4_000_000_000_u64, "iat": 1, "iss": stranger.config().issuer, "nbf": 1,
        "sub": "system:serviceaccount:default:default", "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "default", "uid": "1"}}});
    let token = stranger.sign(&serde_json::from_value::<Claims>(claims).expect("claims")).expect("signed");
    let answer = review(token).await.ok();
    assert_ne!(answer["status"]["authenticated"], true, "{answer}");
}

/// A process may run longer than its certificates are valid.
#[tokio::test]
async fn certificates_are_renewed_under_open_connections() {
    let directory = tempfile::tempdir().expect("a directory");
    let pki = Arc::new(Pki::open(directory.path(), &PkiConfig::for_cluster("cluster.local")).expect("keys"));
    let config = Config::new(Arc::clone(&pki), SocketAddr::from(([10, 0, 0, 1], 6443)));
    let cluster = cluster_with(config, Arc::new(MemoryStore::new())).await;
    let (address, _) = served(&cluster).await;
    let mut open = connected_to(address, &crate::tls::tests_connector(&pki, None)).await;
    let (app, serving_certificate) = (cluster.server.app(), cluster.server.serving_certificate());
    let renew = |now| crate::renewal::renew(&app.connector, &app.aggregation, serving_certificate, now);
    let (first, to_nodes) = (serving_certificate.certificate(), app.connector.node_tls());
    let days = |count: i64| jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * count);
    renew(days(30));
    assert_eq!(serving_certificate.certificate(), first, "it is good for long yet");
    renew(days(300));
    assert_ne!(serving_certificate.certificate(), first);
    assert!(!Arc::ptr_eq(&app.connector.node_tls(), &to_nodes));
    let answer = response(&mut open, b"GET /version HTTP/1.1\r\nhost: skiff\r\nconnection: close\r\n\r\n").await;
    assert_eq!(status_of(&answer), "200", "{answer}");
    // Keys that vanish are not created again, because no client would trust them.
    let second = serving_certificate.certificate();
    directory.close().expect("removed");
    renew(days(600));
    assert_eq!(serving_certificate.certificate(), second);
}
