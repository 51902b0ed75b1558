//! An operator as people write them with kube-rs: a controller on streamed lists that owns what it applies, keeps a
//! finalizer and writes the status. The server is killed while it runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::watcher;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, Net, client, eventually};
use tokio::sync::oneshot;

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shelves.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: shelves, singular: shelf, kind: Shelf}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      additionalPrinterColumns: [{name: Books, type: integer, jsonPath: .status.books}]
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {books: {type: array, items: {type: string}}}}
            status: {type: object, properties: {books: {type: integer}}}
";

const FINALIZER: &str = "example.com/operator";
/// How soon the operator retries after a failure.
const AGAIN: Duration = Duration::from_millis(100);

#[test]
fn an_operator_keeps_what_it_owns() {
    let mut cluster = Cluster::prepared(Net::alone(), &["server"]);
    cluster.start();
    let kubectl = cluster.kubectl();
    kubectl.apply(DEFINITION).ok();
    kubectl.ok("wait --for=condition=Established crd/shelves.example.com --timeout=60s");
    kubectl.apply(&shelf("first", "[emma, ulysses]")).ok();
    let cleaned = Arc::new(Mutex::new(Vec::new()));
    let (stop, stopped) = oneshot::channel();
    let operator = client::start(&cluster, {
        let cleaned = Arc::clone(&cleaned);
        async move |client| operate(client, cleaned, stopped).await
    });
    what_is_there_is_reconciled(&kubectl);
    drop(kubectl);
    for _ in 0..2 {
        cluster.kill();
        cluster.start();
    }
    let kubectl = cluster.kubectl();
    it_goes_on_where_it_was(&kubectl);
    kubectl.ok("delete shelf first --timeout=60s");
    assert_eq!(*cleaned.lock().expect("not poisoned"), ["first"], "the finalizer has had its turn, once");
    eventually("what the shelf owned is collected", || {
        let left = kubectl.ok("get configmaps -l app=shelves -o name");
        if left == "configmap/second\n" { Ok(()) } else { Err(left) }
    });
    stop.send(()).expect("the operator runs");
    operator.join().expect("the operator ends well");
}

fn shelf(name: &str, books: &str) -> String {
    format!("apiVersion: example.com/v1\nkind: Shelf\nmetadata: {{name: {name}}}\nspec: {{books: {books}}}\n")
}

/// Runs the operator until it is told to stop.
async fn operate(client: Client, cleaned: Arc<Mutex<Vec<String>>>, stopped: oneshot::Receiver<()>) {
    let shelves = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Shelf"), "shelves");
    let streamed = || watcher::Config::default().streaming_lists();
    let api = Api::<DynamicObject>::all_with(client.clone(), &shelves);
    let controller = Controller::new_with(api, streamed(), shelves.clone())
        .owns(Api::<ConfigMap>::all(client.clone()), streamed().labels("app=shelves"))
        .graceful_shutdown_on(async { stopped.await.expect("the story stops it") });
    let reconcile = move |shelf: Arc<DynamicObject>, _: Arc<()>| {
        let namespace = shelf.namespace().expect("a namespace");
        let shelves = Api::namespaced_with(client.clone(), &namespace, &shelves);
        let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
        let cleaned = Arc::clone(&cleaned);
        async move {
            let step = |event: Event<DynamicObject>| async {
                match event {
                    Event::Apply(shelf) => fill(&shelves, &maps, &shelf).await,
                    Event::Cleanup(shelf) => {
                        cleaned.lock().expect("not poisoned").push(shelf.name_any());
                        Ok(Action::await_change())
                    }
                }
            };
            finalizer(&shelves, FINALIZER, shelf, step).await
        }
    };
    // A failure is retried, because the server may be away.
    let run = controller.run(reconcile, |_, _, _| Action::requeue(AGAIN), Arc::new(()));
    run.for_each(async |done| {
        if let Err(why) = done {
            eprintln!("the operator: {why:?}");
        }
    })
    .await;
}

async fn fill(shelves: &Api<DynamicObject>, maps: &Api<ConfigMap>, shelf: &DynamicObject) -> Result<Action, kube::Error> {
    let name = shelf.name_any();
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Shelf", "name": name, "uid": shelf.meta().uid, "controller": true});
    let books: Vec<&str> = shelf.data["spec"]["books"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": "shelves"}, "ownerReferences": [owner]}, "data": {"books": books.join(",")},
    });
    let as_operator = PatchParams::apply("operator").force();
    maps.patch(&name, &as_operator, &Patch::Apply(&map)).await?;
    let status = json!({"apiVersion": "example.com/v1", "kind": "Shelf", "status": {"books": books.len()}});
    shelves.patch_status(&name, &as_operator, &Patch::Apply(&status)).await?;
    Ok(Action::await_change())
}

fn what_is_there_is_reconciled(kubectl: &Kubectl<'_>) {
    kubectl.until("configmap/first", "/data/books", "emma,ulysses");
    kubectl.until("shelf/first", "/status/books", 2);
    let output = kubectl.ok("get shelf first");
    assert!(output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).eq([["NAME", "BOOKS"], ["first", "2"]]), "{output}");
    let map = kubectl.json("get configmap first --show-managed-fields");
    let entry = &map["metadata"]["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["operation"]), (&json!("operator"), &json!("Apply")));
    // A user changes an object of the operator, and the operator restores it.
    kubectl.ok("patch configmap first --type=merge -p {\"data\":{\"books\":\"none\"}}");
    kubectl.until("configmap/first", "/data/books", "emma,ulysses");
    kubectl.ok("delete configmap first");
    kubectl.until("configmap/first", "/data/books", "emma,ulysses");
}

fn it_goes_on_where_it_was(kubectl: &Kubectl<'_>) {
    kubectl.apply(&shelf("second", "[ivanhoe]")).ok();
    kubectl.until("configmap/second", "/data/books", "ivanhoe");
    kubectl.apply(&shelf("first", "[emma]")).ok();
    kubectl.until("configmap/first", "/data/books", "emma");
    kubectl.until("shelf/first", "/status/books", 1);
}
