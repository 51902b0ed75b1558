//! The rows of a Pod's spec.

use super::Part::{ApiServer, Controller, NodeAgent, Scheduler};
use super::{Field, Fields, Part};

const NODE: &[Part] = &[NodeAgent];
const SERVER: &[Part] = &[ApiServer];
const SCHEDULER: &[Part] = &[Scheduler];
/// The API server adds the values of `matchLabelKeys` to the selectors.
const SELECTED: &[Part] = &[Scheduler, ApiServer];
const PLACED: &[Part] = &[Scheduler, NodeAgent];

const ENV: &str = "node/agent/src/container/env.rs";
const FILES: &str = "node/agent/src/container/files.rs";
const HOOKS: &str = "node/agent/src/hooks.rs";
const PROBE: &str = "node/agent/src/probe.rs";
const PULL: &str = "node/agent/src/worker/effect/pull.rs";
const RUNTIME_CLASS: &str = "node/agent/src/worker/effect/runtime_class.rs";
const SANDBOX: &str = "node/agent/src/worker/effect/sandbox.rs";
const TERMINATION_MESSAGE: &str = "node/agent/src/worker/effect/termination_message.rs";
const HTTP_ACTION: &str = "node/agent/src/action/http.rs";
const APP_ARMOR: &str = "node/agent/src/app_armor.rs";
const ENFORCE: &str = "node/agent/src/enforce.rs";
const SECURITY: &str = "node/agent/src/container/security.rs";
const SPEC_OF: &str = "node/agent/src/container/spec.rs";
const VOLUMES: &str = "node/volumes/src/lib.rs";

/// Why sources mention fields that they only check, or grant access for.
const CHECKED: &str = "PodSecurity looks at it";
const SECRETS: &str = "a node may read the Secrets that its Pods name";
const WORD: &str = "the word means other things too";

/// The rows of a list of containers: the common rows and the rows of this list only.
macro_rules! container_rows {
    ($list:literal, $own:ident) => {
        &[
            Fields { prefix: $list, rows: CONTAINER },
            Fields { prefix: $list, rows: $own },
            Fields { prefix: concat!($list, ".resources"), rows: RESOURCES },
            Fields { prefix: concat!($list, ".securityContext"), rows: CONTAINER_SECURITY },
            Fields { prefix: concat!($list, ".livenessProbe"), rows: A_PROBE },
            Fields { prefix: concat!($list, ".livenessProbe.httpGet"), rows: HTTP_GET },
            Fields { prefix: concat!($list, ".readinessProbe"), rows: A_PROBE },
            Fields { prefix: concat!($list, ".readinessProbe.httpGet"), rows: HTTP_GET },
            Fields { prefix: concat!($list, ".startupProbe"), rows: A_PROBE },
            Fields { prefix: concat!($list, ".startupProbe.httpGet"), rows: HTTP_GET },
            Fields { prefix: concat!($list, ".lifecycle.postStart"), rows: A_HOOK },
            Fields { prefix: concat!($list, ".lifecycle.postStart.httpGet"), rows: HTTP_GET },
            Fields { prefix: concat!($list, ".lifecycle.preStop"), rows: A_HOOK },
            Fields { prefix: concat!($list, ".lifecycle.preStop.httpGet"), rows: HTTP_GET },
        ]
    };
}

