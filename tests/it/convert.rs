//! A custom resource in two versions, with a conversion webhook behind a Service: kubectl reads and writes both
//! versions, and the storage version changes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};
use tests::net::Net;
use tests::{Cluster, Kubectl, backend, eventually};

const PORT: u16 = 8444;

/// In `v1` a boat has a number of crew; in `v2` it has seats, of which the first belong to the crew.
async fn answer(request: Request<Incoming>) -> backend::Answer {
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("JSON");
    let wanted = &review["request"]["desiredAPIVersion"];
    let converted: Vec<Value> =
        review["request"]["objects"].as_array().expect("objects").iter().map(|object| convert(object, wanted)).collect();
    let result = match converted.iter().any(|object| object["spec"]["seats"]["crew"] == 13) {
        true => json!({"status": "Failure", "message": "thirteen is unlucky"}),
        false => json!({"status": "Success"}),
    };
    let response = json!({"uid": review["request"]["uid"], "result": result, "convertedObjects": converted});
    let answer = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response});
    Response::new(Full::from(answer.to_string()))
}

fn convert(object: &Value, wanted: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = wanted.clone();
    object["spec"] = match wanted.as_str() {
        Some("harbor.example.com/v2") => json!({"seats": {"crew": object["spec"]["crew"]}}),
        _ => json!({"crew": object["spec"]["seats"]["crew"]}),
    };
    object
}

fn definition(authority: &str, stored: &str) -> String {
    let crew = "{type: integer, minimum: 1}";
    let version = |name: &str, spec: &str, path: &str| {
        format!(
            "  - name: {name}\n    served: true\n    storage: {}\n    additionalPrinterColumns: [{{name: Crew, type: integer, jsonPath: {path}}}]\n    \
             schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {{type: object, properties: {spec}}}}}}}}}\n",
            name == stored
        )
    };
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: boats.harbor.example.com}}\nspec:\n  \
         group: harbor.example.com\n  scope: Namespaced\n  names: {{plural: boats, kind: Boat}}\n  \
         conversion: {{strategy: Webhook, webhook: {{conversionReviewVersions: [v1], \
         clientConfig: {{service: {{name: convert, namespace: default, path: /convert}}, caBundle: {}}}}}}}\n  versions:\n{}{}",
        STANDARD.encode(authority),
        version("v1", &format!("{{crew: {crew}}}"), ".spec.crew"),
        version("v2", &format!("{{seats: {{type: object, properties: {{crew: {crew}}}}}}}"), ".spec.seats.crew"),
    )
}

