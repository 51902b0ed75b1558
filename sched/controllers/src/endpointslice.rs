//! EndpointSlice: the addresses of the Pods that each Service selects, in slices of at most a hundred.
//!
//! The controller watches Services, Pods, Nodes (for zones) and EndpointSlices. It creates, changes and deletes the slices
//! with its own managed-by label. It never touches the slices of other controllers, nor Services without a selector.
//! Endpoints get hints as the Service asks for them; see [`hints`].

mod hints;
mod plan;
mod proportional;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::{BY_SERVICE, Change, Informer, ObjectKey};
use api_model::selector::Selector;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;

use crate::context::ControllerContext;
use crate::failure::Failure;
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, metrics, nodes, service, slices};
use plan::{Plan, Topology};
use proportional::{Hinted, Outcome};

/// The label of a Node with its zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The Services whose endpoints are hinted in proportion to the zones, and the endpoints of each zone by address family.
type HintedServices = HashMap<ObjectKey, BTreeMap<String, Hinted>>;

/// The controller.
pub struct EndpointSlices {
    client: kube::Client,
    recorder: Recorder,
    services: Informer<Service>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    slices: Informer<EndpointSlice>,
    hinted: Arc<Mutex<HintedServices>>,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("endpoint_slice"));
    let (services, pods) = service::feed(context, &queue);
    let slices = context.feed(&queue, |change: &Change<EndpointSlice>| {
        change.latest().and_then(|slice| slices::service_of(slice, plan::MANAGER)).into_iter().collect()
    });
    let nodes = context.informer::<Node>();
    let hinted: Arc<Mutex<HintedServices>> = Arc::default();
    let (node_cache, services_hinted) = (nodes.clone(), Arc::clone(&hinted));
    context.feed(&queue, move |change: &Change<Node>| overloaded(change, &node_cache, &services_hinted));
    let recorder = context.recorder("endpoint-slice-controller");
    let controller = EndpointSlices { client: context.client(), recorder, services, pods, nodes, slices, hinted };
    context.run(Arc::new(controller), queue);
}

/// The Services whose hints overload a zone since a Node has come, gone, changed its zone or whether it is ready.
fn overloaded(change: &Change<Node>, nodes: &Informer<Node>, hinted: &Mutex<HintedServices>) -> Vec<ObjectKey> {
    let hinted = hinted.lock();
    let state = |node: &Arc<Node>| {
        let ready = nodes::condition(node, "Ready").map(|ready| ready.status.clone());
        (ready, meta::label(&node.metadata, ZONE).map(str::to_owned))
    };
    if hinted.is_empty() || change.old.as_ref().map(state) == change.new.as_ref().map(state) {
        return Vec::new();
    }
    let shares = proportional::shares(&nodes.list());
    let is_overloaded =
        |families: &BTreeMap<String, Hinted>| families.values().any(|zones| proportional::is_overloaded(zones, shares.as_ref()));
    hinted.iter().filter(|(_, families)| is_overloaded(families)).map(|(key, _)| key.clone()).collect()
}

impl Controller for EndpointSlices {
    const NAME: &'static str = "endpointslice-controller";
    const WORKERS: usize = 5;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let result = self.pass(key).await;
        metrics::SLICE_SYNCS.count([match &result {
            Ok(_) => "success",
            Err(failure) if failure.is_conflict() || matches!(failure, Failure::Unfinished { .. }) => "stale",
            Err(_) => "error",
        }]);
        result
    }
}

impl EndpointSlices {
    async fn pass(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let service = self.services.get(key).filter(|service| !meta::is_deleting(&service.metadata));
        let served = service.and_then(|service| Some((service::selector(&service)?, service)));
        let Some((selector, service)) = served else {
            self.hinted.lock().remove(key);
            metrics::set_service(&key.namespace, &key.name, None);
            return Ok(Next::OnChange);
        };
        let plan = self.decide(key, &service, &selector);
        self.note_hints(key, &service, plan.hints);
        let done = slices::apply(&self.client, &self.slices, plan.actions).await;
        if let Err(failure) = &done
            && !failure.is_conflict()
        {
            let message = format!("Error updating Endpoint Slices for Service {key}: {}", failure.message());
            self.recorder.warning(&reference(service.as_ref()), "FailedToUpdateEndpointSlices", message);
        }
        done.map(|()| Next::OnChange)
    }

