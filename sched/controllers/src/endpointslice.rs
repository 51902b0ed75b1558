//! EndpointSlice: the addresses of the Pods that each Service selects, in slices of at most a hundred.
//!
//! Watches Services, Pods, Nodes (for zones) and EndpointSlices. Creates, changes and deletes the
//! slices that carry its own managed-by label. Never touches slices of others, nor Services without
//! a selector.

mod plan;

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::DeleteParams;

use crate::failure::Failure;
use crate::parts::Parts;
use crate::work::{Cached, Change, Controller, Expectations, Next, ObjectKey, Queue, Store};
use crate::{meta, service, writes};
use plan::Action;

impl Cached for EndpointSlice {}

/// The controller.
pub struct EndpointSlices {
    client: kube::Client,
    recorder: Recorder,
    services: Arc<Store<Service>>,
    pods: Arc<Store<Pod>>,
    nodes: Arc<Store<Node>>,
    slices: Arc<Store<EndpointSlice>>,
    /// Slices made and not yet seen: their names are random, so a stale cache would make them twice.
    expectations: Arc<Expectations>,
}

/// Sets the controller up.
pub fn build(parts: &mut Parts) {
    let queue = Arc::new(Queue::default());
    let expectations = Arc::new(Expectations::default());
    let services = parts.feed(&queue, |change: &Change<Service>| change.latest().map(|s| ObjectKey::of(&s.metadata)).into_iter().collect());
    let known = Arc::clone(&services);
    let pods = parts.feed(&queue, move |change: &Change<Pod>| service::concerned(change, &known));
    let seen = Arc::clone(&expectations);
    let slices = parts.feed(&queue, move |change: &Change<EndpointSlice>| {
        let key = change.latest().and_then(|slice| plan::service_of(slice));
        if let (Some(key), None) = (&key, &change.old) {
            seen.created(key);
        }
        key.into_iter().collect()
    });
    let nodes = parts.store();
    let recorder = parts.recorder("endpoint-slice-controller");
    let controller = EndpointSlices { client: parts.client(), recorder, services, pods, nodes, slices, expectations };
    parts.run(Arc::new(controller), queue);
}

impl Controller for EndpointSlices {
    const NAME: &'static str = "endpointslice-controller";
    const WORKERS: usize = 5;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(service) = self.services.get(key) else {
            self.expectations.forget(key);
            return Ok(Next::OnChange);
        };
        let Some(selector) = service::selector(&service).filter(|_| !meta::is_deleting(&service.metadata)) else {
            return Ok(Next::OnChange);
        };
        if !self.expectations.satisfied(key) {
            return Ok(Next::OnChange);
        }
        let own = |slice: &Arc<EndpointSlice>| plan::service_of(slice).as_ref() == Some(key);
        let slices: Vec<_> = self.slices.in_namespace(&key.namespace).into_iter().filter(own).collect();
        let selected = |pod: &Arc<Pod>| meta::matches(&selector, pod.metadata.labels.as_ref());
        let pods: Vec<_> = self.pods.in_namespace(&key.namespace).into_iter().filter(selected).collect();
        let zone = |node: &str| {
            let node = self.nodes.get(&ObjectKey::new("", node))?;
            meta::label(&node.metadata, "topology.kubernetes.io/zone").map(str::to_owned)
        };
        let actions = plan::plan(&service, &pods, &zone, slices);
        let done = self.apply(key, actions).await;
        if let Err(failure) = &done
            && !failure.is_conflict()
        {
            let message = format!("Error updating Endpoint Slices for Service {key}: {}", failure.message());
            self.recorder.warning(&reference(service.as_ref()), "FailedToUpdateEndpointSlices", message);
        }
        done.map(|()| Next::OnChange)
    }
}

impl EndpointSlices {
    async fn apply(&self, key: &ObjectKey, actions: Vec<Action>) -> Result<(), Failure> {
        let creations = actions.iter().filter(|action| matches!(action, Action::Create(_))).count();
        if creations > 0 {
            self.expectations.expect_creations(key, creations);
        }
        let mut result = Ok(());
        for action in actions {
            let done = match action {
                Action::Create(slice) => {
                    let made = writes::create(&self.client, slice.as_ref()).await.map(drop);
                    if made.is_err() {
                        self.expectations.created(key);
                    }
                    match made {
                        Err(failure) if failure.is_namespace_terminating() => Ok(()),
                        made => made,
                    }
                }
                Action::Change { slice, patch } => writes::patch(&self.client, slice.as_ref(), patch).await.map(drop),
                Action::Delete(slice) => writes::delete(&self.client, slice.as_ref(), DeleteParams::default()).await,
            };
            // The rest is done all the same: one slice's conflict must not leave others stale.
            result = result.and(done);
        }
        result
    }
}
