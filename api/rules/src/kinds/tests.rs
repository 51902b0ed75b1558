//! Every kind through the whole crate: the defaulted form of a minimal object, and the errors of invalid ones.

mod groups;
mod requests;
mod stable;
mod storage;

use crate::testing::{create_problems, kind, new, read, table, update_problems};
use serde_json::json;

const TEMPLATE: &str = "template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}";

const WEBHOOK: &str = "webhooks: [{name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {service: {name: s, namespace: n}}, rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods, pods/status]}]}]";

const VALIDATING_POLICY: &str = "spec: {paramKind: {apiVersion: v1, kind: ConfigMap}, matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]}, matchConditions: [{name: not-system, expression: '!request.userInfo.username.startsWith(\"system:\")'}], variables: [{name: replicas, expression: object.spec.replicas}], validations: [{expression: 'variables.replicas <= int(params.data.max)', messageExpression: '\"at most \" + params.data.max', reason: Forbidden}], auditAnnotations: [{key: replicas, valueExpression: string(variables.replicas)}]}";

const MUTATING_POLICY: &str = "spec: {reinvocationPolicy: IfNeeded, matchConstraints: {resourceRules: [{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]}, mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {\"a\": \"b\"}}}'}}, {patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/data/a\", value: \"b\"}]'}}]}";

const POLICY_BINDING: &str = "spec: {policyName: p, validationActions: [Deny], paramRef: {name: x, namespace: default, parameterNotFoundAction: Deny}, matchResources: {namespaceSelector: {matchLabels: {a: b}}}}";

const DEFINITION: &str = "metadata: {name: widgets.example.com}\nspec: {group: example.com, scope: Namespaced, names: {plural: widgets, kind: Widget}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer, default: 1}}}}}}}]}";

