//! OpenAPI v2 of aggregated servers, in the one document for all servers.

use super::*;

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// A server's document: a path of its version, and a path outside of it.
fn document(path: &str) -> Value {
    let item = json!({"get": {"responses": {"200": {"schema": {"$ref": format!("#/definitions/{STATUS}")}}}}});
    json!({"swagger": "2.0", "definitions": {STATUS: {"description": "another one"}, "Unused": {}},
        "paths": {format!("/apis/others.example.com/v1/{path}"): item, "/apis/apps/v1/stolen": item}})
}

impl Backing {
    fn says(&self, tag: &str, document: impl ToString) {
        *self.openapi.lock() = (format!("\"{tag}\""), document.to_string());
    }

    /// The ETags with which the document was requested.
    fn tags(&self) -> Vec<Option<String>> {
        let tag = |headers: &http::HeaderMap| headers.get(header::IF_NONE_MATCH).map(|tag| tag.to_str().expect("text").to_owned());
        self.received.lock().iter().filter(|request| request.path == "/openapi/v2").map(|request| tag(&request.headers)).collect()
    }
}

/// Waits until the server's document of version 3 is or is not in the index.
pub(super) async fn until_in_index(cluster: &Cluster, is_in: bool) {
    let asking = async {
        while cluster.get("/openapi/v3").await.ok()["paths"].get("apis/others.example.com/v1").is_some() != is_in {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.unwrap_or_else(|_| panic!("in the index: never {is_in}"));
}

/// Makes the loop check the server twice: then the result of the first check is known.
async fn have_looked(cluster: &Cluster, backing: &Backing) {
    for _ in 0..2 {
        let before = backing.tags().len();
        look_again(cluster).await;
        let looked = async {
            while backing.tags().len() == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), looked).await.expect("asked again");
    }
}

/// The document, as soon as a path of the server is or is not in it.
async fn until_in(cluster: &Cluster, path: &str, is_in: bool) -> Value {
    let asking = async {
        loop {
            let document = cluster.get("/openapi/v2").await.ok();
            if document["paths"].get(format!("/apis/others.example.com/v1/{path}")).is_some() == is_in {
                return document;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.unwrap_or_else(|_| panic!("{path}: never {is_in}"))
}

#[tokio::test]
async fn the_document_of_a_server_is_merged_into_ours() {
    let (cluster, backing) = (cluster().await, Backing::new().await);
    let alone = cluster.get("/openapi/v2").await;
    backing.says("1", document("gadgets"));
    backing.register(&cluster, PKI.ca_pem()).await;
    let merged = until_in(&cluster, "gadgets", true).await;
    let answer = &merged["paths"]["/apis/others.example.com/v1/gadgets"]["get"]["responses"]["200"]["schema"]["$ref"];
    assert_eq!(*answer, format!("#/definitions/{STATUS}_v2"));
    assert_eq!(merged["definitions"][format!("{STATUS}_v2")]["description"], "another one");
    assert_eq!(merged["definitions"][STATUS], alone.body["definitions"][STATUS]);
    assert_eq!((merged["paths"].get("/apis/apps/v1/stolen"), merged["definitions"].get("Unused")), (None, None));
    let merged = cluster.get("/openapi/v2").await;
    assert_ne!(merged.headers[header::ETAG], alone.headers[header::ETAG]);
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let request = Request::builder().uri("/openapi/v2").header(header::ACCEPT, protobuf).body(Body::empty()).expect("a request");
    let bytes = cluster.raw(request).await.into_body().collect().await.expect("a body").to_bytes();
    let path = b"/apis/others.example.com/v1/gadgets";
    assert!(bytes.windows(path.len()).any(|window| window == path));
}

#[tokio::test]
async fn a_document_is_read_again_when_it_is_another() {
    let (cluster, backing) = (cluster().await, Backing::new().await);
    backing.says("1", document("first"));
    backing.register(&cluster, PKI.ca_pem()).await;
    until_in(&cluster, "first", true).await;
    have_looked(&cluster, &backing).await;
    assert_eq!(backing.tags().last(), Some(&Some("\"1\"".to_owned())));
    backing.says("2", document("second"));
    look_again(&cluster).await;
    let merged = until_in(&cluster, "second", true).await;
    assert_eq!(merged["paths"].get("/apis/others.example.com/v1/first"), None);
}

#[tokio::test]
async fn who_is_away_or_talks_nonsense_is_left_out() {
    let (cluster, backing) = (cluster().await, Backing::new().await);
    let mut dangling = document("gadgets");
    dangling["definitions"] = json!({});
    let long = format!("{}{}", " ".repeat(9 << 20), document("gadgets"));
    let mut many = document("gadgets");
    many["x-many"] = vec![json!([]); 250_001].into();
    let mut mistyped = document("gadgets");
    mistyped["paths"]["/apis/others.example.com/v1/gadgets"]["get"] = 5.into();
    let nonsense = ["{".to_owned(), "[]".to_owned(), dangling.to_string(), mistyped.to_string(), many.to_string(), long];
    backing.says("fine", document("gadgets"));
    backing.register(&cluster, PKI.ca_pem()).await;
    for (number, nonsense) in nonsense.into_iter().enumerate() {
        until_in(&cluster, "gadgets", true).await;
        backing.says(&number.to_string(), nonsense);
        look_again(&cluster).await;
        until_in(&cluster, "gadgets", false).await;
        backing.says("fine", document("gadgets"));
        look_again(&cluster).await;
    }
    until_in(&cluster, "gadgets", true).await;
    backing.discovery.store(500, Ordering::SeqCst);
    look_again(&cluster).await;
    until_in(&cluster, "gadgets", false).await;
}

#[tokio::test]
async fn a_servers_last_answer_stays_while_it_is_unavailable() {
    let (cluster, backing) = (cluster().await, Backing::new().await);
    backing.says("1", document("gadgets"));
    backing.register(&cluster, PKI.ca_pem()).await;
    let before = until_in(&cluster, "gadgets", true).await;
    until_in_index(&cluster, true).await;
    for code in [500, 503, 429, 0] {
        backing.openapi_code.store(code, Ordering::SeqCst);
        have_looked(&cluster, &backing).await;
        assert_eq!(cluster.get("/openapi/v2").await.ok(), before, "{code}");
        until_in_index(&cluster, true).await;
    }
    backing.openapi_code.store(404, Ordering::SeqCst);
    look_again(&cluster).await;
    until_in(&cluster, "gadgets", false).await;
    until_in_index(&cluster, false).await;
}

#[tokio::test]
async fn what_a_server_said_goes_with_its_registration() {
    let (cluster, backing) = (cluster().await, Backing::new().await);
    backing.says("1", document("gadgets"));
    backing.register(&cluster, PKI.ca_pem()).await;
    until_in(&cluster, "gadgets", true).await;
    backing.openapi_code.store(500, Ordering::SeqCst);
    cluster.delete(&format!("{SERVICES}/v1.others.example.com")).await.ok();
    cluster.post(SERVICES, backing.registration(PKI.ca_pem())).await.ok();
    until(&cluster, "v1.others.example.com", |condition| condition["reason"] == "Passed").await;
    have_looked(&cluster, &backing).await;
    until_in(&cluster, "gadgets", false).await;
}

#[tokio::test]
async fn who_is_slow_to_give_its_document_is_available_meanwhile() {
    let (cluster, backing) = (cluster().await, Backing::new().await);
    backing.openapi_code.store(0, Ordering::SeqCst);
    let since = tokio::time::Instant::now();
    backing.register(&cluster, PKI.ca_pem()).await;
    until(&cluster, "v1.others.example.com", |condition| condition["reason"] == "Passed").await;
    // Waiting for the document would take that long.
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(cluster.get("/apis/others.example.com/v1").await.ok()["resources"][0]["name"], "gadgets");
}
