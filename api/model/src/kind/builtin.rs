//! The rows: every built-in kind in the stable versions of Kubernetes, and the metrics of resources.
//!
//! A new kind needs a row here, a rules file in `api-rules` and, if `kubectl get` shows more than name and age, a
//! printer in `api-print`.

use std::sync::{Arc, LazyLock};

use super::{Kind, METRICS, Subresource};

/// The content of a row; the rest of a [`Kind`] follows from it.
struct Row {
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    scope: Scope,
    sub: &'static [&'static str],
}

/// The scope, and the verbs if they differ from the usual ones.
#[derive(PartialEq)]
enum Scope {
    Namespaced,
    Cluster,
    /// Cluster-scoped, without `deletecollection`.
    ClusterSingly,
    /// Only `create`: the object is a question and is not stored.
    ClusterCreate,
    NamespacedCreate,
    /// Only `get` and `list`: the object is a report and is not stored.
    ClusterReport,
    NamespacedReport,
}
use Scope::{Cluster, ClusterCreate, ClusterReport, ClusterSingly, Namespaced, NamespacedCreate, NamespacedReport};

const fn row(kind: &'static str, plural: &'static str, short: &'static [&'static str], scope: Scope, sub: &'static [&'static str]) -> Row {
    Row { kind, plural, short, categories: &[], scope, sub }
}

const fn all(kind: &'static str, plural: &'static str, short: &'static [&'static str], sub: &'static [&'static str]) -> Row {
    Row { kind, plural, short, categories: &["all"], scope: Namespaced, sub }
}

