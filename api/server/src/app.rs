//! The parts of the server, put together once. Only the request handler and the server itself see all of them; every other
//! module gets the parts that it needs.

use std::sync::Arc;

use crate::aggregation::Aggregation;
use crate::audit::Audit;
use crate::connect::Connector;
use crate::core::Core;
use crate::documents::Documents;
use crate::fairness::Gate;
use crate::verbs::WritePath;

/// The parts of the server, shared by all requests.
pub(crate) struct App {
    pub(crate) core: Arc<Core>,
    /// How objects are written.
    pub(crate) writes: Arc<WritePath>,
    /// Connections to Pods, Services and nodes.
    pub(crate) connector: Arc<Connector>,
    pub(crate) aggregation: Arc<Aggregation>,
    /// Priority and fairness.
    pub(crate) gate: Gate,
    /// None: nothing is recorded.
    pub(crate) audit: Option<Arc<Audit>>,
    pub(crate) documents: Documents,
    /// Held while a scrape of the objects' states renders.
    pub(crate) state_metrics_lock: Arc<tokio::sync::Mutex<()>>,
}
