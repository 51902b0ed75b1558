//! How many requests are with a guest at once. Beyond that a bounded number waits for a bounded time, and further
//! ones are refused at once: a client is told to come again, rather than left without an answer. Probes of the node
//! have room of their own, so that a server which has much to do is not taken for a dead one.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::USER_AGENT;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::settings::{HTTP_INSTANCES_MAX, HTTP_PROBE_INSTANCES_MAX};

/// Requests that wait for an instance.
const QUEUE_LEN_MAX: usize = 512;
/// How long one waits.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// What probes call themselves, as upstream's do. Who pretends takes a probe's place and no other.
const PROBE: &[u8] = b"kube-probe/";

/// The instances of one component.
pub struct Capacity {
    instances: Arc<Semaphore>,
    probes: Arc<Semaphore>,
    queue: Semaphore,
}

/// The right to one instance, until dropped.
pub struct Instance {
    _permit: OwnedSemaphorePermit,
}

impl Capacity {
    /// All of it is free.
    pub fn new() -> Self {
        let semaphore = |permits: u32| Arc::new(Semaphore::new(usize::try_from(permits).unwrap_or(1)));
        Self { instances: semaphore(HTTP_INSTANCES_MAX), probes: semaphore(HTTP_PROBE_INSTANCES_MAX), queue: Semaphore::new(QUEUE_LEN_MAX) }
    }

    /// An instance for a request with these headers; none when there is no room within the time.
    pub async fn instance(&self, headers: &HeaderMap) -> Option<Instance> {
        if let Ok(permit) = self.instances.clone().try_acquire_owned() {
            return Some(Instance { _permit: permit });
        }
        if is_probe(headers)
            && let Ok(permit) = self.probes.clone().try_acquire_owned()
        {
            return Some(Instance { _permit: permit });
        }
        let _place = self.queue.try_acquire().ok()?;
        let permit = timeout(QUEUE_TIMEOUT, self.instances.clone().acquire_owned()).await.ok()?.ok()?;
        Some(Instance { _permit: permit })
    }
}

/// Whether the node asks how the container is.
pub fn is_probe(headers: &HeaderMap) -> bool {
    headers.get(USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(PROBE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_node_is_answered_when_others_wait() {
        let capacity = Capacity::new();
        let nobody = HeaderMap::new();
        let node = HeaderMap::from_iter([(USER_AGENT, http::HeaderValue::from_static("kube-probe/1.37"))]);
        let mut held = Vec::new();
        for _ in 0..HTTP_INSTANCES_MAX {
            held.push(capacity.instance(&nobody).await.unwrap());
        }
        for _ in 0..HTTP_PROBE_INSTANCES_MAX {
            held.push(capacity.instance(&node).await.unwrap());
        }
        let queue = capacity.queue.acquire_many(u32::try_from(QUEUE_LEN_MAX).unwrap()).await.unwrap();
        assert!(capacity.instance(&nobody).await.is_none(), "the queue is full");
        drop(queue);
        held.clear();
        assert!(capacity.instance(&nobody).await.is_some());
    }
}