/// `(group, plural, a valid body)`.
fn good() -> Vec<(&'static str, &'static str, String)> {
    let workload = format!("spec: {{selector: {{matchLabels: {{app: x}}}}, {TEMPLATE}}}");
    let job = "spec: {template: {metadata: {labels: {app: x}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}";
    let csr = "spec: {signerName: kubernetes.io/kube-apiserver-client, usages: [client auth], request: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KQUFBQQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K}";
    let role = "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]";
    let binding =
        "roleRef: {kind: ClusterRole, name: view}\nsubjects: [{kind: User, name: jane}, {kind: ServiceAccount, name: a, namespace: b}]";
    let fixed = [
        ("", "configmaps", "data: {a: b}"),
        ("", "endpoints", "subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]"),
        ("", "events", "involvedObject: {namespace: default, name: a}\nreason: Started"),
        ("", "limitranges", "spec: {limits: [{type: Container, max: {cpu: 1}, min: {cpu: 100m}}]}"),
        ("", "namespaces", "metadata: {name: team}"),
        ("", "nodes", "status: {capacity: {cpu: 4, memory: 8Gi}}"),
        ("", "persistentvolumeclaims", "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}"),
        ("", "persistentvolumes", "spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}}"),
        ("", "podtemplates", "template: {spec: {containers: [{name: c, image: i}]}}"),
        ("", "replicationcontrollers", "spec: {template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}}"),
        ("", "resourcequotas", "spec: {hard: {pods: 4, requests.cpu: 1}}"),
        ("", "secrets", "stringData: {a: hi}\ndata: {b: aGk=}"),
        ("", "serviceaccounts", ""),
        ("", "services", "spec: {selector: {app: x}, ports: [{port: 80}]}"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies", MUTATING_POLICY),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "spec: {policyName: p}"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", WEBHOOK),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies", VALIDATING_POLICY),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", POLICY_BINDING),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations", WEBHOOK),
        ("apiextensions.k8s.io", "customresourcedefinitions", DEFINITION),
        (
            "apiregistration.k8s.io",
            "apiservices",
            "metadata: {name: v1.x.y}\nspec: {group: x.y, version: v1, groupPriorityMinimum: 100, versionPriority: 1, service: {namespace: n, name: s}}",
        ),
        ("apps", "controllerrevisions", "data: {x: 1}\nrevision: 1"),
        (
            "apps",
            "statefulsets",
            "spec: {selector: {matchLabels: {app: x}}, serviceName: s, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}, volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}",
        ),
        ("batch", "jobs", job),
        (
            "batch",
            "cronjobs",
            "spec: {schedule: '*/5 * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}",
        ),
        ("certificates.k8s.io", "certificatesigningrequests", csr),
        ("coordination.k8s.io", "leases", "spec: {holderIdentity: me, leaseDurationSeconds: 40}"),
        ("discovery.k8s.io", "endpointslices", "addressType: IPv4\nendpoints: [{addresses: [10.0.0.1]}]\nports: [{port: 80}]"),
        (
            "events.k8s.io",
            "events",
            "eventTime: 2024-01-01T00:00:00.000000Z\nregarding: {namespace: default}\nreportingController: x/y\nreportingInstance: i\naction: Go\nreason: Went\ntype: Normal",
        ),
        (
            "flowcontrol.apiserver.k8s.io",
            "flowschemas",
            "spec: {priorityLevelConfiguration: {name: mine}, distinguisherMethod: {type: ByUser}, rules: [{subjects: [{kind: ServiceAccount, serviceAccount: {name: '*', namespace: here}}], resourceRules: [{verbs: [get], apiGroups: [''], resources: [pods], namespaces: ['*']}], nonResourceRules: [{verbs: [get], nonResourceURLs: [/healthz, /logs/*]}]}]}",
        ),
        (
            "flowcontrol.apiserver.k8s.io",
            "prioritylevelconfigurations",
            "spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {handSize: 4}}}}",
        ),
        ("networking.k8s.io", "ingressclasses", "spec: {controller: example.com/x, parameters: {kind: K, name: n}}"),
        (
            "networking.k8s.io",
            "ingresses",
            "spec: {rules: [{host: a.b, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}",
        ),
        (
            "networking.k8s.io",
            "networkpolicies",
            "spec: {podSelector: {}, egress: [{ports: [{port: 53}], to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]}]}",
        ),
        ("node.k8s.io", "runtimeclasses", "handler: wasmtime"),
        ("policy", "poddisruptionbudgets", "spec: {minAvailable: 50%, selector: {}}"),
        ("rbac.authorization.k8s.io", "clusterrolebindings", binding),
        ("rbac.authorization.k8s.io", "clusterroles", role),
        ("rbac.authorization.k8s.io", "rolebindings", binding),
        ("rbac.authorization.k8s.io", "roles", role),
        (
            "scheduling.k8s.io",
            "podgroups",
            "spec: {schedulingPolicy: {gang: {minCount: 3}}, workloadRef: {workloadName: w, templateName: t}}",
        ),
        ("scheduling.k8s.io", "priorityclasses", "value: 1000"),
        ("scheduling.k8s.io", "workloads", groups::WORKLOAD),
        ("storage.k8s.io", "csidrivers", "spec: {}"),
        ("storage.k8s.io", "csinodes", "spec: {drivers: [{name: a.b, nodeID: n}]}"),
        ("storage.k8s.io", "storageclasses", "provisioner: example.com/x"),
    ];
    let mut all: Vec<_> = fixed.into_iter().map(|(group, plural, yaml)| (group, plural, yaml.to_owned())).collect();
    all.extend(stable::good());
    all.extend(["daemonsets", "deployments", "replicasets"].map(|plural| ("apps", plural, workload.clone())));
    all
}

