//! Reviews by the API server of clients of the node: of tokens (TokenReview) and of permissions (SubjectAccessReview). A Pod can send the
//! node as many requests as it likes, so few reviews run at a time, few requests wait for one, and a review is used again for a while, as
//! by the kubelet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::error::chain;
use crate::fair_queue::{FairQueue, QueueLimits};

/// How long a request waits for its review.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Reviews at a time. One address may have two of them.
const RUNNING: QueueLimits = QueueLimits { all: 8, of_namespace: 2, slow: 0, slow_after: TIMEOUT };
/// Requests that wait or have their review made: of one address, and of all.
const WAITING_MAX: usize = 16;
const WAITING_IN_ALL_MAX: usize = 256;
/// The highest number of reviews that are used again.
const REVIEWS_MAX: usize = 1_024;
/// How long a failed review stands for the same request, so that an API server that is away gets few of them.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// Why a request has no review.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReviewError {
    /// Too many requests wait, of this address or of all.
    #[error("too many requests wait for reviews by the API server")]
    TooMany,
    /// The API server did not review, or said why it could not.
    #[error("{0}")]
    Failed(String),
}

/// What is reviewed, as a digest: a token itself is not stored.
type Digest = [u8; 32];

/// A review, and when it is made anew.
type Stored<T> = (Instant, Result<T, ReviewError>);

/// The reviews of one kind.
pub(super) struct ReviewCache<T> {
    queue: FairQueue,
    /// The requests that wait, by address.
    waiting: Arc<Mutex<HashMap<IpAddr, usize>>>,
    reviews: Mutex<HashMap<Digest, Stored<T>>>,
    /// How long a review is used.
    ttl: fn(&T) -> Duration,
}

impl<T: Clone> ReviewCache<T> {
    pub(super) fn new(ttl: fn(&T) -> Duration) -> Self {
        Self { queue: FairQueue::new(RUNNING), waiting: Arc::default(), reviews: Mutex::default(), ttl }
    }

