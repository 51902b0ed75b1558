//! Informers without a server, and with one that has nothing to tell.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use serde_json::{Value, json};

use tokio_util::sync::CancellationToken;

use super::*;

fn map(name: &str, uid: &str, revision: u64) -> ConfigMap {
    let meta = json!({"namespace": "default", "name": name, "uid": uid, "resourceVersion": revision.to_string()});
    serde_json::from_value(json!({"metadata": meta})).expect("a ConfigMap")
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

async fn follow(informer: &Informer<ConfigMap>, events: Vec<Event<ConfigMap>>) {
    reflector::follow(stream::iter(events.into_iter().map(Ok)), &*informer.cache, &informer.cache.stats).await;
}

/// What a handler was called with: UIDs before and after.
fn recorded(informer: &Informer<ConfigMap>) -> (Arc<Mutex<Vec<String>>>, Registration<ConfigMap>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&calls);
    let uid = |object: &Option<Arc<ConfigMap>>| object.as_ref().and_then(|map| map.metadata.uid.clone()).unwrap_or("-".to_owned());
    let registration = informer.on_change(move |change| record.lock().push(format!("{}>{}", uid(&change.old), uid(&change.new))));
    (calls, registration)
}

#[tokio::test]
async fn a_second_list_removes_what_it_does_not_name() {
    let informer = Informer::detached();
    let (calls, _registration) = recorded(&informer);
    assert!(!informer.is_synced());
    follow(&informer, vec![Event::Init, Event::InitApply(map("a", "1", 1)), Event::InitApply(map("b", "2", 2))]).await;
    assert!(!informer.is_synced(), "the list is not complete");
    follow(&informer, vec![Event::Init, Event::InitApply(map("a", "1", 1)), Event::InitApply(map("b", "2", 2)), Event::InitDone]).await;
    assert!(informer.is_synced());
    follow(&informer, vec![Event::Init, Event::InitApply(map("b", "2", 5)), Event::InitDone]).await;
    assert_eq!(informer.list().len(), 1);
    assert_eq!(*calls.lock(), ["->1", "->2", "2>2", "1>-"]);
}

#[tokio::test]
async fn a_list_without_changes_calls_nobody() {
    let informer = Informer::detached();
    follow(&informer, vec![Event::Init, Event::InitApply(map("a", "1", 1)), Event::InitDone]).await;
    let (calls, _registration) = recorded(&informer);
    calls.lock().clear();
    follow(&informer, vec![Event::Init, Event::InitApply(map("a", "1", 1)), Event::InitDone]).await;
    assert!(calls.lock().is_empty());
}

#[tokio::test]
async fn an_object_created_again_under_its_name_is_removed_and_added() {
    let informer = Informer::detached();
    let (calls, _registration) = recorded(&informer);
    follow(&informer, vec![Event::Apply(map("a", "1", 1)), Event::Apply(map("a", "2", 3))]).await;
    assert_eq!(*calls.lock(), ["->1", "1>-", "->2"]);
}

#[tokio::test]
async fn a_late_handler_gets_what_there_is_and_a_dropped_one_nothing() {
    let informer = Informer::detached();
    informer.put(map("a", "1", 1));
    let (calls, registration) = recorded(&informer);
    assert_eq!(*calls.lock(), ["->1"]);
    drop(registration);
    informer.put(map("b", "2", 2));
    assert_eq!(*calls.lock(), ["->1"]);
}

#[tokio::test]
async fn changes_name_each_object_once_and_the_end_of_the_list() {
    let informer = Informer::detached();
    let mut changes = informer.changes();
    assert!(changes.next().now_or_never().is_none());
    follow(&informer, vec![Event::Init, Event::InitApply(map("b", "2", 2)), Event::InitApply(map("a", "1", 1))]).await;
    follow(&informer, vec![Event::Apply(map("b", "2", 3))]).await;
    assert_eq!(changes.next().await, Batch { keys: vec![key("b"), key("a")], synced: false });
    follow(&informer, vec![Event::Init, Event::InitApply(map("b", "2", 3)), Event::InitApply(map("a", "1", 1)), Event::InitDone]).await;
    assert_eq!(changes.next().await, Batch { keys: vec![], synced: true });
    informer.remove(&key("a"));
    assert_eq!(changes.next().await, Batch { keys: vec![key("a")], synced: true });
    assert!(changes.next().now_or_never().is_none());
    assert_eq!(informer.changes().next().await, Batch { keys: vec![key("b")], synced: true }, "a late one begins with what there is");
}

