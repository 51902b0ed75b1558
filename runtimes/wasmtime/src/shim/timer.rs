//! tokio's clock for hyper. A connection waits for each of its requests with a time limit, and nearly all requests come long before it. So
//! a connection has one timer of the event loop, which is set again only when it has gone off, not for each request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::sleep_until;

/// A timer of the event loop.
type Alarm = Pin<Box<tokio::time::Sleep>>;

/// The clock of one connection.
#[derive(Clone, Default)]
pub struct Timer {
    /// Of a limit that is over. It may go off for nothing.
    spare: Arc<Mutex<Option<Alarm>>>,
}

/// A limit of time.
struct Sleep {
    deadline: tokio::time::Instant,
    /// Goes off at the deadline or before it. There is none before somebody waits.
    alarm: Option<Alarm>,
    timer: Timer,
}

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Sleep { deadline: deadline.into(), alarm: None, timer: self.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(mut ours) => ours.deadline = deadline.into(),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { deadline, alarm, timer } = &mut *self;
        let deadline = *deadline;
        let alarm = alarm.get_or_insert_with(|| timer.spare.lock().take().unwrap_or_else(|| Box::pin(sleep_until(deadline))));
        if alarm.deadline() > deadline {
            alarm.as_mut().reset(deadline);
        }
        ready!(alarm.as_mut().poll(context));
        if alarm.deadline() < deadline {
            alarm.as_mut().reset(deadline);
            ready!(alarm.as_mut().poll(context));
        }
        Poll::Ready(())
    }
}

impl hyper::rt::Sleep for Sleep {}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(alarm) = self.alarm.take() {
            *self.timer.spare.lock() = Some(alarm);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper::rt::Timer as _;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);

    async fn is_over(sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>) -> bool {
        poll_fn(|context| Poll::Ready(sleep.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test(start_paused = true)]
    async fn each_limit_has_its_own_end_whatever_the_alarm_was_set_to() {
        let timer = Timer::default();
        for (before, limit) in [(LIMIT, LIMIT * 3), (LIMIT * 3, LIMIT), (Duration::from_secs(3_600), LIMIT)] {
            let begun = timer.now();
            let mut unused = timer.sleep(before);
            assert!(!is_over(&mut unused).await);
            drop(unused);
            assert!(timer.spare.lock().is_some(), "the alarm is for the next limit");
            let ended = tokio::time::timeout(LIMIT * 100, timer.sleep_until(begun + limit)).await;
            assert!(ended.is_ok(), "{limit:?} after {before:?} does not end");
            assert_eq!(timer.now() - begun, limit, "after {before:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_can_be_set_again() {
        let timer = Timer::default();
        let begun = timer.now();
        let mut sleep = timer.sleep(LIMIT);
        assert!(!is_over(&mut sleep).await);
        // Later than before, when it is over, and earlier than before.
        for (resets, end) in [(&[LIMIT * 3][..], LIMIT * 3), (&[LIMIT * 5], LIMIT * 5), (&[LIMIT * 9, LIMIT * 6], LIMIT * 6)] {
            for reset in resets {
                timer.reset(&mut sleep, begun + *reset);
                assert!(!is_over(&mut sleep).await);
            }
            assert!(tokio::time::timeout(LIMIT * 100, sleep.as_mut()).await.is_ok(), "{resets:?} does not end");
            assert_eq!(timer.now() - begun, end, "{resets:?}");
        }
    }
}
