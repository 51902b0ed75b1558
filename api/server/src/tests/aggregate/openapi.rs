//! OpenAPI v2 of aggregated servers, in the one document that there is of it.

use super::*;

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// What a server says of a path below its version, and of one that is none of its business.
fn document(path: &str) -> Value {
    let item = json!({"get": {"responses": {"200": {"schema": {"$ref": format!("#/definitions/{STATUS}")}}}}});
    json!({"swagger": "2.0", "definitions": {STATUS: {"description": "another one"}, "Unused": {}},
        "paths": {format!("/apis/others.example.com/v1/{path}"): item, "/apis/apps/v1/stolen": item}})
}

impl Backing {
    fn says(&self, tag: &str, document: impl ToString) {
        *self.openapi.lock() = (format!("\"{tag}\""), document.to_string());
    }

    /// With which tags the document was asked for.
    fn tags(&self) -> Vec<Option<String>> {
        let tag = |headers: &http::HeaderMap| headers.get(header::IF_NONE_MATCH).map(|tag| tag.to_str().expect("text").to_owned());
        self.asked.lock().iter().filter(|asked| asked.path == "/openapi/v2").map(|asked| tag(&asked.headers)).collect()
    }
}

/// The document, once a path of the server's is or is not in it.
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
    let asked = cluster.get("/openapi/v2").await;
    assert_ne!(asked.headers[header::ETAG], alone.headers[header::ETAG]);
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
    let asked = backing.tags().len();
    look_again(&cluster).await;
    let looked = async {
        while backing.tags().len() == asked {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), looked).await.expect("asked again");
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
    let nonsense = ["{".to_owned(), "[]".to_owned(), dangling.to_string(), long];
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