#[test]
fn every_kind_has_a_good_object_and_its_defaults_hold_still() {
    let mut covered = Vec::new();
    for (group, plural, yaml) in good() {
        let kind = kind(group, plural);
        let object = new(kind, &yaml);
        insta::assert_json_snapshot!(format!("{plural}.{group}"), object);
        assert_eq!(create_problems(kind, &yaml), "ok", "{plural}");
        let mut again = object.clone();
        crate::default(kind, &mut again);
        assert_eq!(again, object, "{plural}: defaulting must be idempotent");
        let mut stored = object.clone();
        api_model::meta::set(&mut stored, "resourceVersion", "1");
        let mut updated = stored.clone();
        crate::prepare_update(kind, None, &mut updated, &stored);
        assert_eq!(updated, stored, "{plural}: an update that changes nothing");
        assert_eq!(crate::validate_update(kind, None, &updated, &stored, &mut Vec::new()), [], "{plural}");
        covered.push((group, plural));
    }
    for kind in api_model::kind::builtin().iter().filter(|kind| kind.allows("update")) {
        let pair = (kind.group.as_str(), kind.plural.as_str());
        assert!(pair == ("", "pods") || covered.contains(&pair), "{pair:?} has no case");
    }
}

/// A snapshot of the errors of new objects of one kind.
fn refused(group: &str, plural: &str, cases: &[&str]) {
    let table = table(cases, |case| create_problems(kind(group, plural), case));
    insta::assert_snapshot!(format!("refused-{plural}.{group}"), table);
}

/// A snapshot of the errors of changes, each from the valid object of one kind.
fn changes(group: &str, plural: &str, sub: Option<&str>, cases: &[&str]) {
    let (_, _, base) = good().into_iter().find(|(g, p, _)| *g == group && *p == plural).expect("has a good object");
    let table = table(cases, |case| update_problems(kind(group, plural), sub, &base, case));
    insta::assert_snapshot!(format!("changes-{plural}.{group}{}", sub.unwrap_or_default()), table);
}

#[test]
fn deployments() {
    let template = TEMPLATE;
    let spec = |fields: &str| format!("spec: {{selector: {{matchLabels: {{app: x}}}}, {template}, {fields}}}");
    let owned = [
        "spec: {}".to_owned(),
        "spec: {selector: {}}".to_owned(),
        format!("spec: {{selector: {{matchLabels: {{app: y}}}}, {template}}}"),
        format!("spec: {{selector: {{matchExpressions: [{{key: app, operator: x}}]}}, {template}}}"),
        spec("replicas: -1, minReadySeconds: -1, revisionHistoryLimit: -1, progressDeadlineSeconds: 0"),
        spec("strategy: {type: Recreate, rollingUpdate: {maxSurge: 1}}"),
        spec("strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0%}}"),
        spec("strategy: {rollingUpdate: {maxSurge: x, maxUnavailable: 101%}}"),
        spec("strategy: {type: Sideways}"),
        "spec: {selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x, 'b c': d}}, spec: {restartPolicy: Never, activeDeadlineSeconds: 5, containers: []}}}".to_owned(),
    ];
    refused("apps", "deployments", &owned.iter().map(String::as_str).collect::<Vec<_>>());
    changes(
        "apps",
        "deployments",
        None,
        &[
            "spec: {selector: {matchLabels: {app: x}}, replicas: 5, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: j}]}}}",
            "spec: {selector: {matchLabels: {app: y}}, template: {metadata: {labels: {app: y}}, spec: {containers: [{name: c, image: i}]}}}",
        ],
    );
    changes(
        "apps",
        "deployments",
        Some("status"),
        &["status: {replicas: 1, readyReplicas: 1}", "status: {replicas: 1, readyReplicas: 2, availableReplicas: 3, updatedReplicas: -1}"],
    );
}

