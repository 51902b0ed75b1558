//! Which revision a template gets, against lists of revisions and a server that has some names already.

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::client::Body;
use parking_lot::Mutex;

use super::*;

fn template_of(image: &str) -> PodTemplateSpec {
    serde_json::from_value(json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": image}]}}))
        .expect("a template")
}

fn revision(name: &str, number: i64, image: &str) -> Arc<ControllerRevision> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), namespace: Some("ns".to_owned()), ..ObjectMeta::default() };
    Arc::new(ControllerRevision { metadata, data: RawExtension(data(&template_of(image))), revision: Some(number) })
}

fn set() -> StatefulSet {
    let spec = json!({"selector": {"matchLabels": {"app": "db"}}, "template": template_of("v1")});
    serde_json::from_value(json!({"metadata": {"name": "db", "namespace": "ns", "uid": "s", "annotations": {"kubernetes.io/change-cause": "why"}}, "spec": spec}))
        .expect("a StatefulSet")
}

#[test]
fn the_data_is_upstreams_patch() {
    let wanted = json!({"spec": {"template": {"$patch": "replace", "metadata": {"labels": {"app": "db"}},
        "spec": {"containers": [{"name": "c", "image": "v1"}]}}}});
    assert_eq!(data(&template_of("v1")), wanted);
    assert_eq!(template(&revision("a", 1, "v1")).expect("a template"), template_of("v1"));
}

#[test]
fn an_equal_template_has_its_old_revision_again() {
    let (one, two) = (revision("one", 1, "v1"), revision("two", 2, "v2"));
    let both = [Arc::clone(&one), Arc::clone(&two)];
    assert_eq!(step(&[], &data(&template_of("v1"))), Step::Create(1));
    assert_eq!(step(&both, &data(&template_of("v2"))), Step::Keep(Arc::clone(&two)));
    assert_eq!(step(&both, &data(&template_of("v1"))), Step::Renumber(one, 3));
    assert_eq!(step(&both, &data(&template_of("v3"))), Step::Create(3));
}

#[test]
fn of_equal_revisions_the_newest_stays() {
    let all = [revision("one", 1, "v1"), revision("two", 2, "v2"), revision("three", 3, "v1"), revision("four", 4, "v1")];
    let (newest, others) = duplicates(&all, &template_of("v1")).expect("three");
    assert_eq!((name(&newest), others.iter().map(|other| name(other)).collect::<Vec<_>>()), ("four", vec!["one", "three"]));
    assert_eq!(duplicates(&all, &template_of("v2")), None);
    assert_eq!(duplicates(&all, &template_of("v3")), None);
}

#[test]
fn what_a_template_leaves_empty_is_no_difference() {
    let mut with_empty = data(&template_of("v1"));
    with_empty["spec"]["template"]["spec"]["securityContext"] = json!({});
    let stored = [Arc::new(ControllerRevision { data: RawExtension(with_empty), ..ControllerRevision::clone(&revision("one", 1, "v1")) })];
    assert!(matches!(step(&stored, &data(&template_of("v1"))), Step::Keep(_)));
}

#[test]
fn a_revision_is_labelled_annotated_and_owned() {
    let set = set();
    let source = Source { owner: &set, template: &set.spec.template, collisions: 0, hash_label: HASH_LABEL };
    let one = wanted(&source, &data(source.template), 4, 0);
    let hash = meta::label(&one.metadata, HASH_LABEL).expect("a hash");
    assert_eq!(name(&one), format!("db-{hash}"));
    assert_eq!(meta::label(&one.metadata, "app"), Some("db"));
    assert_eq!(meta::annotation(&one.metadata, "kubernetes.io/change-cause"), Some("why"));
    assert_eq!(meta::controller_uid(&one.metadata), "s");
    assert_eq!(one.revision, Some(4));
    assert_ne!(name(&one), name(&wanted(&source, &data(source.template), 4, 1)));
}

#[test]
fn the_oldest_unused_revisions_expire() {
    let mut all = vec![revision("three", 3, "v3"), revision("one", 1, "v1"), revision("two", 2, "v2")];
    sort(&mut all);
    let expired =
        |surplus| expired(&all, |revision| name(revision) == "one", surplus).iter().map(|r| name(r).to_owned()).collect::<Vec<_>>();
    assert_eq!(expired(1), ["two"]);
    assert_eq!(expired(0), [""; 0]);
    assert_eq!(expired(5), ["two", "three"]);
}

/// A server with one revision; it answers a second one of the same name with a conflict.
fn server(stored: ControllerRevision) -> kube::Client {
    let stored = Arc::new(Mutex::new(stored));
    let service = tower::service_fn(move |request: Request<Body>| {
        let stored = Arc::clone(&stored);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let existing = stored.lock().clone();
            let (code, answer) = if parts.method == Method::POST {
                let sent: Value = serde_json::from_slice(&body).expect("json");
                if sent.pointer("/metadata/name").and_then(Value::as_str) == existing.metadata.name.as_deref() {
                    (
                        409,
                        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "exists", "reason": "AlreadyExists", "code": 409}),
                    )
                } else {
                    (201, sent)
                }
            } else {
                (200, serde_json::to_value(&existing).expect("json"))
            };
            Ok::<_, kube::Error>(Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).expect("a response"))
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn a_taken_name_is_used_again_or_avoided() {
    let set = set();
    let source = Source { owner: &set, template: &set.spec.template, collisions: 0, hash_label: HASH_LABEL };
    let mine = wanted(&source, &data(source.template), 1, 0);
    let reused = ensure(&server(mine.clone()), &source, Vec::new()).await.expect("a history");
    assert_eq!((name(&reused.update), reused.collisions), (name(&mine), 0), "the cache was stale");
    let foreign = ControllerRevision { data: RawExtension(data(&template_of("other"))), ..mine.clone() };
    let avoided = ensure(&server(foreign), &source, Vec::new()).await.expect("a history");
    assert_eq!(avoided.collisions, 1);
    assert_ne!(name(&avoided.update), name(&mine));
}