#[tokio::test]
async fn pods_are_trimmed_and_found_by_node_and_controller() {
    let pod = |name: &str, node: Value, owner: &str| -> Pod {
        let owners = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": owner, "controller": true}]);
        let annotations = json!({LAST_APPLIED: "{}", "kept": "yes"});
        let container = json!({"name": "c", "image": "i", "env": [{"name": "A"}], "resources": {"requests": {"cpu": "1"}}});
        let meta = json!({"name": name, "namespace": "default", "ownerReferences": if owner.is_empty() { json!([]) } else { owners },
                          "annotations": annotations, "managedFields": [{"manager": "m"}]});
        serde_json::from_value(json!({"metadata": meta, "spec": {"nodeName": node, "containers": [container]}})).expect("a Pod")
    };
    let informer = Informer::detached();
    informer.put(pod("a", json!("n1"), "u"));
    informer.put(pod("b", Value::Null, ""));
    let names = |pods: Vec<Arc<Pod>>| pods.iter().map(|pod| pod.metadata.name.clone().unwrap_or_default()).collect::<Vec<_>>();
    assert_eq!(names(informer.indexed(BY_NODE, "n1")), ["a"]);
    assert_eq!(names(informer.indexed(BY_CONTROLLER, "u")), ["a"]);
    assert_eq!(names(informer.indexed(BY_CONTROLLER, "")), ["b"]);
    let stored = serde_json::to_value(&*informer.get(&key("a")).expect("stored")).expect("JSON");
    assert_eq!(stored["metadata"]["annotations"], json!({"kept": "yes"}));
    assert_eq!(stored["metadata"].get("managedFields"), None);
    assert_eq!(stored["spec"]["containers"], json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}]));
    let waiting = informer.get(&key("b")).and_then(|pod| pod.spec.clone()).expect("stored");
    assert_eq!(waiting.containers[0].image.as_deref(), Some("i"), "the scheduler needs it");
    informer.put(pod("a", json!("n2"), "v"));
    assert!(informer.indexed(BY_NODE, "n1").is_empty() && informer.indexed(BY_CONTROLLER, "u").is_empty());
    informer.remove(&key("a"));
    assert!(informer.indexed(BY_NODE, "n2").is_empty());
    assert_eq!(names(informer.in_namespace("default")), ["b"]);
}

