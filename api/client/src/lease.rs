//! Leases: a node's heartbeat and leader election, both on `coordination.k8s.io/v1 Lease`.
//!
//! [`heartbeat`] renews a node's Lease in `kube-node-lease` as the kubelet does; node lifecycle takes a node whose Lease is not
//! renewed for lost. [`lead`] runs a future while this process holds a Lease and ends it when the Lease is lost. As in
//! client-go, times in the Lease are never compared with this machine's clock, only whether they changed within the duration.
//! The future gets a [`Fence`] for its clients: unlike client-go's, a leader that was stopped writes nothing after its loss.

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

use crate::fence::Fence;

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
        let renewal = tokio::time::timeout(duration / 4, beat.renew_from(last.take()));
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
    /// One renewal. As the kubelet does, it begins anew at once if the Lease changed since `last`: the node's proxy writes its
    /// annotations.
    async fn renew_from(&self, last: Option<Lease>) -> Result<Lease, kube::Error> {
        let is_old = last.is_some();
        match self.renew(last).await {
            Err(kube::Error::Api(status)) if is_old && status.code == 409 => self.renew(None).await,
            renewed => renewed,
        }
    }

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

/// The time from when a candidate takes its Lease until the Lease is lost or released.
pub struct Term {
    /// Goes around the clients of the leader's work.
    pub fence: Fence,
    /// Cancelled when the candidate no longer leads.
    pub cancel: CancellationToken,
}

/// Runs `work` for each term of this candidate; campaigns again after a loss. `client` has no fence. Returns when `cancel` is
/// cancelled, after it has released the Lease, or when `work` ends by itself, with its output.
pub async fn lead<W, F>(client: kube::Client, election: &Election, cancel: CancellationToken, mut work: W) -> Option<F::Output>
where
    W: FnMut(Term) -> F,
    F: Future,
{
    let leases = Api::namespaced(client, &election.namespace);
    let mut candidate = Candidate { leases, election: election.clone(), observed: None, renewed: Instant::now() };
    loop {
        let fence = candidate.acquire(&cancel).await?;
        tracing::info!(lease = election.name, identity = election.identity, "leading");
        let term = cancel.child_token();
        let lost = {
            let working = work(Term { fence: fence.clone(), cancel: term.clone() });
            tokio::pin!(working);
            tokio::select! {
                // At a stop, the work may end in the same moment.
                biased;
                () = candidate.hold(&fence, &cancel) => {
                    // Without a loss, the work may write what it has begun.
                    if !cancel.is_cancelled() {
                        fence.end();
                    }
                    term.cancel();
                    working.await;
                    fence.end();
                    !cancel.is_cancelled()
                }
                output = &mut working => {
                    fence.end();
                    candidate.release().await;
                    return Some(output);
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
    /// When the last successful attempt to take or renew the Lease began.
    renewed: Instant,
}

impl Candidate {
    /// Tries until the Lease is ours; `None` when cancelled first.
    async fn acquire(&mut self, cancel: &CancellationToken) -> Option<Fence> {
        loop {
            let (began, boottime) = (Instant::now(), api_clock::boottime());
            // A server that does not answer must delay neither the next attempt nor the end.
            let attempt = tokio::time::timeout(self.election.renew_deadline, self.try_acquire());
            let taken = tokio::select! {
                () = cancel.cancelled() => return None,
                taken = attempt => taken.ok().and_then(|taken| self.logged(taken)).flatten(),
            };
            if let Some(spec) = taken {
                self.renewed = began;
                let Election { namespace, name, identity, renew_deadline, .. } = &self.election;
                return Some(Fence::new((namespace, name), identity, transitions(&spec), *renew_deadline, boottime));
            }
            tokio::select! {
                () = cancel.cancelled() => return None,
                () = tokio::time::sleep(self.election.retry_period) => {}
            }
        }
    }

    /// Renews until that failed for longer than the deadline, until the Lease is another's, or until cancelled.
    async fn hold(&mut self, fence: &Fence, cancel: &CancellationToken) {
        while self.renewed.elapsed() < self.election.renew_deadline {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(self.election.retry_period) => {}
            }
            let (began, boottime) = (Instant::now(), api_clock::boottime());
            let left = self.election.renew_deadline.saturating_sub(self.renewed.elapsed());
            let attempt = tokio::time::timeout(left, self.try_renew(fence.transitions())).await;
            match attempt.ok().and_then(|renewed| self.logged(renewed)) {
                Some(true) => {
                    self.renewed = began;
                    fence.renewed(boottime);
                }
                Some(false) => return,
                None => {}
            }
        }
    }

    fn logged<T>(&self, attempt: Result<T, kube::Error>) -> Option<T> {
        let log = |error: &kube::Error| tracing::debug!(lease = self.election.name, error = crate::error::chain(error), "lease not held");
        attempt.inspect_err(log).ok()
    }

    /// One attempt to take the Lease; returns its spec if it is ours then.
    async fn try_acquire(&mut self) -> Result<Option<LeaseSpec>, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.election.name).await? else {
            let mut lease = named(&self.election.name);
            lease.spec = Some(claim(None, &self.election, api_clock::now()));
            let made = self.leases.create(&PostParams::default(), &lease).await?.spec.unwrap_or_default();
            self.observe(made.clone());
            return Ok(Some(made));
        };
        let spec = lease.spec.take().unwrap_or_default();
        let since = self.observe(spec.clone());
        if !may_take(&spec, &self.election, since.elapsed()) {
            return Ok(None);
        }
        self.write(lease, &spec).await.map(Some)
    }

    /// One attempt to renew the Lease; false if it is lost. A Lease that somebody else had in the meantime, or that was deleted, is lost
    /// even if it is free: the work began before.
    async fn try_renew(&mut self, term: i32) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(&self.election.name).await? else { return Ok(false) };
        let spec = lease.spec.take().unwrap_or_default();
        self.observe(spec.clone());
        if !is_of_term(&spec, &self.election.identity, term) {
            return Ok(false);
        }
        self.write(lease, &spec).await.map(|_| true)
    }

    /// Writes the Lease as ours; `spec` is its present spec.
    async fn write(&mut self, mut lease: Lease, spec: &LeaseSpec) -> Result<LeaseSpec, kube::Error> {
        lease.spec = Some(claim(Some(spec), &self.election, api_clock::now()));
        let written = self.leases.replace(&self.election.name, &PostParams::default(), &lease).await?.spec.unwrap_or_default();
        self.observe(written.clone());
        Ok(written)
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

/// Whether the Lease is still of the term of this holder that has this number of transitions.
fn is_of_term(spec: &LeaseSpec, identity: &str, term: i32) -> bool {
    spec.holder_identity.as_deref() == Some(identity) && transitions(spec) == term
}

fn transitions(spec: &LeaseSpec) -> i32 {
    spec.lease_transitions.unwrap_or_default()
}

/// The spec of a Lease that we hold from now; a change of holder is counted.
fn claim(old: Option<&LeaseSpec>, election: &Election, now: Timestamp) -> LeaseSpec {
    let ours = old.filter(|spec| spec.holder_identity.as_deref() == Some(&election.identity));
    let transitions = old.map(transitions).unwrap_or_default();
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
mod tests;