#[test]
fn other_workloads() {
    refused("apps", "replicasets", &["spec: {replicas: -1}"]);
    refused(
        "apps",
        "daemonsets",
        &[
            "spec: {updateStrategy: {type: x}, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}}",
            "spec: {updateStrategy: {rollingUpdate: {maxSurge: 1}}, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}}",
            "spec: {updateStrategy: {rollingUpdate: {maxUnavailable: 0}}, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}}",
        ],
    );
    refused(
        "apps",
        "statefulsets",
        &["spec: {}", "spec: {podManagementPolicy: x, updateStrategy: {type: x}, persistentVolumeClaimRetentionPolicy: {whenDeleted: x}}"],
    );
    changes(
        "apps",
        "statefulsets",
        None,
        &[
            "spec: {selector: {matchLabels: {app: x}}, serviceName: other, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}}",
        ],
    );
    refused(
        "",
        "replicationcontrollers",
        &[
            "spec: {}",
            "spec: {replicas: -1, selector: {a: b}, template: {metadata: {labels: {app: x}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
        ],
    );
    refused("apps", "controllerrevisions", &["revision: -1"]);
    changes("apps", "controllerrevisions", None, &["data: {x: 2}\nrevision: 1"]);
}

#[test]
fn jobs() {
    refused(
        "batch",
        "jobs",
        &[
            "spec: {template: {spec: {containers: [{name: c, image: i}]}}}",
            "spec: {parallelism: -1, completionMode: Indexed, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
            "spec: {manualSelector: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
            "spec: {selector: {matchLabels: {x: y}}, template: {metadata: {labels: {job-name: other}}, spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
            "spec: {managedBy: x, podReplacementPolicy: y, backoffLimitPerIndex: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
            "spec: {completionMode: Indexed, completions: 200000, parallelism: 20000, backoffLimitPerIndex: 1, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
            "spec: {completionMode: Indexed, completions: 3, maxFailedIndexes: 4, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
            "spec: {podReplacementPolicy: TerminatingOrFailed, podFailurePolicy: {rules: [{}, {action: FailIndex, onExitCodes: {operator: In, values: [0]}}, {action: x, onPodConditions: [{type: a b, status: y}]}]}, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
            "spec: {podFailurePolicy: {rules: [{action: Count, onExitCodes: {operator: x, containerName: d, values: [3, 2, 3]}, onPodConditions: [{type: A}]}, {action: Ignore, onExitCodes: {operator: NotIn, values: []}}]}, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
            "spec: {successPolicy: {rules: []}, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
            "spec: {completionMode: Indexed, completions: 5, successPolicy: {rules: [{}, {succeededCount: 6}, {succeededIndexes: '0,2-4', succeededCount: 5}, {succeededIndexes: '3,1'}, {succeededIndexes: '1-9'}, {succeededIndexes: 'x'}, {succeededIndexes: '1-2-3'}, {succeededIndexes: '2-2'}]}, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}",
        ],
    );
    refused(
        "batch",
        "cronjobs",
        &[
            "spec: {schedule: '', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}",
            "spec: {schedule: '* * *', concurrencyPolicy: x, timeZone: '', jobTemplate: {spec: {selector: {matchLabels: {a: b}}, template: {spec: {containers: [{name: c, image: i}]}}}}}",
            "metadata: {name: a-name-that-is-longer-than-fifty-two-characters-altogether}\nspec: {schedule: 'TZ=UTC * * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}",
        ],
    );
    let jobs = kind("batch", "jobs");
    let old = new(jobs, "spec: {completions: 2, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}");
    let mut changed = old.clone();
    api_model::meta::set(&mut changed, "resourceVersion", "1");
    changed["spec"]["parallelism"] = json!(5);
    assert_eq!(crate::validate_update(jobs, None, &changed, &old, &mut Vec::new()), []);
    changed["spec"]["completions"] = json!(3);
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("j");
    let errors: Vec<String> =
        crate::validate_update(jobs, None, &changed, &old, &mut Vec::new()).iter().map(|e| e.path.to_string()).collect();
    assert_eq!(errors, ["spec.completions", "spec.template"]);
}

