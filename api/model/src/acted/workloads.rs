//! The rows of workloads: Pods, kinds that create Pods, and kinds that refer to Pods.

use super::Part::{ApiServer, Clients, Controller, NodeAgent, Scheduler};
use super::{Field, Fields, Part, Row};

const DEPLOYMENTS: &[Part] = &[Controller("deployment-controller")];
const SETS: &[Part] = &[Controller("replicaset-controller")];
const REPLICATION_CONTROLLERS: &[Part] = &[Controller("replicationcontroller-controller")];
const JOBS: &[Part] = &[Controller("job-controller")];
const CRON_JOBS: &[Part] = &[Controller("cronjob-controller")];
const TTL: &[Part] = &[Controller("ttl-after-finished-controller")];
const STATEFUL_SETS: &[Part] = &[Controller("statefulset-controller")];
const DAEMON_SETS: &[Part] = &[Controller("daemonset-controller")];
const AUTOSCALERS: &[Part] = &[Controller("horizontal-pod-autoscaler-controller"), ApiServer];
const BUDGETS: &[Part] = &[Controller("disruption-controller")];
const SERVER: &[Part] = &[ApiServer];

/// In the order of the documentation.
pub(super) const ROWS: &[Row] = &[
    Row::new("", "Pod", &[]).with_pod_spec("spec"),
    Row::new("apps", "Deployment", &[Fields { prefix: "spec", rows: DEPLOYMENT }]).with_pod_spec("spec.template.spec"),
    Row::new("apps", "ReplicaSet", &[Fields { prefix: "spec", rows: REPLICA_SET }]).with_pod_spec("spec.template.spec"),
    Row::new("apps", "StatefulSet", &[Fields { prefix: "spec", rows: STATEFUL_SET }]).with_pod_spec("spec.template.spec"),
    Row::new("apps", "DaemonSet", &[Fields { prefix: "spec", rows: DAEMON_SET }]).with_pod_spec("spec.template.spec"),
    Row::new("batch", "Job", &[Fields { prefix: "spec", rows: JOB }]).with_pod_spec("spec.template.spec"),
    Row::new("batch", "CronJob", &[Fields { prefix: "spec", rows: CRON_JOB }, Fields { prefix: "spec.jobTemplate.spec", rows: JOB }])
        .with_pod_spec("spec.jobTemplate.spec.template.spec"),
    Row::new("", "ReplicationController", &[Fields { prefix: "spec", rows: REPLICATION_CONTROLLER }]).with_pod_spec("spec.template.spec"),
    Row::new("autoscaling", "HorizontalPodAutoscaler", &[Fields { prefix: "", rows: AUTOSCALER }]),
    Row::new("", "PodTemplate", &[Fields { prefix: "", rows: &[Field::by(&[Clients], "template", "")] }]),
    Row::new("apps", "ControllerRevision", CLIENTS),
    Row::new("policy", "PodDisruptionBudget", &[Fields { prefix: "spec", rows: BUDGET }]),
    Row::new("scheduling.k8s.io", "PriorityClass", &[Fields { prefix: "", rows: PRIORITY_CLASS }]),
    Row::new("node.k8s.io", "RuntimeClass", &[Fields { prefix: "", rows: RUNTIME_CLASS }]),
    Row::new("", "LimitRange", &[Fields { prefix: "", rows: &[Field::by(SERVER, "spec", "api/admission/src/plugins/limit_ranger.rs")] }]),
    Row::new(
        "",
        "ResourceQuota",
        &[Fields { prefix: "", rows: &[Field::by(SERVER, "spec", "api/admission/src/plugins/resource_quota.rs")] }],
    ),
    Row::new("", "ConfigMap", &[Fields { prefix: "", rows: CONFIG_MAP }]),
    Row::new("", "Secret", &[Fields { prefix: "", rows: SECRET }]),
    Row::new("", "ServiceAccount", &[Fields { prefix: "", rows: SERVICE_ACCOUNT }]),
    Row::new("", "Node", &[Fields { prefix: "spec", rows: NODE }]),
    Row::new("coordination.k8s.io", "Lease", &[Fields { prefix: "spec", rows: LEASE }]),
];

/// Programs outside of Skiff read the whole object.
pub(super) const CLIENTS: &[Fields] = &[Fields { prefix: "", rows: &[Field::by(&[Clients], "", "")] }];

const DEPLOYMENT: &[Field] = &[
    Field::by(DEPLOYMENTS, "minReadySeconds", "sched/controllers/src/deployment/plan.rs"),
    Field::by(DEPLOYMENTS, "paused", "sched/controllers/src/deployment/plan.rs"),
    Field::by(DEPLOYMENTS, "progressDeadlineSeconds", "sched/controllers/src/deployment/status.rs"),
    Field::by(DEPLOYMENTS, "replicas", "sched/controllers/src/deployment/fence.rs"),
    Field::by(DEPLOYMENTS, "revisionHistoryLimit", "sched/controllers/src/deployment/history.rs"),
    Field::by(DEPLOYMENTS, "selector", "sched/controllers/src/deployment.rs"),
    Field::by(DEPLOYMENTS, "strategy", "sched/controllers/src/deployment/fence.rs"),
    Field::by(DEPLOYMENTS, "template.metadata", "sched/controllers/src/deployment/history.rs"),
];

