//! Leases: a node's heartbeat and leader election, both on `coordination.k8s.io/v1 Lease`.
//!
//! [`heartbeat`] renews a node's Lease in `kube-node-lease` as the kubelet does; node lifecycle takes a node whose Lease is not
//! renewed for lost. [`lead`] runs a future while this process holds a Lease and ends it when the Lease is lost. As in
//! client-go, times in the Lease are never compared with this machine's clock, only whether they changed within the duration.

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The namespace of nodes' Leases.
pub const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";
/// First wait after a failed renewal; it doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(200);
/// Longest wait between attempts, the kubelet's.
const RETRY_MAX: Duration = Duration::from_secs(7);

/// Renews the node's Lease every quarter of `duration` (upstream's 40 s make 10 s) until cancelled. The Lease is created when
/// it does not exist, and is owned by the Node once that is registered. Failures are logged and tried again with back-off;
/// after a conflict the Lease is read again.
pub async fn heartbeat(client: kube::Client, node_name: &str, duration: Duration, cancel: CancellationToken) {
    let beat = Heartbeat {
        leases: Api::namespaced(client.clone(), NODE_LEASE_NAMESPACE),
        nodes: Api::all(client),
        node_name: node_name.to_owned(),
        duration,
    };
    let mut retry = RETRY_MIN;
    let mut last = None;
    loop {
        // A server that does not answer must not keep the beat from its next attempt.
        let renewal = tokio::time::timeout(duration / 4, beat.renew(last.take()));
        let renewed = tokio::select! {
            () = cancel.cancelled() => return,
            renewed = renewal => renewed,
        };
        let failure = match renewed {
            Ok(Ok(lease)) => {
                last = Some(lease);
                None
            }
            Ok(Err(error)) => Some(crate::error::chain(&error)),
            Err(_) => Some("no answer in time".to_owned()),
        };
        let pause = match failure {
            None => {
                retry = RETRY_MIN;
                duration / 4
            }
            Some(error) => {
                tracing::warn!(node = node_name, error, "node lease not renewed");
                let pause = retry;
                retry = (retry * 2).min(RETRY_MAX).min(duration / 4);
                pause
            }
        };
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

struct Heartbeat {
    leases: Api<Lease>,
    nodes: Api<Node>,
    node_name: String,
    duration: Duration,
}

impl Heartbeat {
    /// One renewal of the Lease `last` written, or of a fresh read without one.
    async fn renew(&self, last: Option<Lease>) -> Result<Lease, kube::Error> {
        let current = match last {
            Some(lease) => Some(lease),
            None => self.leases.get_opt(&self.node_name).await?,
        };
        let owned = current.as_ref().is_some_and(|lease| lease.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()));
        let owner = if owned { None } else { self.owner().await? };
        let exists = current.is_some();
        let mut lease = current.unwrap_or_else(|| named(&self.node_name));
        if let Some(owner) = owner {
            lease.metadata.owner_references = Some(vec![owner]);
        }
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.node_name.clone());
        spec.lease_duration_seconds = Some(seconds(self.duration));
        spec.renew_time = Some(MicroTime(api_clock::now()));
        if exists {
            self.leases.replace(&self.node_name, &PostParams::default(), &lease).await
        } else {
            self.leases.create(&PostParams::default(), &lease).await
        }
    }

    async fn owner(&self) -> Result<Option<OwnerReference>, kube::Error> {
        let node = self.nodes.get_metadata_opt(&self.node_name).await?;
        Ok(node.and_then(|node| node.metadata.uid).map(|uid| OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node_name.clone(),
            uid,
            ..OwnerReference::default()
        }))
    }
}

/// The Lease, the identity of the candidate, and the timing.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the Lease, upstream's `kube-system`.
    pub namespace: String,
    /// Name of the Lease, for example `kube-controller-manager`.
    pub name: String,
    /// Unique a candidate.
    pub identity: String,
    /// A Lease that did not change for this time may be taken.
    pub lease_duration: Duration,
    /// A leader that could not renew for this time gives up; shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// Pause between attempts.
    pub retry_period: Duration,
}

