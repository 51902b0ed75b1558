//! Connections that wait for the next command, for a bounded time: what is between here and the server forgets an idle connection, and a
//! server has a bound on its clients.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::connection::Connection;

/// How long a connection waits.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// The connections that wait.
#[derive(Default)]
pub struct Idle(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// Each with the time since which it waits; the first has waited for longest.
    connections: Vec<(Instant, Connection)>,
    /// A task will close those that wait for too long.
    is_swept: bool,
}

impl Idle {
    /// The connection of this event loop that was used last. A server that has ended is noticed here. Without a connection, those of
    /// another event loop are closed until there are at most `others_max`.
    pub fn take(&self, others_max: usize) -> Option<Connection> {
        let mut waiting = self.0.lock();
        while let Some(index) = waiting.connections.iter().rposition(|(_, connection)| connection.is_of_this_loop()) {
            let (_, connection) = waiting.connections.remove(index);
            if connection.is_silent() {
                return Some(connection);
            }
        }
        let excess = waiting.connections.len().saturating_sub(others_max);
        waiting.connections.drain(..excess);
        None
    }

    /// The connection waits from now on.
    pub fn put(self: &Arc<Self>, connection: Connection) {
        let mut waiting = self.0.lock();
        waiting.connections.push((Instant::now(), connection));
        if !std::mem::replace(&mut waiting.is_swept, true) {
            tokio::spawn(self.clone().sweep());
        }
    }

    /// Closes all.
    pub fn clear(&self) {
        self.0.lock().connections.clear();
    }

    /// Closes each connection that has waited for too long, until none waits.
    async fn sweep(self: Arc<Self>) {
        while let Some(next) = self.close_old(Instant::now()) {
            sleep_until(next).await;
        }
    }

    /// When the next one will have waited for too long; `None` when none waits.
    fn close_old(&self, now: Instant) -> Option<Instant> {
        let mut waiting = self.0.lock();
        waiting.connections.retain(|(since, _)| *since + IDLE_MAX > now);
        let next = waiting.connections.first().map(|(since, _)| *since + IDLE_MAX);
        waiting.is_swept = next.is_some();
        next
    }
}
