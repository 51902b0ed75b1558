//! EndpointSlice: the addresses of the Pods that each Service selects, in slices of at most a hundred.
//!
//! The controller watches Services, Pods, Nodes (for zones) and EndpointSlices. It creates, changes and deletes the slices
//! with its own managed-by label. It never touches the slices of other controllers, nor Services without a selector.

mod plan;

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::{BY_SERVICE, Change, Informer, ObjectKey};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, service, slices};

/// The controller.
pub struct EndpointSlices {
    client: kube::Client,
    recorder: Recorder,
    services: Informer<Service>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    slices: Informer<EndpointSlice>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::default());
    let (services, pods) = service::feed(context, &queue);
    let slices = context.feed(&queue, |change: &Change<EndpointSlice>| {
        change.latest().and_then(|slice| slices::service_of(slice, plan::MANAGER)).into_iter().collect()
    });
    let nodes = context.informer();
    let recorder = context.recorder("endpoint-slice-controller");
    let controller = EndpointSlices { client: context.client(), recorder, services, pods, nodes, slices };
    context.run(Arc::new(controller), queue);
}

impl Controller for EndpointSlices {
    const NAME: &'static str = "endpointslice-controller";
    const WORKERS: usize = 5;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(service) = self.services.get(key) else { return Ok(Next::OnChange) };
        let Some(selector) = service::selector(&service).filter(|_| !meta::is_deleting(&service.metadata)) else {
            return Ok(Next::OnChange);
        };
        let own = |slice: &Arc<EndpointSlice>| slices::service_of(slice, plan::MANAGER).as_ref() == Some(key);
        let current: Vec<_> = self.slices.indexed(BY_SERVICE, &key.name).into_iter().filter(own).collect();
        let selected = |pod: &Arc<Pod>| meta::matches(&selector, pod.metadata.labels.as_ref());
        let pods: Vec<_> = self.pods.in_namespace(&key.namespace).into_iter().filter(selected).collect();
        let zone = |node: &str| {
            let node = self.nodes.get(&ObjectKey::new("", node))?;
            meta::label(&node.metadata, "topology.kubernetes.io/zone").map(str::to_owned)
        };
        let actions = plan::plan(&service, &pods, &zone, current);
        let done = slices::apply(&self.client, &self.slices, actions).await;
        if let Err(failure) = &done
            && !failure.is_conflict()
        {
            let message = format!("Error updating Endpoint Slices for Service {key}: {}", failure.message());
            self.recorder.warning(&reference(service.as_ref()), "FailedToUpdateEndpointSlices", message);
        }
        done.map(|()| Next::OnChange)
    }
}
