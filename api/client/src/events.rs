//! Recording events on objects as upstream's recorder does: `core/v1 Event` with `reason`,
//! `message`, a count that grows when the same thing happens again, and a bound on how many are
//! sent (upstream's spam filter: a burst of 25 an object, then one in five minutes).

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Events waiting to be sent; more are dropped with a log line.
const QUEUE_LEN_MAX: usize = 1_000;
/// Events an object may have sent at once, as upstream.
const BURST_MAX: f64 = 25.0;
/// How often one more is allowed after the burst, as upstream.
const REFILL: Duration = Duration::from_secs(300);
/// Distinct events remembered for counting, as upstream's cache.
const REMEMBERED_MAX: usize = 4_096;

/// Sends events in the background; clones share one queue.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Entry>,
}

struct Entry {
    object: ObjectReference,
    kind: &'static str,
    reason: String,
    message: String,
    at: Timestamp,
}

impl Recorder {
    /// Starts the sender; `component` is the events' source (`kubelet`, `default-scheduler`, …) and
    /// `host` the node it is on, if any. The task ends with the token and sends what is queued.
    pub fn new(client: kube::Client, component: &str, host: Option<&str>, cancel: CancellationToken) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE_LEN_MAX);
        let source = EventSource { component: Some(component.to_owned()), host: host.map(str::to_owned) };
        tokio::spawn(Sender { client, source, seen: HashMap::new(), buckets: HashMap::new() }.run(entries, cancel));
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
        let entry = Entry { object: object.clone(), kind, reason: reason.to_owned(), message, at: Timestamp::now() };
        if let Err(error) = self.queue.try_send(entry) {
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

/// What makes two events the same one happening again.
type Identity = (Option<String>, String, String, &'static str);

struct Sender {
    client: kube::Client,
    source: EventSource,
    /// Name, namespace and count of events already sent.
    seen: HashMap<Identity, (String, i32)>,
    /// Tokens left and when they were counted, by object UID.
    buckets: HashMap<String, (f64, Timestamp)>,
}

impl Sender {
    async fn run(mut self, mut entries: mpsc::Receiver<Entry>, cancel: CancellationToken) {
        loop {
            let entry = tokio::select! {
                biased;
                entry = entries.recv() => entry,
                () = cancel.cancelled() => entries.try_recv().ok(),
            };
            let Some(entry) = entry else { return };
            if self.admit(&entry)
                && let Err(error) = self.send(&entry).await
            {
                tracing::debug!(reason = entry.reason, %error, "event not recorded");
            }
        }
    }

    /// Upstream's token bucket a source and object.
    fn admit(&mut self, entry: &Entry) -> bool {
        if self.buckets.len() > REMEMBERED_MAX {
            self.buckets.clear();
        }
        let key = entry.object.uid.clone().unwrap_or_default();
        let (tokens, since) = self.buckets.entry(key).or_insert((BURST_MAX, entry.at));
        *tokens = (*tokens + entry.at.duration_since(*since).as_secs_f64() / REFILL.as_secs_f64()).min(BURST_MAX);
        *since = entry.at;
        let admitted = *tokens >= 1.0;
        if admitted {
            *tokens -= 1.0;
        }
        admitted
    }

    async fn send(&mut self, entry: &Entry) -> Result<(), kube::Error> {
        let namespace = entry.object.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let identity = (entry.object.uid.clone(), entry.reason.clone(), entry.message.clone(), entry.kind);
        if let Some((name, count)) = self.seen.get_mut(&identity) {
            let patch = serde_json::json!({"count": *count + 1, "lastTimestamp": Time(entry.at)});
            match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => {
                    *count += 1;
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let event = self.event(entry, &namespace);
        let name = event.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &event).await?;
        if self.seen.len() > REMEMBERED_MAX {
            self.seen.clear();
        }
        self.seen.insert(identity, (name, 1));
        Ok(())
    }

    fn event(&self, entry: &Entry, namespace: &str) -> Event {
        let object = entry.object.name.clone().unwrap_or_default();
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{object}.{:x}", entry.at.as_nanosecond())),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: entry.object.clone(),
            reason: Some(entry.reason.clone()),
            message: Some(entry.message.clone()),
            source: Some(self.source.clone()),
            reporting_component: self.source.component.clone(),
            reporting_instance: self.source.host.clone(),
            type_: Some(entry.kind.to_owned()),
            first_timestamp: Some(Time(entry.at)),
            last_timestamp: Some(Time(entry.at)),
            count: Some(1),
            ..Event::default()
        }
    }
}
