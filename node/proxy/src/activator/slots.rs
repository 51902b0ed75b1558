//! The bounds of waiting connections, and how many wait for each Service.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;

use crate::service::Key;

/// The bounds of the activator on one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at once. Beyond it the client address with the most connections loses its oldest one.
    pub(crate) connections: usize,
    /// Of these, the connections to Services of one namespace.
    pub(crate) of_namespace: usize,
    /// Of these, the connections to one Service.
    pub(crate) of_service: usize,
    /// How long a connection waits for an endpoint.
    pub(crate) wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 1_024, of_namespace: 512, of_service: 256, wait: Duration::from_secs(30) }
    }
}

/// A Service or its namespace has all the connections that it may have.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Full {
    #[error("{max} connections to Service {service} wait or have waited on this node, which are the most at once")]
    Service { service: String, max: usize },
    #[error("{max} connections to Services of namespace {namespace} wait or have waited on this node, which are the most at once")]
    Namespace { namespace: String, max: usize },
}

/// Counts the connections of the activator.
pub(crate) struct Slots {
    pub(crate) limits: Limits,
    /// Notified when a Service that nobody waited for is waited for.
    pub(crate) wanted: Notify,
    services: Mutex<HashMap<Key, Count>>,
}

#[derive(Clone, Copy, Default)]
struct Count {
    open: usize,
    waiting: u32,
}

/// The slot of one connection. Dropping it frees the slot.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    key: Key,
    is_waiting: bool,
}

impl Slots {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, wanted: Notify::new(), services: Mutex::default() }
    }

    /// Takes a slot for a connection that begins to wait.
    pub(crate) fn acquire(self: &Arc<Self>, key: &Key) -> Result<Slot, Full> {
        let mut services = self.services.lock();
        let of_namespace: usize = services.iter().filter(|(one, _)| one.0 == key.0).map(|(_, count)| count.open).sum();
        if of_namespace >= self.limits.of_namespace {
            return Err(Full::Namespace { namespace: key.0.clone(), max: of_namespace });
        }
        let count = services.entry(key.clone()).or_default();
        if count.open >= self.limits.of_service {
            return Err(Full::Service { service: format!("{}/{}", key.0, key.1), max: count.open });
        }
        count.open += 1;
        count.waiting = count.waiting.saturating_add(1);
        if count.waiting == 1 {
            self.wanted.notify_one();
        }
        Ok(Slot { slots: Arc::clone(self), key: key.clone(), is_waiting: true })
    }

    /// How many connections wait for each Service.
    pub(crate) fn waiting(&self) -> Vec<(Key, u32)> {
        let services = self.services.lock();
        services.iter().filter(|(_, count)| count.waiting > 0).map(|(key, count)| (key.clone(), count.waiting)).collect()
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut Count)) {
        let mut services = self.services.lock();
        if let Some(count) = services.get_mut(key) {
            change(count);
            if count.open == 0 {
                services.remove(key);
            }
        }
    }
}

impl Slot {
    /// The connection has its endpoint.
    pub(crate) fn set_connected(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.slots.change(&self.key, |count| count.waiting = count.waiting.saturating_sub(1));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.set_connected();
        self.slots.change(&self.key, |count| count.open = count.open.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        (namespace.to_owned(), name.to_owned())
    }

    #[test]
    fn services_and_namespaces_have_their_bounds() {
        let limits = Limits { of_namespace: 3, of_service: 2, ..Limits::default() };
        let slots = Arc::new(Slots::new(limits));
        let (web, api, other) = (key("a", "web"), key("a", "api"), key("b", "web"));
        let first = slots.acquire(&web).expect("room");
        let mut second = slots.acquire(&web).expect("room");
        assert_eq!(slots.acquire(&web).err(), Some(Full::Service { service: "a/web".to_owned(), max: 2 }));
        let third = slots.acquire(&api).expect("room");
        assert_eq!(slots.acquire(&api).err(), Some(Full::Namespace { namespace: "a".to_owned(), max: 3 }));
        drop(slots.acquire(&other).expect("another namespace has its own room"));

        second.set_connected();
        assert_eq!(slots.acquire(&web).err(), Some(Full::Namespace { namespace: "a".to_owned(), max: 3 }), "it is open still");
        let mut waiting = slots.waiting();
        waiting.sort();
        assert_eq!(waiting, [(api, 1), (web.clone(), 1)]);
        drop((first, second, third));
        assert!(slots.waiting().is_empty() && slots.services.lock().is_empty(), "nothing stays");
        drop(slots.acquire(&web).expect("room again"));
    }

    #[tokio::test]
    async fn only_the_first_connection_that_waits_notifies() {
        let slots = Arc::new(Slots::new(Limits::default()));
        let is_notified = async || tokio::time::timeout(Duration::from_millis(1), slots.wanted.notified()).await.is_ok();
        let web = key("a", "web");
        let mut first = slots.acquire(&web).expect("room");
        assert!(is_notified().await);
        let second = slots.acquire(&web).expect("room");
        assert!(!is_notified().await, "the Service is waited for already");
        first.set_connected();
        drop(second);
        let _third = slots.acquire(&web).expect("room");
        assert!(is_notified().await);
    }
}
