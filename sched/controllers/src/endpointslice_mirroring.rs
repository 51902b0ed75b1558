//! EndpointSlice mirroring: Endpoints that users write for a Service without a selector become EndpointSlices, which proxy and DNS
//! read.
//!
//! The controller watches Endpoints, Services and EndpointSlices. It creates, changes and deletes the slices with its own
//! managed-by label. It deletes them when the Service has a selector or is gone, and when the Endpoints are gone or exclude
//! themselves. It never touches the slices of other controllers.

mod plan;

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::{BY_SERVICE, Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::slices::{self, Action};
use crate::work::{Controller, Next, WorkQueue};
use plan::Mirror;

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
    let queue = Arc::new(WorkQueue::default());
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
        slices::apply(&self.client, &self.slices, actions).await?;
        Ok(Next::OnChange)
    }
}
