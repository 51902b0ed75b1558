//! Disruption: how many Pods of each PodDisruptionBudget may be evicted now.
//!
//! Watches PodDisruptionBudgets, Pods, and the workloads that Pods belong to; reads the `scale` subresource of other kinds.
//! Writes the status of budgets, and removes the condition `DisruptionTarget` from Pods that were not deleted (`stale`). Never
//! evicts: the API server's eviction does, and charges the budget's status with each eviction.

mod plan;
mod scales;
mod stale;

use std::sync::Arc;

use api_client::events::{Recorder, reference};
use api_client::informer::{Cached, Change, Informer, ObjectKey};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::context::ControllerContext;
use crate::failure::{Failure, gone_is_fine};
use crate::work::{Controller, Next, WorkQueue};
use crate::{meta, pods, writes};
use plan::Plan;
use scales::{Scales, Unscaled};

/// The controller; its keys are budgets'.
pub struct Disruption {
    client: kube::Client,
    recorder: Recorder,
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<Pod>,
    scales: Scales,
}

/// Registers the controller.
pub fn build(context: &mut ControllerContext) {
    let queue = Arc::new(WorkQueue::new("disruption"));
    let budgets = context
        .feed(&queue, |change: &Change<PodDisruptionBudget>| change.new.iter().map(|budget| ObjectKey::from(&budget.metadata)).collect());
    let selecting = budgets.clone();
    let pods =
        context.feed(&queue, move |change: &Change<Pod>| if counts_alike(change) { Vec::new() } else { concerned(change, &selecting) });
    let budget_cache = budgets.clone();
    context.feed(&queue, move |change: &Change<ReplicaSet>| rescaled(change, &budget_cache, |set| set.spec.replicas));
    let budget_cache = budgets.clone();
    context.feed(&queue, move |change: &Change<Deployment>| rescaled(change, &budget_cache, |deployment| deployment.spec.replicas));
    let scales = Scales::new(context);
    let recorder = context.recorder("controllermanager");
    context.run(Arc::new(Disruption { client: context.client(), recorder, budgets, pods, scales }), queue);
    stale::build(context);
}

/// Whether no budget depends on a change of a Pod.
fn counts_alike(change: &Change<Pod>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return false };
    let facts = |pod: &Pod| (pods::is_ready(pod), meta::is_deleting(&pod.metadata), meta::controller_uid(&pod.metadata).to_owned());
    old.metadata.labels == new.metadata.labels && facts(old) == facts(new)
}

/// The budgets that select the Pod, as it was or as it is.
fn concerned(change: &Change<Pod>, budgets: &Informer<PodDisruptionBudget>) -> Vec<ObjectKey> {
    let Some(namespace) = change.latest().map(|pod| meta::namespace(&pod.metadata).to_owned()) else { return Vec::new() };
    let selects = |budget: &PodDisruptionBudget| {
        let selector = plan::selector(budget);
        change.both().any(|pod| meta::matches(&selector, pod.metadata.labels.as_ref()))
    };
    budgets.in_namespace(&namespace).iter().filter(|budget| selects(budget)).map(|budget| ObjectKey::from(&budget.metadata)).collect()
}

/// The budgets in the namespace of a workload that was created, or whose number of replicas changed.
fn rescaled<K: Cached>(change: &Change<K>, budgets: &Informer<PodDisruptionBudget>, replicas: fn(&K) -> Option<i32>) -> Vec<ObjectKey> {
    let Some(new) = &change.new else { return Vec::new() };
    if change.old.as_ref().is_some_and(|old| replicas(old) == replicas(new)) {
        return Vec::new();
    }
    budgets.in_namespace(meta::namespace(new.meta())).iter().map(|budget| ObjectKey::from(&budget.metadata)).collect()
}

impl Controller for Disruption {
    const NAME: &'static str = "disruption-controller";
    const WORKERS: usize = 1;
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, Failure> {
        let Some(budget) = self.budgets.get(key).filter(|budget| !meta::is_deleting(&budget.metadata)) else {
            return Ok(Next::OnChange);
        };
        let selector = plan::selector(&budget);
        let selected = |pod: &Arc<Pod>| meta::matches(&selector, pod.metadata.labels.as_ref());
        let pods: Vec<Arc<Pod>> = self.pods.in_namespace(&key.namespace).into_iter().filter(selected).collect();
        if pods.is_empty() {
            self.recorder.normal(&reference(budget.as_ref()), "NoPods", "No matching pods found");
        }
        let scale = match plan::needs_scale(&budget) {
            true => self.scales.total(&key.namespace, &pods).await,
            false => Ok(scales::Total::default()),
        };
        let planned = scale.and_then(|scale| plan::plan(&budget, &pods, &scale, api_clock::now()));
        match planned {
            Ok(plan) => self.apply(&budget, plan).await,
            Err(unscaled) => self.fail_safe(&budget, &unscaled).await,
        }
    }
}

impl Disruption {
    async fn apply(&self, budget: &PodDisruptionBudget, plan: Plan) -> Result<Next, Failure> {
        if plan.has_unmanaged {
            self.recorder.warning(&reference(budget), "UnmanagedPods", plan::unmanaged_message(budget));
        }
        for pod in &plan.not_deleted {
            let message = format!("Pod was expected by PDB {} to be deleted but it wasn't", ObjectKey::from(&budget.metadata));
            self.recorder.warning(&reference(pod.as_ref()), "NotDeleted", message);
        }
        gone_is_fine(writes::set_status(&self.client, budget, budget.status.as_ref(), &plan.status).await)?;
        Ok(Next::OnChange.or_after(plan.look_again))
    }

    /// Without the expected number of Pods, no Pod may be evicted.
    async fn fail_safe(&self, budget: &PodDisruptionBudget, unscaled: &Unscaled) -> Result<Next, Failure> {
        let message = format!("Failed to calculate the number of expected pods: {unscaled}");
        self.recorder.warning(&reference(budget), "CalculateExpectedPodCountFailed", message);
        let status = plan::failed(budget, &unscaled.to_string(), api_clock::now());
        gone_is_fine(writes::set_status(&self.client, budget, budget.status.as_ref(), &status).await)?;
        Ok(Next::After(unscaled.retry()))
    }
}
