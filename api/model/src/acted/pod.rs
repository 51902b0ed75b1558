//! The rows of a Pod's spec.

use super::Part::{ApiServer, Controller, NodeAgent, Scheduler};
use super::{Field, Fields, Part};

const NODE: &[Part] = &[NodeAgent];
const SERVER: &[Part] = &[ApiServer];
const SCHEDULER: &[Part] = &[Scheduler];
const PLACED: &[Part] = &[Scheduler, NodeAgent];

const EFFECT: &str = "node/agent/src/worker/effect.rs";
const ENV: &str = "node/agent/src/container/env.rs";
const FILES: &str = "node/agent/src/container/files.rs";
const HOOKS: &str = "node/agent/src/hooks.rs";
const PROBE: &str = "node/agent/src/probe.rs";
const PROBE_HTTP: &str = "node/agent/src/probe/http.rs";
const ENFORCE: &str = "node/agent/src/enforce.rs";
const SECURITY: &str = "node/agent/src/container/security.rs";
const SPEC_OF: &str = "node/agent/src/container/spec.rs";
const VOLUMES: &str = "node/volumes/src/lib.rs";

/// Why parts mention fields that they only check, or grant access for.
const CHECKED: &str = "PodSecurity looks at it";
const SECRETS: &str = "a node may read the Secrets that its Pods name";
const WORD: &str = "the word means other things too";

/// All of it.
pub(super) const SPEC: &[Fields] = &[
    Fields { prefix: "", rows: TOP },
    Fields { prefix: "securityContext", rows: SECURITY_CONTEXT },
    Fields { prefix: "containers[]", rows: CONTAINER },
    Fields { prefix: "containers[]", rows: MAIN },
    Fields { prefix: "containers[].securityContext", rows: CONTAINER_SECURITY },
    Fields { prefix: "containers[].livenessProbe", rows: A_PROBE },
    Fields { prefix: "containers[].readinessProbe", rows: A_PROBE },
    Fields { prefix: "containers[].startupProbe", rows: A_PROBE },
    Fields { prefix: "containers[].lifecycle.postStart", rows: A_HOOK },
    Fields { prefix: "containers[].lifecycle.preStop", rows: A_HOOK },
    Fields { prefix: "initContainers[]", rows: CONTAINER },
    Fields { prefix: "initContainers[]", rows: INIT },
    Fields { prefix: "initContainers[].securityContext", rows: CONTAINER_SECURITY },
    Fields { prefix: "initContainers[].livenessProbe", rows: A_PROBE },
    Fields { prefix: "initContainers[].readinessProbe", rows: A_PROBE },
    Fields { prefix: "initContainers[].startupProbe", rows: A_PROBE },
    Fields { prefix: "initContainers[].lifecycle.postStart", rows: A_HOOK },
    Fields { prefix: "initContainers[].lifecycle.preStop", rows: A_HOOK },
    Fields { prefix: "volumes[]", rows: VOLUME },
    Fields { prefix: "volumes[].projected", rows: PROJECTED },
];

