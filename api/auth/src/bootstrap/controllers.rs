//! The roles of controllers. Each role is bound to the ServiceAccount of the same name in kube-system.

use super::Grant::{Named, On};
use super::{ALL, CREATE, EVENTS, Grant, LIST_WATCH, READ, UPDATE};

const CORE: &[&str] = &[""];
const APPS: &[&str] = &["apps", "extensions"];
const BATCH: &[&str] = &["batch"];
const CERTIFICATES: &[&str] = &["certificates.k8s.io"];
const READ_UPDATE: &[&str] = &["get", "list", "update", "watch"];
const PATCH: &[&str] = &["patch"];
const PATCH_UPDATE: &[&str] = &["patch", "update"];
/// The verbs on Pods of a controller that creates them.
const MAKE: &[&str] = &["create", "delete", "list", "patch", "watch"];
const MANAGE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const KEEP: &[&str] = &["create", "delete", "get", "list", "update", "watch"];

const KEDA: &[&str] = &["keda.sh"];
const DISCOVERY: &[&str] = &["discovery.k8s.io"];
const NETWORKING: &[&str] = &["networking.k8s.io"];
const RESOURCE: &[&str] = &["resource.k8s.io"];
const STORAGE: &[&str] = &["storage.k8s.io"];

/// The name without `system:controller:`, and the grants.
pub const ROLES: &[(&str, &[Grant])] = &[
    (
        "attachdetach-controller",
        &[
            On(LIST_WATCH, CORE, &["persistentvolumeclaims", "persistentvolumes"]),
            On(READ, CORE, &["nodes"]),
            On(PATCH_UPDATE, CORE, &["nodes/status"]),
            On(LIST_WATCH, CORE, &["pods"]),
            EVENTS,
            On(&["create", "delete", "get", "list", "watch"], STORAGE, &["volumeattachments"]),
            On(READ, STORAGE, &["csidrivers"]),
            On(READ, STORAGE, &["csinodes"]),
        ],
    ),
    (
        "clusterrole-aggregation-controller",
        &[On(&["escalate", "get", "list", "patch", "update", "watch"], &["rbac.authorization.k8s.io"], &["clusterroles"])],
    ),
    (
        "cronjob-controller",
        &[
            On(READ_UPDATE, BATCH, &["cronjobs"]),
            On(MANAGE, BATCH, &["jobs"]),
            On(UPDATE, BATCH, &["cronjobs/status"]),
            On(UPDATE, BATCH, &["cronjobs/finalizers"]),
            On(&["delete", "list", "watch"], CORE, &["pods"]),
            EVENTS,
        ],
    ),
    (
        "daemon-set-controller",
        &[
            On(READ, APPS, &["daemonsets"]),
            On(UPDATE, APPS, &["daemonsets/status"]),
            On(UPDATE, APPS, &["daemonsets/finalizers"]),
            On(LIST_WATCH, CORE, &["nodes"]),
            On(MAKE, CORE, &["pods"]),
            On(CREATE, CORE, &["pods/binding"]),
            On(MANAGE, &["apps"], &["controllerrevisions"]),
            EVENTS,
        ],
    ),
    (
        "deployment-controller",
        &[
            On(READ_UPDATE, APPS, &["deployments"]),
            On(UPDATE, APPS, &["deployments/status"]),
            On(UPDATE, APPS, &["deployments/finalizers"]),
            On(MANAGE, APPS, &["replicasets"]),
            On(READ_UPDATE, CORE, &["pods"]),
            EVENTS,
        ],
    ),
    (
        "device-taint-eviction-controller",
        &[
            On(&["delete", "get", "list", "watch"], CORE, &["pods"]),
            On(PATCH_UPDATE, CORE, &["pods/status"]),
            On(READ, RESOURCE, &["resourceclaims"]),
            On(READ, RESOURCE, &["resourceslices"]),
            On(READ, RESOURCE, &["deviceclasses"]),
            EVENTS,
            On(PATCH_UPDATE, RESOURCE, &["devicetaintrules/status"]),
            On(READ, RESOURCE, &["devicetaintrules"]),
        ],
    ),
    (
        "disruption-controller",
        &[
            On(READ, APPS, &["deployments"]),
            On(READ, APPS, &["replicasets"]),
            On(READ, CORE, &["replicationcontrollers"]),
            On(READ, &["policy"], &["poddisruptionbudgets"]),
            On(READ, &["apps"], &["statefulsets"]),
            On(UPDATE, &["policy"], &["poddisruptionbudgets/status"]),
            On(PATCH_UPDATE, CORE, &["pods/status"]),
            On(&["get"], ALL, &["*/scale"]),
            EVENTS,
        ],
    ),
    (
        "endpoint-controller",
        &[On(READ, CORE, &["pods", "services"]), On(KEEP, CORE, &["endpoints"]), On(CREATE, CORE, &["endpoints/restricted"]), EVENTS],
    ),
    (
        "endpointslice-controller",
        &[
            On(READ, CORE, &["nodes", "pods", "services"]),
            On(UPDATE, CORE, &["services/finalizers"]),
            On(KEEP, DISCOVERY, &["endpointslices"]),
            EVENTS,
        ],
    ),
    (
        "endpointslicemirroring-controller",
        &[
            On(READ, CORE, &["endpoints", "services"]),
            On(UPDATE, CORE, &["services/finalizers"]),
            On(UPDATE, CORE, &["endpoints/finalizers"]),
            On(KEEP, DISCOVERY, &["endpointslices"]),
            EVENTS,
        ],
    ),
    (
        "ephemeral-volume-controller",
        &[
            On(READ, CORE, &["pods"]),
            On(UPDATE, CORE, &["pods/finalizers"]),
            On(&["create", "get", "list", "watch"], CORE, &["persistentvolumeclaims"]),
            EVENTS,
        ],
    ),
    (
        "expand-controller",
        &[
            On(&["get", "list", "patch", "update", "watch"], CORE, &["persistentvolumes"]),
            On(PATCH_UPDATE, CORE, &["persistentvolumeclaims/status"]),
            On(READ, CORE, &["persistentvolumeclaims"]),
            EVENTS,
            On(&["get"], CORE, &["services"]),
        ],
    ),
    ("generic-garbage-collector", &[On(&["delete", "get", "list", "patch", "update", "watch"], ALL, ALL), EVENTS]),
    (
        "horizontal-pod-autoscaler",
        &[
            On(READ, &["autoscaling"], &["horizontalpodautoscalers"]),
            On(UPDATE, &["autoscaling"], &["horizontalpodautoscalers/status"]),
            On(&["get", "update"], ALL, &["*/scale"]),
            On(LIST_WATCH, CORE, &["pods"]),
            On(LIST_WATCH, &["metrics.k8s.io"], &["pods"]),
            On(READ, &["custom.metrics.k8s.io"], ALL),
            On(READ, &["external.metrics.k8s.io"], ALL),
            EVENTS,
        ],
    ),
    (
        "job-controller",
        &[
            On(&["get", "list", "patch", "update", "watch"], BATCH, &["jobs"]),
            On(UPDATE, BATCH, &["jobs/status"]),
            On(UPDATE, BATCH, &["jobs/finalizers"]),
            On(MAKE, CORE, &["pods"]),
            EVENTS,
        ],
    ),
    (
        "legacy-service-account-token-cleaner",
        &[
            Named(&["get"], CORE, &["configmaps"], &["kube-apiserver-legacy-service-account-token-tracking"]),
            On(&["delete", "patch"], CORE, &["secrets"]),
        ],
    ),
    (
        "namespace-controller",
        &[
            On(&["delete", "get", "list", "watch"], CORE, &["namespaces"]),
            On(UPDATE, CORE, &["namespaces/finalize", "namespaces/status"]),
            On(&["delete", "deletecollection", "get", "list", "watch"], ALL, ALL),
        ],
    ),
    (
        "node-controller",
        &[
            On(&["delete", "get", "list", "patch", "update", "watch"], CORE, &["nodes"]),
            On(PATCH_UPDATE, CORE, &["nodes/status"]),
            On(PATCH_UPDATE, CORE, &["pods/status"]),
            On(&["delete", "get", "list", "watch"], CORE, &["pods"]),
            EVENTS,
        ],
    ),
    (
        "pod-garbage-collector",
        &[On(&["delete", "list", "watch"], CORE, &["pods"]), On(READ, CORE, &["nodes"]), On(&["patch"], CORE, &["pods/status"])],
    ),
    (
        "replicaset-controller",
        &[
            On(READ_UPDATE, APPS, &["replicasets"]),
            On(UPDATE, APPS, &["replicasets/status"]),
            On(UPDATE, APPS, &["replicasets/finalizers"]),
            On(MAKE, CORE, &["pods"]),
            EVENTS,
        ],
    ),
    (
        "replication-controller",
        &[
            On(READ_UPDATE, CORE, &["replicationcontrollers"]),
            On(UPDATE, CORE, &["replicationcontrollers/status"]),
            On(UPDATE, CORE, &["replicationcontrollers/finalizers"]),
            On(MAKE, CORE, &["pods"]),
            EVENTS,
        ],
    ),
    (
        "resource-claim-controller",
        &[
            On(READ, CORE, &["pods"]),
            On(UPDATE, CORE, &["pods/finalizers"]),
            On(&["create", "delete", "get", "list", "watch"], RESOURCE, &["resourceclaims"]),
            On(PATCH_UPDATE, RESOURCE, &["resourceclaims", "resourceclaims/status"]),
            On(PATCH_UPDATE, CORE, &["pods/status"]),
            EVENTS,
        ],
    ),
    ("resourcequota-controller", &[On(LIST_WATCH, ALL, ALL), On(UPDATE, CORE, &["resourcequotas/status"]), EVENTS]),
    ("route-controller", &[On(LIST_WATCH, CORE, &["nodes"]), On(&["patch"], CORE, &["nodes/status"]), EVENTS]),
    (
        "selinux-warning-controller",
        &[
            EVENTS,
            On(READ, CORE, &["persistentvolumes"]),
            On(READ, CORE, &["persistentvolumeclaims"]),
            On(READ, CORE, &["pods"]),
            On(READ, STORAGE, &["csidrivers"]),
        ],
    ),
    ("service-account-controller", &[On(CREATE, CORE, &["serviceaccounts"]), EVENTS]),
    (
        "service-cidrs-controller",
        &[
            On(&["get", "list", "patch", "update", "watch"], NETWORKING, &["servicecidrs"]),
            On(PATCH_UPDATE, NETWORKING, &["servicecidrs/finalizers"]),
            On(PATCH_UPDATE, NETWORKING, &["servicecidrs/status"]),
            On(READ, NETWORKING, &["ipaddresses"]),
            EVENTS,
        ],
    ),
    (
        "service-controller",
        &[On(READ, CORE, &["services"]), On(PATCH_UPDATE, CORE, &["services/status"]), On(LIST_WATCH, CORE, &["nodes"]), EVENTS],
    ),
    (
        "statefulset-controller",
        &[
            On(LIST_WATCH, CORE, &["pods"]),
            On(READ, &["apps"], &["statefulsets"]),
            On(UPDATE, &["apps"], &["statefulsets/status"]),
            On(UPDATE, &["apps"], &["statefulsets/finalizers"]),
            On(&["create", "delete", "get", "patch", "update"], CORE, &["pods"]),
            On(MANAGE, &["apps"], &["controllerrevisions"]),
            On(&["create", "get", "list", "watch"], CORE, &["persistentvolumeclaims"]),
            On(&["delete", "update"], CORE, &["persistentvolumeclaims"]),
            On(UPDATE, CORE, &["pods/finalizers"]),
            EVENTS,
        ],
    ),
    (
        "certificate-controller",
        &[
            On(&["delete", "get", "list", "watch"], CERTIFICATES, &["certificatesigningrequests"]),
            On(UPDATE, CERTIFICATES, &["certificatesigningrequests/approval", "certificatesigningrequests/status"]),
            Named(&["approve"], CERTIFICATES, &["signers"], &["kubernetes.io/kube-apiserver-client-kubelet"]),
            Named(
                &["sign"],
                CERTIFICATES,
                &["signers"],
                &[
                    "kubernetes.io/kube-apiserver-client",
                    "kubernetes.io/kube-apiserver-client-kubelet",
                    "kubernetes.io/kubelet-serving",
                    "kubernetes.io/legacy-unknown",
                ],
            ),
            On(CREATE, &["authorization.k8s.io"], &["subjectaccessreviews"]),
            EVENTS,
        ],
    ),
    ("persistent-volume-binder", VOLUME_BINDER),
    ("pvc-protection-controller", &[On(READ_UPDATE, CORE, &["persistentvolumeclaims"]), On(READ, CORE, &["pods"]), EVENTS]),
    ("pv-protection-controller", &[On(READ_UPDATE, CORE, &["persistentvolumes"]), EVENTS]),
    ("ttl-after-finished-controller", &[On(&["delete", "get", "list", "watch"], BATCH, &["jobs"]), EVENTS]),
    ("ttl-controller", &[On(&["list", "patch", "update", "watch"], CORE, &["nodes"]), EVENTS]),
    (
        "validatingadmissionpolicy-status-controller",
        &[
            On(READ, &["admissionregistration.k8s.io"], &["validatingadmissionpolicies"]),
            On(&["get", "patch", "update"], &["admissionregistration.k8s.io"], &["validatingadmissionpolicies/status"]),
            EVENTS,
        ],
    ),
    (
        "volumeattributesclass-protection-controller",
        &[
            On(READ, CORE, &["persistentvolumeclaims"]),
            On(READ, CORE, &["persistentvolumes"]),
            On(READ_UPDATE, STORAGE, &["volumeattributesclasses"]),
            EVENTS,
        ],
    ),
    ("root-ca-cert-publisher", &[On(&["create", "update"], CORE, &["configmaps"]), EVENTS]),
];

