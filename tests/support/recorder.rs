//! Clients that do random operations on a few ConfigMaps, through one or several API servers, and record each request,
//! its answer and their times; and watches of the same objects.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};

use crate::client;
use crate::linear::{self, Action, Operation, Outcome, WatchedChange};
use crate::net::Net;
use crate::run::eventually;

/// Number of objects. All clients write to the same ones.
const KEYS: usize = 5;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause of a client that cannot reach its server.
const BACK_OFF: Duration = Duration::from_millis(50);
const LABEL: &str = "story=linear";
/// Name of the object whose event ends the watches.
const LAST: &str = "last";

/// Running clients and watches.
pub struct Recorder {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

/// The records of the clients and watches.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    began: Mutex<Option<Instant>>,
    next_value: AtomicU64,
    answered: AtomicUsize,
    watching: AtomicUsize,
    operations: Mutex<BTreeMap<usize, Vec<Operation>>>,
    /// Revision and value of every answered write.
    writes: Mutex<Vec<Write>>,
    watches: Mutex<Vec<Vec<WatchedChange>>>,
}

#[derive(Clone, Copy)]
struct Write {
    called: u64,
    returned: u64,
    revision: u64,
    value: u64,
}

impl Recorder {
    /// Starts that many clients, and one watch for each server. A server is given by its kubeconfig.
    pub fn start(net: &Net, kubeconfigs: Vec<PathBuf>, clients: usize) -> Self {
        let shared = Arc::new(Shared::default());
        *shared.began.lock().expect("not poisoned") = Some(Instant::now());
        let (recorded, servers) = (Arc::clone(&shared), kubeconfigs.len());
        let thread = net.enter(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(run(recorded, kubeconfigs, clients));
        });
        let recorder = Self { shared, thread };
        eventually("the watches began", || {
            let watching = recorder.shared.watching.load(Ordering::SeqCst);
            if watching == servers { Ok(()) } else { Err(format!("{watching}")) }
        });
        recorder
    }

    /// Waits until that many more operations are answered.
    #[track_caller]
    pub fn until_answered(&self, more: usize) {
        let began = self.shared.answered.load(Ordering::SeqCst);
        eventually("operations are answered", || {
            let now = self.shared.answered.load(Ordering::SeqCst);
            if now >= began + more { Ok(()) } else { Err(format!("{now} after {began}")) }
        });
    }

    /// Ends the clients, waits until the watches have seen everything, and checks the records; returns a summary.
    #[track_caller]
    pub fn judge(self) -> String {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("the clients end");
        let operations = self.shared.operations.lock().expect("not poisoned");
        for (key, operations) in operations.iter() {
            linear::check(operations).unwrap_or_else(|why| panic!("object {key} is not linearizable: {why}"));
        }
        let writes = self.shared.writes.lock().expect("not poisoned");
        revisions_follow_time(&writes);
        let answered: Vec<_> = writes.iter().map(|write| (write.revision, write.value)).collect();
        let watches = self.shared.watches.lock().expect("not poisoned");
        linear::check_watches(&watches, &answered).unwrap_or_else(|why| panic!("{why}"));
        let all = || operations.values().flatten();
        assert!(
            all().any(|o| o.outcome == Outcome::Conflict) && all().any(|o| o.outcome == Outcome::Exists),
            "nobody was in anybody's way"
        );
        let unknown = all().filter(|operation| operation.outcome == Outcome::Unknown).count();
        format!("{} operations, {unknown} of them unanswered; {} watches of {} changes", all().count(), watches.len(), watches[0].len())
    }
}

/// Checks that a write which began after another was answered has a later revision.
#[track_caller]
fn revisions_follow_time(writes: &[Write]) {
    let mut by_return: Vec<_> = writes.to_vec();
    by_return.sort_by_key(|write| write.returned);
    let mut by_call: Vec<_> = writes.to_vec();
    by_call.sort_by_key(|write| write.called);
    let mut returned = by_return.iter().peekable();
    let mut newest = 0;
    for write in by_call {
        while let Some(before) = returned.next_if(|before| before.returned < write.called) {
            newest = newest.max(before.revision);
        }
        assert!(write.revision > newest, "revision {} was given out after {newest} had been answered", write.revision);
    }
}