/// All rows.
pub(super) const SPEC: &[&[Fields]] = &[
    &[
        Fields { prefix: "", rows: TOP },
        Fields { prefix: "resources", rows: RESOURCES },
        Fields { prefix: "securityContext", rows: SECURITY_CONTEXT },
    ],
    container_rows!("containers[]", MAIN),
    container_rows!("initContainers[]", INIT),
    container_rows!("ephemeralContainers[]", EPHEMERAL_CONTAINER),
    &[
        Fields { prefix: "volumes[]", rows: VOLUME },
        Fields { prefix: "volumes[].configMap", rows: CONFIG_MAP },
        Fields { prefix: "volumes[].configMap.items[]", rows: KEY_TO_PATH },
        Fields { prefix: "volumes[].secret", rows: SECRET },
        Fields { prefix: "volumes[].secret.items[]", rows: KEY_TO_PATH },
        Fields { prefix: "volumes[].downwardAPI", rows: DOWNWARD },
        Fields { prefix: "volumes[].downwardAPI.items[]", rows: DOWNWARD_FILE },
        Fields { prefix: "volumes[].projected", rows: PROJECTED },
        Fields { prefix: "volumes[].projected.sources[].configMap", rows: PROJECTED_SOURCE },
        Fields { prefix: "volumes[].projected.sources[].configMap.items[]", rows: KEY_TO_PATH },
        Fields { prefix: "volumes[].projected.sources[].secret", rows: PROJECTED_SOURCE },
        Fields { prefix: "volumes[].projected.sources[].secret.items[]", rows: KEY_TO_PATH },
        Fields { prefix: "volumes[].projected.sources[].downwardAPI.items[]", rows: DOWNWARD_FILE },
    ],
];

const TOP: &[Field] = &[
    Field::by(NODE, "activeDeadlineSeconds", "node/agent/src/worker/plan.rs"),
    Field::by(PLACED, "affinity.nodeAffinity", "sched/scheduler/src/plugins/node_affinity.rs"),
    Field::by(SELECTED, "affinity.podAffinity", "sched/framework/src/pod_affinity.rs"),
    Field::by(SELECTED, "affinity.podAntiAffinity", "sched/framework/src/pod_affinity.rs"),
    Field::by(SERVER, "automountServiceAccountToken", "api/admission/src/plugins/service_account.rs"),
    Field::by(NODE, "dnsConfig", "node/agent/src/container/resolv.rs"),
    Field::by(NODE, "dnsPolicy", "node/agent/src/container/resolv.rs"),
    Field::by(NODE, "enableServiceLinks", ENV),
    Field::nobody("evictionResponders"),
    Field::by(NODE, "hostAliases", FILES),
    Field::by(NODE, "hostIPC", SANDBOX),
    Field::by(NODE, "hostNetwork", FILES),
    Field::by(NODE, "hostPID", "node/agent/src/container/processes.rs"),
    Field::by(NODE, "hostUsers", "node/agent/src/container.rs"),
    Field::by(NODE, "hostname", FILES),
    Field::by(NODE, "hostnameOverride", FILES),
    Field::by(NODE, "imagePullSecrets", PULL),
    Field::by(PLACED, "nodeName", "sched/scheduler/src/plugins/node_name.rs"),
    Field::by(PLACED, "nodeSelector", "sched/framework/src/node_affinity.rs"),
    Field::by(NODE, "os", ENFORCE),
    Field::by(PLACED, "overhead", "sched/framework/src/pod.rs"),
    Field::by(SCHEDULER, "preemptionPolicy", "sched/framework/src/pod.rs"),
    Field::by(PLACED, "priority", "sched/framework/src/pod.rs"),
    Field::by(SERVER, "priorityClassName", "api/admission/src/plugins/priority.rs"),
    Field::by(NODE, "readinessGates", "node/agent/src/status/conditions.rs"),
    Field::by(&[Scheduler, Controller("resourceclaim-controller"), NodeAgent], "resourceClaims", "sched/framework/src/resource_claim.rs"),
    Field::by(NODE, "restartPolicy", "node/agent/src/record/restart.rs"),
    Field::by(NODE, "runtimeClassName", RUNTIME_CLASS),
    Field::by(SCHEDULER, "schedulerName", "sched/scheduler/src/run.rs"),
    Field::by(SCHEDULER, "schedulingGates", "sched/framework/src/pod.rs"),
    Field::by(SCHEDULER, "schedulingGroup", "sched/framework/src/pod.rs"),
    Field::by(SERVER, "serviceAccount", "api/admission/src/plugins/service_account.rs"),
    Field::by(SERVER, "serviceAccountName", "api/admission/src/plugins/service_account.rs"),
    Field::by(NODE, "setHostnameAsFQDN", FILES),
    Field::by(NODE, "shareProcessNamespace", "node/agent/src/container/processes.rs"),
    Field::by(NODE, "subdomain", FILES),
    Field::by(NODE, "terminationGracePeriodSeconds", "node/agent/src/worker/plan.rs"),
    Field::by(&[Scheduler, Controller("taint-eviction-controller")], "tolerations", "sched/scheduler/src/plugins/taint_toleration.rs"),
    Field::by(SCHEDULER, "topologySpreadConstraints", "sched/framework/src/topology_spread.rs"),
];

