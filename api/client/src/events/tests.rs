use std::sync::Arc;

use http::{Request, Response, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::*;

/// What a server has seen of the events: the objects and the messages, in the order of the requests, and how many were answered at the
/// same time.
#[derive(Default)]
struct Requests {
    events: Vec<(String, String)>,
    under_way: usize,
    under_way_max: usize,
}

/// A server that answers each request when it may.
fn server(may_answer: Arc<Semaphore>) -> (kube::Client, Arc<Mutex<Requests>>) {
    let requests = Arc::new(Mutex::new(Requests::default()));
    let all = Arc::clone(&requests);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (may_answer, requests) = (Arc::clone(&may_answer), Arc::clone(&all));
        async move {
            let body = request.into_body().collect_bytes().await.expect("a body");
            let event: Event = serde_json::from_slice(&body).expect("an Event");
            {
                let mut requests = requests.lock();
                let text = (event.involved_object.name.unwrap_or_default(), event.message.unwrap_or_default());
                requests.events.push(text);
                requests.under_way += 1;
                requests.under_way_max = requests.under_way_max.max(requests.under_way);
            }
            may_answer.acquire().await.expect("open").forget();
            requests.lock().under_way -= 1;
            let response = Response::builder().status(StatusCode::CREATED).header("content-type", "application/json");
            Ok::<_, std::convert::Infallible>(response.body(Body::from(body.to_vec())).expect("a response"))
        }
    });
    (kube::Client::new(service, "default"), requests)
}

fn pod(name: &str) -> ObjectReference {
    ObjectReference { kind: Some("Pod".to_owned()), name: Some(name.to_owned()), ..ObjectReference::default() }
}

#[tokio::test(start_paused = true)]
async fn events_are_sent_together_and_those_of_an_object_in_their_order() {
    let tasks = Tasks::new(CancellationToken::new());
    let may_answer = Arc::new(Semaphore::new(0));
    let (client, requests) = server(Arc::clone(&may_answer));
    let recorder = Recorder::new(client, "tester", None, &tasks);
    for number in 0..3 {
        recorder.normal(&pod("a"), "Happened", format!("{number}"));
    }
    for number in 0..20 {
        recorder.normal(&pod(&format!("b{number}")), "Happened", "once");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(requests.lock().events, [("a".to_owned(), "0".to_owned())], "the next event is of the same object");
    may_answer.add_permits(2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(requests.lock().under_way, SENDS_MAX);
    may_answer.add_permits(21);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let requests = requests.lock();
    assert_eq!((requests.events.len(), requests.under_way, requests.under_way_max), (23, 0, SENDS_MAX));
    let of_a: Vec<&str> = requests.events.iter().filter(|(object, _)| object == "a").map(|(_, message)| message.as_str()).collect();
    assert_eq!(of_a, ["0", "1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_is_sent_before_the_end() {
    let tasks = Tasks::new(CancellationToken::new());
    let (client, requests) = server(Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)));
    let recorder = Recorder::new(client, "tester", None, &tasks);
    for number in 0..100 {
        recorder.normal(&pod(&format!("p{}", number % 50)), "Happened", format!("{number}"));
    }
    tasks.stopping().cancel();
    tasks.wait().await;
    assert_eq!(requests.lock().events.len(), 100);
}
