//! Services on a node: packets to a Service's address reach one of its endpoints.
//!
//! The input is Services and EndpointSlices, watched. The output is one nftables table, `<prefix>-proxy`, changed in
//! transactions that contain only what changed. The decision is a pure function from a Service and its slices to rules
//! ([`rules`]); writing them is thin. Left to others: addresses and routes (node-network), names (dns), which endpoints exist
//! (the EndpointSlice controller). Connections to a Service that scales with them are counted, and wait in this process while it
//! has no endpoint ([`activator`]). The proxy stops without undoing anything: other connections and rules outlive it, and the next
//! start replaces the table in one transaction ([`remove`] removes it). Clients of a Service with session affinity are then
//! distributed anew.

mod activator;
mod config;
mod error;
mod external;
#[cfg(test)]
mod fixtures;
mod flows;
mod machine;
mod rules;
mod script;
mod service;
mod state;
mod tool;

use std::sync::Arc;
use std::time::Duration;

use api_client::events::Recorder;
use api_client::informer::{Batch, Informers, ObjectKey};
use api_tasks::Tasks;
use k8s_openapi::api::core::v1::{ObjectReference, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

pub use config::Config;
pub use error::ProxyError;
pub use machine::MachineReader;
pub use node_netfilter::Protocol;

use activator::report::Reporter;
use activator::{Activations, Activator, Limits, Shared, Slots};
use external::Refusal;
use machine::Machine;
use rules::RuleSet;
use service::Key;
use state::State;

/// How long after a first change its companions are waited for.
const QUIET: Duration = Duration::from_millis(4);
/// The period in which the proxy checks whether the table was removed, and on which ports the node's programs listen.
const VERIFY_PERIOD: Duration = Duration::from_secs(30);
/// Waits after failed writes: the first, and the longest.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The source of this crate's Events, and the reason for an address that is not served.
const COMPONENT: &str = "kube-proxy";
const UNSAFE_ADDRESS: &str = "UnsafeAddress";

/// Programs Services until cancelled; `client` writes the node's Events. The error is a missing tool at the start; later
/// failures are logged and tried again. A Service gets no port on which, according to `machine`, a program of the node
/// listens.
pub async fn run(
    client: kube::Client,
    informers: &Informers,
    config: Config,
    machine: MachineReader,
    cancel: CancellationToken,
) -> Result<(), ProxyError> {
    tool::has_table(&config.table()).await?;
    let tasks = Tasks::new(cancel.clone());
    let recorder = Recorder::new(client.clone(), COMPONENT, Some(&config.node_name), &tasks);
    let activator = Activator::listen(&config).await;
    let config = Config { activator: activator.as_ref().map(Activator::address), ..config };
    let (activations, present) = watch::channel(Arc::default());
    if let Some(activator) = activator {
        let slots = Arc::new(Slots::new(Limits::default()));
        let reporter = Reporter::new(client, &config, present.clone(), Arc::clone(&slots));
        tasks.own("service-proxy/demand", reporter.run(cancel.clone()));
        tasks.own("service-proxy/activator", activator.run(Shared { present, slots }, cancel.clone()));
    }
    let (mut services, mut slices) = (informers.informer::<Service>().changes(), informers.informer::<EndpointSlice>().changes());
    let (mut has_services, mut has_slices) = (false, false);
    let mut state = State::new(config.clone());
    let mut writer = Writer::new(config, recorder, machine, activations);
    let mut verify = tokio::time::interval(VERIFY_PERIOD);
    verify.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if has_services && has_slices {
            state.set_complete();
        }
        writer.schedule(&state);
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            failure = tasks.failed() => return Err(failure.into()),
            Batch { keys, synced } = services.next() => {
                has_services = synced;
                keys.into_iter().for_each(|key| state.set_service(name(&key), services.informer().get(&key).as_deref()));
            }
            Batch { keys, synced } = slices.next() => {
                has_slices = synced;
                keys.into_iter().for_each(|key| state.set_slice(name(&key), slices.informer().get(&key).as_deref()));
            }
            () = until(writer.due) => writer.write(&mut state).await,
            _ = verify.tick() => {
                writer.verify().await;
                writer.read_machine(&mut state).await;
            }
        }
    }
}

/// Removes the table of the cluster with this prefix, if it exists.
pub async fn remove(prefix: &str) -> Result<(), ProxyError> {
    match tool::nft(&script::removal(&config::table(prefix))).await {
        // Without nft there was never a table.
        Err(ProxyError::Missing(_)) => Ok(()),
        other => other,
    }
}

