//! Reports the demand for Services in the Lease of the node: at once when a connection begins to wait for a Service, and
//! periodically while rates change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api_client::demand::rates::Rates;
use api_client::demand::writer::{PERIOD, ReportWriter};
use api_client::demand::{Demand, Measurement as _, Report};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{Present, Slots, object_key};
use crate::service::Key;
use crate::{COMPONENT, Config, tool};

/// Reports the demand on one node.
pub(crate) struct Reporter {
    writer: ReportWriter<Demand>,
    /// The name of the table with the counters.
    table: String,
    present: Present,
    slots: Arc<Slots>,
    rates: Rates,
}

impl Reporter {
    pub(crate) fn new(client: kube::Client, config: &Config, present: Present, slots: Arc<Slots>) -> Self {
        let writer = ReportWriter::new(client, &config.node_name, COMPONENT);
        Self { writer, table: config.table(), present, slots, rates: Rates::default() }
    }

    /// Reports until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        cancel.run_until_cancelled(self.report()).await;
    }

    async fn report(&mut self) {
        let mut period = tokio::time::interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let slots = Arc::clone(&self.slots);
        loop {
            tokio::select! {
                () = slots.wanted.notified() => {}
                _ = period.tick() => self.count().await,
            }
            self.writer.ready().await;
            let report = self.demand();
            if !self.writer.write(report).await {
                // Again after the pause, not only in the next period.
                slots.wanted.notify_one();
            }
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
    fn demand(&self) -> Report<Demand> {
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
}