async fn run(shared: Arc<Shared>, kubeconfigs: Vec<PathBuf>, clients: usize) {
    let mut apis = Vec::new();
    for path in &kubeconfigs {
        apis.push(connect(path).await);
    }
    let from = apis[0].list(&ListParams::default().labels(LABEL)).await.expect("lists").metadata.resource_version.expect("a revision");
    let mut watches = Vec::new();
    for api in &apis {
        watches.push(tokio::spawn(watch(Arc::clone(&shared), api.clone(), from.clone())));
    }
    let working = (0..clients).map(|number| {
        let worker = Worker {
            shared: Arc::clone(&shared),
            api: apis[number % apis.len()].clone(),
            random: number as u64 + 1,
            known: HashMap::new(),
        };
        tokio::spawn(worker.work())
    });
    for worker in working.collect::<Vec<_>>() {
        worker.await.expect("a client does not panic");
    }
    apis[0].create(&PostParams::default(), &config_map(LAST, 0)).await.expect("the servers are there at the end");
    for watch in watches {
        let seen = tokio::time::timeout(Duration::from_secs(30), watch).await.expect("watches come to the end").expect("no panic");
        shared.watches.lock().expect("not poisoned").push(seen);
    }
}

async fn connect(kubeconfig: &Path) -> Api<ConfigMap> {
    Api::namespaced(client::with(kubeconfig).await, "default")
}

fn config_map(name: &str, value: u64) -> ConfigMap {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": name, "labels": {"story": "linear"}}, "data": {"value": value.to_string()},
    }))
    .expect("a ConfigMap")
}

fn value_of(object: &ConfigMap) -> u64 {
    object.data.as_ref().and_then(|data| data.get("value")).and_then(|value| value.parse().ok()).expect("a value of ours")
}

fn revision_of(object: &ConfigMap) -> u64 {
    object.resource_version().expect("a revision").parse().expect("a number")
}

/// Watches until the object `LAST` appears. Resumes after each interruption.
async fn watch(shared: Arc<Shared>, api: Api<ConfigMap>, mut from: String) -> Vec<WatchedChange> {
    let mut seen = Vec::new();
    let mut counted = false;
    loop {
        let parameters = WatchParams::default().labels(LABEL).timeout(200);
        let mut events = match api.watch(&parameters, &from).await {
            Ok(events) => events.boxed(),
            Err(kube::Error::Api(status)) if status.code == 410 => panic!("a watch may not resume from {from}: {}", status.message),
            Err(_) => {
                tokio::time::sleep(BACK_OFF).await;
                continue;
            }
        };
        if !std::mem::replace(&mut counted, true) {
            shared.watching.fetch_add(1, Ordering::SeqCst);
        }
        while let Some(Ok(event)) = events.next().await {
            let (kind, object) = match event {
                WatchEvent::Added(object) => ("ADDED", object),
                WatchEvent::Modified(object) => ("MODIFIED", object),
                WatchEvent::Deleted(object) => ("DELETED", object),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => panic!("a watch from {from} failed: {status:?}"),
            };
            if object.name_any() == LAST {
                return seen;
            }
            from = object.resource_version().expect("a revision");
            seen.push(WatchedChange {
                revision: revision_of(&object),
                kind: kind.to_owned(),
                key: object.name_any(),
                value: value_of(&object),
            });
        }
        tokio::time::sleep(BACK_OFF).await;
    }
}

/// One client.
struct Worker {
    shared: Arc<Shared>,
    api: Api<ConfigMap>,
    random: u64,
    /// The last state of each object that the client saw, with value and revision.
    known: HashMap<usize, ConfigMap>,
}