const REPLICATED: &str = "sched/controllers/src/replicaset/replicated.rs";

const REPLICA_SET: &[Field] = &[
    Field::by(SETS, "minReadySeconds", REPLICATED),
    Field::by(SETS, "replicas", REPLICATED),
    Field::by(SETS, "selector", REPLICATED),
    Field::by(SETS, "template.metadata", "sched/controllers/src/replicaset/plan.rs"),
];

const REPLICATION_CONTROLLER: &[Field] = &[
    Field::by(REPLICATION_CONTROLLERS, "minReadySeconds", REPLICATED),
    Field::by(REPLICATION_CONTROLLERS, "replicas", REPLICATED),
    Field::by(REPLICATION_CONTROLLERS, "selector", REPLICATED),
    Field::by(REPLICATION_CONTROLLERS, "template.metadata", "sched/controllers/src/replicaset/plan.rs"),
];

const JOB: &[Field] = &[
    Field::by(JOBS, "activeDeadlineSeconds", "sched/controllers/src/job/plan.rs"),
    Field::by(JOBS, "backoffLimit", "sched/controllers/src/job/plan.rs"),
    Field::by(JOBS, "backoffLimitPerIndex", "sched/controllers/src/job/member.rs"),
    Field::by(JOBS, "completionMode", "sched/controllers/src/job/member.rs"),
    Field::by(JOBS, "completions", "sched/controllers/src/job/plan.rs"),
    Field::by(JOBS, "managedBy", "sched/controllers/src/job.rs"),
    Field::by(SERVER, "manualSelector", "api/rules/src/kinds/job.rs"),
    Field::by(JOBS, "maxFailedIndexes", "sched/controllers/src/job/plan.rs"),
    Field::by(JOBS, "parallelism", "sched/controllers/src/job/plan.rs"),
    Field::by(JOBS, "podFailurePolicy", "sched/controllers/src/job/policies.rs"),
    Field::by(JOBS, "podReplacementPolicy", "sched/controllers/src/job/member.rs"),
    Field::nobody("scheduling").although("that of RuntimeClasses"),
    Field::by(JOBS, "selector", "sched/controllers/src/job.rs"),
    Field::by(JOBS, "successPolicy", "sched/controllers/src/job/policies.rs"),
    Field::by(JOBS, "suspend", "sched/controllers/src/job/member.rs"),
    Field::by(JOBS, "template.metadata", "sched/controllers/src/job/member.rs"),
    Field::by(TTL, "ttlSecondsAfterFinished", "sched/controllers/src/ttl_after_finished.rs"),
];

const CRON_JOB: &[Field] = &[
    Field::by(CRON_JOBS, "concurrencyPolicy", "sched/controllers/src/cronjob/plan.rs"),
    Field::by(CRON_JOBS, "failedJobsHistoryLimit", "sched/controllers/src/cronjob/plan.rs"),
    Field::by(CRON_JOBS, "jobTemplate.metadata", "sched/controllers/src/cronjob/plan.rs"),
    Field::by(CRON_JOBS, "schedule", "sched/controllers/src/cronjob/due.rs"),
    Field::by(CRON_JOBS, "startingDeadlineSeconds", "sched/controllers/src/cronjob/due.rs"),
    Field::by(CRON_JOBS, "successfulJobsHistoryLimit", "sched/controllers/src/cronjob/plan.rs"),
    Field::by(CRON_JOBS, "suspend", "sched/controllers/src/cronjob/plan.rs"),
    Field::by(CRON_JOBS, "timeZone", "sched/controllers/src/cronjob/due.rs"),
];

const STATEFUL_SET: &[Field] = &[
    Field::by(STATEFUL_SETS, "minReadySeconds", "sched/controllers/src/statefulset/plan.rs"),
    Field::by(STATEFUL_SETS, "ordinals", "sched/controllers/src/statefulset/identity.rs"),
    Field::by(STATEFUL_SETS, "persistentVolumeClaimRetentionPolicy", "sched/controllers/src/statefulset/retention.rs"),
    Field::by(STATEFUL_SETS, "podManagementPolicy", "sched/controllers/src/statefulset/plan/members.rs"),
    Field::by(STATEFUL_SETS, "replicas", "sched/controllers/src/statefulset/identity.rs"),
    Field::by(STATEFUL_SETS, "revisionHistoryLimit", "sched/controllers/src/statefulset.rs"),
    Field::by(STATEFUL_SETS, "selector", "sched/controllers/src/statefulset.rs"),
    Field::by(STATEFUL_SETS, "serviceName", "sched/controllers/src/statefulset/identity.rs"),
    Field::by(STATEFUL_SETS, "template.metadata", "sched/controllers/src/statefulset/identity.rs"),
    Field::by(STATEFUL_SETS, "updateStrategy", "sched/controllers/src/statefulset/plan/update.rs"),
    Field::by(&[Clients], "volumeClaimTemplates[].apiVersion", ""),
    Field::by(&[Clients], "volumeClaimTemplates[].kind", ""),
    Field::by(STATEFUL_SETS, "volumeClaimTemplates[].metadata", "sched/controllers/src/statefulset/identity.rs"),
    Field::nobody("volumeClaimTemplates[].spec").although("the claims are created with it, and nothing acts on claims yet"),
    Field::by(&[Clients], "volumeClaimTemplates[].status", ""),
];

