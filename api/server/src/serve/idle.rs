//! Unused connections: clients that disappeared without closing, and clients that send no request for a long time.
//!
//! A peer that lost its power sends no FIN. HTTP/2 sends pings; for HTTP/1.1 the kernel sends keepalive probes and
//! gives up unacknowledged data. The connection of a client without requests is closed gracefully, as upstream does:
//! each connection takes a slot that other clients may wait for.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Response;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;

use api_upstream::keepalive;
use api_wire::holding::Holding;

/// Upstream's `IdleTimeout`.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Data that is not acknowledged for this long ends the connection.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(75);

/// Makes the kernel notice when the peer is gone.
pub(super) fn notice_absence(stream: &TcpStream) -> std::io::Result<()> {
    keepalive::probe(stream)?;
    keepalive::give_up_after(stream, UNACKNOWLEDGED_MAX)
}

/// The activity on one connection.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    running: usize,
    since: Instant,
}

impl Default for Activity {
    fn default() -> Self {
        Self(Mutex::new(State { running: 0, since: Instant::now() }))
    }
}

impl Activity {
    /// Records activity at this moment.
    pub(super) fn touch(&self) {
        self.0.lock().since = Instant::now();
    }

    /// Waits until there was no activity for [`IDLE_TIMEOUT`].
    pub(super) async fn idle(&self) {
        loop {
            let quiet_until = {
                let state = self.0.lock();
                let since = if state.running > 0 { Instant::now() } else { state.since };
                since + IDLE_TIMEOUT
            };
            if quiet_until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(quiet_until).await;
        }
    }
}

/// An open request, until it is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Busy {
    pub(super) fn new(activity: &Arc<Activity>) -> Self {
        activity.0.lock().running += 1;
        Self(Arc::clone(activity))
    }

    /// Keeps the request open until its answer is sent, or the client cancels it.
    pub(super) fn until_sent(self, answer: Response<Body>) -> Response<Holding<Busy>> {
        answer.map(|body| Holding::new(body, self))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.running -= 1;
        state.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;

    use super::*;

    #[tokio::test]
    async fn the_system_looks_whether_the_peer_is_there() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected");
        notice_absence(&stream).expect("set");
        let socket = SockRef::from(&stream);
        assert_eq!(socket.keepalive().ok(), Some(true));
        assert_eq!(socket.tcp_user_timeout().ok(), Some(Some(UNACKNOWLEDGED_MAX)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_once_its_last_answer_is_sent_and_some_time_passed() {
        let activity = Arc::new(Activity::default());
        let started = Instant::now();
        activity.idle().await;
        assert_eq!(started.elapsed(), IDLE_TIMEOUT, "one that never asked anything");
        let watch = Busy::new(&activity).until_sent(Response::new(Body::empty()));
        let is_idle = tokio::time::timeout(10 * IDLE_TIMEOUT, activity.idle()).await;
        assert!(is_idle.is_err(), "an answer is being sent");
        drop(watch);
        let sent = Instant::now();
        activity.idle().await;
        assert_eq!(sent.elapsed(), IDLE_TIMEOUT);
    }
}
