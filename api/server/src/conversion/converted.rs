//! A cache of objects and events that a webhook has converted. Objects have two generations: the older one is dropped
//! when the younger one is full.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;

use api_cache::{Event, Object};
use api_wire::status::{ApiError, ApiResult};

/// Bytes of objects in one generation. A generation may exceed this by one object.
const GENERATION_BYTES_MAX: usize = 32 << 20;
/// Maximum number and bytes of remembered events: as many events as may wait for a watcher, unless their objects are
/// too large.
const EVENTS_LEN_MAX: usize = 1_024;
const EVENTS_BYTES_MAX: usize = 32 << 20;

type ObjectVersion = (Arc<str>, Arc<str>, u64);
type Once = Arc<OnceCell<Arc<Event>>>;

#[derive(Debug, Default)]
pub(crate) struct Converted {
    objects: Mutex<Generations>,
    events: Mutex<Events>,
}

#[derive(Debug, Default)]
struct Events {
    by_revision: BTreeMap<u64, Remembered>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Remembered {
    once: Once,
    /// Bytes of the converted objects, after the conversion.
    bytes: usize,
}

impl Events {
    /// The cell for the event of a revision.
    fn at(&mut self, revision: u64) -> Once {
        let once = Arc::clone(&self.by_revision.entry(revision).or_default().once);
        if self.by_revision.len() > EVENTS_LEN_MAX {
            self.forget_first();
        }
        once
    }

    /// Records a converted event. Returns the events that are forgotten for it, oldest first.
    fn made(&mut self, once: &Once, event: &Event) -> Vec<Remembered> {
        // The event may be forgotten already if its conversion took long.
        if let Some(remembered) = self.by_revision.get_mut(&event.revision).filter(|remembered| Arc::ptr_eq(&remembered.once, once)) {
            remembered.bytes = event.old().into_iter().chain(&event.after).map(|object| object.json_len()).sum();
            self.bytes += remembered.bytes;
        }
        let mut forgotten = Vec::new();
        while self.bytes > EVENTS_BYTES_MAX
            && let Some(oldest) = self.forget_first()
        {
            forgotten.push(oldest);
        }
        forgotten
    }

    fn forget_first(&mut self) -> Option<Remembered> {
        let (_, oldest) = self.by_revision.pop_first()?;
        self.bytes -= oldest.bytes;
        Some(oldest)
    }
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<ObjectVersion, Arc<Object>>,
    old: HashMap<ObjectVersion, Arc<Object>>,
    young_bytes: usize,
}

impl Generations {
    fn insert(&mut self, object_version: ObjectVersion, object: &Arc<Object>) {
        if self.young_bytes > GENERATION_BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += object.json_len();
        self.young.insert(object_version, Arc::clone(object));
    }

    fn get(&mut self, object_version: &ObjectVersion) -> Option<Arc<Object>> {
        if let Some(object) = self.young.get(object_version) {
            return Some(Arc::clone(object));
        }
        let object = self.old.remove(object_version)?;
        self.insert(object_version.clone(), &object);
        Some(object)
    }
}

fn object_version(object: &Object) -> ObjectVersion {
    (Arc::clone(&object.namespace), Arc::clone(&object.name), object.revision)
}

impl Converted {
    /// The converted object for a stored object's revision.
    pub(crate) fn object(&self, stored: &Object) -> Option<Arc<Object>> {
        self.objects.lock().get(&object_version(stored))
    }

    /// Stores a converted object.
    pub(crate) fn keep(&self, stored: &Object, value: Value) -> ApiResult<Arc<Object>> {
        let made = Arc::new(stored.converted(value).map_err(ApiError::internal)?);
        self.objects.lock().insert(object_version(stored), &made);
        Ok(made)
    }