const SECURITY_CONTEXT: &[Field] = &[
    Field::by(NODE, "appArmorProfile", APP_ARMOR),
    Field::by(NODE, "fsGroup", "node/volumes/src/kind.rs"),
    Field::by(NODE, "fsGroupChangePolicy", "node/volumes/src/kind.rs"),
    Field::by(NODE, "runAsGroup", SECURITY),
    Field::by(NODE, "runAsNonRoot", SECURITY),
    Field::by(NODE, "runAsUser", SECURITY),
    Field::nobody("seLinuxChangePolicy"),
    Field::by(NODE, "seLinuxOptions", ENFORCE),
    Field::by(NODE, "seccompProfile", SECURITY),
    Field::by(NODE, "supplementalGroups", SECURITY),
    Field::by(NODE, "supplementalGroupsPolicy", SECURITY),
    Field::by(NODE, "sysctls", "node/agent/src/sysctls.rs"),
    Field::nobody("windowsOptions").although(CHECKED),
];

/// The resources of containers and whole Pods.
const RESOURCES: &[Field] = &[
    Field::by(PLACED, "limits", "node/agent/src/container/resources.rs"),
    Field::by(PLACED, "requests", "node/agent/src/container/resources.rs"),
    Field::nobody("claims").although(WORD),
];

/// Fields of all lists of containers.
const CONTAINER: &[Field] = &[
    Field::by(NODE, "args", "node/agent/src/container/spec.rs"),
    Field::by(NODE, "command", "node/agent/src/container/spec.rs"),
    Field::by(NODE, "env[].name", ENV),
    Field::by(NODE, "env[].value", ENV),
    Field::by(NODE, "env[].valueFrom.configMapKeyRef", ENV),
    Field::by(NODE, "env[].valueFrom.fieldRef", ENV),
    Field::by(NODE, "env[].valueFrom.fileKeyRef", ENV),
    Field::by(NODE, "env[].valueFrom.resourceFieldRef", ENV),
    Field::by(NODE, "env[].valueFrom.secretKeyRef", ENV),
    Field::by(NODE, "envFrom", ENV),
    Field::by(NODE, "image", PULL),
    Field::by(NODE, "imagePullPolicy", PULL),
    Field::by(NODE, "lifecycle.stopSignal", "node/agent/src/worker/effect/stop.rs"),
    Field::by(NODE, "name", SPEC_OF),
    Field::by(PLACED, "ports", SANDBOX),
    Field::by(NODE, "resizePolicy", "node/agent/src/resize.rs"),
    Field::by(NODE, "restartPolicyRules", "node/agent/src/record/restart.rs"),
    Field::by(NODE, "stdin", SPEC_OF),
    Field::by(NODE, "stdinOnce", SPEC_OF),
    Field::by(NODE, "terminationMessagePath", SPEC_OF),
    Field::by(NODE, "terminationMessagePolicy", TERMINATION_MESSAGE),
    Field::by(NODE, "tty", SPEC_OF),
    Field::by(NODE, "volumeDevices", "node/volumes/src/block.rs"),
    Field::by(NODE, "volumeMounts[].bindMountOptions", ENFORCE),
    Field::by(NODE, "volumeMounts[].mountPath", VOLUMES),
    Field::by(NODE, "volumeMounts[].mountPropagation", VOLUMES),
    Field::by(NODE, "volumeMounts[].name", VOLUMES),
    Field::by(NODE, "volumeMounts[].readOnly", VOLUMES),
    Field::by(NODE, "volumeMounts[].recursiveReadOnly", ENFORCE),
    Field::by(NODE, "volumeMounts[].subPath", VOLUMES),
    Field::by(NODE, "volumeMounts[].subPathExpr", VOLUMES),
    Field::by(NODE, "workingDir", SPEC_OF),
];

