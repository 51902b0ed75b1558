//! Which events are sent, and how, by the rules of client-go's `EventCorrelator`: a repetition increases the count of its
//! event; similar events, which differ in their message only, become one event once there are many of them; and no object has
//! more than a burst. Pure: the time is the entry's.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

use super::Entry;

/// Events an object may have sent at once, as upstream.
const BURST_MAX: f64 = 25.0;
/// The time after the burst until one more event is allowed, as upstream.
const REFILL: Duration = Duration::from_secs(300);
/// With this many different messages similar events are combined, as upstream.
const SIMILAR_MAX: usize = 10;
/// After this time without a similar event, events are sent separately again, as upstream.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// Entries of each table, as upstream's caches.
const REMEMBERED_MAX: usize = 4_096;

/// The event to send for an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    /// Name of the Event: that of its first occurrence.
    pub(super) name: String,
    /// Its message; of combined events the newest one.
    pub(super) message: String,
    /// How often it has happened. If more than once, the Event has been created before.
    pub(super) count: i32,
    /// When it happened first.
    pub(super) first: Timestamp,
}

/// The memory of one recorder; each of its tables is bounded.
#[derive(Default)]
pub(super) struct Correlator {
    buckets: HashMap<ObjectId, Bucket>,
    groups: HashMap<Group, Similar>,
    events: HashMap<Identity, Observed>,
}

/// An object that events are about.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ObjectId {
    api_version: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

impl ObjectId {
    pub(super) fn of(reference: &ObjectReference) -> Self {
        let ObjectReference { api_version, kind, namespace, name, uid, .. } = reference.clone();
        Self { api_version, kind, namespace, name, uid }
    }
}

/// Similar events: object, type and reason.
type Group = (ObjectId, &'static str, String);

/// Two events with the same identity are repetitions.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Identity {
    /// One event: field path and message.
    Single(Group, Option<String>, String),
    /// Many that are similar.
    Combined(Group),
}

struct Bucket {
    tokens: f64,
    counted: Timestamp,
}

struct Similar {
    /// Fewer than [`SIMILAR_MAX`].
    messages: BTreeSet<String>,
    last: Timestamp,
}

impl Correlator {
    /// Counts an entry; `None` when its object has exceeded its burst. Such entries count too.
    pub(super) fn observe(&mut self, entry: &Entry) -> Option<Observed> {
        let group = (ObjectId::of(&entry.object), entry.kind, entry.reason.clone());
        let (identity, message) = if self.is_one_of_many(&group, entry) {
            (Identity::Combined(group), format!("(combined from similar events): {}", entry.message))
        } else {
            (Identity::Single(group, entry.object.field_path.clone(), entry.message.clone()), entry.message.clone())
        };
        make_room(&mut self.events);
        let name = || format!("{}.{:x}", entry.object.name.as_deref().unwrap_or_default(), entry.at.as_nanosecond());
        let new = || Observed { name: name(), message: String::new(), count: 0, first: entry.at };
        let observed = self.events.entry(identity).or_insert_with(new);
        observed.message = message;
        observed.count = observed.count.saturating_add(1);
        let observed = observed.clone();
        self.has_token(entry).then_some(observed)
    }

    fn is_one_of_many(&mut self, group: &Group, entry: &Entry) -> bool {
        make_room(&mut self.groups);
        let new = || Similar { messages: BTreeSet::new(), last: entry.at };
        let similar = self.groups.entry(group.clone()).or_insert_with(new);
        if entry.at.duration_since(similar.last).unsigned_abs() > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = entry.at;
        let many = !similar.messages.contains(&entry.message) && similar.messages.len() + 1 >= SIMILAR_MAX;
        if !many {
            similar.messages.insert(entry.message.clone());
        }
        many
    }