const TOP: &[Field] = &[
    Field::by(NODE, "activeDeadlineSeconds", "node/agent/src/worker/plan.rs"),
    Field::by(PLACED, "affinity.nodeAffinity", "sched/scheduler/src/plugins/node_affinity.rs"),
    Field::nobody("affinity.podAffinity").although("a scope of ResourceQuotas looks at it"),
    Field::nobody("affinity.podAntiAffinity").although("a scope of ResourceQuotas looks at it"),
    Field::by(SERVER, "automountServiceAccountToken", "api/admission/src/plugins/service_account.rs"),
    Field::by(NODE, "dnsConfig", "node/agent/src/container/resolv.rs"),
    Field::by(NODE, "dnsPolicy", "node/agent/src/container/resolv.rs"),
    Field::by(NODE, "enableServiceLinks", ENV),
    Field::nobody("ephemeralContainers").although("the node says in status and events that it does not run them"),
    Field::nobody("evictionResponders"),
    Field::by(NODE, "hostAliases", FILES),
    Field::nobody("hostIPC").although("PodSecurity looks at it, and the node before it sets sysctls"),
    Field::by(NODE, "hostNetwork", FILES),
    Field::nobody("hostPID").although(CHECKED),
    Field::by(NODE, "hostUsers", ENFORCE),
    Field::by(NODE, "hostname", FILES),
    Field::by(NODE, "hostnameOverride", FILES),
    Field::by(NODE, "imagePullSecrets", EFFECT),
    Field::by(PLACED, "nodeName", "sched/scheduler/src/plugins/node_name.rs"),
    Field::by(PLACED, "nodeSelector", "sched/scheduler/src/plugins/node_affinity.rs"),
    Field::by(NODE, "os", ENFORCE),
    Field::by(PLACED, "overhead", "sched/framework/src/pod.rs"),
    Field::nobody("preemptionPolicy").moot(&["\"PreemptLowerPriority\"", "\"Never\""]).although("the Priority plugin fills it in"),
    Field::by(SCHEDULER, "priority", "sched/framework/src/pod.rs"),
    Field::by(SERVER, "priorityClassName", "api/admission/src/plugins/priority.rs"),
    Field::by(NODE, "readinessGates", "node/agent/src/status/conditions.rs"),
    Field::nobody("resourceClaims").although("the node authorizer looks at it"),
    Field::by(PLACED, "resources.limits", "node/agent/src/container/resources.rs"),
    Field::by(PLACED, "resources.requests", "node/agent/src/container/resources.rs"),
    Field::nobody("resources.claims").although(WORD),
    Field::by(NODE, "restartPolicy", "node/agent/src/worker/facts.rs"),
    Field::by(NODE, "runtimeClassName", EFFECT),
    Field::by(SCHEDULER, "schedulerName", "sched/scheduler/src/run.rs"),
    Field::by(SCHEDULER, "schedulingGates", "sched/framework/src/pod.rs"),
    Field::nobody("schedulingGroup"),
    Field::by(SERVER, "serviceAccount", "api/admission/src/plugins/service_account.rs"),
    Field::by(SERVER, "serviceAccountName", "api/admission/src/plugins/service_account.rs"),
    Field::nobody("setHostnameAsFQDN"),
    Field::nobody("shareProcessNamespace"),
    Field::by(NODE, "subdomain", FILES),
    Field::by(NODE, "terminationGracePeriodSeconds", "node/agent/src/worker/plan.rs"),
    Field::by(&[Scheduler, Controller("taint-eviction-controller")], "tolerations", "sched/scheduler/src/plugins/taint_toleration.rs"),
    Field::nobody("topologySpreadConstraints").although("the controllers drop it from what they cache"),
];

const SECURITY_CONTEXT: &[Field] = &[
    Field::by(NODE, "appArmorProfile", ENFORCE),
    Field::by(NODE, "fsGroup", "node/volumes/src/kind.rs"),
    Field::nobody("fsGroupChangePolicy").moot(&["\"Always\""]),
    Field::by(NODE, "runAsGroup", SECURITY),
    Field::by(NODE, "runAsNonRoot", SECURITY),
    Field::by(NODE, "runAsUser", SECURITY),
    Field::nobody("seLinuxChangePolicy"),
    Field::by(NODE, "seLinuxOptions", ENFORCE),
    Field::by(NODE, "seccompProfile", SECURITY),
    Field::by(NODE, "supplementalGroups", SECURITY),
    Field::nobody("supplementalGroupsPolicy").moot(&["\"Strict\""]),
    Field::by(NODE, "sysctls", ENFORCE),
    Field::nobody("windowsOptions").although(CHECKED),
];