/// Groups with their version in upstream's order of preference.
const GROUPS: &[(&str, &str, &[Row])] = &[
    (
        "",
        "v1",
        &[
            row("Binding", "bindings", &[], NamespacedCreate, &[]),
            row("ComponentStatus", "componentstatuses", &["cs"], ClusterReport, &[]),
            row("ConfigMap", "configmaps", &["cm"], Namespaced, &[]),
            row("Endpoints", "endpoints", &["ep"], Namespaced, &[]),
            row("Event", "events", &["ev"], Namespaced, &[]),
            row("LimitRange", "limitranges", &["limits"], Namespaced, &[]),
            row("Namespace", "namespaces", &["ns"], ClusterSingly, &["finalize", "status"]),
            row("Node", "nodes", &["no"], Cluster, &["proxy", "status"]),
            row("PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"], Namespaced, &["status"]),
            row("PersistentVolume", "persistentvolumes", &["pv"], Cluster, &["status"]),
            all(
                "Pod",
                "pods",
                &["po"],
                &["attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward", "proxy", "resize", "status"],
            ),
            row("PodTemplate", "podtemplates", &[], Namespaced, &[]),
            all("ReplicationController", "replicationcontrollers", &["rc"], &["scale", "status"]),
            row("ResourceQuota", "resourcequotas", &["quota"], Namespaced, &["status"]),
            row("Secret", "secrets", &[], Namespaced, &[]),
            row("ServiceAccount", "serviceaccounts", &["sa"], Namespaced, &["token"]),
            all("Service", "services", &["svc"], &["proxy", "status"]),
        ],
    ),
    (
        "apiregistration.k8s.io",
        "v1",
        &[Row { kind: "APIService", plural: "apiservices", short: &[], categories: &["api-extensions"], scope: Cluster, sub: &["status"] }],
    ),
    ("events.k8s.io", "v1", &[row("Event", "events", &["ev"], Namespaced, &[])]),
    (
        "authentication.k8s.io",
        "v1",
        &[
            row("SelfSubjectReview", "selfsubjectreviews", &[], ClusterCreate, &[]),
            row("TokenReview", "tokenreviews", &[], ClusterCreate, &[]),
        ],
    ),
    (
        "authorization.k8s.io",
        "v1",
        &[
            row("LocalSubjectAccessReview", "localsubjectaccessreviews", &[], NamespacedCreate, &[]),
            row("SelfSubjectAccessReview", "selfsubjectaccessreviews", &[], ClusterCreate, &[]),
            row("SelfSubjectRulesReview", "selfsubjectrulesreviews", &[], ClusterCreate, &[]),
            row("SubjectAccessReview", "subjectaccessreviews", &[], ClusterCreate, &[]),
        ],
    ),
    (
        "apps",
        "v1",
        &[
            row("ControllerRevision", "controllerrevisions", &[], Namespaced, &[]),
            all("DaemonSet", "daemonsets", &["ds"], &["status"]),
            all("Deployment", "deployments", &["deploy"], &["scale", "status"]),
            all("ReplicaSet", "replicasets", &["rs"], &["scale", "status"]),
            all("StatefulSet", "statefulsets", &["sts"], &["scale", "status"]),
        ],
    ),
    // Both versions have the same objects; the first version is the preferred one.
    ("autoscaling", "v2", &[all("HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"], &["status"])]),
    ("autoscaling", "v1", &[all("HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"], &["status"])]),
    ("batch", "v1", &[all("CronJob", "cronjobs", &["cj"], &["status"]), all("Job", "jobs", &[], &["status"])]),
    (
        "certificates.k8s.io",
        "v1",
        &[
            row("CertificateSigningRequest", "certificatesigningrequests", &["csr"], Cluster, &["approval", "status"]),
            row("ClusterTrustBundle", "clustertrustbundles", &[], Cluster, &[]),
            row("PodCertificateRequest", "podcertificaterequests", &[], Namespaced, &["status"]),
        ],
    ),
    (
        "networking.k8s.io",
        "v1",
        &[
            row("IngressClass", "ingressclasses", &[], Cluster, &[]),
            row("Ingress", "ingresses", &["ing"], Namespaced, &["status"]),
            row("IPAddress", "ipaddresses", &["ip"], Cluster, &[]),
            row("NetworkPolicy", "networkpolicies", &["netpol"], Namespaced, &[]),
            row("ServiceCIDR", "servicecidrs", &[], Cluster, &["status"]),
        ],
    ),
    ("policy", "v1", &[row("PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], Namespaced, &["status"])]),
    (
        "rbac.authorization.k8s.io",
        "v1",
        &[
            row("ClusterRoleBinding", "clusterrolebindings", &[], Cluster, &[]),
            row("ClusterRole", "clusterroles", &[], Cluster, &[]),
            row("RoleBinding", "rolebindings", &[], Namespaced, &[]),
            row("Role", "roles", &[], Namespaced, &[]),
        ],
    ),
    (
        "storage.k8s.io",
        "v1",
        &[
            row("CSIDriver", "csidrivers", &[], Cluster, &[]),
            row("CSINode", "csinodes", &[], Cluster, &[]),
            row("CSIStorageCapacity", "csistoragecapacities", &[], Namespaced, &[]),
            row("StorageClass", "storageclasses", &["sc"], Cluster, &[]),
            row("VolumeAttachment", "volumeattachments", &[], Cluster, &["status"]),
            row("VolumeAttributesClass", "volumeattributesclasses", &["vac"], Cluster, &[]),
        ],
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        &[
            row("MutatingAdmissionPolicy", "mutatingadmissionpolicies", &[], Cluster, &[]),
            row("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", &[], Cluster, &[]),
            row("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", &[], Cluster, &[]),
            row("ValidatingAdmissionPolicy", "validatingadmissionpolicies", &[], Cluster, &["status"]),
            row("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", &[], Cluster, &[]),
            row("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", &[], Cluster, &[]),
        ],
    ),
    ("scheduling.k8s.io", "v1", &[row("PriorityClass", "priorityclasses", &["pc"], Cluster, &[])]),
    // Groups of Pods have no stable version upstream.
    (
        "scheduling.k8s.io",
        "v1beta1",
        &[row("PodGroup", "podgroups", &[], Namespaced, &["status"]), row("Workload", "workloads", &[], Namespaced, &[])],
    ),
    ("coordination.k8s.io", "v1", &[row("Lease", "leases", &[], Namespaced, &[])]),
    ("node.k8s.io", "v1", &[row("RuntimeClass", "runtimeclasses", &[], Cluster, &[])]),
    ("discovery.k8s.io", "v1", &[row("EndpointSlice", "endpointslices", &[], Namespaced, &[])]),
    (
        "flowcontrol.apiserver.k8s.io",
        "v1",
        &[
            row("FlowSchema", "flowschemas", &[], Cluster, &["status"]),
            row("PriorityLevelConfiguration", "prioritylevelconfigurations", &[], Cluster, &["status"]),
        ],
    ),
    (
        "apiextensions.k8s.io",
        "v1",
        &[Row {
            kind: "CustomResourceDefinition",
            plural: "customresourcedefinitions",
            short: &["crd", "crds"],
            categories: &["api-extensions"],
            scope: Cluster,
            sub: &["status"],
        }],
    ),
    (
        "resource.k8s.io",
        "v1",
        &[
            row("DeviceClass", "deviceclasses", &[], Cluster, &[]),
            row("DeviceTaintRule", "devicetaintrules", &[], Cluster, &["status"]),
            row("ResourceClaim", "resourceclaims", &[], Namespaced, &["status"]),
            row("ResourceClaimTemplate", "resourceclaimtemplates", &[], Namespaced, &[]),
            row("ResourceSlice", "resourceslices", &[], Cluster, &[]),
        ],
    ),
    ("storagemigration.k8s.io", "v1", &[row("StorageVersionMigration", "storageversionmigrations", &[], Cluster, &["status"])]),
    // Last: `pods` and `nodes` without a group are those of the core group.
    (METRICS, "v1beta1", &[row("NodeMetrics", "nodes", &[], ClusterReport, &[]), row("PodMetrics", "pods", &[], NamespacedReport, &[])]),
];

/// Every built-in kind, in discovery order.
pub fn builtin() -> &'static [Arc<Kind>] {
    static TABLE: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(|| {
        GROUPS.iter().flat_map(|(group, version, rows)| rows.iter().map(|row| Arc::new(kind_of(group, version, row)))).collect()
    });
    &TABLE
}

fn kind_of(group: &str, version: &str, row: &Row) -> Kind {
    Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: row.kind.to_owned(),
        plural: row.plural.to_owned(),
        singular: row.kind.to_lowercase(),
        short_names: owned(row.short),
        categories: owned(row.categories),
        namespaced: matches!(row.scope, Namespaced | NamespacedCreate | NamespacedReport),
        verbs: owned(verbs_of(&row.scope)),
        subresources: row.sub.iter().map(|name| subresource(name)).collect(),
        custom: None,
    }
}