    /// The converted event. The first caller converts it, and the other callers wait.
    pub(crate) async fn event<F: Future<Output = ApiResult<Event>>>(
        &self,
        stored: &Event,
        make: impl FnOnce() -> F,
    ) -> ApiResult<Arc<Event>> {
        let once = self.events.lock().at(stored.revision);
        let make = async || -> ApiResult<Arc<Event>> {
            let event = Arc::new(make().await?);
            let forgotten = self.events.lock().made(&once, &event);
            // Dropping large objects takes some time, so this must not hold the lock.
            drop(forgotten);
            Ok(event)
        };
        let made = once.get_or_try_init(make).await?;
        Ok(Arc::clone(made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_cache::Before;
    use bytes::Bytes;
    use serde_json::json;

    fn widget(revision: u64, text: &str) -> Arc<Object> {
        let value = json!({"kind": "Widget", "apiVersion": "example.com/v2", "metadata": {"name": "a"}, "text": text});
        Arc::new(Object::new(("n".into(), "a".into()), revision, api_cache::encode(&value), None, &Arc::default()).expect("JSON"))
    }

    /// An event, and whether this call converted it.
    async fn event_of(cache: &Converted, revision: u64, text: &str) -> (Arc<Event>, bool) {
        let mut is_made = false;
        let make = || {
            is_made = true;
            async move { Ok(Event::new(revision, Before::Object(widget(revision - 1, text)), Some(widget(revision, text)))) }
        };
        let event = cache.event(&Event::new(revision, Before::Nothing, None), make).await.expect("made");
        (event, is_made)
    }

    #[tokio::test]
    async fn events_are_remembered_within_bounds() {
        let cache = Converted::default();
        for revision in 1..=2_000 {
            assert!(event_of(&cache, revision, "small").await.1, "the first who asks has it made");
            assert!(!event_of(&cache, revision, "small").await.1, "the others get that");
        }
        assert_eq!(cache.events.lock().by_revision.len(), EVENTS_LEN_MAX);
        let big = "x".repeat(EVENTS_BYTES_MAX / 8);
        for revision in 2_001..=2_020 {
            event_of(&cache, revision, &big).await;
            let events = cache.events.lock();
            let bytes: usize = events
                .by_revision
                .values()
                .filter_map(|remembered| remembered.once.get())
                .map(|event| event.old().into_iter().chain(&event.after).map(|object| object.json_len()).sum::<usize>())
                .sum();
            assert_eq!(events.bytes, bytes, "at {revision}");
            assert!(bytes <= EVENTS_BYTES_MAX && (events.by_revision.len() <= 3 || revision < 2_004), "{bytes} bytes at {revision}");
        }
        assert!(!event_of(&cache, 2_020, &big).await.1, "the last ones stay");
        assert!(event_of(&cache, 2_001, &big).await.1, "the first ones went");
        let (event, _) = event_of(&cache, 2_021, &"x".repeat(EVENTS_BYTES_MAX)).await;
        assert!(event.after.is_some() && cache.events.lock().by_revision.is_empty(), "one that is too large is told all the same");
    }

    #[test]
    fn requested_entries_stay_and_others_expire() {
        let cache = Converted::default();
        let big = "x".repeat(GENERATION_BYTES_MAX / 4);
        let stored =
            |revision| Object::new(("n".into(), "a".into()), revision, Bytes::from_static(b"{}"), None, &Arc::default()).expect("JSON");
        let made = || json!({"kind": "Widget", "apiVersion": "example.com/v2", "metadata": {"name": "a"}, "text": big});
        for revision in 1..=40 {
            cache.keep(&stored(revision), made()).expect("JSON");
            assert!(cache.object(&stored(1)).is_some(), "asked for all the time, also at {revision}");
        }
        assert!(cache.object(&stored(2)).is_none());
        let bytes: usize = {
            let objects = cache.objects.lock();
            objects.young.values().chain(objects.old.values()).map(|object| object.json_len()).sum()
        };
        assert!(bytes < 3 * GENERATION_BYTES_MAX, "{bytes}");
        let object = cache.object(&stored(40)).expect("the last");
        assert_eq!((object.revision, &object.value()["metadata"]["resourceVersion"]), (40, &json!("40")));
    }
}