#[test]
fn services() {
    refused(
        "",
        "services",
        &[
            "metadata: {name: 1a}\nspec: {ports: [{port: 80}]}",
            "spec: {}",
            "spec: {clusterIP: None}",
            "spec: {ports: [{port: 0}, {port: 80, targetPort: UP}, {name: a, port: 80, protocol: x}, {name: a, port: 80}]}",
            "spec: {type: x, sessionAffinity: y, ports: [{port: 80}]}",
            "spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 100000}}, ports: [{port: 80}]}",
            "spec: {type: ExternalName}",
            "spec: {type: ExternalName, externalName: A b}",
            "spec: {type: NodePort, clusterIP: None, ports: [{port: 80}]}",
            "spec: {type: ClusterIP, ports: [{port: 80, nodePort: 30000}]}",
            "spec: {type: NodePort, ports: [{name: a, port: 80, nodePort: 30000}, {name: b, port: 81, nodePort: 30000}]}",
            "spec: {clusterIP: x, ports: [{port: 80}]}",
            "spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.2], ipFamilies: [IPv6, x], ports: [{port: 80}]}",
            "spec: {externalIPs: [127.0.0.1, x], loadBalancerSourceRanges: [x], loadBalancerClass: a/b, ports: [{port: 80}]}",
            "spec: {externalTrafficPolicy: Local, internalTrafficPolicy: x, trafficDistribution: y, healthCheckNodePort: 5, ports: [{port: 80}]}",
            "spec: {selector: {'a b': c}, ports: [{port: 80}]}",
        ],
    );
    let services = kind("", "services");
    let mut old = new(services, "spec: {type: NodePort, clusterIP: 10.96.0.7, ports: [{port: 80, nodePort: 30007}]}");
    api_model::meta::set(&mut old, "resourceVersion", "1");
    let update = |yaml: &str| {
        let mut changed = read(services, yaml);
        api_model::meta::set(&mut changed, "resourceVersion", "1");
        crate::prepare_update(services, None, &mut changed, &old);
        let errors = crate::validate_update(services, None, &changed, &old, &mut Vec::new());
        (changed, api_model::field::aggregate(&errors))
    };
    let (updated, errors) = update("spec: {type: NodePort, ports: [{port: 80}]}");
    assert_eq!(errors, "[]");
    assert_eq!(updated.pointer("/spec"), old.pointer("/spec"));
    let (plain, errors) = update("spec: {ports: [{port: 80, nodePort: 30007}]}");
    assert_eq!(errors, "[]");
    assert_eq!(plain.pointer("/spec/ports/0/nodePort"), None, "back to ClusterIP gives the node port up");
    let (_, errors) = update("spec: {type: NodePort, clusterIP: 10.96.0.8, ports: [{port: 80}]}");
    assert_eq!(errors, "spec.clusterIPs[0]: Invalid value: [\"10.96.0.8\"]: may not change once set");
    let (external, errors) = update("spec: {type: ExternalName, externalName: a.b}");
    assert_eq!(errors, "[]");
    assert_eq!(external.pointer("/spec/clusterIP"), None);
}

#[test]
fn configuration() {
    refused("", "configmaps", &["data: {'a b': x, ..: x}\nbinaryData: {c: aGk=}", "data: {c: x}\nbinaryData: {c: aGk=}"]);
    let large = format!("data: {{a: {}}}", "x".repeat(1024 * 1024 + 1));
    assert_eq!(create_problems(kind("", "configmaps"), &large), "<nil>: Too long: may not be more than 1048576 bytes");
    refused(
        "",
        "secrets",
        &[
            "data: {'a b': aGk=}",
            "type: kubernetes.io/tls",
            "type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: nonsense}",
            "type: kubernetes.io/dockercfg",
            "type: kubernetes.io/basic-auth",
            "type: kubernetes.io/ssh-auth",
            "type: kubernetes.io/service-account-token",
            "type: example.com/own",
        ],
    );
    changes("", "secrets", None, &["type: Other\ndata: {a: aGk=}"]);
    let maps = kind("", "configmaps");
    let old = "immutable: true\ndata: {a: b}";
    assert_eq!(update_problems(maps, None, old, old), "ok");
    assert_eq!(
        update_problems(maps, None, old, "data: {a: c}"),
        "immutable: Forbidden: field is immutable when `immutable` is set\ndata: Forbidden: field is immutable when `immutable` is set"
    );
}

