//! Reports the demand for Services in the Lease of the node: at once when a connection begins to wait for a Service, and
//! periodically while rates change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api_client::demand::{CONNECTIONS, Demand, Report};
use api_client::lease::NODE_LEASE_NAMESPACE;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use thiserror::Error;
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::rates::Rates;
use super::{Present, Slots, object_key};
use crate::service::Key;
use crate::{COMPONENT, Config, tool};

/// The period in which new connections are counted.
const PERIOD: Duration = Duration::from_secs(5);
/// The least time between two writes. It doubles after a failure, up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long a write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a report was not written.
#[derive(Debug, Error)]
enum WriteError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("no answer in time")]
    Timeout,
}

/// Reports the demand on one node.
pub(crate) struct Reporter {
    leases: Api<Lease>,
    node_name: String,
    /// The name of the table with the counters.
    table: String,
    present: Present,
    slots: Arc<Slots>,
    rates: Rates,
    /// The report in the Lease; none if it is unknown.
    written: Option<Report>,
}

impl Reporter {
    pub(crate) fn new(client: kube::Client, config: &Config, present: Present, slots: Arc<Slots>) -> Self {
        let leases = Api::namespaced(client, NODE_LEASE_NAMESPACE);
        let (node_name, table) = (config.node_name.clone(), config.table());
        Self { leases, node_name, table, present, slots, rates: Rates::default(), written: None }
    }

    /// Reports until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        cancel.run_until_cancelled(self.report()).await;
    }

    async fn report(&mut self) {
        let mut period = tokio::time::interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (slots, mut next, mut pause) = (Arc::clone(&self.slots), Instant::now(), PAUSE);
        loop {
            tokio::select! {
                () = slots.wanted.notified() => {}
                _ = period.tick() => self.count().await,
            }
            sleep_until(next).await;
            let report = self.demand();
            if self.written.as_ref() == Some(&report) {
                continue;
            }
            let outcome = timeout(WRITE_TIMEOUT, self.write(&report)).await.unwrap_or(Err(WriteError::Timeout));
            match outcome {
                Ok(()) => {
                    self.written = Some(report);
                    pause = PAUSE;
                }
                Err(error) => {
                    tracing::warn!(node = self.node_name, %error, "demand for services not reported");
                    self.written = None;
                    pause = (pause * 2).min(PAUSE_MAX);
                    // Again after the pause, not only in the next period.
                    slots.wanted.notify_one();
                }
            }
            next = Instant::now() + pause;
        }
    }

    /// Reads the counters. Without a Service whose connections count, there is nothing to read.
    async fn count(&mut self) {
        if self.present.borrow().counters.is_empty() {
            self.rates.observe(Instant::now(), &BTreeMap::new());
            return;
        }
        match tool::counters(&self.table).await {
            Ok(totals) => self.rates.observe(Instant::now(), &totals),
            Err(error) => tracing::warn!(%error, "connections to services not counted"),
        }
    }

    /// The present demand.
    fn demand(&self) -> Report {
        let mut services: HashMap<Key, Demand> = HashMap::new();
        let mut add = |key: &Key, demand: Demand| {
            let sum = services.entry(key.clone()).or_default();
            *sum = sum.plus(demand);
        };
        for (key, waiting) in self.slots.waiting() {
            add(&key, Demand { waiting, ..Demand::default() });
        }
        for (name, key) in &self.present.borrow().counters {
            add(key, Demand { milli_per_second: self.rates.milli_per_second(name), ..Demand::default() });
        }
        Report::new(services.iter().map(|(key, demand)| (object_key(key), *demand)))
    }

    async fn write(&self, report: &Report) -> Result<(), WriteError> {
        let patch = json!({"metadata": {"annotations": {CONNECTIONS: report.annotation()}}});
        let params = PatchParams { field_manager: Some(COMPONENT.to_owned()), ..PatchParams::default() };
        match self.leases.patch(&self.node_name, &params, &Patch::Merge(&patch)).await {
            // The agent creates the Lease. Until then there is no report to take back.
            Err(kube::Error::Api(status)) if status.code == 404 && report.is_empty() => Ok(()),
            written => Ok(written.map(drop)?),
        }
    }
}