fn name(key: &ObjectKey) -> Key {
    (key.namespace.clone(), key.name.clone())
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Brings the kernel's table in line, not more often than configured, and tries again after failures.
struct Writer {
    config: Config,
    recorder: Recorder,
    machine: MachineReader,
    /// What the activator must have of the rules.
    activations: watch::Sender<Arc<Activations>>,
    /// The rules in the table; `None` when they are unknown, and the whole table is written next.
    installed: Option<RuleSet>,
    due: Option<Instant>,
    written: Option<Instant>,
    retry: Duration,
    /// Whether the missing `conntrack` was reported.
    warned: bool,
}

impl Writer {
    fn new(config: Config, recorder: Recorder, machine: MachineReader, activations: watch::Sender<Arc<Activations>>) -> Self {
        Self { config, recorder, machine, activations, installed: None, due: None, written: None, retry: RETRY_MIN, warned: false }
    }

    /// Sets the time of the next write, if there is anything to write.
    fn schedule(&mut self, state: &State) {
        if self.due.is_some() || !state.is_complete() || !(state.is_dirty() || self.installed.is_none()) {
            return;
        }
        let soon = Instant::now() + QUIET;
        self.due = Some(self.written.map_or(soon, |written| soon.max(written + self.config.min_sync_period)));
    }

    async fn write(&mut self, state: &mut State) {
        if state.asks_machine() {
            self.read_machine(state).await;
        }
        let wanted = state.rules();
        state.take_refused().into_iter().for_each(|(key, uid, refusal)| self.tell(key, uid, &refusal));
        // Before the rules send connections to the activator.
        let present = Activations::of(&wanted);
        self.activations.send_if_modified(|activations| {
            let differs = **activations != present;
            if differs {
                *activations = Arc::new(present);
            }
            differs
        });
        let script = match &self.installed {
            Some(installed) => script::change(&self.config, installed, &wanted),
            None => script::whole(&self.config, &wanted),
        };
        let outcome = if script.is_empty() { Ok(()) } else { tool::nft(&script).await };
        let now = Instant::now();
        (self.due, self.written) = (None, Some(now));
        match outcome {
            Ok(()) => {
                self.retry = RETRY_MIN;
                // After a write of the whole table the earlier rules are unknown: every flow that has an endpoint now may be
                // stale.
                let before = self.installed.take().unwrap_or_default();
                self.forget(&before, &wanted).await;
                self.installed = Some(wanted);
            }
            Err(error) => {
                tracing::warn!(%error, retry_ms = self.retry.as_millis(), "service rules not written");
                self.installed = None;
                self.due = Some(now + self.retry);
                self.retry = (self.retry * 2).min(RETRY_MAX);
            }
        }
    }

    async fn forget(&mut self, before: &RuleSet, after: &RuleSet) {
        for stale in flows::stale(before, after) {
            match tool::forget(&stale).await {
                Err(error @ ProxyError::Missing(_)) => {
                    if !std::mem::replace(&mut self.warned, true) {
                        tracing::warn!(%error, "stale udp flows not forgotten");
                    }
                    return;
                }
                Err(error) => tracing::warn!(%error, "stale udp flow not forgotten"),
                Ok(()) => {}
            }
        }
    }

    /// Reads on which ports the node's own programs listen. After a failure the last result stays.
    async fn read_machine(&self, state: &mut State) {
        let (config, reader) = (self.config.clone(), self.machine);
        let read = api_tasks::blocking("service-proxy/read-machine", move || Machine::read(&config, reader)).await;
        match read {
            Ok(Ok(machine)) => state.set_machine(machine),
            Ok(Err(error)) => tracing::warn!(%error, source = ?std::error::Error::source(&error), "machine not read"),
            Err(error) => tracing::warn!(%error, "machine not read"),
        }
    }

    /// Reports on the Service what this node does not serve of it.
    fn tell(&self, (namespace, name): Key, uid: String, refusal: &Refusal) {
        let service = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace),
            name: Some(name),
            uid: Some(uid),
            ..ObjectReference::default()
        };
        self.recorder.warning(&service, UNSAFE_ADDRESS, refusal.to_string());
    }

    /// Finds out whether the table was removed.
    async fn verify(&mut self) {
        if self.installed.is_none() {
            return;
        }
        match tool::has_table(&self.config.table()).await {
            Ok(false) => {
                tracing::warn!(table = self.config.table(), "somebody removed the service rules");
                self.installed = None;
            }
            Ok(true) => {}
            Err(error) => tracing::warn!(%error, "service rules not verified"),
        }
    }
}

#[cfg(test)]
mod tests;
