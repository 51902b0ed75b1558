//! When the clients of a server that ends have left. The signal to end comes at the same time as the news that the Pod is no endpoint of
//! its Services any more, and each node takes its moment to act on it. A server that closes its port at once would refuse the requests of
//! that moment, so it stays open until none came for a while. A server that nobody uses ends at once.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// A server without a request for so long is not in use.
const IN_USE: Duration = Duration::from_secs(10);
/// Clients have left when there was no request for so long.
const LEFT: Duration = Duration::from_secs(1);
/// Clients that use other ways than Services may never leave.
const LEAVING_MAX: Duration = Duration::from_secs(5);

/// The requests that come in.
#[derive(Default)]
pub struct PortUse {
    last: Mutex<Option<Instant>>,
}

impl PortUse {
    /// A request has arrived.
    pub fn request(&self) {
        *self.last.lock() = Some(Instant::now());
    }

    /// Waits until the clients have left.
    pub async fn until_left(&self) {
        let begun = Instant::now();
        loop {
            // The lock is not held while it waits: requests come meanwhile.
            let last = *self.last.lock();
            let Some(until) = until(last, begun, Instant::now()) else { return };
            sleep_until(until).await;
        }
    }
}

/// Until when a server waits that began to end at a time; `None` when it waits no longer.
fn until(last: Option<Instant>, begun: Instant, now: Instant) -> Option<Instant> {
    let last = last.filter(|last| *last + IN_USE > begun)?;
    Some((last.max(begun) + LEFT).min(begun + LEAVING_MAX)).filter(|until| *until > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_waits_for_clients_that_use_it() {
        let base = Instant::now();
        let at = |seconds: f64| base + Duration::from_secs_f64(seconds + 50.0);
        let begun = at(0.0);
        for (what, last, now, wanted) in [
            ("never used", None, 0.0, None),
            ("not used for long", Some(-11.0), 0.0, None),
            ("used a moment ago", Some(-9.0), 0.0, Some(1.0)),
            ("nothing came since", Some(-9.0), 1.0, None),
            ("a request came", Some(0.7), 1.0, Some(1.7)),
            ("the last one was long enough ago", Some(0.7), 1.7, None),
            ("requests do not end", Some(4.9), 4.9, Some(5.0)),
            ("they have had their time", Some(5.0), 5.0, None),
        ] {
            assert_eq!(until(last.map(at), begun, at(now)), wanted.map(at), "{what}");
        }
    }
}
