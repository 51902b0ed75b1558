use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A server that answers each request by what `answer` makes of its head: bytes, then some more for ever.
async fn server(answer: impl Fn(&str) -> (String, &'static [u8]) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("an address");
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, answer.clone()));
        }
    });
    address.to_string()
}

async fn serve(mut stream: TcpStream, answer: Arc<impl Fn(&str) -> (String, &'static [u8])>) {
    let mut request = [0; 8_192];
    let read = stream.read(&mut request).await.expect("a request");
    let (head, more) = answer(&String::from_utf8_lossy(&request[..read]));
    let mut sent = stream.write_all(head.as_bytes()).await;
    while sent.is_ok() && !more.is_empty() {
        sent = stream.write_all(more).await;
    }
}

fn plain(status: &str, body: &str) -> (String, &'static [u8]) {
    (format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()), b"")
}

fn endless(status: &str) -> (String, &'static [u8]) {
    (format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n"), &[b'x'; 65_536])
}

fn sailor() -> Option<Credentials> {
    Some(Credentials { username: "sailor".to_owned(), password: "sesame".to_owned() })
}

async fn fetched(registry: &str, credentials: Option<Credentials>) -> Result<usize, String> {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let reference: Reference = format!("{registry}/image:latest").parse().expect("a reference");
    let repository = Repository::open(&reference, true, credentials).await.map_err(|error| error.to_string())?;
    repository.manifest(&reference).await.map(|(body, _)| body.len()).map_err(|error| error.to_string())
}

fn is_version(head: &str) -> bool {
    head.starts_with("GET /v2/ ")
}

/// What sends too much, its answer to a request's head, and what is said of it.
type Case = (&'static str, fn(&str) -> (String, &'static [u8]), &'static str);

#[tokio::test]
async fn nothing_that_a_registry_sends_is_read_without_end() {
    let cases: [Case; 4] = [
        ("a manifest", |head| if is_version(head) { plain("200 OK", "") } else { endless("200 OK") }, "longer than 4194304 bytes"),
        ("an error", |head| if is_version(head) { plain("200 OK", "") } else { endless("500 Oh") }, "500"),
        ("a version", |head| if is_version(head) { endless("200 OK") } else { plain("404 No", "") }, "404"),
        ("a tag", |head| if is_version(head) { plain("200 OK", "") } else { plain("404 No", "root:x:0:0") }, "404"),
    ];
    for (what, answer, wanted) in cases {
        let error = fetched(&server(answer).await, None).await.expect_err(what);
        assert!(error.contains(wanted) && !error.contains("root:x"), "{what}: {error}");
    }
    let short = server(|head| if is_version(head) { plain("200 OK", "") } else { plain("200 OK", "{}") }).await;
    assert_eq!(fetched(&short, None).await, Ok(2));
    let telling = r#"{"errors": [{"code": "NAME_UNKNOWN", "message": "no such repository"}]}"#;
    let unknown = server(move |head| if is_version(head) { plain("200 OK", "") } else { plain("404 No", telling) }).await;
    let error = fetched(&unknown, None).await.expect_err("not there");
    assert!(error.contains("NAME_UNKNOWN: no such repository"), "{error}");
}

/// A registry whose tokens come from elsewhere.
async fn with_realm(realm: String) -> String {
    server(move |head| {
        if head.contains("authorization: Bearer good") {
            return plain("200 OK", "{}");
        }
        let challenge = format!("www-authenticate: Bearer realm=\"{realm}\",service=\"r\"");
        (format!("HTTP/1.1 401 No\r\nconnection: close\r\ncontent-length: 0\r\n{challenge}\r\n\r\n"), b"")
    })
    .await
}

#[tokio::test]
async fn a_token_server_is_bounded_and_what_it_says_is_not_passed_on() {
    let good = server(|head| {
        let was_called =
            head.contains("scope=repository%3Aimage%3Apull") && head.contains("service=r") && head.contains("authorization: Basic ");
        if was_called { plain("200 OK", r#"{"token": "good"}"#) } else { plain("400 What", "") }
    })
    .await;
    assert_eq!(fetched(&with_realm(format!("http://{good}/token")).await, sailor()).await, Ok(2));
    let cases: [Case; 4] = [
        ("endless", |_| endless("200 OK"), "its token is longer than 65536 bytes"),
        ("an endless refusal", |_| endless("500 Oh"), "500"),
        ("another service's secret", |_| plain("200 OK", r#""secret""#), "the answer holds none"),
        ("another service's refusal", |_| plain("403 No", "secret"), "403"),
    ];
    for (what, answer, wanted) in cases {
        let realm = format!("http://{}/token", server(answer).await);
        let error = fetched(&with_realm(realm).await, sailor()).await.expect_err(what);
        assert!(error.contains(wanted) && !error.contains("secret"), "{what}: {error}");
    }
    for realm in ["http://169.254.169.254/latest/meta-data/", "file:///etc/shadow", "nonsense"] {
        let error = fetched(&with_realm(realm.to_owned()).await, sailor()).await.expect_err(realm);
        assert!(error.contains("asking for a token: "), "{error}");
    }
}

#[tokio::test]
async fn an_expired_token_is_requested_again() {
    let count = Arc::new(AtomicUsize::new(0));
    let given = count.clone();
    let tokens = server(move |_| {
        let token = format!("{{\"access_token\": \"token{}\"}}", given.fetch_add(1, Ordering::Relaxed));
        plain("200 OK", &token)
    })
    .await;
    let registry = server(move |head| {
        // The first token is good for the manifest alone.
        let is_let_in = head.contains("authorization: Bearer token1") || head.contains("/manifests/") && head.contains("Bearer token0");
        let challenge = format!("www-authenticate: Bearer realm=\"http://{tokens}/token\"");
        match is_let_in {
            true => plain("200 OK", "{}"),
            false => (format!("HTTP/1.1 401 No\r\nconnection: close\r\ncontent-length: 0\r\n{challenge}\r\n\r\n"), b""),
        }
    })
    .await;
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let reference: Reference = format!("{registry}/image:latest").parse().expect("a reference");
    let repository = Repository::open(&reference, true, None).await.expect("opens");
    repository.manifest(&reference).await.expect("a manifest");
    assert_eq!(repository.blob("sha256:00").await.expect("a blob").status(), StatusCode::OK);
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn credentials_stay_with_their_registry() {
    let authorized = Arc::new(AtomicUsize::new(0));
    let counted = authorized.clone();
    let elsewhere = server(move |head| {
        counted.fetch_add(usize::from(head.to_lowercase().contains("authorization:")), Ordering::Relaxed);
        plain("200 OK", "{}")
    })
    .await;
    // Another name of the same machine is another host.
    let elsewhere = elsewhere.replace("127.0.0.1", "localhost");
    let registry = server(move |head| {
        if !head.contains("authorization: Basic ") {
            return (
                "HTTP/1.1 401 No\r\nconnection: close\r\ncontent-length: 0\r\nwww-authenticate: Basic realm=\"r\"\r\n\r\n".to_owned(),
                &b""[..],
            );
        }
        (format!("HTTP/1.1 307 There\r\nconnection: close\r\ncontent-length: 0\r\nlocation: http://{elsewhere}/x\r\n\r\n"), b"")
    })
    .await;
    assert_eq!(fetched(&registry, sailor()).await, Ok(2));
    assert_eq!(authorized.load(Ordering::Relaxed), 0, "the other host was shown the password");
}

#[tokio::test]
async fn redirects_end_and_lead_nowhere_forbidden() {
    let round = server(|head| {
        if is_version(head) {
            plain("200 OK", "")
        } else {
            ("HTTP/1.1 307 Round\r\nconnection: close\r\ncontent-length: 0\r\nlocation: /v2/again\r\n\r\n".to_owned(), b"")
        }
    })
    .await;
    let error = fetched(&round, None).await.expect_err("a round");
    assert!(error.contains("more than 5 redirects"), "{error}");
    let metadata = server(|head| {
        let away = "HTTP/1.1 307 There\r\nconnection: close\r\ncontent-length: 0\r\nlocation: http://169.254.169.254/latest\r\n\r\n";
        if is_version(head) { plain("200 OK", "") } else { (away.to_owned(), &b""[..]) }
    })
    .await;
    let error = fetched(&metadata, None).await.expect_err("forbidden");
    assert!(error.contains("169.254.169.254, which is the node's own"), "{error}");
}

#[test]
fn challenges_are_read() {
    let bearer = |realm: &str, service: Option<&str>| Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) };
    for (header, wanted) in [
        (r#"Bearer realm="https://a/t",service="r.example""#, vec![bearer("https://a/t", Some("r.example"))]),
        (r#"bearer realm="https://a/t""#, vec![bearer("https://a/t", None)]),
        (r#"Basic realm="harbour""#, vec![Challenge::Basic]),
        (r#"Negotiate, Basic realm="x""#, vec![Challenge::Basic]),
        ("Bearer", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(challenges(header), wanted, "{header}");
    }
}

#[tokio::test]
async fn a_network_error_does_not_show_the_signature_of_a_url() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let error = Client::new().get("http://127.0.0.1:1/blob?X-Signature=secret").send().await.expect_err("nobody listens");
    let text = RegistryError::from(error).to_string();
    assert!(text.contains("http://127.0.0.1:1/blob") && text.contains("Connection refused") && !text.contains("secret"), "{text}");
}

/// As when a Pod is deleted while its image is fetched.
#[tokio::test]
async fn of_a_blob_that_is_not_waited_for_nothing_is_left() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let dir = tempfile::tempdir().expect("a directory");
    let store = crate::tests::open(dir.path());
    let registry = server(|head| if is_version(head) { plain("200 OK", "") } else { endless("200 OK") }).await;
    let name = crate::reference::parse(&format!("{registry}/image:latest")).expect("a name");
    let repository = Repository::open(&name.reference, true, None).await.map_err(|error| error.to_string()).expect("opens");
    let digest = digest_of(b"never comes");
    let fetch = crate::pull::blob::fetch(&store, &repository, &name, &digest, u64::MAX);
    let leftovers = || std::fs::read_dir(dir.path().join("store/tmp")).expect("lists").count();
    let arrives = async {
        while leftovers() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        fetched = fetch => panic!("{fetched:?}"),
        () = arrives => {}
    }
    assert_eq!(leftovers(), 0);
}