#[test]
fn cluster_kinds() {
    refused("", "namespaces", &["metadata: {name: a.b}", "metadata: {name: team, namespace: x}", "spec: {finalizers: [odd]}"]);
    changes("", "namespaces", Some("status"), &["metadata: {name: team}\nstatus: {phase: Terminating}"]);
    refused(
        "",
        "nodes",
        &[
            "spec: {taints: [{key: a, effect: x}, {key: a, value: b c, effect: NoSchedule}, {key: a, effect: NoSchedule}], podCIDRs: [x, 10.0.0.0/24, 10.0.0.1/24]}\nstatus: {capacity: {pods: 1500m}}",
        ],
    );
    let nodes = kind("", "nodes");
    let old = "spec: {podCIDR: 10.244.0.0/24, podCIDRs: [10.244.0.0/24], providerID: x}";
    assert_eq!(
        update_problems(nodes, None, old, "spec: {podCIDR: 10.244.1.0/24, providerID: y}"),
        "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid\nspec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid"
    );
    refused(
        "node.k8s.io",
        "runtimeclasses",
        &[
            "handler: A",
            "",
            "handler: a\noverhead: {podFixed: {foo: 1}}\nscheduling: {nodeSelector: {'a b': c}, tolerations: [{operator: Exists}, {operator: Exists}]}",
        ],
    );
    changes("node.k8s.io", "runtimeclasses", None, &["handler: runc"]);
    refused(
        "scheduling.k8s.io",
        "priorityclasses",
        &["metadata: {name: system-mine}\nvalue: 1", "value: 2000000000", "value: 1\npreemptionPolicy: x"],
    );
    changes("scheduling.k8s.io", "priorityclasses", None, &["value: 1001\npreemptionPolicy: Never"]);
    refused(
        "certificates.k8s.io",
        "certificatesigningrequests",
        &["spec: {request: aGk=, signerName: x, usages: [fun, fun], expirationSeconds: 5}", "spec: {request: aGk=, signerName: ''}"],
    );
    refused("coordination.k8s.io", "leases", &["spec: {leaseDurationSeconds: 0, leaseTransitions: -1, holderIdentity: ''}"]);
}

#[test]
fn access() {
    refused(
        "rbac.authorization.k8s.io",
        "roles",
        &[
            "metadata: {name: 'system:fine'}\nrules: []",
            "metadata: {name: a/b}",
            "rules: [{}]",
            "rules: [{verbs: [get], nonResourceURLs: [/x], resources: [pods]}]",
        ],
    );
    refused("rbac.authorization.k8s.io", "clusterroles", &["rules: [{verbs: [get], nonResourceURLs: [/x]}]", "aggregationRule: {}"]);
    refused(
        "rbac.authorization.k8s.io",
        "rolebindings",
        &[
            "",
            "roleRef: {kind: x, name: a/b, apiGroup: y}\nsubjects: [{kind: x, name: a}, {kind: ServiceAccount, name: A}, {kind: User, name: '', apiGroup: x}]",
        ],
    );
    let account = "roleRef: {kind: ClusterRole, name: a}\nsubjects: [{kind: ServiceAccount, name: a}]";
    refused("rbac.authorization.k8s.io", "clusterrolebindings", &["roleRef: {kind: Role, name: a}", account]);
    assert_eq!(create_problems(kind("rbac.authorization.k8s.io", "rolebindings"), account), "ok");
    changes("rbac.authorization.k8s.io", "rolebindings", None, &["roleRef: {kind: ClusterRole, name: edit}"]);
}

