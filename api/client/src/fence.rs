//! The fence around the writes of a leader: what a leader sends after it lost its Lease changes nothing.
//!
//! A process that was stopped, or whose machine was suspended, goes on where it was. A leader then sends what it was about to send,
//! although another process may lead by now. client-go has this weakness. A [`Fence`] belongs to one term of a leader, from the moment
//! when it took its Lease until the Lease is lost or released. A client inside of the fence ([`Fence::around`]) sends no change when the
//! last successful renewal began longer ago than the renew deadline, which is shorter than the time after which others may take the
//! Lease. The time is that of a clock that goes on during a stop and a suspension.
//!
//! A process can also be stopped after this check. So the API server is the second half of the fence: the binary tells it the term, and it
//! writes to the store under the condition that the Lease is still of this term (`api-server`, `fence.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::TryFutureExt as _;
use futures::future::{Either, MapErr, Ready, ready};
use http::Request;
use thiserror::Error;
use tower::{BoxError, Service};

/// Why a leader may not write.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NotLeading {
    /// The term is over.
    #[error("the Lease {0} is lost or released")]
    Over(String),
    /// The Lease was not renewed in time, so another process may have taken it.
    #[error("the Lease {0} was not renewed for {1:?}")]
    Late(String, Duration),
}

/// The fence of one term of a leader. Clones are the same fence.
#[derive(Clone, Debug)]
pub struct Fence(Arc<Term>);

#[derive(Debug)]
struct Term {
    namespace: String,
    name: String,
    identity: String,
    transitions: i32,
    renew_deadline: Duration,
    /// When the last successful renewal began, in nanoseconds of the boot time.
    renewed: AtomicU64,
    is_over: AtomicBool,
}

impl Fence {
    /// The fence of the holder of a Lease, given by namespace and name. `renewed` is the boot time at which the request that took the
    /// Lease was sent.
    pub(crate) fn new(
        (namespace, name): (&str, &str),
        identity: &str,
        transitions: i32,
        renew_deadline: Duration,
        renewed: Duration,
    ) -> Self {
        Self(Arc::new(Term {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            transitions,
            renew_deadline,
            renewed: AtomicU64::new(nanoseconds(renewed)),
            is_over: AtomicBool::new(false),
        }))
    }

    /// Namespace of the Lease.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Name of the Lease.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The holder's identity.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// `leaseTransitions` of the Lease during this term: another one counts a term of another holder.
    pub fn transitions(&self) -> i32 {
        self.0.transitions
    }

    /// The Lease was renewed by a request that was sent at this boot time.
    pub(crate) fn renewed(&self, at: Duration) {
        self.0.renewed.store(nanoseconds(at), Ordering::Release);
    }

    /// Ends the term: nothing more is sent.
    pub(crate) fn end(&self) {
        self.0.is_over.store(true, Ordering::Release);
    }

    /// Whether the leader may write at this boot time.
    pub fn check(&self, now: Duration) -> Result<(), NotLeading> {
        let Term { namespace, name, renew_deadline, .. } = &*self.0;
        if self.0.is_over.load(Ordering::Acquire) {
            return Err(NotLeading::Over(format!("{namespace}/{name}")));
        }
        let renewed = Duration::from_nanos(self.0.renewed.load(Ordering::Acquire));
        if !is_in_time(renewed, now, *renew_deadline) {
            return Err(NotLeading::Late(format!("{namespace}/{name}"), now.saturating_sub(renewed)));
        }
        Ok(())
    }

    /// A service inside of the fence: the way to the API server of a client that writes only during this term. Reads pass at any time.
    pub fn around<S>(&self, service: S) -> Fenced<S> {
        Fenced { fence: self.clone(), service }
    }
}

/// Whether the last renewal began less than the deadline ago.
fn is_in_time(renewed: Duration, now: Duration, renew_deadline: Duration) -> bool {
    now.saturating_sub(renewed) < renew_deadline
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A service inside of a [`Fence`].
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    fence: Fence,
    service: S,
}

impl<S, B> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<MapErr<S::Future, fn(S::Error) -> BoxError>, Ready<Result<S::Response, BoxError>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !request.method().is_safe()
            && let Err(error) = self.fence.check(api_clock::boottime())
        {
            return Either::Right(ready(Err(error.into())));
        }
        Either::Left(self.service.call(request).map_err(Into::into))
    }
}

/// Makes a client inside of a fence, or one without a fence.
type MakeClient = dyn Fn(Option<&Fence>) -> kube::Client + Send + Sync;

/// Makes the clients of one user.
#[derive(Clone)]
pub struct Clients(Arc<MakeClient>);

impl Clients {
    /// `make` makes a client inside of a fence, or one without a fence.
    pub fn new(make: impl Fn(Option<&Fence>) -> kube::Client + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// A client for reads, and for the Lease itself.
    pub fn unfenced(&self) -> kube::Client {
        (self.0)(None)
    }

    /// A client for the work of a leader.
    pub fn fenced(&self, fence: &Fence) -> kube::Client {
        (self.0)(Some(fence))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::AtomicUsize;

    use http::{Method, Response};
    use tower::ServiceExt as _;

    use super::*;

    fn fence(renewed: Duration) -> Fence {
        Fence::new(("kube-system", "x"), "me", 3, Duration::from_secs(10), renewed)
    }

    #[test]
    fn a_leader_writes_until_the_renew_deadline_after_its_last_renewal() {
        let ms = Duration::from_millis;
        for (renewed, now, expected) in [
            (ms(0), ms(0), true),
            (ms(5_000), ms(14_999), true),
            (ms(5_000), ms(15_000), false),
            // A stop of hours.
            (ms(5_000), ms(9_000_000), false),
            // A renewal that began after the clock was read.
            (ms(5_000), ms(4_999), true),
        ] {
            assert_eq!(is_in_time(renewed, now, ms(10_000)), expected, "{renewed:?} {now:?}");
        }
    }

    #[test]
    fn a_renewal_reopens_the_fence_and_the_end_of_the_term_does_not() {
        let (fence, late) = (fence(Duration::from_secs(100)), Duration::from_secs(112));
        assert_eq!(fence.check(Duration::from_secs(109)), Ok(()));
        assert_eq!(fence.check(late), Err(NotLeading::Late("kube-system/x".to_owned(), Duration::from_secs(12))));
        fence.renewed(Duration::from_secs(110));
        assert_eq!(fence.check(late), Ok(()));
        fence.end();
        fence.renewed(late);
        assert_eq!(fence.check(late), Err(NotLeading::Over("kube-system/x".to_owned())));
    }

    #[tokio::test]
    async fn outside_of_the_term_reads_pass_and_changes_are_not_sent() {
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        let server = tower::service_fn(move |_: Request<()>| {
            counter.fetch_add(1, Ordering::Relaxed);
            ready(Ok::<_, Infallible>(Response::new(())))
        });
        let fence = fence(api_clock::boottime());
        let send = async |method: &Method| {
            let request = Request::builder().method(method).body(()).expect("a request");
            fence.around(server.clone()).oneshot(request).await.map(drop).map_err(|error| error.to_string())
        };
        let changes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        for method in [Method::GET, Method::HEAD].iter().chain(&changes) {
            assert_eq!(send(method).await, Ok(()), "{method}");
        }
        fence.end();
        assert_eq!(send(&Method::GET).await, Ok(()));
        for method in &changes {
            assert_eq!(send(method).await, Err("the Lease kube-system/x is lost or released".to_owned()), "{method}");
        }
        assert_eq!(sent.load(Ordering::Relaxed), 7);
    }
}
