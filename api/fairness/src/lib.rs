//! API Priority and Fairness (KEP-1040): the order in which an overloaded API server serves requests.
//!
//! Each request belongs to the matching FlowSchema with the lowest precedence number, and so to a priority level. A
//! level has a number of seats. A request occupies a seat while it is served; a large list occupies several. If all
//! seats of a level are taken and no other level lends one, the request waits in a queue of its level or is rejected. A
//! level has many queues. The requests of one flow (one user, or one namespace) use only a few of them, which the
//! flow's hash selects. So a flood of requests fills only its own queues. The queues are served fairly, by the
//! seat-time that each has used.
//!
//! Input: stored objects of the two kinds ([`Fairness::configure`]) and requests ([`Fairness::classify`],
//! [`Fairness::admit`]). Output: a [`Seat`] or a [`Rejected`]. A dropped seat is free again. The server adds HTTP.

mod config;
mod error;
mod flow_schema;
mod json;
mod level;
mod queues;
mod rule;
mod seat;
mod shuffle_sharding;
mod stats;

use std::sync::Arc;
use std::time::Duration;

use api_model::request::{Attributes, UserInfo};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

pub use config::Limits;
pub use error::Rejected;
pub use flow_schema::FlowSchema;
pub use seat::Seat;
pub use stats::{Flow, LevelReport, Report, WAIT_BUCKETS};

use config::Table;
use seat::Core;

/// The configuration, the levels and their queues.
pub struct Fairness {
    limits: Limits,
    mandatory: Vec<Value>,
    table: RwLock<Arc<Table>>,
    configuring: Mutex<()>,
    core: Arc<Core>,
}

impl Fairness {
    /// Starts with the mandatory objects only, which apply even if they are not stored.
    pub fn new(limits: Limits, mandatory: Vec<Value>) -> Self {
        let core = Arc::new(Core::default());
        let table = Table::new(&limits, &mandatory, &[], None);
        core.set_levels(table.limited());
        Self { limits, mandatory, table: RwLock::new(Arc::new(table)), configuring: Mutex::default(), core }
    }

    /// Replaces the FlowSchemas and PriorityLevelConfigurations. Waiting and running requests move to the level of the
    /// same name.
    pub fn configure(&self, stored: &[Arc<Value>]) {
        let _one_at_a_time = self.configuring.lock();
        let before = Arc::clone(&self.table.read());
        let table = Table::new(&self.limits, &self.mandatory, stored, Some(&before));
        self.core.set_levels(table.limited());
        *self.table.write() = Arc::new(table);
        // A level may have more seats now.
        self.core.dispatch_all();
    }

    /// The schema of a request. The mandatory objects match every request.
    pub fn classify(&self, user: &UserInfo, attributes: &Attributes) -> Option<Arc<FlowSchema>> {
        self.table.read().classify(user, attributes).cloned()
    }

    /// Waits for `width` seats.
    ///
    /// # Errors
    /// No seat is free, and the request cannot wait or has waited too long.
    pub async fn admit(
        &self,
        schema: &Arc<FlowSchema>,
        user: &UserInfo,
        attributes: &Attributes,
        width: u32,
        wait_max: Duration,
    ) -> Result<Seat, Rejected> {
        if let Some(seat) = self.core.enter(schema, width) {
            return Ok(seat);
        }
        let waiting =
            Core::queue(&self.core, schema, schema.flow(user, attributes), width).inspect_err(|why| schema.stats.rejected(*why))?;
        waiting.seat(wait_max).await.inspect_err(|why| schema.stats.rejected(*why))
    }

    /// The counters, for metrics.
    pub fn report(&self) -> Report {
        self.table.read().report()
    }
}

#[cfg(test)]
mod tests;
