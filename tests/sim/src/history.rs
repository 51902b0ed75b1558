//! What was stored, in the order of the store: the present objects, the trace of the run, and who looks at each change.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api_store::Revision;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use crate::entropy;
use crate::incidents::Incidents;
use crate::object::{condition, controller_uid, is_ready, text};

/// Lines of the trace that a failure shows.
const LINES_MAX: usize = 400;

/// The key of a stored object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The plural of its kind.
    pub resource: String,
    /// Its namespace; empty when it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    pub fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self { resource: resource.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.resource, self.namespace, self.name)
    }
}

/// One committed write.
pub struct Change {
    pub key: Key,
    pub old: Option<Arc<Value>>,
    pub new: Option<Arc<Value>>,
}

/// The present objects, and what the run did to the cluster.
pub struct View {
    objects: BTreeMap<Key, Arc<Value>>,
    pub incidents: Incidents,
    /// The time since the run began.
    pub now: Duration,
}

impl View {
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects.get(&Key::new(resource, namespace, name))
    }

    /// The objects of a kind, with their keys.
    pub fn all<'v>(&'v self, resource: &'v str) -> impl Iterator<Item = (&'v Key, &'v Arc<Value>)> {
        self.objects.range(Key::new(resource, "", "")..).take_while(move |(key, _)| key.resource == resource)
    }

    /// The objects of a kind in a namespace.
    pub fn within<'v>(&'v self, resource: &'v str, namespace: &'v str) -> impl Iterator<Item = &'v Arc<Value>> {
        let range = self.objects.range(Key::new(resource, namespace, "")..);
        range.take_while(move |(key, _)| key.resource == resource && key.namespace == namespace).map(|(_, object)| object)
    }

    /// The objects of a kind that this object controls.
    pub fn controlled<'v>(&'v self, resource: &'v str, owner: &'v Value) -> impl Iterator<Item = &'v Arc<Value>> {
        let uid = text(owner, "/metadata/uid");
        self.within(resource, text(owner, "/metadata/namespace")).filter(move |object| controller_uid(object) == Some(uid))
    }

    /// Every object.
    pub fn objects(&self) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.iter()
    }
}

/// A promise of the cluster that is checked at each committed write.
pub trait Check: Send {
    /// Looks at a change; `view` has it already.
    ///
    /// # Errors
    /// When a promise is broken.
    fn change(&mut self, view: &View, change: &Change) -> Result<(), String>;
}

/// The history of a run.
pub struct History {
    inner: Mutex<Inner>,
    /// Wakes who waits for the first violation.
    pub violated: Notify,
}

struct Inner {
    view: View,
    checks: Vec<Box<dyn Check>>,
    violations: Vec<String>,
    lines: VecDeque<String>,
    trace: u64,
    revision: Revision,
    changed_at: Duration,
    /// Whether each line is printed.
    prints: bool,
}

impl History {
    pub fn new(checks: Vec<Box<dyn Check>>, prints: bool) -> Self {
        let view = View { objects: BTreeMap::new(), incidents: Incidents::default(), now: Duration::ZERO };
        let inner = Inner {
            view,
            checks,
            violations: Vec::new(),
            lines: VecDeque::new(),
            trace: 0xcbf2_9ce4_8422_2325,
            revision: 0,
            changed_at: Duration::ZERO,
            prints,
        };
        Self { inner: Mutex::new(inner), violated: Notify::new() }
    }