/// Grants that Skiff's controllers need besides upstream's roles. They change objects by patches where upstream's
/// controllers send whole objects (`patch` instead of `update`, which allows no more). They also approve serving
/// certificates of nodes, which upstream leaves to other programs. A row has the name without `skiff:controller:`,
/// which is also the name of the account, and the grants.
pub const PATCHES: &[(&str, &[Grant])] = &[
    (
        "certificate-controller",
        &[
            On(PATCH, CERTIFICATES, &["certificatesigningrequests/approval", "certificatesigningrequests/status"]),
            Named(&["approve"], CERTIFICATES, &["signers"], &["kubernetes.io/kubelet-serving"]),
        ],
    ),
    ("cronjob-controller", &[On(PATCH, BATCH, &["cronjobs/status"])]),
    ("daemon-set-controller", &[On(PATCH, &["apps"], &["daemonsets/status"])]),
    ("deployment-controller", &[On(PATCH, &["apps"], &["deployments", "deployments/status"])]),
    ("disruption-controller", &[On(PATCH, &["policy"], &["poddisruptionbudgets/status"])]),
    ("endpoint-controller", &[On(PATCH, CORE, &["endpoints"])]),
    ("endpointslice-controller", &[On(PATCH, DISCOVERY, &["endpointslices"])]),
    ("endpointslicemirroring-controller", &[On(PATCH, DISCOVERY, &["endpointslices"])]),
    ("horizontal-pod-autoscaler", &[On(PATCH, &["autoscaling"], &["horizontalpodautoscalers/status"])]),
    ("job-controller", &[On(PATCH, BATCH, &["jobs/status"])]),
    ("keda-operator", KEDA_OPERATOR),
    ("local-path-provisioner", LOCAL_PATH),
    ("namespace-controller", &[On(PATCH, CORE, &["namespaces/status"])]),
    (
        "persistent-volume-binder",
        &[On(PATCH, CORE, &["persistentvolumeclaims", "persistentvolumeclaims/status", "persistentvolumes", "persistentvolumes/status"])],
    ),
    ("pv-protection-controller", &[On(PATCH, CORE, &["persistentvolumes"])]),
    ("pvc-protection-controller", &[On(PATCH, CORE, &["persistentvolumeclaims"])]),
    ("replicaset-controller", &[On(PATCH, &["apps"], &["replicasets", "replicasets/status"])]),
    ("replication-controller", &[On(PATCH, CORE, &["replicationcontrollers/status"])]),
    ("root-ca-cert-publisher", &[On(PATCH, CORE, &["configmaps"])]),
    ("statefulset-controller", &[On(PATCH, &["apps"], &["statefulsets/status"]), On(PATCH, CORE, &["persistentvolumeclaims"])]),
];

