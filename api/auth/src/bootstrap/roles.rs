//! The tables of roles and bindings, without those of controllers.

use super::Grant::{Named, On, Paths};
use super::{ALL, CREATE, EVENTS, GET, Grant, LIST_WATCH, READ, READ_WRITE, Role, To, UPDATE, WRITE};
use crate::pki::KUBELET_CLIENT;

const CORE: &[&str] = &[""];
const APPS: &[&str] = &["apps"];
const AUTHENTICATION: &[&str] = &["authentication.k8s.io"];
const AUTHORIZATION: &[&str] = &["authorization.k8s.io"];
const CERTIFICATES: &[&str] = &["certificates.k8s.io"];
const COORDINATION: &[&str] = &["coordination.k8s.io"];
/// An old group, whose kinds have moved to other groups. Upstream's roles still name it.
const EXTENSIONS: &[&str] = &["extensions"];
const RESOURCE: &[&str] = &["resource.k8s.io"];
const SCHEDULING: &[&str] = &["scheduling.k8s.io"];
const STORAGE: &[&str] = &["storage.k8s.io"];

/// The rights of all nodes. The node authorizer restricts most of them to the node's own Pods.
pub const NODE: &[Grant] = &[
    On(CREATE, AUTHENTICATION, &["tokenreviews"]),
    On(CREATE, AUTHORIZATION, &["subjectaccessreviews", "localsubjectaccessreviews"]),
    On(READ, CORE, &["services"]),
    On(&["create", "get", "list", "watch"], CORE, &["nodes"]),
    On(&["patch", "update"], CORE, &["nodes/status"]),
    On(&["patch", "update"], CORE, &["nodes"]),
    EVENTS,
    On(READ, CORE, &["pods"]),
    On(&["create", "delete"], CORE, &["pods"]),
    On(&["patch", "update"], CORE, &["pods/status"]),
    On(CREATE, CORE, &["pods/eviction"]),
    On(READ, CORE, &["configmaps", "secrets"]),
    On(GET, CORE, &["persistentvolumeclaims", "persistentvolumes"]),
    On(&["create", "get", "list", "watch"], CERTIFICATES, &["certificatesigningrequests"]),
    On(&["create", "delete", "get", "patch", "update"], COORDINATION, &["leases"]),
    On(GET, STORAGE, &["volumeattachments"]),
    On(&["get", "patch", "update"], CORE, &["persistentvolumeclaims/status"]),
    On(READ, STORAGE, &["csidrivers"]),
    On(&["create", "delete", "get", "patch", "update"], STORAGE, &["csinodes"]),
    On(CREATE, CORE, &["serviceaccounts/token"]),
    On(READ, &["node.k8s.io"], &["runtimeclasses"]),
    On(GET, RESOURCE, &["resourceclaims"]),
    On(&["deletecollection"], RESOURCE, &["resourceslices"]),
];

const fn role(name: &'static str, grants: &'static [Grant]) -> Role {
    Role { name, part_of: &[], grants }
}

