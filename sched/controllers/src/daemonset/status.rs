//! The status of a DaemonSet: counts over the nodes.

use k8s_openapi::api::apps::v1::DaemonSetStatus;

use super::plan::Snapshot;
use crate::pods;

/// The counts. The oldest Pod of a node counts. `observed` is the generation that the controller has processed.
pub fn status(snapshot: &Snapshot<'_>, collisions: i32, observed: Option<i64>) -> DaemonSetStatus {
    let mut status = DaemonSetStatus { observed_generation: observed, ..DaemonSetStatus::default() };
    let (mut updated, mut available) = (0, 0);
    for node_pods in &snapshot.assignment.nodes {
        let pod = node_pods.pods.first();
        if !node_pods.verdict.runs {
            status.number_misscheduled += i32::from(pod.is_some());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(pod) = pod else { continue };
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pods::is_ready(pod));
        available += i32::from(snapshot.is_available(pod));
        updated += i32::from(snapshot.is_updated(pod));
    }
    let some = |count: i32| (count != 0).then_some(count);
    status.updated_number_scheduled = some(updated);
    status.number_available = some(available);
    status.number_unavailable = some(status.desired_number_scheduled - available);
    status.collision_count = some(collisions);
    status.conditions = snapshot.set.status.as_ref().and_then(|status| status.conditions.clone());
    status
}
