//! One connection that waits: until its Service has an endpoint, then with it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::slots::Full;
use super::{Activations, Present, Shared, answer};
use crate::rules::Front;
use crate::service::Key;

/// How long one attempt to connect to an endpoint takes. Pods are near.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The pauses between attempts: a Pod without a readiness probe is ready before it listens.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A peer that is gone without a word frees its slot after about three minutes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_PERIOD: Duration = Duration::from_secs(15);

/// The number of the next choice among endpoints: one after the other, so that connections which waited together are spread.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Why a connection gets no endpoint.
#[derive(Debug, Error)]
enum NoEndpoint {
    #[error(transparent)]
    Full(#[from] Full),
    #[error("no Pod of Service {service} was ready within {seconds} s")]
    Late { service: String, seconds: u64 },
    #[error("connections to Service {0} do not wait any more")]
    Gone(String),
}

/// Serves a connection to a front until it ends.
pub(super) async fn serve(mut client: TcpStream, front: Front, shared: &Shared) {
    let Some(key) = shared.present.borrow().fronts.get(&front).map(|activation| activation.service.clone()) else {
        return answer::reset(client);
    };
    let mut slot = match shared.slots.acquire(&key) {
        Ok(slot) => slot,
        Err(full) => return refuse(client, &full.into()).await,
    };
    let (service, wait) = (format!("{}/{}", key.0, key.1), shared.slots.limits.wait);
    let connected = match timeout(wait, connect(front, &key, shared.present.clone())).await {
        Ok(Some(server)) => Ok(server),
        Ok(None) => Err(NoEndpoint::Gone(service)),
        Err(_) => Err(NoEndpoint::Late { service, seconds: wait.as_secs() }),
    };
    let mut server = match connected {
        Ok(server) => server,
        Err(why) => {
            drop(slot);
            return refuse(client, &why).await;
        }
    };
    slot.set_connected();
    if let Err(error) = prepare(&client).and_then(|()| prepare(&server)) {
        tracing::debug!(%error, "socket options not set");
    }
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
        tracing::debug!(%error, service = ?key, "connection that had waited ended");
        answer::reset(client);
    }
}

async fn refuse(client: TcpStream, why: &NoEndpoint) {
    tracing::debug!(%why, "waiting connection refused");
    answer::refuse(client, &why.to_string()).await;
}

/// Waits for an endpoint of the Service, and connects to it. None if the front is no longer the Service's, or no longer waits.
async fn connect(front: Front, key: &Key, mut present: Present) -> Option<TcpStream> {
    let mut pause = PAUSE_MIN;
    loop {
        let endpoints = {
            let has_end = |present: &Arc<Activations>| present.endpoints(front, key).is_none_or(|endpoints| !endpoints.is_empty());
            let present = present.wait_for(has_end).await.ok()?;
            present.endpoints(front, key)?.to_vec()
        };
        let choice = NEXT.fetch_add(1, Ordering::Relaxed).checked_rem(endpoints.len()).unwrap_or_default();
        let endpoint = endpoints.get(choice)?;
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint)).await {
            Ok(Ok(server)) => return Some(server),
            Ok(Err(error)) => tracing::debug!(%endpoint, %error, "endpoint not reached"),
            Err(_) => tracing::debug!(%endpoint, "endpoint not reached in time"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_PERIOD);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