impl Worker {
    async fn work(mut self) {
        while !self.shared.stop.load(Ordering::SeqCst) {
            let key = self.pick(KEYS);
            let name = format!("key-{key}");
            let known = self.known.get(&key).cloned();
            let value = self.shared.next_value.fetch_add(1, Ordering::SeqCst) + 1;
            let action = match (self.pick(10), &known) {
                (0..=2, _) => Action::Get,
                (3..=7, Some(object)) => Action::Update(value_of(object), value),
                (8, _) => Action::Delete,
                _ => Action::Create(value),
            };
            let called = self.now();
            let answer = tokio::time::timeout(PATIENCE, self.ask(&name, action, known, value)).await;
            let returned = self.now();
            match answer.unwrap_or(Ok((Outcome::Unknown, None))) {
                Ok((outcome, object)) => self.note(key, Operation { action, outcome, called, returned }, object),
                // No server received the request, so the operation did not happen.
                Err(NotSent) => tokio::time::sleep(BACK_OFF).await,
            }
        }
    }

    async fn ask(&self, name: &str, action: Action, known: Option<ConfigMap>, value: u64) -> Result<(Outcome, Option<ConfigMap>), NotSent> {
        let done = match action {
            Action::Get => self.api.get_opt(name).await.map(|found| (Outcome::Found(found.as_ref().map(value_of)), found)),
            Action::Create(_) => {
                let made = self.api.create(&PostParams::default(), &config_map(name, value)).await;
                made.map(|object| (Outcome::Done, Some(object)))
            }
            Action::Update(..) => {
                let mut object = config_map(name, value);
                object.metadata.resource_version = known.and_then(|known| known.metadata.resource_version);
                let changed = self.api.replace(name, &PostParams::default(), &object).await;
                changed.map(|object| (Outcome::Done, Some(object)))
            }
            Action::Delete => self.api.delete(name, &DeleteParams::default()).await.map(|_| (Outcome::Done, None)),
        };
        done.or_else(|error| Ok((refusal(&error)?, None)))
    }

    fn note(&mut self, key: usize, operation: Operation, object: Option<ConfigMap>) {
        let shared = &self.shared;
        if operation.outcome != Outcome::Unknown {
            shared.answered.fetch_add(1, Ordering::SeqCst);
        }
        if let (Action::Create(value) | Action::Update(_, value), Some(object)) = (operation.action, &object) {
            let (called, returned) = (operation.called, operation.returned);
            shared.writes.lock().expect("not poisoned").push(Write { called, returned, revision: revision_of(object), value });
        }
        // A read without an answer proves nothing.
        if operation.action != Action::Get || operation.outcome != Outcome::Unknown {
            shared.operations.lock().expect("not poisoned").entry(key).or_default().push(operation);
        }
        match (operation.outcome, object) {
            (_, Some(object)) => drop(self.known.insert(key, object)),
            // The object that the client knew no longer exists.
            (Outcome::Found(None) | Outcome::Missing | Outcome::Done, None) => drop(self.known.remove(&key)),
            _ => {}
        }
    }

    fn now(&self) -> u64 {
        let began = self.shared.began.lock().expect("not poisoned").expect("it began");
        u64::try_from(began.elapsed().as_micros()).expect("a short story")
    }

    /// A random number below a bound. The sequence is the same in every run.
    fn pick(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % below as u64).expect("small")
    }
}

/// The request did not reach a server.
struct NotSent;

fn refusal(error: &kube::Error) -> Result<Outcome, NotSent> {
    match error {
        kube::Error::Api(status) => Ok(match (status.code, status.reason.as_str()) {
            (404, _) => Outcome::Missing,
            (409, "AlreadyExists") => Outcome::Exists,
            (409, _) => Outcome::Conflict,
            _ => Outcome::Unknown,
        }),
        error => {
            let mut source = std::error::Error::source(error);
            while let Some(error) = source {
                let refused = error.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused);
                if refused {
                    return Err(NotSent);
                }
                source = error.source();
            }
            Ok(Outcome::Unknown)
        }
    }
}