/// A volume has three kilobytes, and a list of containers, ports or owners has room for four elements once it has one.
#[tokio::test]
async fn a_stored_pod_has_no_spare_room() {
    let informer = Informer::detached();
    let owners = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]);
    let spec = json!({
        "containers": [{"name": "c", "ports": [{"containerPort": 80}]}],
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    let meta = json!({"name": "a", "namespace": "default", "ownerReferences": owners});
    informer.put(serde_json::from_value::<Pod>(json!({"metadata": meta, "spec": spec})).expect("a Pod"));
    let pod = informer.get(&key("a")).expect("stored");
    let spec = pod.spec.as_ref().expect("a spec");
    let owners = pod.metadata.owner_references.as_ref().map(Vec::capacity);
    let ports = spec.containers[0].ports.as_ref().map(Vec::capacity);
    assert_eq!((owners, ports, spec.containers.capacity()), (Some(1), Some(1), 1));
    assert_eq!((spec.tolerations.as_ref().map(Vec::capacity), spec.volumes.as_ref().map(Vec::capacity)), (Some(1), Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_write_is_waited_for_until_the_watch_delivers_it() {
    let informer = Informer::detached();
    let (written, limit) = (map("a", "1", 7), Duration::from_secs(5));
    assert!(!informer.wait_for_write(&written, limit).await);
    informer.put(map("b", "2", 6));
    assert!(!informer.wait_for_write(&written, limit).await);
    follow(&informer, vec![Event::Delete(map("a", "1", 8))]).await;
    assert!(informer.wait_for_write(&written, limit).await, "a later change shows that the write was delivered");
}

#[tokio::test]
async fn a_write_is_delivered_by_the_watch_or_by_a_list_that_began_later() {
    let informer = Informer::detached();
    let list = |objects: Vec<ConfigMap>| [Event::Init].into_iter().chain(objects.into_iter().map(Event::InitApply));
    informer.put(map("b", "2", 5));
    let mark = informer.mark(&map("b", "2", 7));
    assert!(!informer.has_delivered(&mark));
    follow(&informer, list(vec![map("a", "1", 9)]).collect()).await;
    assert!(!informer.has_delivered(&mark), "the list is not complete: the other object is as it was");
    let late = informer.mark(&map("c", "3", 12));
    follow(&informer, vec![Event::InitApply(map("b", "2", 8)), Event::InitDone]).await;
    assert!(informer.has_delivered(&mark) && informer.get(&key("b")).is_some());
    assert!(!informer.has_delivered(&late), "the list began before the write");
    follow(&informer, list(vec![map("a", "1", 9)]).chain([Event::InitDone]).collect()).await;
    assert!(informer.has_delivered(&late), "an object that is gone has no resource version in a list");
    let next = informer.mark(&map("a", "1", 13));
    informer.put(map("a", "1", 13));
    assert!(informer.has_delivered(&next));
}

#[tokio::test]
async fn handlers_find_the_write_delivered_that_they_are_called_for() {
    let informer = Informer::detached();
    let (mark, seen) = (informer.mark(&map("a", "1", 7)), Arc::new(Mutex::new(Vec::new())));
    let (reader, noted) = (informer.clone(), Arc::clone(&seen));
    let _handler = informer.on_change(move |_| noted.lock().push(reader.has_delivered(&mark)));
    informer.put(map("a", "1", 6));
    follow(&informer, vec![Event::Delete(map("a", "1", 7))]).await;
    assert_eq!(*seen.lock(), [false, true]);
}

/// A server that lists nothing and whose watches stay open; counts its requests.
fn silent(requests: &Arc<AtomicUsize>) -> kube::Client {
    let requests = Arc::clone(requests);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        requests.fetch_add(1, Ordering::SeqCst);
        async move {
            if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                std::future::pending::<()>().await;
            }
            let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(list.to_string().into_bytes())))
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn a_kind_has_one_watch_while_anybody_holds_its_informer() {
    let (requests, stopping) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let tasks = Tasks::new(stopping.clone());
    let informers = Informers::new(silent(&requests), tasks.clone());
    let (one, two) = (informers.informer::<ConfigMap>(), informers.clone().informer::<ConfigMap>());
    one.synced().await;
    assert!(two.is_synced());
    let other = informers.selected::<ConfigMap>("metadata.name=a");
    other.synced().await;
    let mut families = api_metrics::Families::default();
    api_metrics::add_process(&mut families);
    let text = families.text();
    let lists = |line: &str| line.starts_with("skiff_informer_lists_total{") && line.ends_with(",kind=\"configmaps\"} 1");
    assert!(text.lines().any(lists), "{text}");
    let cache = Arc::downgrade(&one.cache);
    drop((one, two));
    while cache.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(tasks.failed().now_or_never().is_none(), "a watch that nobody wants any more has not failed");
    let before = requests.load(Ordering::SeqCst);
    informers.informer::<ConfigMap>().synced().await;
    assert!(requests.load(Ordering::SeqCst) > before, "the next one watches again");
}

/// A store of its own: names by UID.
#[derive(Default)]
struct Names(Mutex<std::collections::BTreeMap<String, String>>);

impl Store<ConfigMap> for Names {
    type Key = String;

    fn key(object: &ConfigMap) -> String {
        object.metadata.uid.clone().unwrap_or_default()
    }

    fn put(&self, object: ConfigMap) {
        self.0.lock().insert(Self::key(&object), object.metadata.name.unwrap_or_default());
    }

    fn remove(&self, object: &ConfigMap) {
        self.0.lock().remove(&Self::key(object));
    }

    fn complete(&self, listed: &std::collections::BTreeSet<String>) {
        self.0.lock().retain(|uid, _| listed.contains(uid));
    }
}

#[tokio::test]
async fn a_store_of_its_own_follows_lists_and_changes() {
    let (names, stats) = (Names::default(), metrics::Stats::new("configmaps"));
    let events = [
        vec![Event::Init, Event::InitApply(map("a", "1", 1)), Event::InitApply(map("b", "2", 2)), Event::InitDone],
        vec![Event::Apply(map("c", "3", 3)), Event::Delete(map("a", "1", 4)), Event::Apply(map("a", "4", 5))],
        // Created again while nobody watched.
        vec![Event::Init, Event::InitApply(map("b", "5", 6)), Event::InitApply(map("a", "4", 5)), Event::InitDone],
    ];
    let expected = [vec!["1=a", "2=b"], vec!["2=b", "3=c", "4=a"], vec!["4=a", "5=b"]];
    for (events, expected) in events.into_iter().zip(expected) {
        reflector::follow(stream::iter(events.into_iter().map(Ok)), &names, &stats).await;
        let present: Vec<String> = names.0.lock().iter().map(|(uid, name)| format!("{uid}={name}")).collect();
        assert_eq!(present, expected);
    }
}
