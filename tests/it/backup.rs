//! `skiff db` beside a running server: a copy that is made while objects are written, then checked and restored.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tests::net::Net;
use tests::{Cluster, Kubectl, Ran, client, eventually};

/// `skiff db`. It gets the flag for the data directory itself.
fn db(cluster: &Cluster, words: &[&str]) -> Ran {
    cluster.skiff(&[&["db"], words].concat())
}

fn names(kubectl: &Kubectl<'_>) -> Vec<String> {
    kubectl.ok("get configmaps -o name -l day").lines().map(str::to_owned).collect()
}

fn write(kubectl: &Kubectl<'_>, day: &str) {
    kubectl.ok(&format!("create configmap {day} --from-literal=day={day}"));
    kubectl.ok(&format!("label configmap {day} day={day}"));
}

#[test]
fn a_database_is_copied_while_it_is_used_and_put_back() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server"]);
    cluster.start();
    write(&cluster.kubectl(), "monday");
    let files = tempfile::tempdir().expect("a directory");
    let file = files.path().join("monday.db").display().to_string();

    let made = db(&cluster, &["backup", &file]).ok();
    assert!(made.starts_with(&format!("{file} holds ")), "{made}");
    let again = db(&cluster, &["backup", &file]).fails();
    assert!(again.contains(&file) && again.contains("exists"), "a backup is not overwritten: {again}");
    let whole = db(&cluster, &["check", &file]).ok();
    assert!(whole.starts_with(&format!("{file} is whole\nrevision ")), "{whole}");
    write(&cluster.kubectl(), "tuesday");
    assert_eq!(names(&cluster.kubectl()), ["configmap/monday", "configmap/tuesday"]);
    let running = db(&cluster, &["restore", &file]).fails();
    assert!(running.contains("in use"), "not under a running server: {running}");
    let before: u64 =
        cluster.kubectl().field("configmap/tuesday", "/metadata/resourceVersion").as_str().expect("text").parse().expect("a number");

    assert_eq!(cluster.stop(), 0);
    let restored = db(&cluster, &["restore", &file]).ok();
    assert!(restored.contains("the log goes on at revision ") && restored.contains("state.db.replaced"), "{restored}");
    assert!(Path::new(cluster.data_dir()).join("state.db.replaced").exists());
    assert!(db(&cluster, &["check"]).ok().contains("is whole"));
    cluster.start();
    let kubectl = cluster.kubectl();
    assert_eq!(names(&kubectl), ["configmap/monday"]);
    // Revisions that clients have seen stay in the past: no revision is used twice.
    write(&kubectl, "wednesday");
    let after: u64 = kubectl.field("configmap/wednesday", "/metadata/resourceVersion").as_str().expect("text").parse().expect("a number");
    assert!(after > before, "{after} is not later than {before}");
}

/// The present objects of a client's informer, and every object that it received, by revision.
#[derive(Default)]
struct Informer {
    objects: BTreeMap<String, String>,
    by_revision: BTreeMap<String, String>,
    repeated: Vec<String>,
}

impl Informer {
    fn learn(&mut self, event: Event<ConfigMap>) {
        match event {
            Event::Init => self.objects.clear(),
            Event::Apply(object) | Event::InitApply(object) => {
                let (name, revision) = (object.metadata.name.expect("a name"), object.metadata.resource_version.expect("a revision"));
                let state = format!("{name} {:?}", object.data);
                let before = self.by_revision.insert(revision.clone(), state.clone());
                if before.as_ref().is_some_and(|before| *before != state) {
                    self.repeated.push(format!("{revision} was {before:?} and is {state}"));
                }
                self.objects.insert(name, revision);
            }
            Event::Delete(object) => drop(self.objects.remove(&object.metadata.name.expect("a name"))),
            Event::InitDone => {}
        }
    }
}

async fn inform(client: Client, informer: &Mutex<Informer>, stop: &AtomicBool) {
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let mut events = std::pin::pin!(watcher::watcher(api, watcher::Config::default().labels("day")).default_backoff());
    while !stop.load(Ordering::Relaxed) {
        // The server is away from time to time; the watcher reconnects by itself.
        if let Ok(Some(Ok(event))) = tokio::time::timeout(Duration::from_millis(200), events.next()).await {
            informer.lock().expect("not poisoned").learn(event);
        }
    }
}

/// A client that always watches never sees one revision with two objects, and at the end it has the present objects.
#[test]
fn clients_that_watch_live_through_two_restores_of_one_copy() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server"]);
    cluster.start();
    write(&cluster.kubectl(), "monday");
    let files = tempfile::tempdir().expect("a directory");
    let file = files.path().join("monday.db").display().to_string();
    db(&cluster, &["backup", &file]).ok();
    let (informer, stop) = (Arc::<Mutex<Informer>>::default(), Arc::<AtomicBool>::default());
    let (shared, stopped) = (informer.clone(), stop.clone());
    let watching = client::start(&cluster, async move |client| inform(client, &shared, &stopped).await);
    let until_informed_of = |kubectl: &Kubectl<'_>, days: &[&str]| {
        eventually("the client's informer holds what there is", || {
            let names: Vec<String> = informer.lock().expect("not poisoned").objects.keys().cloned().collect();
            if names == days { Ok(()) } else { Err(format!("{names:?} is not {days:?}")) }
        });
        let there: Vec<String> = names(kubectl).iter().filter_map(|name| Some(name.split_once('/')?.1.to_owned())).collect();
        assert_eq!(there, days);
    };
    write(&cluster.kubectl(), "tuesday");
    until_informed_of(&cluster.kubectl(), &["monday", "tuesday"]);
    let mut seen = Vec::new();
    for (disk_is_lost, day) in [(false, "wednesday"), (true, "thursday")] {
        assert_eq!(cluster.stop(), 0);
        if disk_is_lost {
            std::fs::remove_file(cluster.data_dir().join("state.db")).expect("it was there");
        }
        db(&cluster, &["restore", &file]).ok();
        cluster.start();
        write(&cluster.kubectl(), day);
        until_informed_of(&cluster.kubectl(), &["monday", day]);
        // A watch from a revision before the restore gets 410: the client must list again.
        for revision in &seen {
            let path = format!("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=5&resourceVersion={revision}");
            let answer = cluster.kubectl().run(&["get", "--raw", &path]).to_string();
            assert!(answer.contains("\"code\":410"), "{revision}: {answer}");
        }
        seen.extend(informer.lock().expect("not poisoned").by_revision.keys().cloned());
    }
    stop.store(true, Ordering::Relaxed);
    watching.join().expect("the client ends");
    let repeated = &informer.lock().expect("not poisoned").repeated;
    assert!(repeated.is_empty(), "{repeated:#?}");
}