/// For ScaledObjects and ScaledJobs; upstream's operator has a role of its own with more rights. The controllers read the Secrets
/// and ConfigMaps that TriggerAuthentications name, and mark the Services whose connections are triggers.
const KEDA_OPERATOR: &[Grant] = &[
    On(PATCH, KEDA, &["scaledjobs", "scaledjobs/status", "scaledobjects", "scaledobjects/status"]),
    On(&["get"], KEDA, &["clustertriggerauthentications", "scaledjobs", "scaledobjects", "triggerauthentications"]),
    On(UPDATE, KEDA, &["scaledjobs/finalizers", "scaledobjects/finalizers"]),
    On(&["create", "delete", "get", "patch"], &["autoscaling"], &["horizontalpodautoscalers"]),
    On(&["create", "delete"], BATCH, &["jobs"]),
    On(&["get", "update"], ALL, &["*/scale"]),
    On(&["get"], CORE, &["configmaps", "secrets"]),
    On(PATCH, CORE, &["services"]),
    EVENTS,
];

/// The built-in provisioner: upstream's role of provisioners with patches, and what it asks of the nodes that have the directories.
const LOCAL_PATH: &[Grant] = &[
    On(&["create", "delete", "get", "patch"], CORE, &["persistentvolumes"]),
    On(&["get", "patch"], CORE, &["persistentvolumeclaims"]),
    On(PATCH, CORE, &["persistentvolumeclaims/status"]),
    On(&["get"], CORE, &["nodes"]),
    On(&["delete", "update"], CORE, &["nodes/proxy"]),
    EVENTS,
];

const VOLUME_BINDER: &[Grant] = &[
    On(KEEP, CORE, &["persistentvolumes"]),
    On(UPDATE, CORE, &["persistentvolumes/status"]),
    On(READ_UPDATE, CORE, &["persistentvolumeclaims"]),
    On(UPDATE, CORE, &["persistentvolumeclaims/status"]),
    On(&["create", "delete", "get", "list", "watch"], CORE, &["pods"]),
    On(READ, STORAGE, &["storageclasses"]),
    On(LIST_WATCH, CORE, &["nodes"]),
    EVENTS,
    On(&["watch"], CORE, &["events"]),
    On(&["get"], CORE, &["services"]),
];