fn boat(version: &str, name: &str, spec: &str) -> String {
    format!("apiVersion: harbor.example.com/{version}\nkind: Boat\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

#[test]
fn a_webhook_stands_between_versions() {
    let mut cluster = Cluster::prepared(Net::alone(), &["up"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    let authority = backend::serve_in(&cluster.net, "convert.default.svc", PORT, None, answer);
    kubectl.apply(&backend::service("convert", &cluster.net.ip, PORT)).ok();
    kubectl.apply(&definition(&authority, "v1")).ok();
    kubectl.ok("wait --for=condition=established crd/boats.harbor.example.com --timeout=20s");
    each_version_is_read_and_written(&kubectl);
    what_cannot_be_converted_is_said(&kubectl);
    the_stored_version_moves_on(&kubectl, &authority);
}

fn each_version_is_read_and_written(kubectl: &Kubectl<'_>) {
    kubectl.apply(&boat("v2", "ann", "{seats: {crew: 2}}")).ok();
    kubectl.apply(&boat("v1", "bea", "{crew: 3}")).ok();
    for version in ["v1", "v2"] {
        let listed = kubectl.ok(&format!("get boats.{version}.harbor.example.com --no-headers"));
        let words: Vec<&str> = listed.split_whitespace().collect();
        assert_eq!(words, ["ann", "2", "bea", "3"], "{version}");
    }
    let ann = "boats.v1.harbor.example.com/ann";
    assert_eq!(kubectl.field(ann, "/spec"), json!({"crew": 2}));
    kubectl.ok("patch boats.v2.harbor.example.com ann --type=merge -p {\"spec\":{\"seats\":{\"crew\":5}}}");
    assert_eq!(kubectl.field(ann, "/spec/crew"), 5);
    let applied =
        kubectl.with_input("apply --server-side --field-manager=captain --force-conflicts -f -", &boat("v2", "ann", "{seats: {crew: 6}}"));
    assert_eq!(applied.ok(), "boat.harbor.example.com/ann serverside-applied\n");
    assert_eq!(kubectl.field(ann, "/spec/crew"), 6);
    let refused = kubectl.with_input("apply -f -", &boat("v2", "ann", "{seats: {crew: 0}}")).fails();
    assert!(refused.contains("spec.seats.crew in body should be greater than or equal to 1"), "{refused}");
    let mut watching = kubectl.command(&["get", "boats.v2.harbor.example.com", "--watch-only", "-o", "jsonpath={.spec.seats.crew}{\" \"}"]);
    let mut watching = watching.stdout(std::process::Stdio::piped()).spawn().expect("kubectl starts");
    let mut heard = std::io::BufReader::new(watching.stdout.take().expect("piped"));
    let mut crew = 10;
    // The watch must begin before the changes.
    let output = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut text = Vec::new();
            std::io::BufRead::read_until(&mut heard, b' ', &mut text).expect("a word");
            String::from_utf8(text).expect("text")
        });
        while !reading.is_finished() {
            crew += 10;
            kubectl.ok(&format!("patch boats.v1.harbor.example.com bea --type=merge -p {{\"spec\":{{\"crew\":{crew}}}}}"));
        }
        reading.join().expect("read")
    });
    watching.kill().expect("it is ours");
    watching.wait().expect("it ends");
    assert!(output.trim().parse::<u32>().expect("a number") >= 20, "{output}");
}

fn what_cannot_be_converted_is_said(kubectl: &Kubectl<'_>) {
    kubectl.apply(&boat("v1", "unlucky", "{crew: 13}")).ok();
    let failure = "conversion webhook for harbor.example.com/v1, Kind=Boat failed: thirteen is unlucky";
    for words in ["get boats.v2.harbor.example.com unlucky", "get boats.v2.harbor.example.com"] {
        let complaint = kubectl.fails(words);
        assert!(complaint.contains(failure), "{words}: {complaint}");
    }
    kubectl.ok("delete boats.v1.harbor.example.com unlucky");
    kubectl.ok("get boats.v2.harbor.example.com");
}

fn the_stored_version_moves_on(kubectl: &Kubectl<'_>, authority: &str) {
    kubectl.apply(&definition(authority, "v2")).ok();
    assert_eq!(kubectl.field("crd/boats.harbor.example.com", "/status/storedVersions"), json!(["v1", "v2"]));
    let gone = "[{\"op\":\"remove\",\"path\":\"/spec/versions/0\"}]";
    let refused = kubectl.fails(&format!("patch crd boats.harbor.example.com --type=json -p {gone}"));
    assert!(refused.contains("v1 was previously a storage version"), "{refused}");
    // Write every object once more.
    eventually("every boat is written in v2", || {
        let all = kubectl.ok("get boats.v2.harbor.example.com -o yaml");
        let written = kubectl.with_input("replace -f -", &all);
        if written.succeeded() { Ok(()) } else { Err(written.to_string()) }
    });
    kubectl.ok("patch crd boats.harbor.example.com --subresource=status --type=merge -p {\"status\":{\"storedVersions\":[\"v2\"]}}");
    kubectl.ok(&format!("patch crd boats.harbor.example.com --type=json -p {gone}"));
    eventually("v1 is gone", || {
        let ran = kubectl.run(&["get", "--raw", "/apis/harbor.example.com/v1"]);
        if ran.succeeded() { Err(ran.stdout) } else { Ok(()) }
    });
    assert_eq!(kubectl.ok("get boats -o jsonpath={.items[0].spec.seats.crew}"), "6");
}