const MAIN: &[Field] = &[Field::by(NODE, "restartPolicy", "node/agent/src/record/restart.rs")];
const INIT: &[Field] = &[Field::by(NODE, "restartPolicy", "node/agent/src/container.rs")];

/// The server rejects most fields of these that concern restarts, probes, hooks and resources.
const EPHEMERAL_CONTAINER: &[Field] = &[
    Field::by(SERVER, "restartPolicy", "api/rules/src/pod/container.rs"),
    Field::by(NODE, "targetContainerName", "node/agent/src/container/ephemeral.rs"),
];

const CONTAINER_SECURITY: &[Field] = &[
    Field::by(NODE, "allowPrivilegeEscalation", SECURITY),
    Field::by(NODE, "appArmorProfile", APP_ARMOR),
    Field::by(NODE, "capabilities", SECURITY),
    Field::by(NODE, "privileged", SECURITY),
    Field::by(NODE, "procMount", SECURITY),
    Field::by(NODE, "readOnlyRootFilesystem", SECURITY),
    Field::by(NODE, "runAsGroup", SECURITY),
    Field::by(NODE, "runAsNonRoot", SECURITY),
    Field::by(NODE, "runAsUser", SECURITY),
    Field::by(NODE, "seLinuxOptions", ENFORCE),
    Field::by(NODE, "seccompProfile", SECURITY),
    Field::nobody("windowsOptions").although(CHECKED),
];

const A_PROBE: &[Field] = &[
    Field::by(NODE, "exec", PROBE),
    Field::by(NODE, "failureThreshold", PROBE),
    Field::nobody("grpc.mode").although(WORD),
    Field::by(NODE, "grpc.port", "node/agent/src/action.rs"),
    Field::by(NODE, "grpc.service", "node/agent/src/action/grpc.rs"),
    Field::by(NODE, "initialDelaySeconds", PROBE),
    Field::by(NODE, "periodSeconds", PROBE),
    Field::by(NODE, "successThreshold", PROBE),
    Field::by(NODE, "tcpSocket", PROBE),
    Field::by(NODE, "terminationGracePeriodSeconds", "node/agent/src/worker/deadlines.rs"),
    Field::by(NODE, "timeoutSeconds", PROBE),
];

/// Fields of probes and hooks.
const HTTP_GET: &[Field] = &[
    Field::by(NODE, "host", HTTP_ACTION),
    Field::by(NODE, "httpHeaders", HTTP_ACTION),
    Field::by(NODE, "path", HTTP_ACTION),
    Field::by(NODE, "port", HTTP_ACTION),
    Field::nobody("protocol").although(WORD),
    Field::by(NODE, "scheme", HTTP_ACTION),
];

const A_HOOK: &[Field] = &[Field::by(NODE, "exec", HOOKS), Field::by(NODE, "sleep", HOOKS), Field::by(NODE, "tcpSocket", HOOKS)];

const EPHEMERAL: &[Part] = &[NodeAgent, Scheduler, Controller("ephemeral-volume-controller")];

