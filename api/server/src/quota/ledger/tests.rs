//! Compares the ledger with a count of all objects, on a server's cache.

use api_admission::resource_quota::Counted;
use api_clock::rand::rngs::StdRng;
use api_clock::rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use super::*;
use crate::tests::{CONFIG_MAPS, Cluster, PODS, cluster, config_map, pod};
use api_cache::{Applied, encode};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const STEPS: u32 = 300;

fn core(plural: &str) -> GroupResource {
    GroupResource::new("", plural)
}

fn scoped(scope: &str) -> Scopes {
    Scopes::from_quota(&json!({"spec": {"scopes": [scope]}}))
}

/// The sum of a separate ledger, compared with a count.
fn sum(cluster: &Cluster, ledger: &Ledger, resource: &GroupResource, scopes: &Scopes) -> Sum {
    let cache = &cluster.server.core().cache;
    let sum = LedgerSums { ledger, cache }.sum(resource, "default", scopes);
    assert_eq!(sum, Counted(&**cache).sum(resource, "default", scopes), "{resource} {scopes:?}");
    sum
}

/// A random change to one of a few objects.
async fn step(cluster: &Cluster, rng: &mut StdRng) {
    let name = format!("o{}", rng.random_range(0..12));
    match rng.random_range(0..9) {
        0 | 1 => {
            let mut new = pod(&name);
            if rng.random() {
                let cpu = json!({"cpu": format!("{}m", rng.random_range(1..2_000))});
                new["spec"]["containers"][0]["resources"] = json!({"requests": cpu, "limits": cpu});
            }
            if rng.random() {
                new["spec"]["activeDeadlineSeconds"] = 60.into();
            }
            cluster.post(PODS, new).await;
        }
        2 => drop(cluster.patch(&format!("{PODS}/{name}/status"), "merge", json!({"status": {"phase": "Succeeded"}})).await),
        3 => drop(cluster.patch(&format!("{PODS}/{name}"), "merge", json!({"spec": {"activeDeadlineSeconds": 30}})).await),
        4 => drop(cluster.delete(&format!("{PODS}/{name}?gracePeriodSeconds=0")).await),
        5 => {
            let kind = ["ClusterIP", "NodePort", "LoadBalancer"][rng.random_range(0..3)];
            let service =
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}});
            cluster.post(SERVICES, service).await;
        }
        6 => drop(cluster.delete(&format!("{SERVICES}/{name}")).await),
        7 => drop(cluster.post(CONFIG_MAPS, config_map(&name, json!({}))).await),
        _ => drop(cluster.delete(&format!("{CONFIG_MAPS}/{name}")).await),
    }
}

#[tokio::test]
async fn sums_are_what_a_count_says() {
    let cluster = cluster().await;
    cluster.service_account().await;
    let mut rng = StdRng::seed_from_u64(7);
    let ledger = Ledger::default();
    let scopes = [Scopes::default(), scoped("BestEffort"), scoped("NotBestEffort"), scoped("Terminating")];
    let mut seen = HashSet::new();
    for _ in 0..STEPS {
        step(&cluster, &mut rng).await;
        // Not after each change, so that several changes are added together and sums are opened at different times.
        if rng.random_range(0..3) == 0 {
            seen.insert(format!("{:?}", sum(&cluster, &ledger, &core("pods"), &scopes[rng.random_range(0..scopes.len())])));
            sum(&cluster, &ledger, &core("services"), &Scopes::default());
            sum(&cluster, &ledger, &core("configmaps"), &Scopes::default());
        }
    }
    assert!(seen.len() > 20, "the steps change what is used: {seen:?}");
}

/// Adds something to a sum that a new count would not find.
fn mark(ledger: &Ledger, resource: &GroupResource) {
    let mut books = ledger.books.lock();
    let entries = books.get_mut(resource).expect("a book").by_namespace.get_mut("default").expect("entries");
    entries.iter_mut().for_each(|entry| entry.sum.add(&core("secrets"), &Value::Null));
}

fn is_marked(cluster: &Cluster, ledger: &Ledger, resource: &GroupResource) -> bool {
    let known = LedgerSums { ledger, cache: &cluster.server.core().cache };
    format!("{:?}", known.sum(resource, "default", &Scopes::default())).contains("secrets")
}

#[tokio::test]
async fn what_happens_is_added_and_nothing_counted_anew() {
    let (cluster, ledger, resource) = (cluster().await, Ledger::default(), core("configmaps"));
    cluster.config_map("a", json!({})).await;
    sum(&cluster, &ledger, &resource, &Scopes::default());
    mark(&ledger, &resource);
    for name in ["b", "c"] {
        cluster.config_map(name, json!({})).await;
        assert!(is_marked(&cluster, &ledger, &resource));
    }
    // An older sum of another namespace does not cause events to be counted twice.
    let entry = Entry { scopes: Scopes::default(), upto: 0, sum: Sum::default(), overdue: HashSet::new() };
    ledger.books.lock().get_mut(&resource).expect("a book").open("other", entry);
    cluster.delete(&format!("{CONFIG_MAPS}/a")).await.ok();
    let known = LedgerSums { ledger: &ledger, cache: &cluster.server.core().cache };
    let mut wanted = Counted(&*cluster.server.core().cache).sum(&resource, "default", &Scopes::default());
    wanted.add(&core("secrets"), &Value::Null);
    assert_eq!(known.sum(&resource, "default", &Scopes::default()), wanted);
}