impl Election {
    /// Upstream's timing: 15 s, 10 s, 2 s, in `kube-system`.
    pub fn new(name: &str, identity: &str) -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Runs `work` whenever this candidate leads, with a token that is cancelled when it no longer leads; campaigns again after a
/// loss. Returns when `cancel` is cancelled, after it has released the Lease, or when `work` ends by itself, with its output.
pub async fn lead<W, F>(client: kube::Client, election: &Election, cancel: CancellationToken, mut work: W) -> Option<F::Output>
where
    W: FnMut(CancellationToken) -> F,
    F: Future,
{
    let mut candidate = Candidate { leases: Api::namespaced(client, &election.namespace), election: election.clone(), observed: None };
    loop {
        if !candidate.acquire(&cancel).await {
            return None;
        }
        tracing::info!(lease = election.name, identity = election.identity, "leading");
        let term = cancel.child_token();
        let lost = {
            let working = work(term.clone());
            tokio::pin!(working);
            tokio::select! {
                output = &mut working => {
                    candidate.release().await;
                    return Some(output);
                }
                () = candidate.hold(&cancel) => {
                    term.cancel();
                    working.await;
                    !cancel.is_cancelled()
                }
            }
        };
        if !lost {
            candidate.release().await;
            return None;
        }
        tracing::warn!(lease = election.name, identity = election.identity, "no longer leading");
    }
}

struct Candidate {
    leases: Api<Lease>,
    election: Election,
    /// The last observed spec, and when it was first observed.
    observed: Option<(LeaseSpec, Instant)>,
}

impl Candidate {
    /// Tries until the Lease is ours; `false` when cancelled first.
    async fn acquire(&mut self, cancel: &CancellationToken) -> bool {
        loop {
            // A server that does not answer must delay neither the next attempt nor the end.
            let attempt = tokio::time::timeout(self.election.renew_deadline, self.try_hold_logged());
            let is_leader = tokio::select! {
                () = cancel.cancelled() => return false,
                is_leader = attempt => matches!(is_leader, Ok(true)),
            };
            if is_leader {
                return true;
            }
            tokio::select! {
                () = cancel.cancelled() => return false,
                () = tokio::time::sleep(self.election.retry_period) => {}
            }
        }
    }

    /// Renews until that failed for longer than the deadline, or until cancelled.
    async fn hold(&mut self, cancel: &CancellationToken) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < self.election.renew_deadline {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(self.election.retry_period) => {}
            }
            let left = self.election.renew_deadline.saturating_sub(renewed.elapsed());
            if matches!(tokio::time::timeout(left, self.try_hold_logged()).await, Ok(true)) {
                renewed = Instant::now();
            }
        }
    }

    async fn try_hold_logged(&mut self) -> bool {
        self.try_hold().await.unwrap_or_else(|error| {
            tracing::debug!(lease = self.election.name, error = crate::error::chain(&error), "lease not held");
            false
        })
    }

    /// One attempt to take or renew the Lease.
    async fn try_hold(&mut self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.election.name).await? else {
            let mut lease = named(&self.election.name);
            lease.spec = Some(claim(None, &self.election, api_clock::now()));
            let made = self.leases.create(&PostParams::default(), &lease).await?;
            self.observe(made.spec.unwrap_or_default());
            return Ok(true);
        };
        let spec = lease.spec.take().unwrap_or_default();
        let since = self.observe(spec.clone());
        if !may_take(&spec, &self.election, since.elapsed()) {
            return Ok(false);
        }
        lease.spec = Some(claim(Some(&spec), &self.election, api_clock::now()));
        let written = self.leases.replace(&self.election.name, &PostParams::default(), &lease).await?;
        self.observe(written.spec.unwrap_or_default());
        Ok(true)
    }

    /// Stores a spec; returns the time since when it has not changed.
    fn observe(&mut self, spec: LeaseSpec) -> Instant {
        match &self.observed {
            Some((seen, since)) if *seen == spec => *since,
            _ => {
                let now = Instant::now();
                self.observed = Some((spec, now));
                now
            }
        }
    }

    /// Releases the Lease so that another candidate need not wait until it expires.
    async fn release(&mut self) {
        match tokio::time::timeout(self.election.renew_deadline, self.try_release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(lease = self.election.name, error = crate::error::chain(&error), "lease not released"),
            Err(_) => tracing::debug!(lease = self.election.name, "lease not released: no answer in time"),
        }
    }

    async fn try_release(&mut self) -> Result<(), kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.election.name).await? else {
            return Ok(());
        };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.election.identity) {
            return Ok(());
        }
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        self.leases.replace(&self.election.name, &PostParams::default(), &lease).await.map(drop)
    }
}