const VOLUME: &[Field] = &[
    Field::nobody("awsElasticBlockStore").although("the scheduler keeps Pods with the same disk apart"),
    Field::nobody("azureDisk"),
    Field::nobody("azureFile").although(SECRETS),
    Field::nobody("cephfs").although(SECRETS),
    Field::nobody("cinder").although(SECRETS),
    Field::nobody("csi").although(SECRETS),
    Field::by(NODE, "emptyDir", "node/volumes/src/empty_dir.rs"),
    Field::by(EPHEMERAL, "ephemeral", "sched/controllers/src/volumes/ephemeral.rs"),
    Field::nobody("fc"),
    Field::nobody("flexVolume").although(SECRETS),
    Field::nobody("flocker"),
    Field::nobody("gcePersistentDisk").although("the scheduler keeps Pods with the same disk apart"),
    Field::nobody("gitRepo"),
    Field::nobody("glusterfs"),
    Field::by(NODE, "hostPath", "node/volumes/src/host_path.rs"),
    Field::by(NODE, "image", "node/volumes/src/image.rs"),
    Field::nobody("iscsi").although(SECRETS),
    Field::by(NODE, "name", VOLUMES),
    Field::nobody("nfs"),
    Field::by(PLACED, "persistentVolumeClaim", "node/volumes/src/persistent.rs"),
    Field::nobody("photonPersistentDisk"),
    Field::nobody("portworxVolume"),
    Field::nobody("quobyte"),
    Field::nobody("rbd").although(SECRETS),
    Field::nobody("scaleIO").although(SECRETS),
    Field::nobody("storageos").although(SECRETS),
    Field::nobody("vsphereVolume"),
];

const PAYLOAD: &str = "node/volumes/src/payload.rs";
const DOWNWARD_API: &str = "node/volumes/src/downward.rs";

/// A key of a ConfigMap or Secret, and its file.
const KEY_TO_PATH: &[Field] = &[
    Field::by(NODE, "key", PAYLOAD),
    Field::by(NODE, "mode", PAYLOAD),
    Field::by(NODE, "path", PAYLOAD),
    Field::nobody("user").although(WORD),
];

/// A file with data of the Pod.
const DOWNWARD_FILE: &[Field] = &[
    Field::by(NODE, "fieldRef", DOWNWARD_API),
    Field::by(NODE, "mode", DOWNWARD_API),
    Field::by(NODE, "path", DOWNWARD_API),
    Field::by(NODE, "resourceFieldRef", DOWNWARD_API),
    Field::nobody("user").although(WORD),
];

const CONFIG_MAP: &[Field] = &[
    Field::by(NODE, "defaultMode", "node/volumes/src/config_map.rs"),
    Field::nobody("defaultUser"),
    Field::by(NODE, "name", "node/volumes/src/config_map.rs"),
    Field::by(NODE, "optional", "node/volumes/src/config_map.rs"),
];

const SECRET: &[Field] = &[
    Field::by(NODE, "defaultMode", "node/volumes/src/secret.rs"),
    Field::nobody("defaultUser"),
    Field::by(NODE, "optional", "node/volumes/src/secret.rs"),
    Field::by(NODE, "secretName", "node/volumes/src/secret.rs"),
];

const DOWNWARD: &[Field] = &[Field::by(NODE, "defaultMode", DOWNWARD_API), Field::nobody("defaultUser")];

const PROJECTION: &str = "node/volumes/src/projected.rs";

const PROJECTED: &[Field] = &[
    Field::by(NODE, "defaultMode", PROJECTION),
    Field::nobody("defaultUser"),
    Field::nobody("sources[].clusterTrustBundle").although("the node refuses it"),
    Field::nobody("sources[].podCertificate").although("the node refuses it"),
    Field::by(NODE, "sources[].serviceAccountToken.audience", PROJECTION),
    Field::by(NODE, "sources[].serviceAccountToken.expirationSeconds", PROJECTION),
    Field::by(NODE, "sources[].serviceAccountToken.path", PROJECTION),
    Field::nobody("sources[].serviceAccountToken.user").although(WORD),
];

/// Fields of ConfigMaps and Secrets.
const PROJECTED_SOURCE: &[Field] = &[Field::by(NODE, "name", PROJECTION), Field::by(NODE, "optional", PROJECTION)];