    /// Takes a token from the object's bucket.
    fn has_token(&mut self, entry: &Entry) -> bool {
        make_room(&mut self.buckets);
        let full = || Bucket { tokens: BURST_MAX, counted: entry.at };
        let bucket = self.buckets.entry(ObjectId::of(&entry.object)).or_insert_with(full);
        // A step of the clock backwards adds no tokens.
        let refilled = entry.at.duration_since(bucket.counted).as_secs_f64().max(0.0) / REFILL.as_secs_f64();
        bucket.tokens = (bucket.tokens + refilled).min(BURST_MAX);
        bucket.counted = entry.at;
        let has = bucket.tokens >= 1.0;
        if has {
            bucket.tokens -= 1.0;
        }
        has
    }
}

/// A full table is cleared: the worst result is a repeated event.
fn make_room<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    if table.len() >= REMEMBERED_MAX {
        table.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &str, reason: &str, message: &str, second: i64) -> Entry {
        let object = ObjectReference { name: Some(object.to_owned()), ..ObjectReference::default() };
        let at = Timestamp::from_second(second).expect("a time");
        Entry { object, kind: "Warning", reason: reason.to_owned(), message: message.to_owned(), at }
    }

    /// Message and count of each that is sent.
    fn sent(correlator: &mut Correlator, entries: impl IntoIterator<Item = Entry>) -> Vec<(String, i32)> {
        let observed = entries.into_iter().filter_map(|entry| correlator.observe(&entry));
        observed.map(|observed| (observed.message, observed.count)).collect()
    }

    #[test]
    fn the_same_again_counts() {
        let mut correlator = Correlator::default();
        let names: Vec<_> = (0..3).filter_map(|second| correlator.observe(&entry("p", "BackOff", "no", second))).collect();
        assert_eq!(names.iter().map(|observed| observed.count).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(names.iter().all(|observed| observed.name == "p.0" && observed.first == Timestamp::UNIX_EPOCH));
        assert_eq!(sent(&mut correlator, [entry("q", "BackOff", "no", 3)]), [("no".to_owned(), 1)]);
    }

    #[test]
    fn similar_events_are_combined_from_the_tenth_message_on() {
        let mut correlator = Correlator::default();
        let all = sent(&mut correlator, (0..12).map(|i| entry("rs", "FailedCreate", &format!("pod {i}"), i)));
        assert_eq!(all.iter().filter(|(_, count)| *count == 1).count(), 10);
        let combined = |i: i32, count: i32| (format!("(combined from similar events): pod {i}"), count);
        assert_eq!(all[8..], [("pod 8".to_owned(), 1), combined(9, 1), combined(10, 2), combined(11, 3)]);
        let more = [entry("rs", "FailedCreate", "pod 3", 12), entry("rs", "Other", "pod 99", 12), entry("rs", "FailedCreate", "new", 613)];
        let of = |text: &str, count: i32| (text.to_owned(), count);
        assert_eq!(sent(&mut correlator, more), [of("pod 3", 2), of("pod 99", 1), of("new", 1)]);
    }

    #[test]
    fn a_burst_ends_and_one_in_five_minutes_follows() {
        let mut correlator = Correlator::default();
        assert_eq!(sent(&mut correlator, (0..40).map(|_| entry("p", "Unhealthy", "no", 0))).len(), 25);
        assert_eq!(sent(&mut correlator, [entry("p", "Killing", "p", 299), entry("q", "Killing", "q", 299)]), [("q".to_owned(), 1)]);
        let late = sent(&mut correlator, [entry("p", "Unhealthy", "no", 301), entry("p", "Unhealthy", "no", 302)]);
        assert_eq!(late, [("no".to_owned(), 41)], "what was not sent has been counted");
    }

    #[test]
    fn memory_is_bounded() {
        let mut correlator = Correlator::default();
        for i in 0..10_000 {
            correlator.observe(&entry(&format!("p{i}"), "Killing", "", 0));
        }
        let lens = [correlator.buckets.len(), correlator.groups.len(), correlator.events.len()];
        assert!(lens.iter().all(|len| *len <= REMEMBERED_MAX), "{lens:?}");
    }
}
