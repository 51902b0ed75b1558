//! The usage of the objects of a namespace, kept up to date as objects are created and deleted.
//!
//! A sum is counted once, from all objects, when it is first needed. From then on the cache's events are added to it.
//! Each query adds the new events first, so a sum is as new as a list would be. When the cache has dropped some events,
//! sums are counted anew, and also from time to time: no event says that a deletion is [overdue](super::overdue).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api_admission::resource_quota::{self, Scopes, Sum, Sums};
use api_model::kind::GroupResource;
use api_model::meta;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use super::overdue;
use api_cache::{Before, Cache, Event, Filter, Object, Resource};

/// The sums that were needed so far.
#[derive(Default)]
pub(super) struct Ledger {
    books: Mutex<HashMap<GroupResource, Book>>,
}

/// The sums of one resource.
#[derive(Default)]
struct Book {
    /// Every event up to this revision is in the sums.
    upto: u64,
    by_namespace: HashMap<Arc<str>, Vec<Entry>>,
}

struct Entry {
    scopes: Scopes,
    /// Events up to this revision are in the sum, even if the book's own revision is lower.
    upto: u64,
    sum: Sum,
    /// UIDs of the Pods that are counted as ended because their deletion is overdue.
    overdue: HashSet<String>,
}

/// The sums of what is in a cache.
pub(super) struct LedgerSums<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) cache: &'a Cache,
}

impl Sums for LedgerSums<'_> {
    fn sum(&self, resource: &GroupResource, namespace: &str, scopes: &Scopes) -> Sum {
        let objects = self.cache.resource(resource);
        if let Some(sum) = self.ledger.known(&objects, namespace, scopes) {
            return sum;
        }
        // The lock is not held while counting.
        let entry = Entry::count(&objects, self.cache.applied(), namespace, scopes, api_clock::now());
        let sum = entry.sum.clone();
        self.ledger.books.lock().entry(resource.clone()).or_default().open(namespace, entry);
        sum
    }
}

impl Ledger {
    fn known(&self, objects: &Resource, namespace: &str, scopes: &Scopes) -> Option<Sum> {
        let mut books = self.books.lock();
        let book = books.get_mut(&objects.name)?;
        book.follow(objects);
        book.by_namespace.get(namespace)?.iter().find(|entry| entry.scopes == *scopes).map(|entry| entry.sum.clone())
    }

    /// Adds the new events before the cache drops them.
    pub(super) fn follow(&self, cache: &Cache) {
        for (resource, book) in &mut *self.books.lock() {
            book.follow(&cache.resource(resource));
        }
    }

    /// Drops all sums, so that they are counted anew.
    pub(super) fn forget(&self) {
        self.books.lock().clear();
    }

    /// Drops the sums that none of these quotas needs.
    pub(super) fn keep<'a>(&self, quotas: impl Iterator<Item = (&'a str, Scopes)>) {
        let needed: HashSet<(&str, Scopes)> = quotas.collect();
        self.books.lock().retain(|_, book| {
            book.by_namespace.retain(|namespace, entries| {
                entries.retain(|entry| needed.contains(&(&**namespace, entry.scopes.clone())));
                !entries.is_empty()
            });
            !book.by_namespace.is_empty()
        });
    }
}

impl Book {
    fn open(&mut self, namespace: &str, entry: Entry) {
        // Other entries may be ahead already. They skip the events that they contain, and this one does not.
        self.upto = if self.by_namespace.is_empty() { entry.upto } else { self.upto.min(entry.upto) };
        let entries = self.by_namespace.entry(namespace.into()).or_default();
        entries.retain(|other| other.scopes != entry.scopes);
        entries.push(entry);
    }

    fn follow(&mut self, objects: &Resource) {
        if self.by_namespace.is_empty() {
            return;
        }
        match objects.events_after(self.upto) {
            Some(events) => {
                events.chunk_by(|a, b| a.revision == b.revision).for_each(|together| self.take_up(&objects.name, together));
            }
            None => self.by_namespace.clear(),
        }
    }

    /// Events of one revision. A transaction of another program on the same store may change several objects at once.
    fn take_up(&mut self, resource: &GroupResource, together: &[Arc<Event>]) {
        together.iter().for_each(|event| self.count(resource, event));
        for event in together {
            self.upto = event.revision;
            self.entries(event).into_iter().flatten().for_each(|entry| entry.upto = entry.upto.max(event.revision));
        }
    }

    fn count(&mut self, resource: &GroupResource, event: &Event) {
        let Some(entries) = self.entries(event) else { return };
        if matches!(event.before, Before::Forgotten) {
            // The object before the event is not known, so the sum cannot be corrected.
            entries.retain(|entry| entry.upto >= event.revision);
            return;
        }
        let (before, after) = (event.old().map(|old| read(resource, old)), event.after.as_ref().map(|new| read(resource, new)));
        let now = api_clock::now();
        for entry in entries.iter_mut().filter(|entry| entry.upto < event.revision) {
            before.iter().for_each(|object| entry.take(resource, object));
            after.iter().for_each(|object| entry.add(resource, object, now));
        }
    }

    /// The sums of the event's namespace.
    fn entries(&mut self, event: &Event) -> Option<&mut Vec<Entry>> {
        let object = event.after.as_ref().or(event.old())?;
        self.by_namespace.get_mut(&object.namespace)
    }
}

impl Entry {
    /// Counts all objects.
    fn count(objects: &Resource, applied: u64, namespace: &str, scopes: &Scopes, now: Timestamp) -> Self {
        let page = objects.list(&Filter { namespace: Some(namespace.to_owned()), ..Filter::default() }, applied);
        let mut entry = Self { scopes: scopes.clone(), upto: page.revision, sum: Sum::default(), overdue: HashSet::new() };
        page.items.iter().for_each(|object| entry.add(&objects.name, &read(&objects.name, object), now));
        entry
    }

    fn add(&mut self, resource: &GroupResource, object: &Arc<Value>, now: Timestamp) {
        if !self.scopes.matches(resource, object) {
            return;
        }
        if overdue::is_overdue(resource, object, now) {
            self.overdue.insert(meta::uid(object).to_owned());
            self.sum.add(resource, &overdue::ended(object));
        } else {
            self.sum.add(resource, object);
        }
    }

    /// Takes out what [`Entry::add`] added.
    fn take(&mut self, resource: &GroupResource, object: &Arc<Value>) {
        if !self.scopes.matches(resource, object) {
            return;
        }
        if self.overdue.remove(meta::uid(object)) {
            self.sum.take(resource, &overdue::ended(object));
        } else {
            self.sum.take(resource, object);
        }
    }
}

/// The usage of an object. Of most kinds only the number of objects is counted.
fn read(resource: &GroupResource, object: &Object) -> Arc<Value> {
    if resource_quota::looks_into(resource) { object.value() } else { Arc::default() }
}

#[cfg(test)]
mod tests;