    /// Adds a committed write and lets every check look at it.
    pub fn commit(&self, revision: Revision, key: &str, value: Option<&Bytes>) {
        let mut parts = key.splitn(4, '/').skip(1);
        let key = Key::new(parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let new = value.map(|bytes| Arc::new(serde_json::from_slice::<Value>(bytes).expect("the stored form is JSON")));
        let inner = &mut *self.inner.lock();
        inner.revision = revision;
        inner.view.now = entropy::elapsed();
        let old = match &new {
            Some(new) => inner.view.objects.insert(key.clone(), Arc::clone(new)),
            None => inner.view.objects.remove(&key),
        };
        // ConfigMaps have the cluster's certificates, whose keys no seed decides.
        inner.trace(value.filter(|_| key.resource != "configmaps").map(AsRef::as_ref).unwrap_or_default());
        let change = Change { key, old, new };
        inner.line(summary(&change));
        if !is_background(&change) {
            inner.changed_at = inner.view.now;
        }
        let broken: Vec<String> = inner.checks.iter_mut().filter_map(|check| check.change(&inner.view, &change).err()).collect();
        for violation in broken {
            self.broken(inner, violation);
        }
    }

    /// Adds what the run itself did: a fault, or a step of the workload.
    pub fn note(&self, what: &str) {
        let inner = &mut *self.inner.lock();
        inner.view.now = entropy::elapsed();
        inner.trace(what.as_bytes());
        inner.line(what.to_owned());
    }

    /// Records a broken promise.
    pub fn violate(&self, what: String) {
        let inner = &mut *self.inner.lock();
        self.broken(inner, what);
    }

    fn broken(&self, inner: &mut Inner, violation: String) {
        inner.line(format!("BROKEN: {violation}"));
        inner.violations.push(violation);
        self.violated.notify_one();
    }

    /// Reads the present state.
    pub fn read<T>(&self, read: impl FnOnce(&View) -> T) -> T {
        let inner = &mut *self.inner.lock();
        inner.view.now = entropy::elapsed();
        read(&inner.view)
    }

    /// Records an incident.
    pub fn incident(&self, what: &str, record: impl FnOnce(&mut Incidents, Duration)) {
        self.note(what);
        let inner = &mut *self.inner.lock();
        record(&mut inner.view.incidents, inner.view.now);
    }

    /// When something other than heartbeats was written last.
    pub fn changed_at(&self) -> Duration {
        self.inner.lock().changed_at
    }

    pub fn violations(&self) -> Vec<String> {
        self.inner.lock().violations.clone()
    }

    /// The hash of the whole trace, and the last revision.
    pub fn trace(&self) -> (u64, Revision) {
        let inner = self.inner.lock();
        (inner.trace, inner.revision)
    }

    /// The last lines of the trace.
    pub fn lines(&self) -> Vec<String> {
        self.inner.lock().lines.iter().cloned().collect()
    }
}

impl Inner {
    /// FNV-1a over the time and the bytes.
    fn trace(&mut self, bytes: &[u8]) {
        let now = self.view.now.as_nanos().to_le_bytes();
        for byte in now.iter().chain(bytes) {
            self.trace = (self.trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn line(&mut self, line: String) {
        let line = format!("{:>9.3} {line}", self.view.now.as_secs_f64());
        if self.prints {
            println!("{line} #{:016x}", self.trace);
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

/// Whether a change happens also in a cluster in which nothing happens: heartbeats, elections and events.
fn is_background(change: &Change) -> bool {
    match change.key.resource.as_str() {
        "leases" | "events" => true,
        "nodes" => {
            let ready =
                |node: &Option<Arc<Value>>| node.as_ref().and_then(|node| condition(node, "Ready").map(|ready| ready["status"].clone()));
            ready(&change.old) == ready(&change.new)
        }
        _ => false,
    }
}

fn summary(change: &Change) -> String {
    let object = change.new.as_ref().or(change.old.as_ref());
    let verb = match (&change.old, &change.new) {
        (None, _) => "+",
        (Some(_), Some(_)) => "~",
        (Some(_), None) => "-",
    };
    let Some(object) = object else { return format!("{verb} {}", change.key) };
    let mut line = format!("{verb} {} g{}", change.key, object["metadata"]["generation"]);
    for (label, pointer) in [
        ("node", "/spec/nodeName"),
        ("phase", "/status/phase"),
        ("deleting", "/metadata/deletionTimestamp"),
        ("replicas", "/spec/replicas"),
        ("status", "/status"),
        ("holder", "/spec/holderIdentity"),
        ("reason", "/reason"),
        ("message", "/message"),
    ] {
        let Some(value) = object.pointer(pointer).filter(|value| !value.is_null()) else { continue };
        if label == "status" && change.key.resource == "pods" {
            line += &format!(" ready={}", is_ready(object));
        } else if label != "status"
            || matches!(
                change.key.resource.as_str(),
                "deployments" | "replicasets" | "statefulsets" | "daemonsets" | "jobs" | "cronjobs" | "poddisruptionbudgets"
            )
        {
            let mut value = value.clone();
            if let Some(status) = value.as_object_mut() {
                status.remove("conditions");
            }
            line += &format!(" {label}={value}");
        }
    }
    line
}