#[test]
fn what_others_changed_at_once_is_counted_whole() {
    let resource = Resource::new(core("configmaps"), 0);
    let applied = |name, revision, after| Applied { namespace: "default", name, revision, after };
    let object = |name: &str, revision| {
        let plain = encode(&config_map(name, json!({})));
        Object::new(("default".into(), name.into()), revision, plain, None, &Arc::default()).expect("JSON")
    };
    resource.apply(["a", "b", "c", "d"].into_iter().zip(1..).map(|(name, at)| applied(name, at, Some(object(name, at)))).collect());
    let count = || Entry::count(&resource, 0, "default", &Scopes::default(), api_clock::now());
    let mut book = Book::default();
    book.open("default", count());
    // As in a transaction of another program: three deletions and a creation have one revision.
    let gone = ["a", "b", "c"].map(|name| applied(name, 5, None));
    resource.apply(gone.into_iter().chain([applied("e", 5, Some(object("e", 5)))]).collect());
    book.follow(&resource);
    let summed = |book: &Book| book.by_namespace["default"].iter().map(|entry| entry.sum.clone()).collect::<Vec<_>>();
    assert_eq!(summed(&book), [count().sum]);
    // The creation is not counted twice either when another sum lowers the book's revision.
    book.open("other", Entry { scopes: Scopes::default(), upto: 0, sum: Sum::default(), overdue: HashSet::new() });
    book.follow(&resource);
    assert_eq!(summed(&book), [count().sum]);
}

#[tokio::test]
async fn what_the_cache_has_forgotten_is_counted_anew() {
    let (cluster, ledger, resource) = (cluster().await, Ledger::default(), core("configmaps"));
    let mut large = config_map("large", json!({}));
    cluster.post(CONFIG_MAPS, large.clone()).await.ok();
    sum(&cluster, &ledger, &resource, &Scopes::default());
    mark(&ledger, &resource);
    cluster.config_map("other", json!({})).await;
    // The size of the cache's history is limited: a few of these objects fill it.
    for round in 0..10 {
        large["data"]["key"] = format!("{round}{}", "x".repeat(900_000)).into();
        cluster.put(&format!("{CONFIG_MAPS}/large"), &large).await.ok();
    }
    sum(&cluster, &ledger, &resource, &Scopes::default());
    assert!(!is_marked(&cluster, &ledger, &resource));
}

#[tokio::test]
async fn sums_that_no_quota_needs_are_forgotten() {
    let (cluster, ledger) = (cluster().await, Ledger::default());
    sum(&cluster, &ledger, &core("pods"), &Scopes::default());
    sum(&cluster, &ledger, &core("pods"), &scoped("BestEffort"));
    ledger.keep([("default", scoped("BestEffort")), ("other", Scopes::default())].into_iter());
    let left: Vec<Scopes> = ledger.books.lock()[&core("pods")].by_namespace["default"].iter().map(|entry| entry.scopes.clone()).collect();
    assert_eq!(left, [scoped("BestEffort")]);
    ledger.keep(std::iter::empty());
    assert!(ledger.books.lock().is_empty());
}

/// A lost node does not report the end of its Pods.
#[tokio::test]
async fn a_pod_whose_deletion_is_overdue_counts_as_an_object_alone() {
    let (cluster, resource) = (cluster().await, core("pods"));
    cluster.pod("a", "lost").await;
    cluster.pod("b", "alive").await;
    cluster.delete(&format!("{PODS}/a?gracePeriodSeconds=30")).await.ok();
    let objects = cluster.server.core().cache.resource(&resource);
    let count = |later: i64| {
        let now = api_clock::now().checked_add(jiff::SignedDuration::from_secs(later)).expect("a time");
        Entry::count(&objects, cluster.server.core().cache.applied(), "default", &Scopes::default(), now)
    };
    let (soon, late) = (count(0), count(600));
    assert_eq!(format!("{:?}", soon.sum).matches("pods").count(), 2, "pods and count/pods: {:?}", soon.sum);
    assert_ne!(soon.sum, late.sum);
    let mut book = Book::default();
    book.open("default", late);
    cluster.delete(&format!("{PODS}/a?gracePeriodSeconds=0")).await.ok();
    book.follow(&cluster.server.core().cache.resource(&resource));
    let left = &book.by_namespace["default"][0];
    assert_eq!(left.sum, count(0).sum, "what was not added is not taken out");
    assert!(left.overdue.is_empty());
}
