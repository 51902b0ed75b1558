//! Priority and fairness: requests wait here for their turn, after authentication and before authorization. `api_fairness` decides;
//! this module gives it its configuration, and the answers their headers.

pub(crate) mod keeper;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api_fairness::{Fairness, FlowSchema, Limits, Report, Seat};
use api_model::kind::GroupResource;
use api_model::request::{Attributes, UserInfo};
use http::{HeaderMap, HeaderName};
use parking_lot::Mutex;

use crate::core::Core;
use api_cache::{Filter, Resource};
use api_wire::path::is_connection;
use api_wire::status::{ApiError, ApiResult};

const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// A request waits for its turn for at most this part of its longest time, as upstream.
const WAIT_PART: u32 = 4;
/// When a rejected client should try again.
const RETRY_AFTER_SECONDS: u32 = 1;
/// Objects of a list for one seat, and the most seats of a list: upstream's.
const OBJECTS_PER_SEAT: usize = 100;
const WIDTH_MAX: u32 = 10;

/// The gate that requests go through.
pub(crate) struct Gate {
    core: Arc<Core>,
    fairness: Fairness,
    wait_max: Duration,
    schemas: Arc<Resource>,
    levels: Arc<Resource>,
    /// The revisions of schemas and levels that the configuration was made of.
    seen: [AtomicU64; 2],
    configuring: Mutex<()>,
}

/// The schema that a request matched, for the headers of its answer.
#[derive(Debug, Default)]
pub(crate) struct Passed(Option<Arc<FlowSchema>>);

impl Passed {
    /// Adds the headers.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        if let Some(schema) = &self.0 {
            headers.insert(SCHEMA_UID, schema.uid.clone());
            headers.insert(LEVEL_UID, schema.level_uid.clone());
        }
    }
}

impl Gate {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let config = &core.config;
        let resource = |plural: &str| core.cache.resource(&GroupResource::new("flowcontrol.apiserver.k8s.io", plural));
        let limits = Limits { seats: config.max_requests_inflight.saturating_add(config.max_mutating_requests_inflight) };
        Self {
            core: Arc::clone(core),
            fairness: Fairness::new(limits, api_rules::mandatory_flow_control()),
            wait_max: config.request_timeout / WAIT_PART,
            schemas: resource("flowschemas"),
            levels: resource("prioritylevelconfigurations"),
            seen: Default::default(),
            configuring: Mutex::default(),
        }
    }

    /// Configures anew when stored objects changed. Costs two comparisons when nothing changed.
    fn refresh(&self) {
        let revisions = || [self.schemas.revision(), self.levels.revision()];
        let is_seen = |revisions: [u64; 2]| revisions.iter().zip(&self.seen).all(|(now, seen)| *now == seen.load(Ordering::Acquire));
        if is_seen(revisions()) {
            return;
        }
        let _one_at_a_time = self.configuring.lock();
        let revisions = revisions();
        if is_seen(revisions) {
            return;
        }
        let all = [&self.levels, &self.schemas].map(|resource| resource.list(&Filter::default(), 0).items);
        let objects: Vec<_> = all.iter().flatten().map(|object| object.value()).collect();
        self.fairness.configure(&objects);
        for (seen, revision) in self.seen.iter().zip(revisions) {
            seen.store(revision, Ordering::Release);
        }
    }

    /// Waits for a request's turn. The seat is to be kept until the request is answered, or a stream has begun.
    pub(crate) async fn enter(&self, user: &UserInfo, attributes: &Attributes, passed: &mut Passed) -> ApiResult<Option<Seat>> {
        // A connection may last for days, and costs too little to take a seat.
        if is_connection(&attributes.subresource) {
            return Ok(None);
        }
        self.refresh();
        let Some(schema) = self.fairness.classify(user, attributes) else { return Ok(None) };
        passed.0 = Some(Arc::clone(&schema));
        let seat = self.fairness.admit(&schema, user, attributes, self.width(attributes), self.wait_max).await;
        seat.map(Some).map_err(|why| {
            tracing::debug!(user = user.username, schema = schema.name, %why, "refused a request");
            ApiError::too_many_requests("Too many requests, please try again later.", RETRY_AFTER_SECONDS)
        })
    }

    /// How many seats a request needs: a list needs more the more objects there are.
    fn width(&self, attributes: &Attributes) -> u32 {
        if attributes.verb != "list" {
            return 1;
        }
        let served = self.core.registry.find(&attributes.group, &attributes.version, &attributes.resource);
        let wanted = served.map_or(1, |served| served.resource.objects_len().div_ceil(OBJECTS_PER_SEAT));
        u32::try_from(wanted).unwrap_or(WIDTH_MAX).clamp(1, WIDTH_MAX)
    }

    /// Counts for metrics.
    pub(crate) fn report(&self) -> Report {
        self.fairness.report()
    }
}
