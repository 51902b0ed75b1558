//! Facts about workloads: `apps`, `batch`, `autoscaling`, `policy`.

use super::{Table, atomic, field, map, set, table};

pub(super) const TABLES: &[Table] = &[
    table("io.k8s.api.apps.v1.DaemonSetStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
    table("io.k8s.api.apps.v1.DaemonSetUpdateStrategy", &[], &[field("type").one_of(&["OnDelete", "RollingUpdate"])]),
    table("io.k8s.api.apps.v1.DeploymentSpec", &[], &[field("strategy").retain_keys()]),
    table("io.k8s.api.apps.v1.DeploymentStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
    table("io.k8s.api.apps.v1.DeploymentStrategy", &[], &[field("type").one_of(&["Recreate", "RollingUpdate"])]),
    table("io.k8s.api.apps.v1.ReplicaSetStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
    table(
        "io.k8s.api.apps.v1.StatefulSetSpec",
        &["volumeClaimTemplates"],
        &[field("podManagementPolicy").one_of(&["OrderedReady", "Parallel"])],
    ),
    table("io.k8s.api.apps.v1.StatefulSetStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
    table("io.k8s.api.apps.v1.StatefulSetUpdateStrategy", &[], &[field("type").one_of(&["OnDelete", "Recreate", "RollingUpdate"])]),
    table("io.k8s.api.autoscaling.v1.CrossVersionObjectReference", &[], &[field("").map_atomic()]),
    table("io.k8s.api.autoscaling.v1.ScaleSpec", &[], &[field("replicas").default("0")]),
    table("io.k8s.api.autoscaling.v2.HPAScalingRules", &["policies"], &[]),
    table("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", &["metrics"], &[]),
    table("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus", &["currentMetrics"], &[map("conditions", &["type"]).merge_by("type")]),
    table("io.k8s.api.batch.v1.CronJobSpec", &[], &[field("concurrencyPolicy").one_of(&["Allow", "Forbid", "Replace"])]),
    table("io.k8s.api.batch.v1.CronJobStatus", &["active"], &[]),
    table("io.k8s.api.batch.v1.JobSchedulingConfiguration", &[], &[map("resourceClaims", &["name"]).merge_by("name")]),
    table(
        "io.k8s.api.batch.v1.JobSpec",
        &[],
        &[
            field("completionMode").one_of(&["Indexed", "NonIndexed"]),
            field("podReplacementPolicy").one_of(&["Failed", "TerminatingOrFailed"]),
        ],
    ),
    table("io.k8s.api.batch.v1.JobStatus", &[], &[atomic("conditions").merge_by("type")]),
    table("io.k8s.api.batch.v1.PodFailurePolicy", &["rules"], &[]),
    table("io.k8s.api.batch.v1.PodFailurePolicyOnExitCodesRequirement", &[], &[field("operator").one_of(&["In", "NotIn"]), set("values")]),
    table(
        "io.k8s.api.batch.v1.PodFailurePolicyRule",
        &["onPodConditions"],
        &[field("action").one_of(&["Count", "FailIndex", "FailJob", "Ignore"])],
    ),
    table("io.k8s.api.batch.v1.SuccessPolicy", &["rules"], &[]),
    table("io.k8s.api.batch.v1.UncountedTerminatedPods", &[], &[set("failed"), set("succeeded")]),
    table(
        "io.k8s.api.policy.v1.PodDisruptionBudgetSpec",
        &[],
        &[field("selector").replace(), field("unhealthyPodEvictionPolicy").one_of(&["AlwaysAllow", "IfHealthyBudget"])],
    ),
    table("io.k8s.api.policy.v1.PodDisruptionBudgetStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
];