fn verbs_of(scope: &Scope) -> &'static [&'static str] {
    match scope {
        Namespaced | Cluster => &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        ClusterSingly => &["create", "delete", "get", "list", "patch", "update", "watch"],
        ClusterCreate | NamespacedCreate => &["create"],
        ClusterReport | NamespacedReport => &["get", "list"],
    }
}

/// Verbs and body kind of a subresource. A name has the same meaning for all kinds.
pub fn subresource(name: &str) -> Subresource {
    let (kind, verbs): (Option<(&str, &str, &str)>, &[&str]) = match name {
        "scale" => (Some(("autoscaling", "v1", "Scale")), &["get", "patch", "update"]),
        "binding" => (Some(("", "v1", "Binding")), &["create"]),
        "eviction" => (Some(("policy", "v1", "Eviction")), &["create"]),
        "token" => (Some(("authentication.k8s.io", "v1", "TokenRequest")), &["create"]),
        "attach" => (Some(("", "v1", "PodAttachOptions")), &["create", "get"]),
        "exec" => (Some(("", "v1", "PodExecOptions")), &["create", "get"]),
        "portforward" => (Some(("", "v1", "PodPortForwardOptions")), &["create", "get"]),
        "proxy" => (None, &["create", "delete", "get", "patch", "update"]),
        "log" => (None, &["get"]),
        "finalize" => (None, &["update"]),
        _ => (None, &["get", "patch", "update"]),
    };
    Subresource {
        name: name.to_owned(),
        kind: kind.map(|(group, version, kind)| (group.to_owned(), version.to_owned(), kind.to_owned())),
        verbs: owned(verbs),
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
