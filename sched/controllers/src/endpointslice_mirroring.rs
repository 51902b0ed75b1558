//! EndpointSlice mirroring: Endpoints that users write for a Service without a selector become EndpointSlices, which proxy and DNS
//! read.
//!
//! The controller watches Endpoints, Services and EndpointSlices. It creates, changes and deletes the slices with its own
//! managed-by label. It deletes them when the Service has a selector or is gone, and when the Endpoints are gone or exclude
//! themselves. It never touches the slices of other controllers.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use api_client::events::{Recorder, reference};
use api_client::informer::{BY_SERVICE, Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::time::Instant;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::metrics;
use crate::slices::{self, Action};
use crate::work::{Controller, Next, WorkQueue};
use plan::Mirror;

/// First and longest wait of Endpoints that could not be mirrored, upstream's.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(100);

/// The controller.
pub struct Mirroring {
    client: kube::Client,
    recorder: Recorder,
    endpoints: Informer<Endpoints>,
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::with_backoff("endpoint_slice_mirroring", BACKOFF_MIN, BACKOFF_MAX));
    let mirrored = |change: &Change<Endpoints>| change.both().any(|endpoints| plan::is_mirrored(endpoints));
    let endpoints = context.feed(&queue, move |change: &Change<Endpoints>| {
        change.latest().filter(|_| mirrored(change)).map(|endpoints| ObjectKey::from(&endpoints.metadata)).into_iter().collect()
    });
    let services = context.feed(&queue, |change: &Change<Service>| {
        let without = change.both().any(|service| !plan::has_selector(service));
        change.latest().filter(|_| without).map(|service| ObjectKey::from(&service.metadata)).into_iter().collect()
    });
    let slices = context.feed(&queue, |change: &Change<EndpointSlice>| {
        change.both().filter_map(|slice| slices::service_of(slice, plan::MANAGER)).collect()
    });
    let recorder = context.recorder("endpoint-slice-mirroring-controller");
    context.run(Arc::new(Mirroring { client: context.client(), recorder, endpoints, services, slices }), queue);
}

impl Controller for Mirroring {
    const NAME: &'static str = "endpointslice-mirroring-controller";
    const WORKERS: usize = 5;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let began = Instant::now();
        let result = self.pass(key).await;
        metrics::MIRROR_DURATION.observe([], began.elapsed().as_secs_f64());
        result
    }
}

impl Mirroring {
    async fn pass(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let own = |slice: &Arc<EndpointSlice>| slices::service_of(slice, plan::MANAGER).as_ref() == Some(key);
        let current: Vec<_> = self.slices.indexed(BY_SERVICE, &key.name).into_iter().filter(own).collect();
        let is_served = self.services.get(key).is_some_and(|service| !plan::has_selector(&service));
        let actions = match self.endpoints.get(key).filter(|endpoints| is_served && plan::is_mirrored(endpoints)) {
            None => current.into_iter().map(Action::Delete).collect(),
            Some(endpoints) => {
                let Mirror { actions, warnings } = plan::plan(&endpoints, current);
                for (reason, message) in warnings {
                    self.recorder.warning(&reference(endpoints.as_ref()), reason, message);
                }
                actions
            }
        };
        for action in &actions {
            metrics::MIRROR_CHANGES.count([match action {
                Action::Create(_) => "create",
                Action::Change { .. } => "update",
                Action::Delete(_) => "delete",
            }]);
        }
        slices::apply(&self.client, &self.slices, actions).await?;
        Ok(Next::OnChange)
    }
}