#[test]
fn network() {
    refused(
        "networking.k8s.io",
        "ingresses",
        &[
            "spec: {}",
            "spec: {rules: [{host: 1.2.3.4}, {host: '*.*.x'}, {http: {paths: []}}]}",
            "spec: {rules: [{http: {paths: [{path: x, pathType: Exact, backend: {}}, {path: /a//b/.., pathType: Prefix, backend: {service: {name: s}}}, {pathType: x, backend: {service: {name: S, port: {name: a, number: 1}}}}, {backend: {}}]}}]}",
            "metadata: {annotations: {kubernetes.io/ingress.class: x}}\nspec: {ingressClassName: y, defaultBackend: {service: {name: s, port: {number: 80}}}, tls: [{hosts: [A], secretName: B}]}",
        ],
    );
    refused("networking.k8s.io", "ingressclasses", &["spec: {}", "spec: {controller: x, parameters: {scope: Namespace}}"]);
    refused(
        "networking.k8s.io",
        "networkpolicies",
        &[
            "spec: {podSelector: {matchLabels: {'a b': c}}, policyTypes: [x], ingress: [{ports: [{endPort: 1}, {port: a, endPort: 1}, {port: 5, endPort: 1}], from: [{}, {ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16, x]}, podSelector: {}}]}]}",
        ],
    );
    refused(
        "discovery.k8s.io",
        "endpointslices",
        &[
            "",
            "addressType: IPv4\nendpoints: [{addresses: []}, {addresses: [127.0.0.1, x, '::1']}]\nports: [{name: a}, {name: a, protocol: x}]",
            "addressType: FQDN\nendpoints: [{addresses: [a, a.b]}]",
        ],
    );
    changes("discovery.k8s.io", "endpointslices", None, &["addressType: IPv6\nendpoints: []"]);
    refused(
        "",
        "endpoints",
        &["subsets: [{}, {addresses: [{ip: 169.254.1.1, hostname: A}, {ip: x}], ports: [{port: 80}, {port: 0, protocol: x}]}]"],
    );
    refused(
        "",
        "events",
        &["involvedObject: {namespace: other}", "eventTime: 2024-01-01T00:00:00.000000Z\ninvolvedObject: {namespace: default}"],
    );
    refused("events.k8s.io", "events", &["regarding: {namespace: default}\ndeprecatedCount: 1\nseries: {count: 1}"]);
}

#[test]
fn every_kind_lists_by_name_and_namespace() {
    for kind in api_model::kind::builtin() {
        let selectors = crate::field_selectors(kind);
        assert!(selectors.contains(&"metadata.name") && selectors.contains(&"metadata.namespace"), "{}", kind.kind);
    }
    assert!(crate::field_selectors(kind("", "pods")).contains(&"spec.nodeName"));
}

#[test]
fn field_selectors_read_what_upstream_reads() {
    let value = |group: &str, plural: &str, object: serde_json::Value, path: &str| crate::field_value(kind(group, plural), &object, path);
    assert_eq!(value("", "nodes", json!({}), "spec.unschedulable"), "false");
    assert_eq!(value("", "nodes", json!({"spec": {"unschedulable": true}}), "spec.unschedulable"), "true");
    assert_eq!(value("batch", "jobs", json!({"status": {"succeeded": 2}}), "status.successful"), "2");
    assert_eq!(value("", "pods", json!({"spec": {"nodeName": "n"}}), "spec.nodeName"), "n");
    assert_eq!(value("", "pods", json!({"status": {"podIPs": [{"ip": "10.0.0.1"}]}}), "status.podIP"), "10.0.0.1");
    assert_eq!(value("", "events", json!({"source": {"component": "kubelet"}}), "source"), "kubelet");
    assert_eq!(value("apps", "replicasets", json!({}), "status.replicas"), "0");
}