/// Whether the Lease is free, ours, or has been left unchanged for its whole duration.
fn may_take(spec: &LeaseSpec, election: &Election, unchanged_for: Duration) -> bool {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let duration = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).map_or(election.lease_duration, Duration::from_secs);
    holder.is_empty() || holder == election.identity || unchanged_for >= duration
}

/// The spec of a Lease that we hold from now; a change of holder is counted.
fn claim(old: Option<&LeaseSpec>, election: &Election, now: Timestamp) -> LeaseSpec {
    let ours = old.filter(|spec| spec.holder_identity.as_deref() == Some(&election.identity));
    let transitions = old.and_then(|spec| spec.lease_transitions).unwrap_or_default();
    LeaseSpec {
        holder_identity: Some(election.identity.clone()),
        lease_duration_seconds: Some(seconds(election.lease_duration)),
        acquire_time: ours.and_then(|spec| spec.acquire_time.clone()).or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if ours.is_some() || old.is_none() { transitions } else { transitions.saturating_add(1) }),
        ..old.cloned().unwrap_or_default()
    }
}

fn named(name: &str) -> Lease {
    Lease { metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }, ..Lease::default() }
}

/// At least one second: the server rejects zero.
fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A client whose server never answers, and the number of its requests.
    fn client_of_silence() -> (kube::Client, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            counter.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
        });
        (kube::Client::new(service, "default"), requests)
    }

    #[tokio::test(start_paused = true)]
    async fn requests_to_a_silent_server_are_repeated_and_delay_nobody() {
        let (client, requests) = client_of_silence();
        let cancel = CancellationToken::new();
        let beating = tokio::spawn(heartbeat(client.clone(), "n", Duration::from_secs(40), cancel.clone()));
        let leading = tokio::spawn({
            let cancel = cancel.clone();
            async move { lead(client, &Election::new("x", "me"), cancel, |_| std::future::ready(())).await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        // Six heartbeats of ten seconds, and five attempts to lead.
        let requests = requests.load(Ordering::Relaxed);
        assert!(requests >= 9, "only {requests}");
        cancel.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(1), async { (beating.await, leading.await) }).await;
        let (beating, leading) = ended.expect("both end at once");
        beating.expect("no panic");
        assert_eq!(leading.expect("no panic"), None);
    }

    fn spec(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_taken_only_when_free_ours_or_run_out() {
        let election = Election::new("x", "me");
        for (holder, unchanged, expected) in
            [("", 0, true), ("me", 0, true), ("other", 0, false), ("other", 14, false), ("other", 15, true)]
        {
            assert_eq!(may_take(&spec(holder), &election, Duration::from_secs(unchanged)), expected, "{holder} {unchanged}");
        }
    }

    #[test]
    fn a_change_of_holder_is_counted_and_renewing_is_not() {
        let election = Election::new("x", "me");
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(claim(None, &election, now).lease_transitions, Some(0));
        assert_eq!(claim(Some(&spec("me")), &election, now).lease_transitions, Some(3));
        assert_eq!(claim(Some(&spec("other")), &election, now).lease_transitions, Some(4));
    }

    #[test]
    fn renewing_keeps_the_time_of_taking() {
        let election = Election::new("x", "me");
        let taken = claim(None, &election, Timestamp::UNIX_EPOCH);
        let later = Timestamp::from_second(60).expect("in range");
        let renewed = claim(Some(&taken), &election, later);
        assert_eq!(renewed.acquire_time, taken.acquire_time);
        assert_eq!(renewed.renew_time, Some(MicroTime(later)));
    }
}
