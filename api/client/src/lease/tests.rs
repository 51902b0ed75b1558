use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;

use super::*;
use crate::fence::NotLeading;

/// A client whose server never answers, and the number of its requests.
fn client_of_silence() -> (kube::Client, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let service = tower::service_fn(move |_: Request<Body>| {
        counter.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
    });
    (kube::Client::new(service, "default"), requests)
}

/// A client of a server with one Lease, which somebody else changes after each renewal, and the codes of the answers to
/// writes.
fn client_of_a_changing_lease() -> (kube::Client, Arc<parking_lot::Mutex<Vec<u16>>>) {
    let codes = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let version = Arc::new(AtomicUsize::new(1));
    let written = Arc::clone(&codes);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (version, written) = (Arc::clone(&version), Arc::clone(&written));
        async move {
            let is_write = request.method() == http::Method::PUT;
            let body = request.into_body().collect_bytes().await.expect("a body");
            let answer = |code: u16, version: usize| {
                let owner = serde_json::json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"});
                let metadata = serde_json::json!({"name": "n", "resourceVersion": version.to_string(), "ownerReferences": [owner]});
                let failure =
                    serde_json::json!({"kind": "Status", "status": "Failure", "message": "old", "reason": "Conflict", "code": 409});
                let lease = serde_json::json!({"metadata": metadata, "spec": {}});
                let body = if code == 200 { lease } else { failure };
                http::Response::builder().status(code).body(kube::client::Body::from(body.to_string().into_bytes()))
            };
            if !is_write {
                return Ok::<_, std::convert::Infallible>(answer(200, version.load(Ordering::Relaxed)).expect("an answer"));
            }
            let lease: Lease = serde_json::from_slice(&body).expect("a Lease");
            let current = version.load(Ordering::Relaxed).to_string();
            let code = if lease.metadata.resource_version == Some(current) { 200 } else { 409 };
            written.lock().push(code);
            let given = if code == 200 { version.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
            if code == 200 {
                version.fetch_add(1, Ordering::Relaxed);
            }
            Ok(answer(code, given).expect("an answer"))
        }
    });
    (kube::Client::new(service, "default"), codes)
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_others_change_is_renewed_without_a_wait() {
    let (client, codes) = client_of_a_changing_lease();
    let cancel = CancellationToken::new();
    let beating = tokio::spawn(heartbeat(client, "n", Duration::from_secs(40), cancel.clone()));
    tokio::time::sleep(Duration::from_secs(25)).await;
    cancel.cancel();
    beating.await.expect("no panic");
    assert_eq!(*codes.lock(), [200, 409, 200, 409, 200]);
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_silent_server_are_repeated_and_delay_nobody() {
    let (client, requests) = client_of_silence();
    let cancel = CancellationToken::new();
    let beating = tokio::spawn(heartbeat(client.clone(), "n", Duration::from_secs(40), cancel.clone()));
    let leading = tokio::spawn({
        let cancel = cancel.clone();
        async move { lead(client, &Election::new("x", "me"), cancel, |_| std::future::ready(())).await }
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    // Six heartbeats of ten seconds, and five attempts to lead.
    let requests = requests.load(Ordering::Relaxed);
    assert!(requests >= 9, "only {requests}");
    cancel.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(1), async { (beating.await, leading.await) }).await;
    let (beating, leading) = ended.expect("both end at once");
    beating.expect("no panic");
    assert_eq!(leading.expect("no panic"), None);
}

/// A client whose server has one Lease.
fn client_of_lease(lease: &Arc<Mutex<Option<Lease>>>) -> kube::Client {
    let lease = Arc::clone(lease);
    let service = tower::service_fn(move |request: Request<Body>| {
        let lease = Arc::clone(&lease);
        async move {
            let (parts, body) = request.into_parts();
            if parts.method != Method::GET {
                let body = body.collect_bytes().await?;
                *lease.lock() = Some(serde_json::from_slice(&body).expect("a Lease"));
            }
            let present = lease.lock().as_ref().map(|lease| serde_json::to_vec(lease).expect("JSON"));
            let status = if present.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
            let missing = || br#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#.to_vec();
            Ok::<_, kube::Error>(Response::builder().status(status).body(Body::from(present.unwrap_or_else(missing))).expect("an answer"))
        }
    });
    kube::Client::new(service, "default")
}

/// What a leader finds at its next renewal after an interruption.
#[tokio::test(start_paused = true)]
async fn a_term_ends_at_once_when_the_lease_was_another_s_in_between() {
    let other = |holder: &str, transitions: i32| LeaseSpec { lease_transitions: Some(transitions), ..spec(holder) };
    for (what, found) in [
        ("another leads", Some(other("other", 1))),
        ("another has led and released it", Some(other("", 1))),
        ("it is ours again", Some(other("me", 2))),
        ("it is deleted", None),
    ] {
        let lease = Arc::new(Mutex::new(None));
        let (client, cancel, (sender, mut terms)) = (client_of_lease(&lease), CancellationToken::new(), tokio::sync::mpsc::channel(8));
        let leading = tokio::spawn({
            let cancel = cancel.clone();
            async move {
                let work = |Term { fence, cancel }: Term| {
                    let sender = sender.clone();
                    async move {
                        sender.send((fence, cancel.clone())).await.expect("the test goes on");
                        cancel.cancelled().await;
                    }
                };
                lead(client, &Election::new("x", "me"), cancel, work).await
            }
        });
        let (fence, term) = terms.recv().await.expect("it leads");
        // Renewals change nothing.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!term.is_cancelled() && fence.check(api_clock::boottime()).is_ok(), "{what}");
        let named = found.map(|spec| Lease { spec: Some(spec), ..named("x") });
        *lease.lock() = named;
        tokio::time::timeout(Duration::from_millis(2_100), term.cancelled()).await.expect(what);
        assert_eq!(fence.check(api_clock::boottime()), Err(NotLeading::Over("kube-system/x".to_owned())), "{what}");
        cancel.cancel();
        assert_eq!(leading.await.expect("no panic"), None, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_work_may_write_until_it_has_ended_when_nothing_is_lost() {
    let (lease, cancel, fences) = (Arc::new(Mutex::new(None)), CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
    let leading = tokio::spawn({
        let (client, cancel, fences) = (client_of_lease(&lease), cancel.clone(), Arc::clone(&fences));
        async move {
            let work = |Term { fence, cancel }: Term| {
                let fences = Arc::clone(&fences);
                async move {
                    cancel.cancelled().await;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let last = fence.check(api_clock::boottime());
                    fences.lock().push((last, fence));
                }
            };
            lead(client, &Election::new("x", "me"), cancel, work).await
        }
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    let holder = || lease.lock().as_ref().and_then(|lease: &Lease| lease.spec.clone()).and_then(|spec| spec.holder_identity);
    assert_eq!(holder().as_deref(), Some("me"));
    cancel.cancel();
    assert_eq!(leading.await.expect("no panic"), None);
    assert_eq!(holder().as_deref(), Some(""), "it is released");
    let (last, fence) = fences.lock().pop().expect("a term");
    assert_eq!(last, Ok(()));
    assert!(fence.check(api_clock::boottime()).is_err(), "the term is over");
}

fn spec(holder: &str) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        lease_transitions: Some(3),
        ..LeaseSpec::default()
    }
}

#[test]
fn a_lease_is_taken_only_when_free_ours_or_run_out() {
    let election = Election::new("x", "me");
    for (holder, unchanged, expected) in [("", 0, true), ("me", 0, true), ("other", 0, false), ("other", 14, false), ("other", 15, true)] {
        assert_eq!(may_take(&spec(holder), &election, Duration::from_secs(unchanged)), expected, "{holder} {unchanged}");
    }
}

#[test]
fn a_lease_is_of_one_term_of_one_holder() {
    for (holder, term, expected) in [("me", 3, true), ("me", 5, false), ("other", 3, false), ("", 3, false)] {
        assert_eq!(is_of_term(&spec(holder), "me", term), expected, "{holder} {term}");
    }
}

#[test]
fn a_change_of_holder_is_counted_and_renewing_is_not() {
    let election = Election::new("x", "me");
    let now = Timestamp::UNIX_EPOCH;
    assert_eq!(claim(None, &election, now).lease_transitions, Some(0));
    assert_eq!(claim(Some(&spec("me")), &election, now).lease_transitions, Some(3));
    assert_eq!(claim(Some(&spec("other")), &election, now).lease_transitions, Some(4));
}

#[test]
fn renewing_keeps_the_time_of_taking() {
    let election = Election::new("x", "me");
    let taken = claim(None, &election, Timestamp::UNIX_EPOCH);
    let later = Timestamp::from_second(60).expect("in range");
    let renewed = claim(Some(&taken), &election, later);
    assert_eq!(renewed.acquire_time, taken.acquire_time);
    assert_eq!(renewed.renew_time, Some(MicroTime(later)));
}