    /// The writes for a Service, from the caches.
    fn decide(&self, key: &ObjectKey, service: &Service, selector: &Selector) -> Plan {
        let own = |slice: &Arc<EndpointSlice>| slices::service_of(slice, plan::MANAGER).as_ref() == Some(key);
        let current: Vec<_> = self.slices.indexed(BY_SERVICE, &key.name).into_iter().filter(own).collect();
        let selected = |pod: &Arc<Pod>| meta::matches(selector, pod.metadata.labels.as_ref());
        let pods: Vec<_> = self.pods.in_namespace(&key.namespace).into_iter().filter(selected).collect();
        let zone = |node: &str| {
            let node = self.nodes.get(&ObjectKey::new("", node))?;
            meta::label(&node.metadata, ZONE).map(str::to_owned)
        };
        let topology = Topology { zone: &zone, shares: &|| proportional::shares(&self.nodes.list()) };
        let present = current.len();
        let plan = plan::plan(service, &pods, &topology, current);
        observe(key, service, &plan, present);
        plan
    }

    /// Remembers which zones a Service's endpoints are hinted at, with events when that begins, fails or ends.
    fn note_hints(&self, key: &ObjectKey, service: &Service, outcomes: Vec<(String, Outcome)>) {
        let mut hinted = self.hinted.lock();
        let was_hinted = hinted.contains_key(key);
        if outcomes.is_empty() && was_hinted {
            let family = plan::families(service).into_iter().next().unwrap_or_default();
            let message = format!("Topology Aware Hints has been disabled, addressType: {family}");
            self.recorder.warning(&reference(service), "TopologyAwareHintsDisabled", message);
        }
        let mut families = BTreeMap::new();
        for (family, outcome) in outcomes {
            match outcome {
                Outcome::GivenUp(why) => {
                    let message = format!("{why}, addressType: {family}");
                    self.recorder.warning(&reference(service), "TopologyAwareHintsDisabled", message);
                }
                Outcome::Hinted(zones) => {
                    if !was_hinted && families.is_empty() {
                        let message = format!("Topology Aware Hints has been enabled, addressType: {family}");
                        self.recorder.normal(&reference(service), "TopologyAwareHintsEnabled", message);
                    }
                    families.insert(family, zones);
                }
            }
        }
        if families.is_empty() { drop(hinted.remove(key)) } else { drop(hinted.insert(key.clone(), families)) }
    }
}

/// Shows at `/metrics` what a pass does.
fn observe(key: &ObjectKey, service: &Service, plan: &Plan, present: usize) {
    let (mut created, mut updated, mut deleted) = (0_usize, 0_usize, 0_usize);
    for action in &plan.actions {
        match action {
            slices::Action::Create(_) => created += 1,
            slices::Action::Change { .. } => updated += 1,
            slices::Action::Delete(_) => deleted += 1,
        }
    }
    for (operation, count) in [("create", created), ("update", updated), ("delete", deleted)] {
        if count > 0 {
            metrics::SLICE_CHANGES.add([operation], count as u64);
        }
    }
    let mode = hints::mode(service);
    let distribution = hints::distribution(service).filter(|_| mode != hints::Mode::Proportional);
    let topology = if mode == hints::Mode::Proportional { "Auto" } else { "Disabled" };
    metrics::SLICES_CHANGED.observe([topology, distribution.unwrap_or_default()], metrics::amount(plan.actions.len()));
    metrics::ENDPOINTS_ADDED.observe([], metrics::amount(plan.added));
    metrics::ENDPOINTS_REMOVED.observe([], metrics::amount(plan.removed));
    let service = metrics::Service {
        slices: (present + created).saturating_sub(deleted),
        slices_desired: plan.slices_desired,
        endpoints: plan.endpoints,
        traffic_distribution: distribution.map(str::to_owned),
    };
    metrics::set_service(&key.namespace, &key.name, Some(service));
}