const fn part(name: &'static str, of: &'static [&'static str], grants: &'static [Grant]) -> Role {
    Role { name, part_of: of, grants }
}

/// The user that reads the metrics of nodes for `metrics.k8s.io`, its role, and the binding of both.
pub const METRICS_SCRAPER: &str = "skiff:metrics-scraper";
/// The role of those who read `metrics.k8s.io`; the metrics server's.
pub const METRICS_READER: &str = "system:aggregated-metrics-reader";

/// Roles that aggregate others by label, each with the role that aggregates it.
pub const AGGREGATING: &[(&str, &[&str])] = &[("admin", &[]), ("edit", &["admin"]), ("view", &["edit"])];

/// The cluster's roles.
pub const CLUSTER: &[Role] = &[
    role("cluster-admin", &[On(ALL, ALL, ALL), Paths(ALL, ALL)]),
    role(
        "system:discovery",
        &[Paths(
            GET,
            &["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"],
        )],
    ),
    role("system:public-info-viewer", &[Paths(GET, &["/healthz", "/livez", "/readyz", "/version", "/version/"])]),
    role(
        "system:monitoring",
        &[Paths(GET, &["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz", "/readyz/*"])],
    ),
    role(
        "system:basic-user",
        &[
            On(CREATE, AUTHORIZATION, &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
            On(CREATE, AUTHENTICATION, &["selfsubjectreviews"]),
        ],
    ),
    part(
        "system:aggregate-to-admin",
        &["admin"],
        &[
            On(CREATE, AUTHORIZATION, &["localsubjectaccessreviews"]),
            On(READ_WRITE, &["rbac.authorization.k8s.io"], &["rolebindings", "roles"]),
        ],
    ),
    part("system:aggregate-to-edit", &["edit"], EDIT),
    part("system:aggregate-to-view", &["view"], VIEW),
    Role { name: METRICS_READER, part_of: &["view", "edit", "admin"], grants: &[On(READ, &["metrics.k8s.io"], &["nodes", "pods"])] },
    part("skiff:keda:edit", &["edit"], &[On(WRITE, &["keda.sh"], ALL)]),
    part("skiff:keda:view", &["view"], &[On(READ, &["keda.sh"], ALL)]),
    role("system:node", NODE),
    role("system:node-problem-detector", &[On(GET, CORE, &["nodes"]), On(&["patch"], CORE, &["nodes/status"]), EVENTS]),
    role(
        "system:kubelet-api-admin",
        &[
            On(READ, CORE, &["nodes"]),
            On(&["proxy"], CORE, &["nodes"]),
            On(ALL, CORE, &["nodes/configz", "nodes/healthz", "nodes/log", "nodes/metrics", "nodes/pods", "nodes/proxy", "nodes/stats"]),
        ],
    ),
    role("system:node-bootstrapper", &[On(&["create", "get", "list", "watch"], CERTIFICATES, &["certificatesigningrequests"])]),
    role("system:auth-delegator", &[On(CREATE, AUTHENTICATION, &["tokenreviews"]), On(CREATE, AUTHORIZATION, &["subjectaccessreviews"])]),
    role("system:heapster", &[On(READ, CORE, &["events", "namespaces", "nodes", "pods"]), On(READ, EXTENSIONS, &["deployments"])]),
    role("system:kube-aggregator", &[On(READ, CORE, &["endpoints", "services"])]),
    role("system:kube-controller-manager", CONTROLLER_MANAGER),
    role("system:kube-dns", &[On(LIST_WATCH, CORE, &["endpoints", "services"])]),
    role("system:kube-scheduler", SCHEDULER),
    role(
        "system:volume-scheduler",
        &[
            On(&["get", "list", "patch", "update", "watch"], CORE, &["persistentvolumes"]),
            On(READ, STORAGE, &["storageclasses"]),
            On(&["get", "list", "patch", "update", "watch"], CORE, &["persistentvolumeclaims"]),
        ],
    ),
    role(
        "system:persistent-volume-provisioner",
        &[
            On(&["create", "delete", "get", "list", "watch"], CORE, &["persistentvolumes"]),
            On(&["get", "list", "update", "watch"], CORE, &["persistentvolumeclaims"]),
            On(READ, STORAGE, &["storageclasses"]),
            On(&["watch"], CORE, &["events"]),
            EVENTS,
        ],
    ),
    role(
        "system:node-proxier",
        &[
            On(LIST_WATCH, CORE, &["endpoints", "services"]),
            On(READ, CORE, &["nodes"]),
            EVENTS,
            On(LIST_WATCH, &["discovery.k8s.io"], &["endpointslices"]),
            On(LIST_WATCH, &["networking.k8s.io"], &["servicecidrs"]),
        ],
    ),
    role(
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &[On(CREATE, CERTIFICATES, &["certificatesigningrequests/nodeclient"])],
    ),
    role(
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &[On(CREATE, CERTIFICATES, &["certificatesigningrequests/selfnodeclient"])],
    ),
    role("system:certificates.k8s.io:legacy-unknown-approver", &[approve(&["kubernetes.io/legacy-unknown"])]),
    role("system:certificates.k8s.io:kubelet-serving-approver", &[approve(&["kubernetes.io/kubelet-serving"])]),
    role("system:certificates.k8s.io:kube-apiserver-client-approver", &[approve(&["kubernetes.io/kube-apiserver-client"])]),
    role("system:certificates.k8s.io:kube-apiserver-client-kubelet-approver", &[approve(&["kubernetes.io/kube-apiserver-client-kubelet"])]),
    role("system:service-account-issuer-discovery", &[Paths(GET, &["/.well-known/openid-configuration", "/openid/v1/jwks"])]),
    role(METRICS_SCRAPER, &[On(GET, CORE, &["nodes/metrics"])]),
    role("skiff:node-network", NODE_NETWORK),
    // The token controller uses the account of its manager, as upstream's, but patches Secrets.
    role("skiff:kube-controller-manager", &[On(&["patch"], CORE, &["secrets"])]),
];

const fn approve(signers: &'static [&'static str]) -> Grant {
    Named(&["approve"], CERTIFICATES, &["signers"], signers)
}

/// Each Skiff node does the work of upstream's network plugin, kube-proxy and CoreDNS itself. So nodes may read what
/// these read, except the Pods of other nodes.
const NODE_NETWORK: &[Grant] =
    &[On(LIST_WATCH, CORE, &["namespaces", "nodes", "services"]), On(LIST_WATCH, &["discovery.k8s.io"], &["endpointslices"])];

const EDIT: &[Grant] = &[
    On(READ, CORE, &["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"]),
    On(&["impersonate"], CORE, &["serviceaccounts"]),
    On(WRITE, CORE, &["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"]),
    On(CREATE, CORE, &["pods/eviction"]),
    On(
        WRITE,
        CORE,
        &[
            "configmaps",
            "events",
            "persistentvolumeclaims",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "secrets",
            "serviceaccounts",
            "services",
            "services/proxy",
        ],
    ),
    On(CREATE, CORE, &["serviceaccounts/token"]),
    On(
        WRITE,
        APPS,
        &[
            "daemonsets",
            "deployments",
            "deployments/rollback",
            "deployments/scale",
            "replicasets",
            "replicasets/scale",
            "statefulsets",
            "statefulsets/scale",
        ],
    ),
    On(WRITE, &["autoscaling"], &["horizontalpodautoscalers"]),
    On(WRITE, &["batch"], &["cronjobs", "jobs"]),
    On(WRITE, &["policy"], &["poddisruptionbudgets"]),
    On(
        WRITE,
        EXTENSIONS,
        &[
            "daemonsets",
            "deployments",
            "deployments/rollback",
            "deployments/scale",
            "ingresses",
            "networkpolicies",
            "replicasets",
            "replicasets/scale",
            "replicationcontrollers/scale",
        ],
    ),
    On(WRITE, &["networking.k8s.io"], &["ingresses", "networkpolicies"]),
    On(READ_WRITE, COORDINATION, &["leases"]),
    On(WRITE, RESOURCE, &["resourceclaims", "resourceclaimtemplates"]),
    On(WRITE, SCHEDULING, &["podgroups", "workloads"]),
];

const VIEW: &[Grant] = &[
    On(
        READ,
        CORE,
        &[
            "configmaps",
            "endpoints",
            "persistentvolumeclaims",
            "persistentvolumeclaims/status",
            "pods",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "serviceaccounts",
            "services",
            "services/status",
        ],
    ),
    On(
        READ,
        CORE,
        &[
            "bindings",
            "events",
            "limitranges",
            "namespaces/status",
            "pods/log",
            "pods/status",
            "replicationcontrollers/status",
            "resourcequotas",
            "resourcequotas/status",
        ],
    ),
    On(READ, CORE, &["namespaces"]),
    On(READ, &["discovery.k8s.io"], &["endpointslices"]),
    On(
        READ,
        APPS,
        &[
            "controllerrevisions",
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "statefulsets",
            "statefulsets/scale",
            "statefulsets/status",
        ],
    ),
    On(READ, &["autoscaling"], &["horizontalpodautoscalers", "horizontalpodautoscalers/status"]),
    On(READ, &["batch"], &["cronjobs", "cronjobs/status", "jobs", "jobs/status"]),
    On(READ, &["policy"], &["poddisruptionbudgets", "poddisruptionbudgets/status"]),
    On(
        READ,
        EXTENSIONS,
        &[
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "ingresses",
            "ingresses/status",
            "networkpolicies",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "replicationcontrollers/scale",
        ],
    ),
    On(READ, &["networking.k8s.io"], &["ingresses", "ingresses/status", "networkpolicies"]),
    On(READ, RESOURCE, &["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"]),
    On(READ, SCHEDULING, &["podgroups", "podgroups/status", "workloads"]),
];

const CONTROLLER_MANAGER: &[Grant] = &[
    EVENTS,
    On(CREATE, COORDINATION, &["leases"]),
    Named(&["get", "update"], COORDINATION, &["leases"], &["kube-controller-manager"]),
    On(CREATE, CORE, &["secrets", "serviceaccounts"]),
    On(&["delete"], CORE, &["secrets"]),
    On(GET, CORE, &["configmaps", "namespaces", "secrets", "serviceaccounts"]),
    On(UPDATE, CORE, &["secrets", "serviceaccounts"]),
    On(CREATE, AUTHENTICATION, &["tokenreviews"]),
    On(CREATE, AUTHORIZATION, &["subjectaccessreviews"]),
    On(LIST_WATCH, ALL, ALL),
    On(CREATE, CORE, &["serviceaccounts/token"]),
];

const SCHEDULER: &[Grant] = &[
    EVENTS,
    On(CREATE, COORDINATION, &["leases"]),
    Named(&["get", "list", "update", "watch"], COORDINATION, &["leases"], &["kube-scheduler"]),
    On(READ, CORE, &["nodes"]),
    On(&["delete", "get", "list", "watch"], CORE, &["pods"]),
    On(CREATE, CORE, &["bindings", "pods/binding"]),
    On(&["patch", "update"], CORE, &["pods/status"]),
    On(READ, CORE, &["replicationcontrollers", "services"]),
    On(READ, &["apps", "extensions"], &["replicasets"]),
    On(READ, APPS, &["statefulsets"]),
    On(READ, &["policy"], &["poddisruptionbudgets"]),
    On(READ, CORE, &["persistentvolumeclaims", "persistentvolumes"]),
    On(CREATE, AUTHENTICATION, &["tokenreviews"]),
    On(CREATE, AUTHORIZATION, &["subjectaccessreviews"]),
    On(READ, STORAGE, &["csinodes"]),
    On(READ, CORE, &["namespaces"]),
    On(READ, STORAGE, &["csidrivers"]),
    On(READ, STORAGE, &["csistoragecapacities"]),
    On(READ, STORAGE, &["volumeattachments"]),
    On(READ, RESOURCE, &["deviceclasses", "devicetaintrules", "resourceclaims", "resourceslices"]),
    On(&["patch", "update"], RESOURCE, &["resourceclaims", "resourceclaims/status"]),
    On(&["create", "delete"], RESOURCE, &["resourceclaims"]),
    On(UPDATE, CORE, &["pods/finalizers"]),
    On(READ, SCHEDULING, &["podgroups", "workloads"]),
    On(&["patch", "update"], SCHEDULING, &["podgroups/status"]),
];

/// kubeadm's group of the tokens with which nodes join. Other bootstrap tokens have no rights.
pub const JOINING: &str = "system:bootstrappers:kubeadm:default-node-token";

/// Name, role, subjects. The two of bootstrappers are kubeadm's. The two of nodes replace the bindings of the
/// ServiceAccounts of kube-proxy and CoreDNS in an upstream cluster.
pub const CLUSTER_BINDINGS: &[(&str, &str, &[To])] = &[
    ("cluster-admin", "cluster-admin", &[To::Group("system:masters")]),
    ("system:monitoring", "system:monitoring", &[To::Group("system:monitoring")]),
    ("system:discovery", "system:discovery", &[To::Group("system:authenticated")]),
    ("system:basic-user", "system:basic-user", &[To::Group("system:authenticated")]),
    ("system:public-info-viewer", "system:public-info-viewer", &[To::Group("system:authenticated"), To::Group("system:unauthenticated")]),
    ("system:node-proxier", "system:node-proxier", &[To::User("system:kube-proxy")]),
    ("system:kube-controller-manager", "system:kube-controller-manager", &[To::User("system:kube-controller-manager")]),
    ("system:kube-dns", "system:kube-dns", &[To::Account("kube-dns")]),
    ("system:kube-scheduler", "system:kube-scheduler", &[To::User("system:kube-scheduler")]),
    ("system:volume-scheduler", "system:volume-scheduler", &[To::User("system:kube-scheduler")]),
    ("system:node", "system:node", &[]),
    ("system:service-account-issuer-discovery", "system:service-account-issuer-discovery", &[To::Group("system:serviceaccounts")]),
    ("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", &[To::Group(JOINING)]),
    ("kubeadm:node-autoapprove-bootstrap", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", &[To::Group(JOINING)]),
    (
        "kubeadm:node-autoapprove-certificate-rotation",
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &[To::Group("system:nodes")],
    ),
    ("skiff:kube-apiserver-kubelet-client", "system:kubelet-api-admin", &[To::User(KUBELET_CLIENT)]),
    ("skiff:kube-controller-manager", "skiff:kube-controller-manager", &[To::User("system:kube-controller-manager")]),
    (METRICS_SCRAPER, METRICS_SCRAPER, &[To::User(METRICS_SCRAPER)]),
    ("skiff:node-network", "skiff:node-network", &[To::Group("system:nodes")]),
];

/// Namespace, name, grants.
pub const NAMESPACED: &[(&str, &str, &[Grant])] = &[
    (
        "kube-system",
        "extension-apiserver-authentication-reader",
        &[Named(READ, CORE, &["configmaps"], &["extension-apiserver-authentication"])],
    ),
    ("kube-system", "system:controller:bootstrap-signer", &[On(READ, CORE, &["secrets"])]),
    (
        "kube-public",
        "system:controller:bootstrap-signer",
        &[On(READ, CORE, &["configmaps"]), Named(UPDATE, CORE, &["configmaps"], &["cluster-info"]), EVENTS],
    ),
    ("kube-public", "skiff:controller:bootstrap-signer", &[Named(&["patch"], CORE, &["configmaps"], &["cluster-info"])]),
    ("kube-system", "system:controller:cloud-provider", &[On(&["create", "get", "list", "watch"], CORE, &["configmaps"])]),
    ("kube-system", "system:controller:token-cleaner", &[On(&["delete", "get", "list", "watch"], CORE, &["secrets"]), EVENTS]),
    (
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        &[On(&["watch"], CORE, &["configmaps"]), Named(&["get", "update"], CORE, &["configmaps"], &["kube-controller-manager"])],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-scheduler",
        &[On(&["watch"], CORE, &["configmaps"]), Named(&["get", "update"], CORE, &["configmaps"], &["kube-scheduler"])],
    ),
];

/// Namespace, name, role, subjects.
pub const NAMESPACED_BINDINGS: &[(&str, &str, &str, &[To])] = &[
    (
        "kube-system",
        "system::extension-apiserver-authentication-reader",
        "extension-apiserver-authentication-reader",
        &[To::User("system:kube-controller-manager"), To::User("system:kube-scheduler")],
    ),
    ("kube-system", "system:controller:bootstrap-signer", "system:controller:bootstrap-signer", &[To::Account("bootstrap-signer")]),
    ("kube-public", "system:controller:bootstrap-signer", "system:controller:bootstrap-signer", &[To::Account("bootstrap-signer")]),
    ("kube-public", "skiff:controller:bootstrap-signer", "skiff:controller:bootstrap-signer", &[To::Account("bootstrap-signer")]),
    ("kube-system", "system:controller:cloud-provider", "system:controller:cloud-provider", &[To::Account("cloud-provider")]),
    ("kube-system", "system:controller:token-cleaner", "system:controller:token-cleaner", &[To::Account("token-cleaner")]),
    (
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        "system::leader-locking-kube-controller-manager",
        &[To::User("system:kube-controller-manager"), To::Account("kube-controller-manager")],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-scheduler",
        "system::leader-locking-kube-scheduler",
        &[To::User("system:kube-scheduler"), To::Account("kube-scheduler")],
    ),
];
