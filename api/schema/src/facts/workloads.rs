//! Facts about workloads: `apps`, `batch`, `autoscaling`, `policy`.

use super::{Table, atomic, field, map, of, set};

pub(super) const TABLES: &[Table] = &[
    of("io.k8s.api.apps.v1.DaemonSetStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
    of("io.k8s.api.apps.v1.DaemonSetUpdateStrategy", &[], &[field("type").one_of(&["OnDelete", "RollingUpdate"])]),
    of("io.k8s.api.apps.v1.DeploymentSpec", &[], &[field("strategy").retain_keys()]),
    of("io.k8s.api.apps.v1.DeploymentStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
    of("io.k8s.api.apps.v1.DeploymentStrategy", &[], &[field("type").one_of(&["Recreate", "RollingUpdate"])]),
    of("io.k8s.api.apps.v1.ReplicaSetStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
    of(
        "io.k8s.api.apps.v1.StatefulSetSpec",
        &["volumeClaimTemplates"],
        &[field("podManagementPolicy").one_of(&["OrderedReady", "Parallel"])],
    ),
    of("io.k8s.api.apps.v1.StatefulSetStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
    of("io.k8s.api.apps.v1.StatefulSetUpdateStrategy", &[], &[field("type").one_of(&["OnDelete", "Recreate", "RollingUpdate"])]),
    of("io.k8s.api.autoscaling.v1.CrossVersionObjectReference", &[], &[field("").map_atomic()]),
    of("io.k8s.api.autoscaling.v1.ScaleSpec", &[], &[field("replicas").default("0")]),
    of("io.k8s.api.autoscaling.v2.HPAScalingRules", &["policies"], &[]),
    of("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec", &["metrics"], &[]),
    of("io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerStatus", &["currentMetrics"], &[map("conditions", &["type"]).merge_by("type")]),
    of("io.k8s.api.batch.v1.CronJobSpec", &[], &[field("concurrencyPolicy").one_of(&["Allow", "Forbid", "Replace"])]),
    of("io.k8s.api.batch.v1.CronJobStatus", &["active"], &[]),
    of("io.k8s.api.batch.v1.JobSchedulingConfiguration", &[], &[map("resourceClaims", &["name"]).merge_by("name")]),
    of(
        "io.k8s.api.batch.v1.JobSpec",
        &[],
        &[
            field("completionMode").one_of(&["Indexed", "NonIndexed"]),
            field("podReplacementPolicy").one_of(&["Failed", "TerminatingOrFailed"]),
        ],
    ),
    of("io.k8s.api.batch.v1.JobStatus", &[], &[atomic("conditions").merge_by("type")]),
    of("io.k8s.api.batch.v1.PodFailurePolicy", &["rules"], &[]),
    of("io.k8s.api.batch.v1.PodFailurePolicyOnExitCodesRequirement", &[], &[field("operator").one_of(&["In", "NotIn"]), set("values")]),
    of(
        "io.k8s.api.batch.v1.PodFailurePolicyRule",
        &["onPodConditions"],
        &[field("action").one_of(&["Count", "FailIndex", "FailJob", "Ignore"])],
    ),
    of("io.k8s.api.batch.v1.SuccessPolicy", &["rules"], &[]),
    of("io.k8s.api.batch.v1.UncountedTerminatedPods", &[], &[set("failed"), set("succeeded")]),
    of(
        "io.k8s.api.policy.v1.PodDisruptionBudgetSpec",
        &[],
        &[field("selector").replace(), field("unhealthyPodEvictionPolicy").one_of(&["AlwaysAllow", "IfHealthyBudget"])],
    ),
    of("io.k8s.api.policy.v1.PodDisruptionBudgetStatus", &[], &[map("conditions", &["type"]).merge_by("type")]),
];