const DAEMON_SET: &[Field] = &[
    Field::by(DAEMON_SETS, "minReadySeconds", "sched/controllers/src/daemonset/plan.rs"),
    Field::by(DAEMON_SETS, "revisionHistoryLimit", "sched/controllers/src/daemonset.rs"),
    Field::by(DAEMON_SETS, "selector", "sched/controllers/src/daemonset.rs"),
    Field::by(DAEMON_SETS, "template.metadata", "sched/controllers/src/daemonset/template.rs"),
    Field::by(DAEMON_SETS, "updateStrategy", "sched/controllers/src/daemonset/rollout.rs"),
];

/// The whole spec: the two versions have different fields for the same, and the API server converts them.
const AUTOSCALER: &[Field] = &[Field::by(AUTOSCALERS, "spec", "sched/controllers/src/podautoscaler/plan.rs")];

const BUDGET: &[Field] = &[
    Field::by(BUDGETS, "maxUnavailable", "sched/controllers/src/disruption/plan.rs"),
    Field::by(BUDGETS, "minAvailable", "sched/controllers/src/disruption/plan.rs"),
    Field::by(BUDGETS, "selector", "sched/controllers/src/disruption/plan.rs"),
    Field::by(SERVER, "unhealthyPodEvictionPolicy", "api/server/src/subresource/eviction/budget.rs"),
];

const PRIORITY: &str = "api/admission/src/plugins/priority.rs";

const PRIORITY_CLASS: &[Field] = &[
    Field::by(&[Clients], "description", ""),
    Field::by(SERVER, "globalDefault", PRIORITY),
    Field::by(SERVER, "preemptionPolicy", PRIORITY),
    Field::by(SERVER, "value", PRIORITY),
];

const RUNTIME_CLASS: &[Field] = &[
    Field::by(&[NodeAgent], "handler", "node/agent/src/worker/effect.rs"),
    Field::by(SERVER, "overhead", "api/admission/src/plugins/runtime_class.rs"),
    Field::by(SERVER, "scheduling", "api/admission/src/plugins/runtime_class.rs"),
];

const CONFIG_MAP: &[Field] = &[
    Field::by(&[NodeAgent], "binaryData", "node/volumes/src/source.rs"),
    Field::by(&[NodeAgent], "data", "node/volumes/src/config_map.rs"),
    Field::by(SERVER, "immutable", "api/rules/src/kinds/config_map.rs"),
];

const SECRET: &[Field] = &[
    Field::by(&[NodeAgent], "data", "node/volumes/src/secret.rs"),
    Field::by(SERVER, "immutable", "api/rules/src/kinds/secret.rs"),
    Field::by(SERVER, "stringData", "api/rules/src/kinds/secret.rs"),
    Field::by(SERVER, "type", "api/rules/src/kinds/secret.rs"),
];

const ACCOUNT: &str = "api/admission/src/plugins/service_account.rs";

const SERVICE_ACCOUNT: &[Field] = &[
    Field::by(SERVER, "automountServiceAccountToken", ACCOUNT),
    Field::by(SERVER, "imagePullSecrets", ACCOUNT),
    Field::by(SERVER, "secrets", ACCOUNT),
];

const NODE: &[Field] = &[
    Field::nobody("configSource").although("a node may not set it on its own Node"),
    Field::nobody("externalID"),
    Field::by(&[Controller("node-ipam-controller"), NodeAgent], "podCIDR", "sched/controllers/src/node_ipam.rs"),
    Field::by(&[Controller("node-ipam-controller"), NodeAgent], "podCIDRs", "sched/controllers/src/node_ipam.rs"),
    Field::nobody("podPreemptionPolicy"),
    Field::by(&[Clients], "providerID", ""),
    Field::by(&[Scheduler, Controller("taint-eviction-controller")], "taints", "sched/scheduler/src/plugins/taint_toleration.rs"),
    Field::by(&[Scheduler, Controller("node-lifecycle-controller")], "unschedulable", "sched/scheduler/src/plugins/node_unschedulable.rs"),
];

const ELECTION: &[Part] = &[Controller("node-lifecycle-controller"), Clients];

const LEASE: &[Field] = &[
    Field::by(&[Clients], "acquireTime", ""),
    Field::by(&[Clients], "holderIdentity", ""),
    Field::by(&[Clients], "leaseDurationSeconds", ""),
    Field::by(&[Clients], "leaseTransitions", ""),
    Field::nobody("preferredHolder"),
    Field::by(ELECTION, "renewTime", "sched/controllers/src/node_lifecycle/health.rs"),
    Field::nobody("strategy").although("that of Deployments"),
];