    /// The review of a subject: a stored one, or a new one for which a client at this address waits.
    pub(super) async fn get(
        &self,
        subject: &impl Serialize,
        address: IpAddr,
        review: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, ReviewError> {
        let bytes = serde_json::to_vec(subject).map_err(|error| ReviewError::Failed(error.to_string()))?;
        let digest: Digest = Sha256::digest(bytes).into();
        if let Some(stored) = self.stored(&digest) {
            return stored;
        }
        let address = api_tasks::network(address);
        let _waiter = Waiter::enter(&self.waiting, address)?;
        let reviewed = async {
            let _permit = self.queue.acquire(&address.to_string()).await;
            // Another request may have had it reviewed meanwhile.
            match self.stored(&digest) {
                Some(stored) => stored,
                None => self.store(digest, review.await.map_err(|error| ReviewError::Failed(chain(&error)))),
            }
        };
        let too_long = |_| Err(ReviewError::Failed("the review took too long".to_owned()));
        tokio::time::timeout(TIMEOUT, reviewed).await.unwrap_or_else(too_long)
    }

    fn stored(&self, digest: &Digest) -> Option<Result<T, ReviewError>> {
        self.reviews.lock().get(digest).filter(|(until, _)| Instant::now() < *until).map(|(_, review)| review.clone())
    }

    /// Stores a review. When there are too many, the one that would be made anew first goes.
    fn store(&self, digest: Digest, review: Result<T, ReviewError>) -> Result<T, ReviewError> {
        let until = Instant::now() + review.as_ref().map_or(FAILURE_TTL, self.ttl);
        let mut reviews = self.reviews.lock();
        if reviews.len() >= REVIEWS_MAX && !reviews.contains_key(&digest) {
            let first = reviews.iter().min_by_key(|(_, (until, _))| *until).map(|(digest, _)| *digest);
            first.and_then(|first| reviews.remove(&first));
        }
        reviews.insert(digest, (until, review.clone()));
        review
    }
}

/// A request that waits, until dropped.
struct Waiter {
    waiting: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Waiter {
    fn enter(waiting: &Arc<Mutex<HashMap<IpAddr, usize>>>, address: IpAddr) -> Result<Self, ReviewError> {
        let mut counts = waiting.lock();
        let (own, all) = (counts.get(&address).copied().unwrap_or_default(), counts.values().sum::<usize>());
        if own >= WAITING_MAX || all >= WAITING_IN_ALL_MAX {
            return Err(ReviewError::TooMany);
        }
        counts.insert(address, own + 1);
        Ok(Self { waiting: Arc::clone(waiting), address })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut counts = self.waiting.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn cache() -> Arc<ReviewCache<bool>> {
        Arc::new(ReviewCache::new(|allowed| Duration::from_secs(if *allowed { 100 } else { 10 })))
    }

    /// Asks for a review and counts whether one was made.
    async fn ask(cache: &ReviewCache<bool>, subject: &str, answer: bool, made: &AtomicUsize) -> Result<bool, ReviewError> {
        let review = async {
            made.fetch_add(1, Ordering::SeqCst);
            Ok(answer)
        };
        cache.get(&subject, HERE, review).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_is_used_again_for_its_time() {
        let (cache, made) = (cache(), AtomicUsize::new(0));
        for (wait_s, subject, answer, wanted, reviews) in [
            (0, "a", true, true, 1),
            (0, "a", false, true, 1),
            (0, "b", false, false, 2),
            (11, "b", true, true, 3),
            (90, "a", false, false, 4),
        ] {
            tokio::time::advance(Duration::from_secs(wait_s)).await;
            assert_eq!(ask(&cache, subject, answer, &made).await, Ok(wanted), "{subject}");
            assert_eq!(made.load(Ordering::SeqCst), reviews, "{subject}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rejections_make_room_before_permissions() {
        let (cache, made) = (cache(), AtomicUsize::new(0));
        ask(&cache, "good", true, &made).await.expect("reviewed");
        for number in 0..2 * REVIEWS_MAX {
            ask(&cache, &number.to_string(), false, &made).await.expect("reviewed");
        }
        assert_eq!(cache.reviews.lock().len(), REVIEWS_MAX);
        let before = made.load(Ordering::SeqCst);
        assert_eq!(ask(&cache, "good", false, &made).await, Ok(true));
        assert_eq!(made.load(Ordering::SeqCst), before);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_bounded_and_holds_up_no_other_address() {
        let cache = cache();
        let flood: Vec<_> = (0..200)
            .map(|number| {
                let cache = cache.clone();
                tokio::spawn(async move { cache.get(&number, HERE, std::future::pending()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(cache.waiting.lock().get(&HERE), Some(&WAITING_MAX));
        let answered = tokio::time::timeout(Duration::from_millis(1), cache.get(&"other", THERE, async { Ok(true) }));
        assert_eq!(answered.await, Ok(Ok(true)));
        let mut refused = 0;
        for request in flood {
            refused += usize::from(request.await.expect("ends") == Err(ReviewError::TooMany));
        }
        assert_eq!(refused, 200 - WAITING_MAX);
        assert!(cache.waiting.lock().is_empty(), "nobody waits after the timeout");
    }

    #[tokio::test(start_paused = true)]
    async fn equal_requests_share_a_review_and_a_failure_stands_for_a_second() {
        let (cache, made) = (cache(), Arc::new(AtomicUsize::new(0)));
        let ask = |cache: Arc<ReviewCache<bool>>, made: Arc<AtomicUsize>| async move {
            let review = async {
                made.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(100)).await;
                Err(kube::Error::LinesCodecMaxLineLengthExceeded)
            };
            cache.get(&"same", HERE, review).await
        };
        let (first, second) = tokio::join!(ask(cache.clone(), made.clone()), ask(cache.clone(), made.clone()));
        assert!(matches!((&first, &second), (Err(ReviewError::Failed(_)), Err(ReviewError::Failed(_)))));
        // Two of one address run at a time: both began before the first had failed.
        let begun = made.load(Ordering::SeqCst);
        assert!(begun <= 2);
        let _third = ask(cache.clone(), made.clone()).await;
        assert_eq!(made.load(Ordering::SeqCst), begun, "the failure stands");
        tokio::time::advance(FAILURE_TTL).await;
        let _fourth = ask(cache.clone(), made.clone()).await;
        assert_eq!(made.load(Ordering::SeqCst), begun + 1);
    }
}
