//! Recording events on objects as upstream's recorder does: `core/v1 Event` with `reason`,
//! `message`, a count that grows when the same thing happens again, and bounds on how many are
//! sent; [`correlator`] has these rules.

mod correlator;

use std::collections::HashSet;
use std::time::Duration;

use api_tasks::Tasks;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use correlator::{Correlator, ObjectId, Observed};

/// Events waiting to be sent; more are dropped with a log line.
const QUEUE_LEN_MAX: usize = 1_000;
/// Events that a recorder sends at the same time.
const SENDS_MAX: usize = 8;
/// The attempts at one event; upstream's `maxTriesPerEvent`.
const TRIES_MAX: u32 = 12;
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(2);
/// The API server's answer to a write for which there is no room (RFC 4918).
const INSUFFICIENT_STORAGE: u16 = 507;

/// Sends events in the background; clones share one queue.
#[derive(Clone)]
pub struct Recorder {
    /// Boxed: a channel allocates room for 32 values when it is made, and most recorders of an idle cluster have none.
    queue: mpsc::Sender<Box<Entry>>,
}

struct Entry {
    object: ObjectReference,
    kind: &'static str,
    reason: String,
    message: String,
    at: Timestamp,
}

impl Recorder {
    /// Starts the sender; `component` is the events' source (`kubelet`, `default-scheduler`, …) and `host` its node, if any.
    /// The sender is one of `tasks`: when they are stopped it sends what is queued.
    pub fn new(client: kube::Client, component: &str, host: Option<&str>, tasks: &Tasks) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE_LEN_MAX);
        let source = EventSource { component: Some(component.to_owned()), host: host.map(str::to_owned) };
        let (sender, stopping) = (Sender { client, source }, tasks.stopping().clone());
        tasks.own("event-recorder", sender.run(entries, stopping));
        Self { queue }
    }

    /// Records an event of type `Normal`.
    pub fn normal(&self, object: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.record(object, "Normal", reason, message.into());
    }

    /// Records an event of type `Warning`.
    pub fn warning(&self, object: &ObjectReference, reason: &str, message: impl Into<String>) {
        self.record(object, "Warning", reason, message.into());
    }

    fn record(&self, object: &ObjectReference, kind: &'static str, reason: &str, message: String) {
        let entry = Entry { object: object.clone(), kind, reason: reason.to_owned(), message, at: api_clock::now() };
        if let Err(error) = self.queue.try_send(Box::new(entry)) {
            tracing::warn!(reason, %error, "event dropped");
        }
    }
}

/// A reference to an object, as events and owner references carry it.
pub fn reference<K>(object: &K) -> ObjectReference
where
    K: kube::Resource<DynamicType = ()>,
{
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: object.meta().name.clone(),
        namespace: object.meta().namespace.clone(),
        uid: object.meta().uid.clone(),
        resource_version: object.meta().resource_version.clone(),
        ..ObjectReference::default()
    }
}

struct Sender {
    client: kube::Client,
    source: EventSource,
}

/// An entry with the event that is sent for it.
struct Queued {
    entry: Box<Entry>,
    observed: Observed,
}

impl Sender {
    /// Several events are sent at the same time, because the server then writes them together; those of one object one after the other.
    async fn run(self, mut entries: mpsc::Receiver<Box<Entry>>, cancel: CancellationToken) {
        let (mut correlator, mut sends, mut objects) = (Correlator::default(), FuturesUnordered::new(), HashSet::<ObjectId>::new());
        // The next event, if another one of its object is being sent.
        let mut blocked: Option<Queued> = None;
        loop {
            let may_receive = blocked.is_none() && sends.len() < SENDS_MAX;
            let queued = tokio::select! {
                biased;
                Some(object) = sends.next() => {
                    objects.remove(&object);
                    blocked.take()
                }
                entry = next_entry(&mut entries, &cancel), if may_receive => match entry {
                    Some(entry) => correlator.observe(&entry).map(|observed| Queued { entry, observed }),
                    // No recorder is left, or all events are being sent.
                    None => break,
                },
            };
            let Some(queued) = queued else { continue };
            let object = ObjectId::of(&queued.entry.object);
            if objects.insert(object.clone()) {
                sends.push(self.send_until_taken(queued, object, &cancel));
            } else {
                blocked = Some(queued);
            }
        }
        while sends.next().await.is_some() {}
        cancel.cancelled().await;
    }

    /// Tries again while the server is away or its disk is full: events are most useful at such times. Returns the object.
    async fn send_until_taken(&self, Queued { entry, observed }: Queued, object: ObjectId, cancel: &CancellationToken) -> ObjectId {
        for tries in 1..=TRIES_MAX {
            let Err(error) = self.send(&entry, observed.clone()).await else { break };
            let passes = match &error {
                kube::Error::Api(status) => status.code == INSUFFICIENT_STORAGE,
                kube::Error::Service(_) | kube::Error::HyperError(_) => true,
                _ => false,
            };
            let again = passes && tries < TRIES_MAX && cancel.run_until_cancelled(tokio::time::sleep(TRIED_AGAIN_AFTER)).await.is_some();
            if !again {
                tracing::debug!(reason = entry.reason, error = crate::error::chain(&error), "event not recorded");
                break;
            }
        }
        object
    }

    /// Updates the Event of a repetition, or creates it, also when it is gone by now.
    async fn send(&self, entry: &Entry, observed: Observed) -> Result<(), kube::Error> {
        let namespace = entry.object.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        if observed.count > 1 {
            let patch = serde_json::json!({"count": observed.count, "message": observed.message, "lastTimestamp": Time(entry.at)});
            match api.patch(&observed.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                answer => return answer.map(|_| ()),
            }
        }
        api.create(&PostParams::default(), &self.event(entry, observed, namespace)).await.map(|_| ())
    }

    fn event(&self, entry: &Entry, observed: Observed, namespace: String) -> Event {
        Event {
            metadata: ObjectMeta { name: Some(observed.name), namespace: Some(namespace), ..ObjectMeta::default() },
            involved_object: entry.object.clone(),
            reason: Some(entry.reason.clone()),
            message: Some(observed.message),
            source: Some(self.source.clone()),
            reporting_component: self.source.component.clone(),
            reporting_instance: self.source.host.clone(),
            type_: Some(entry.kind.to_owned()),
            first_timestamp: Some(Time(observed.first)),
            last_timestamp: Some(Time(entry.at)),
            count: Some(observed.count),
            ..Event::default()
        }
    }
}

/// The next entry; when the sender is stopped, the next one that is queued.
async fn next_entry(entries: &mut mpsc::Receiver<Box<Entry>>, cancel: &CancellationToken) -> Option<Box<Entry>> {
    tokio::select! {
        biased;
        entry = entries.recv() => entry,
        () = cancel.cancelled() => entries.try_recv().ok(),
    }
}

#[cfg(test)]
mod tests;
