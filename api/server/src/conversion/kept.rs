//! What a webhook made of objects and events, for a while: two generations, of which the older goes when
//! the younger is full.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::cache::{Event, Object};
use crate::status::{ApiError, ApiResult};

/// Bytes of objects in one generation.
const GENERATION_BYTES_MAX: usize = 32 << 20;
/// Events that are remembered: as many as may wait for a watcher.
const EVENTS_LEN_MAX: usize = 1_024;

type Place = (Arc<str>, Arc<str>, u64);
type Once = Arc<OnceCell<Arc<Event>>>;

#[derive(Debug, Default)]
pub(super) struct Kept {
    objects: Mutex<Generations>,
    events: Mutex<BTreeMap<u64, Once>>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Place, Arc<Object>>,
    old: HashMap<Place, Arc<Object>>,
    young_bytes: usize,
}

impl Generations {
    fn insert(&mut self, place: Place, object: &Arc<Object>) {
        if self.young_bytes > GENERATION_BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += object.len();
        self.young.insert(place, Arc::clone(object));
    }

    fn get(&mut self, place: &Place) -> Option<Arc<Object>> {
        if let Some(object) = self.young.get(place) {
            return Some(Arc::clone(object));
        }
        let object = self.old.remove(place)?;
        self.insert(place.clone(), &object);
        Some(object)
    }
}

fn place(object: &Object) -> Place {
    (Arc::clone(&object.namespace), Arc::clone(&object.name), object.revision)
}

impl Kept {
    /// What was made of an object at its revision.
    pub(super) fn object(&self, stored: &Object) -> Option<Arc<Object>> {
        self.objects.lock().get(&place(stored))
    }

    /// Keeps what was made of an object.
    pub(super) fn keep(&self, stored: &Object, value: Value) -> ApiResult<Arc<Object>> {
        let made = Arc::new(stored.converted(value).map_err(ApiError::internal)?);
        self.objects.lock().insert(place(stored), &made);
        Ok(made)
    }

    /// What is made of an event: by the first who asks, while the others wait.
    pub(super) async fn event<F: Future<Output = ApiResult<Event>>>(
        &self,
        stored: &Event,
        make: impl FnOnce() -> F,
    ) -> ApiResult<Arc<Event>> {
        let once = {
            let mut events = self.events.lock();
            let once = Arc::clone(events.entry(stored.revision).or_default());
            if events.len() > EVENTS_LEN_MAX {
                events.pop_first();
            }
            once
        };
        let made = once.get_or_try_init(|| async { make().await.map(Arc::new) }).await?;
        Ok(Arc::clone(made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use serde_json::json;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes_in_its_time() {
        let kept = Kept::default();
        let big = "x".repeat(GENERATION_BYTES_MAX / 4);
        let stored =
            |revision| Object::new(("n".into(), "a".into()), revision, Bytes::from_static(b"{}"), None, &Arc::default()).expect("JSON");
        let made = || json!({"kind": "Widget", "apiVersion": "example.com/v2", "metadata": {"name": "a"}, "text": big});
        for revision in 1..=40 {
            kept.keep(&stored(revision), made()).expect("JSON");
            assert!(kept.object(&stored(1)).is_some(), "asked for all the time, also at {revision}");
        }
        assert!(kept.object(&stored(2)).is_none());
        let bytes: usize = {
            let objects = kept.objects.lock();
            objects.young.values().chain(objects.old.values()).map(|object| object.len()).sum()
        };
        assert!(bytes < 3 * GENERATION_BYTES_MAX, "{bytes}");
        let shown = kept.object(&stored(40)).expect("the last");
        assert_eq!((shown.revision, &shown.value()["metadata"]["resourceVersion"]), (40, &json!("40")));
    }
}
