//! The number of requests that guests handle at once. Beyond it a limited number waits for a limited time, and further requests
//! are rejected at once: the client gets an answer that asks it to retry. Probes of the node have room of their own, so that a
//! busy server is not taken for a dead one.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use runtimes_contract::PROBE_HEADER;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::settings::HTTP_PROBE_INSTANCES_MAX;

/// Requests that wait for an instance.
const QUEUE_LEN_MAX: usize = 512;
/// How long a request waits.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request gets no instance; the client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// As many requests wait as may.
    #[error(
        "too many requests at once: {concurrency} are handled and {} wait; the annotation \
         wasm.skiff.internal/http-concurrency of the Pod sets how many are handled",
        QUEUE_LEN_MAX
    )]
    QueueFull {
        /// The requests that are handled at once.
        concurrency: u32,
    },
    /// The request has waited as long as it may.
    #[error(
        "too many requests at once: {concurrency} are handled, and none ended within {} s; the annotation \
         wasm.skiff.internal/http-concurrency of the Pod sets how many are handled",
        QUEUE_TIMEOUT.as_secs()
    )]
    NoneInTime {
        /// The requests that are handled at once.
        concurrency: u32,
    },
    /// As many connections are open as may be.
    #[error("too many connections at once: {max} are open")]
    Connections {
        /// The connections that may be open.
        max: usize,
    },
}

/// The instances of one component.
pub struct Capacity {
    instances: Arc<Semaphore>,
    probes: Arc<Semaphore>,
    queue: Semaphore,
    concurrency: u32,
    /// The token of probes.
    probe_token: String,
}

/// The permit for one instance, until it is dropped.
pub struct Instance {
    _permit: OwnedSemaphorePermit,
}

impl Capacity {
    /// All permits are free, `concurrency` of them for requests. A request with the token is a probe.
    pub fn new(probe_token: &str, concurrency: u32) -> Self {
        let semaphore = |permits: u32| Arc::new(Semaphore::new(usize::try_from(permits).unwrap_or(1)));
        Self {
            instances: semaphore(concurrency),
            probes: semaphore(HTTP_PROBE_INSTANCES_MAX),
            queue: Semaphore::new(QUEUE_LEN_MAX),
            concurrency,
            probe_token: probe_token.to_owned(),
        }
    }

    /// Whether the request is a probe of the node. Removes the token: the guest must not see it.
    pub fn take_probe(&self, headers: &mut HeaderMap) -> bool {
        if !headers.contains_key(PROBE_HEADER) {
            return false;
        }
        let is_known = headers.get_all(PROBE_HEADER).iter().any(|presented| presented.as_bytes() == self.probe_token.as_bytes());
        while headers.remove(PROBE_HEADER).is_some() {}
        is_known && !self.probe_token.is_empty()
    }

    /// An instance for a request, or for a probe.
    pub async fn instance(&self, is_probe: bool) -> Result<Instance, Busy> {
        if let Ok(permit) = self.instances.clone().try_acquire_owned() {
            return Ok(Instance { _permit: permit });
        }
        if is_probe && let Ok(permit) = self.probes.clone().try_acquire_owned() {
            return Ok(Instance { _permit: permit });
        }
        let concurrency = self.concurrency;
        let _waiting = self.queue.try_acquire().map_err(|_| Busy::QueueFull { concurrency })?;
        match timeout(QUEUE_TIMEOUT, self.instances.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Instance { _permit: permit }),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(Busy::NoneInTime { concurrency }),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const CONCURRENCY: u32 = 3;

    #[tokio::test]
    async fn the_node_is_answered_when_others_wait() {
        let capacity = Capacity::new("secret", CONCURRENCY);
        let mut instances = Vec::new();
        for _ in 0..CONCURRENCY {
            instances.push(capacity.instance(false).await.unwrap());
        }
        for _ in 0..HTTP_PROBE_INSTANCES_MAX {
            instances.push(capacity.instance(true).await.unwrap());
        }
        let queue = capacity.queue.acquire_many(u32::try_from(QUEUE_LEN_MAX).unwrap()).await.unwrap();
        assert_eq!(capacity.instance(false).await.err(), Some(Busy::QueueFull { concurrency: CONCURRENCY }));
        drop(queue);
        instances.clear();
        assert!(capacity.instance(false).await.is_ok());
    }

    #[test]
    fn the_answer_names_the_setting() {
        let setting = "the annotation wasm.skiff.internal/http-concurrency of the Pod sets how many are handled";
        for (busy, wanted) in [
            (Busy::QueueFull { concurrency: 64 }, format!("too many requests at once: 64 are handled and 512 wait; {setting}")),
            (
                Busy::NoneInTime { concurrency: 1 },
                format!("too many requests at once: 1 are handled, and none ended within 10 s; {setting}"),
            ),
            (Busy::Connections { max: 1_024 }, "too many connections at once: 1024 are open".to_owned()),
        ] {
            assert_eq!(busy.to_string(), wanted);
        }
    }

    #[test]
    fn a_probe_is_who_has_the_token_whatever_it_calls_itself() {
        let is_probe = |token: &str, all: &[&'static str]| {
            let capacity = Capacity::new(token, CONCURRENCY);
            let mut headers = HeaderMap::from_iter([(http::header::USER_AGENT, HeaderValue::from_static("kube-probe/1.37"))]);
            for value in all {
                headers.append(PROBE_HEADER, HeaderValue::from_static(value));
            }
            let is_probe = capacity.take_probe(&mut headers);
            assert!(!headers.contains_key(PROBE_HEADER), "{all:?}");
            is_probe
        };
        assert!(is_probe("secret", &["secret"]) && is_probe("secret", &["guess", "secret"]));
        for all in [&[][..], &["guess"], &[""], &["secret2"]] {
            assert!(!is_probe("secret", all), "{all:?}");
        }
        assert!(!is_probe("", &[""]), "one that an earlier version made knows no probe");
    }
}