/// Of containers of both kinds.
const CONTAINER: &[Field] = &[
    Field::by(NODE, "args", "node/agent/src/container/spec.rs"),
    Field::by(NODE, "command", "node/agent/src/container/spec.rs"),
    Field::by(NODE, "env[].name", ENV),
    Field::by(NODE, "env[].value", ENV),
    Field::by(NODE, "env[].valueFrom.configMapKeyRef", ENV),
    Field::by(NODE, "env[].valueFrom.fieldRef", ENV),
    Field::nobody("env[].valueFrom.fileKeyRef"),
    Field::by(NODE, "env[].valueFrom.resourceFieldRef", ENV),
    Field::by(NODE, "env[].valueFrom.secretKeyRef", ENV),
    Field::by(NODE, "envFrom", ENV),
    Field::by(NODE, "image", EFFECT),
    Field::by(NODE, "imagePullPolicy", EFFECT),
    Field::by(NODE, "lifecycle.stopSignal", "node/agent/src/worker/effect/stop.rs"),
    Field::by(NODE, "name", SPEC_OF),
    Field::by(PLACED, "ports", EFFECT),
    Field::by(NODE, "resizePolicy", "node/agent/src/resize.rs"),
    Field::by(PLACED, "resources.limits", "node/agent/src/container/resources.rs"),
    Field::by(PLACED, "resources.requests", "node/agent/src/container/resources.rs"),
    Field::nobody("resources.claims").although(WORD),
    Field::nobody("restartPolicyRules"),
    Field::by(NODE, "stdin", SPEC_OF),
    Field::by(NODE, "stdinOnce", SPEC_OF),
    Field::by(NODE, "terminationMessagePath", SPEC_OF),
    Field::by(NODE, "terminationMessagePolicy", EFFECT),
    Field::by(NODE, "tty", SPEC_OF),
    Field::nobody("volumeDevices"),
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

const MAIN: &[Field] = &[Field::nobody("restartPolicy").although("that of init containers makes sidecars")];
const INIT: &[Field] = &[Field::by(NODE, "restartPolicy", "node/agent/src/container.rs")];

const CONTAINER_SECURITY: &[Field] = &[
    Field::by(NODE, "allowPrivilegeEscalation", SECURITY),
    Field::by(NODE, "appArmorProfile", ENFORCE),
    Field::by(NODE, "capabilities", SECURITY),
    Field::by(NODE, "privileged", SECURITY),
    Field::nobody("procMount").moot(&["\"Default\""]).although(CHECKED),
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
    Field::by(NODE, "grpc.port", "node/agent/src/probe.rs"),
    Field::by(NODE, "grpc.service", "node/agent/src/probe/grpc.rs"),
    Field::by(NODE, "httpGet.host", PROBE_HTTP),
    Field::by(NODE, "httpGet.httpHeaders", PROBE_HTTP),
    Field::by(NODE, "httpGet.path", PROBE_HTTP),
    Field::by(NODE, "httpGet.port", PROBE_HTTP),
    Field::nobody("httpGet.protocol").although(WORD),
    Field::by(NODE, "httpGet.scheme", PROBE_HTTP),
    Field::by(NODE, "initialDelaySeconds", PROBE),
    Field::by(NODE, "periodSeconds", PROBE),
    Field::by(NODE, "successThreshold", PROBE),
    Field::by(NODE, "tcpSocket", PROBE),
    Field::by(NODE, "terminationGracePeriodSeconds", "node/agent/src/worker.rs"),
    Field::by(NODE, "timeoutSeconds", PROBE),
];

const A_HOOK: &[Field] = &[
    Field::by(NODE, "exec", HOOKS),
    Field::by(NODE, "httpGet.host", PROBE_HTTP),
    Field::by(NODE, "httpGet.httpHeaders", PROBE_HTTP),
    Field::by(NODE, "httpGet.path", PROBE_HTTP),
    Field::by(NODE, "httpGet.port", PROBE_HTTP),
    Field::nobody("httpGet.protocol").although(WORD),
    Field::by(NODE, "httpGet.scheme", PROBE_HTTP),
    Field::by(NODE, "sleep", HOOKS),
    Field::nobody("tcpSocket").although("probes have it too"),
];

const VOLUME: &[Field] = &[
    Field::nobody("awsElasticBlockStore"),
    Field::nobody("azureDisk"),
    Field::nobody("azureFile").although(SECRETS),
    Field::nobody("cephfs").although(SECRETS),
    Field::nobody("cinder").although(SECRETS),
    Field::by(NODE, "configMap.defaultMode", "node/volumes/src/config_map.rs"),
    Field::nobody("configMap.defaultUser"),
    Field::by(NODE, "configMap.items[].key", "node/volumes/src/payload.rs"),
    Field::by(NODE, "configMap.items[].mode", "node/volumes/src/payload.rs"),
    Field::by(NODE, "configMap.items[].path", "node/volumes/src/payload.rs"),
    Field::nobody("configMap.items[].user").although(WORD),
    Field::by(NODE, "configMap.name", "node/volumes/src/config_map.rs"),
    Field::by(NODE, "configMap.optional", "node/volumes/src/config_map.rs"),
    Field::nobody("csi").although(SECRETS),
    Field::by(NODE, "downwardAPI.defaultMode", "node/volumes/src/downward.rs"),
    Field::nobody("downwardAPI.defaultUser"),
    Field::by(NODE, "downwardAPI.items[].fieldRef", "node/volumes/src/downward.rs"),
    Field::by(NODE, "downwardAPI.items[].mode", "node/volumes/src/downward.rs"),
    Field::by(NODE, "downwardAPI.items[].path", "node/volumes/src/downward.rs"),
    Field::by(NODE, "downwardAPI.items[].resourceFieldRef", "node/volumes/src/downward.rs"),
    Field::nobody("downwardAPI.items[].user").although(WORD),
    Field::by(NODE, "emptyDir", "node/volumes/src/empty_dir.rs"),
    Field::nobody("ephemeral").although(WORD),
    Field::nobody("fc"),
    Field::nobody("flexVolume").although(SECRETS),
    Field::nobody("flocker"),
    Field::nobody("gcePersistentDisk"),
    Field::nobody("gitRepo"),
    Field::nobody("glusterfs"),
    Field::by(NODE, "hostPath", "node/volumes/src/host_path.rs"),
    Field::nobody("image").although(WORD),
    Field::nobody("iscsi").although(SECRETS),
    Field::by(NODE, "name", VOLUMES),
    Field::nobody("nfs"),
    Field::nobody("persistentVolumeClaim").although("the controllers keep it in what they cache"),
    Field::nobody("photonPersistentDisk"),
    Field::nobody("portworxVolume"),
    Field::nobody("quobyte"),
    Field::nobody("rbd").although(SECRETS),
    Field::nobody("scaleIO").although(SECRETS),
    Field::by(NODE, "secret.defaultMode", "node/volumes/src/secret.rs"),
    Field::nobody("secret.defaultUser"),
    Field::by(NODE, "secret.items[].key", "node/volumes/src/payload.rs"),
    Field::by(NODE, "secret.items[].mode", "node/volumes/src/payload.rs"),
    Field::by(NODE, "secret.items[].path", "node/volumes/src/payload.rs"),
    Field::nobody("secret.items[].user").although(WORD),
    Field::by(NODE, "secret.optional", "node/volumes/src/secret.rs"),
    Field::by(NODE, "secret.secretName", "node/volumes/src/secret.rs"),
    Field::nobody("storageos").although(SECRETS),
    Field::nobody("vsphereVolume"),
];

const PROJECTION: &str = "node/volumes/src/projected.rs";

const PROJECTED: &[Field] = &[
    Field::by(NODE, "defaultMode", PROJECTION),
    Field::nobody("defaultUser"),
    Field::nobody("sources[].clusterTrustBundle").although("the node refuses it"),
    Field::by(NODE, "sources[].configMap.items[].key", "node/volumes/src/payload.rs"),
    Field::by(NODE, "sources[].configMap.items[].mode", "node/volumes/src/payload.rs"),
    Field::by(NODE, "sources[].configMap.items[].path", "node/volumes/src/payload.rs"),
    Field::nobody("sources[].configMap.items[].user").although(WORD),
    Field::by(NODE, "sources[].configMap.name", PROJECTION),
    Field::by(NODE, "sources[].configMap.optional", PROJECTION),
    Field::by(NODE, "sources[].downwardAPI.items[].fieldRef", "node/volumes/src/downward.rs"),
    Field::by(NODE, "sources[].downwardAPI.items[].mode", "node/volumes/src/downward.rs"),
    Field::by(NODE, "sources[].downwardAPI.items[].path", "node/volumes/src/downward.rs"),
    Field::by(NODE, "sources[].downwardAPI.items[].resourceFieldRef", "node/volumes/src/downward.rs"),
    Field::nobody("sources[].downwardAPI.items[].user").although(WORD),
    Field::nobody("sources[].podCertificate").although("the node refuses it"),
    Field::by(NODE, "sources[].secret.items[].key", "node/volumes/src/payload.rs"),
    Field::by(NODE, "sources[].secret.items[].mode", "node/volumes/src/payload.rs"),
    Field::by(NODE, "sources[].secret.items[].path", "node/volumes/src/payload.rs"),
    Field::nobody("sources[].secret.items[].user").although(WORD),
    Field::by(NODE, "sources[].secret.name", PROJECTION),
    Field::by(NODE, "sources[].secret.optional", PROJECTION),
    Field::by(NODE, "sources[].serviceAccountToken.audience", PROJECTION),
    Field::by(NODE, "sources[].serviceAccountToken.expirationSeconds", PROJECTION),
    Field::by(NODE, "sources[].serviceAccountToken.path", PROJECTION),
    Field::nobody("sources[].serviceAccountToken.user").although(WORD),
];
