//! Who goes first when more is asked of the API server than it can answer at once (KEP-1040).
//!
//! Each request falls under the FlowSchema of lowest precedence number that matches it, and so under a
//! priority level, which has a number of seats. A request takes a seat (a large list takes several)
//! while it is answered. When a level's seats are taken and no other level lends one, the request
//! waits in a queue of its level, or is refused. A level has many queues; what belongs to one flow (one
//! user, or one namespace) goes to a few of them, drawn by the flow's hash, so that a flood fills its
//! own queues and leaves others empty; and the queues are served fairly by what they have used.
//!
//! Comes in: stored objects of the two kinds ([`Fairness::configure`]) and requests
//! ([`Fairness::classify`], [`Fairness::admit`]). Goes out: a [`Seat`], given back by dropping it, or a
//! [`Rejected`]. HTTP is the server's business.

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

/// The whole: configuration, levels and their queues.
pub struct Fairness {
    limits: Limits,
    mandatory: Vec<Value>,
    table: RwLock<Arc<Table>>,
    configuring: Mutex<()>,
    core: Arc<Core>,
}

impl Fairness {
    /// Knows the mandatory objects alone: they hold even when they are not stored.
    pub fn new(limits: Limits, mandatory: Vec<Value>) -> Self {
        let core = Arc::new(Core::default());
        let table = Table::new(&limits, &mandatory, &[], None);
        core.set_levels(table.limited());
        Self { limits, mandatory, table: RwLock::new(Arc::new(table)), configuring: Mutex::default(), core }
    }

    /// Goes by these FlowSchemas and PriorityLevelConfigurations from now on. Requests that wait or
    /// run are carried over to the level of the same name.
    pub fn configure(&self, stored: &[Arc<Value>]) {
        let _one_at_a_time = self.configuring.lock();
        let before = Arc::clone(&self.table.read());
        let table = Table::new(&self.limits, &self.mandatory, stored, Some(&before));
        self.core.set_levels(table.limited());
        *self.table.write() = Arc::new(table);
        // A level may have grown.
        self.core.dispatch_all();
    }

    /// The schema that a request falls under; there is always one where the mandatory objects are known.
    pub fn classify(&self, user: &UserInfo, attributes: &Attributes) -> Option<Arc<FlowSchema>> {
        self.table.read().classify(user, attributes).cloned()
    }

    /// Waits for a seat, or for `width` of them.
    ///
    /// # Errors
    /// When the level is full and the request may not, or no longer, wait.
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

    /// What has happened, for metrics.
    pub fn report(&self) -> Report {
        self.table.read().report()
    }
}

#[cfg(test)]
mod tests;
