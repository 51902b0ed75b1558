//! Endpoints: the older form of EndpointSlices, one object a Service, for clients that still read it.
//!
//! The controller watches Services, Pods and Endpoints. It creates and changes the Endpoints of Services with a selector, and
//! deletes the Endpoints that it made when their Service is gone. It never touches the Endpoints of a Service without a
//! selector, nor Endpoints that a client made without a Service.

mod plan;

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::{Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use kube::api::DeleteParams;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, service, writes};
use plan::Action;

/// The controller.
pub struct EndpointsOfServices {
    client: kube::Client,
    recorder: Recorder,
    services: Informer<Service>,
    pods: Informer<Pod>,
    endpoints: Informer<Endpoints>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("endpoint"));
    let (services, pods) = service::feed(context, &queue);
    let endpoints =
        context.feed(&queue, |change: &Change<Endpoints>| change.latest().map(|e| ObjectKey::from(&e.metadata)).into_iter().collect());
    let controller =
        EndpointsOfServices { client: context.client(), recorder: context.recorder("endpoint-controller"), services, pods, endpoints };
    context.run(Arc::new(controller), queue);
}

impl Controller for EndpointsOfServices {
    const NAME: &'static str = "endpoints-controller";
    const WORKERS: usize = 5;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let current = self.endpoints.get(key);
        let Some(service) = self.services.get(key) else {
            if let Some(left) = current.filter(|left| plan::is_ours(left)) {
                writes::delete(&self.client, left.as_ref(), DeleteParams::default()).await?;
            }
            return Ok(Next::OnChange);
        };
        let Some(selector) = service::selector(&service) else { return Ok(Next::OnChange) };
        let selected = |pod: &Arc<Pod>| meta::matches(&selector, pod.metadata.labels.as_ref());
        let pods: Vec<_> = self.pods.in_namespace(&key.namespace).into_iter().filter(selected).collect();
        let done = match plan::plan(&service, &pods, current.as_deref()) {
            Action::Nothing => Ok(()),
            Action::Create(endpoints) => match writes::create(&self.client, endpoints.as_ref()).await {
                Err(failure) if failure.is_namespace_terminating() => Ok(()),
                made => made.map(drop),
            },
            Action::Change(patch) => match &current {
                Some(current) => writes::patch(&self.client, current.as_ref(), patch).await.map(drop),
                None => Ok(()),
            },
        };
        if let Err(failure) = &done
            && !failure.is_conflict()
        {
            let (reason, verb) =
                if current.is_some() { ("FailedToUpdateEndpoint", "update") } else { ("FailedToCreateEndpoint", "create") };
            let message = format!("Failed to {verb} endpoint {key}: {}", failure.message());
            self.recorder.warning(&reference(service.as_ref()), reason, message);
        }
        done.map(|()| Next::OnChange)
    }
}
