//! Deployments: wanted and actual replicas, conditions, and the limits of a rolling update.

use api_model::k8s_openapi::api::apps::v1::{Deployment, RollingUpdateDeployment};
use api_model::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::family::{Family, Kind, gauge};
use crate::metadata::{created, deleted, generation, namespaced};
use crate::read::{list, or_empty, text};
use crate::series::{Label, Series};

/// The reasons of conditions that labels have. Any other reason is `unknown`, so that their number is bounded.
const REASONS: [&str; 11] = [
    "",
    "ReplicaSetUpdated",
    "ReplicaSetCreateError",
    "NewReplicaSetCreated",
    "FoundNewReplicaSet",
    "NewReplicaSetAvailable",
    "ProgressDeadlineExceeded",
    "DeploymentPaused",
    "DeploymentResumed",
    "MinimumReplicasAvailable",
    "MinimumReplicasUnavailable",
];

impl Kind for Deployment {
    const FAMILIES: &'static [&'static [Family<Self>]] = &[FAMILIES];

    fn identity(&self) -> Vec<Label<'_>> {
        namespaced("deployment", self)
    }
}

const FAMILIES: &[Family<Deployment>] = &[
    gauge("kube_deployment_created", "When the Deployment was created, in Unix seconds.", created),
    gauge("kube_deployment_status_replicas", "How many Pods the Deployment has.", |deployment, series| {
        series.count(or_empty(&deployment.status).replicas);
    }),
    gauge("kube_deployment_status_replicas_ready", "How many Pods of the Deployment are ready.", |deployment, series| {
        series.count(or_empty(&deployment.status).ready_replicas);
    }),
    gauge("kube_deployment_status_replicas_available", "How many Pods of the Deployment are available.", |deployment, series| {
        series.count(or_empty(&deployment.status).available_replicas);
    }),
    gauge(
        "kube_deployment_status_replicas_unavailable",
        "How many Pods of the Deployment are missing or unavailable.",
        |deployment, series| {
            series.count(or_empty(&deployment.status).unavailable_replicas);
        },
    ),
    gauge("kube_deployment_status_replicas_updated", "How many Pods have the current template.", |deployment, series| {
        series.count(or_empty(&deployment.status).updated_replicas);
    }),
    gauge("kube_deployment_status_observed_generation", "The generation that the status is about.", |deployment, series| {
        series.count(or_empty(&deployment.status).observed_generation);
    }),
    gauge("kube_deployment_status_condition", "1 for the status of a condition of the Deployment.", conditions),
    gauge("kube_deployment_spec_replicas", "How many Pods the Deployment should have.", |deployment, series| {
        series.present(deployment.spec.replicas);
    }),
    gauge("kube_deployment_spec_paused", "Whether changes of the template are not rolled out.", |deployment, series| {
        series.flag(deployment.spec.paused == Some(true));
    }),
    gauge(
        "kube_deployment_spec_strategy_rollingupdate_max_unavailable",
        "How many Pods may be unavailable during a rolling update.",
        |deployment, series| series.present(scaled(deployment, |update| update.max_unavailable.as_ref(), false)),
    ),
    gauge(
        "kube_deployment_spec_strategy_rollingupdate_max_surge",
        "How many Pods may be added during a rolling update.",
        |deployment, series| series.present(scaled(deployment, |update| update.max_surge.as_ref(), true)),
    ),
    gauge("kube_deployment_metadata_generation", "The generation of what is wanted of the Deployment.", generation),
    gauge("kube_deployment_deletion_timestamp", "When the deletion of the Deployment began, in Unix seconds.", deleted),
];

fn conditions(deployment: &Deployment, series: &mut Series<'_>) {
    for condition in list(&or_empty(&deployment.status).conditions) {
        let reason = Some(text(&condition.reason)).filter(|reason| REASONS.contains(reason)).unwrap_or("unknown");
        series.condition(&[("reason", reason), ("condition", text(&condition.type_))], "status", text(&condition.status));
    }
}

/// A limit of the rolling update as a number of Pods; a percentage is one of the wanted replicas.
fn scaled(deployment: &Deployment, limit: fn(&RollingUpdateDeployment) -> Option<&IntOrString>, round_up: bool) -> Option<i64> {
    let spec = &deployment.spec;
    match limit(spec.strategy.as_ref()?.rolling_update.as_ref()?)? {
        IntOrString::Int(number) => Some(i64::from(*number)),
        IntOrString::String(text) => {
            let percent: i32 = text.strip_suffix('%')?.parse().ok()?;
            let hundredths = i64::from(percent) * i64::from(spec.replicas?);
            let is_fraction = hundredths.rem_euclid(100) != 0;
            Some(hundredths.div_euclid(100) + i64::from(round_up && is_fraction))
        }
    }
}
