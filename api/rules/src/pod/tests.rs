//! Pods: the defaulted form of a minimal Pod, and the errors of invalid ones.

use crate::testing::{create_problems, kind, new, read, table, update_problems};
use serde_json::{Value, json};

/// A Pod with these fields in its spec, and with one valid container unless the fields contain containers.
fn pod(fields: &str) -> String {
    let container = if fields.contains("containers:") && !fields.contains("initContainers:") || fields.contains("\ncontainers:") {
        ""
    } else {
        "\ncontainers: [{name: c, image: i}]"
    };
    let indented: String = format!("{fields}{container}").lines().map(|line| format!("  {line}\n")).collect();
    format!("spec:\n{indented}")
}

/// A Pod with one container with these fields.
fn container(fields: &str) -> String {
    let (name, image) = (
        if fields.contains("name: ") && fields.starts_with("name") { "" } else { "name: c, " },
        if fields.contains("image") { "" } else { "image: i, " },
    );
    format!(
        "spec: {{volumes: [{{name: v, emptyDir: {{}}}}, {{name: claim, persistentVolumeClaim: {{claimName: x}}}}], containers: [{{{name}{image}{fields}}}]}}"
    )
}

#[test]
fn a_minimal_pod_is_defaulted_as_upstream_does() {
    let pods = kind("", "pods");
    insta::assert_json_snapshot!("minimal", new(pods, "metadata: {name: web}\nspec: {containers: [{name: a, image: nginx}]}"));
    insta::assert_json_snapshot!(
        "full",
        new(
            pods,
            r"
metadata: {name: web}
spec:
  serviceAccountName: builder
  hostNetwork: true
  schedulingGates: [{name: example.com/wait}]
  containers:
  - name: a
    image: nginx:1.27
    ports: [{containerPort: 80}]
    env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    resources: {limits: {cpu: '1', memory: 1Gi}}
    livenessProbe: {httpGet: {port: 80}}
    readinessProbe: {exec: {command: [x]}, periodSeconds: 5}
    lifecycle: {preStop: {httpGet: {port: 80}}}
  initContainers: [{name: b, image: x@sha256:00}]
  volumes:
  - {name: a}
  - {name: b, secret: {secretName: s}}
  - {name: c, configMap: {name: c}}
  - {name: d, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}]}}]}}
  - {name: e, hostPath: {path: /x}}
  - {name: f, image: {reference: 'r:latest'}}
"
        )
    );
}

#[test]
fn defaulting_twice_changes_nothing() {
    let pods = kind("", "pods");
    let once = read(pods, &container("resources: {limits: {cpu: 1}}, ports: [{containerPort: 1}]"));
    let mut twice = once.clone();
    crate::default(pods, &mut twice);
    assert_eq!(once, twice);
}

#[test]
fn containers_are_checked() {
    let cases = [
        "containers: []",
        "containers: [{name: A_b, image: i}]",
        "containers: [{image: i}]",
        "containers: [{name: a}]",
        "containers: [{name: a, image: ' i'}]",
        "containers: [{name: a, image: i}, {name: a, image: i}]",
        "initContainers: [{name: c, image: i}]",
        "initContainers: [{name: d, image: i, lifecycle: {}, livenessProbe: {exec: {command: [x]}}}]",
        "initContainers: [{name: d, image: i, restartPolicy: Always, livenessProbe: {exec: {command: [x]}}}]",
        "initContainers: [{name: d, image: i, restartPolicy: Sometimes}]",
        "ephemeralContainers: [{name: d, image: i, targetContainerName: x, ports: [{containerPort: 1}]}]",
    ];
    insta::assert_snapshot!(table(&cases, |case| create_problems(kind("", "pods"), &pod(case))));
}

#[test]
fn restart_rules_are_checked() {
    let many = |rule: &str| vec![rule; 21].join(", ");
    let rule = "{action: Restart, exitCodes: {operator: In, values: [42]}}";
    let codes = (0..256).map(|code| code.to_string()).collect::<Vec<_>>().join(", ");
    let with = |policy: &str, rules: &str| format!("containers: [{{name: c, image: i, {policy}restartPolicyRules: [{rules}]}}]");
    let never = "restartPolicy: Never, ";
    let cases = [
        with(never, rule),
        with("", rule),
        with("restartPolicy: Sometimes, ", rule),
        with(never, "{action: Restart}"),
        with(never, "{action: RestartAllContainers, exitCodes: {operator: NotIn, values: []}}"),
        with(never, "{action: Stop, exitCodes: {operator: Equals}}"),
        format!("initContainers: [{{name: d, image: i, restartPolicyRules: [{rule}]}}]"),
        format!("initContainers: [{{name: d, image: i, restartPolicy: Always, restartPolicyRules: [{rule}]}}]"),
        format!("ephemeralContainers: [{{name: d, image: i, restartPolicy: Never, restartPolicyRules: [{rule}]}}]"),
    ];
    let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    insta::assert_snapshot!(table(&cases, |case| create_problems(kind("", "pods"), &pod(case))));
    for (spec, wanted) in [
        (with(never, &many(rule)), "spec.containers[0].restartPolicyRules: Too many: 21: must have at most 20 items"),
        (
            with(never, &format!("{{action: Restart, exitCodes: {{operator: In, values: [{codes}]}}}}")),
            "spec.containers[0].restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items",
        ),
    ] {
        assert_eq!(create_problems(kind("", "pods"), &pod(&spec)).to_string(), wanted);
    }
}

/// Only a container that may run again leaves the state in which it ended.
#[test]
fn an_ended_container_runs_again_by_its_rules_alone() {
    let rules = |action: &str| json!([{"action": action, "exitCodes": {"operator": "In", "values": [42]}}]);
    for (of_pod, own, code, wanted) in [
        ("Always", json!({}), 0, true),
        ("Never", json!({}), 42, false),
        ("OnFailure", json!({}), 1, true),
        ("OnFailure", json!({}), 0, false),
        ("Never", json!({"restartPolicy": "OnFailure"}), 1, true),
        ("Never", json!({"restartPolicy": "Always"}), 0, true),
        ("Never", json!({"restartPolicy": "Never", "restartPolicyRules": rules("Restart")}), 42, true),
        ("Never", json!({"restartPolicy": "Never", "restartPolicyRules": rules("Restart")}), 1, false),
        ("Never", json!({"restartPolicy": "Never", "restartPolicyRules": rules("RestartAllContainers")}), 1, true),
    ] {
        let mut container = json!({"name": "c", "image": "i"});
        container.as_object_mut().expect("an object").extend(own.as_object().expect("an object").clone());
        let pod = |state: Value| {
            let status = json!([{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state}]);
            json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"restartPolicy": of_pod, "containers": [container]},
                "status": {"containerStatuses": status, "qosClass": "BestEffort"}})
        };
        let (ended, waits) = (pod(json!({"terminated": {"exitCode": code}})), pod(json!({"waiting": {"reason": "CrashLoopBackOff"}})));
        let errors = crate::validate_update(kind("", "pods"), Some("status"), &waits, &ended, &mut Vec::new());
        let forbidden = errors.iter().any(|error| error.to_string().contains("may not be transitioned to non-terminated state"));
        assert_eq!(!forbidden, wanted, "{of_pod} {own} {code}");
    }
}

#[test]
fn parts_of_containers_are_checked() {
    let cases = [
        "imagePullPolicy: Maybe",
        "terminationMessagePolicy: Maybe",
        "ports: [{containerPort: 0}, {containerPort: 70000}, {containerPort: 1, protocol: ICMP}]",
        "ports: [{containerPort: 1, name: UP}, {containerPort: 2, name: a}, {containerPort: 3, name: a}, {containerPort: 3, name: much-too-long-name}, {containerPort: 3, name: '-a--'}]",
        "ports: [{containerPort: 1, hostPort: 80}, {containerPort: 2, hostPort: 80}, {containerPort: 2, hostPort: 70000}]",
        "env: [{name: ''}, {name: 'a=b'}, {name: 'fine to have blanks'}, {name: 'ü'}]",
        "env: [{name: A, valueFrom: {}}, {name: B, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
        "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.foo}}}, {name: B, valueFrom: {fieldRef: {fieldPath: ''}}}]",
        "env: [{name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['x y']\"}}}, {name: B, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['x']\"}}}, {name: C, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]",
        "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.gpu}}}, {name: B, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 2}}}]",
        "env: [{name: A, valueFrom: {configMapKeyRef: {name: X, key: ''}}}, {name: B, valueFrom: {secretKeyRef: {name: s, key: 'a b'}}}]",
        "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a/b.env, key: A}}}, {name: B, valueFrom: {fileKeyRef: {volumeName: claim, path: /a, key: 'a=b'}}}, {name: C, valueFrom: {fileKeyRef: {volumeName: x, path: ../a, key: ''}}}, {name: D, valueFrom: {fileKeyRef: {path: ..a, key: A}}}]",
        "envFrom: [{}, {configMapRef: {name: ''}}, {secretRef: {name: s}, configMapRef: {name: c}}, {prefix: 'a=', secretRef: {name: s}}]",
        "volumeMounts: [{name: x, mountPath: /x}, {name: v}, {name: v, mountPath: /a}, {name: v, mountPath: /a}]",
        "volumeMounts: [{name: v, mountPath: /a, subPath: /abs}, {name: v, mountPath: /b, subPath: ../up}, {name: v, mountPath: /c, subPath: a, subPathExpr: b}]",
        "volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}, {name: v, mountPath: /b, mountPropagation: x}, {name: v, mountPath: /c, recursiveReadOnly: Enabled}]",
        "volumeDevices: [{name: v, devicePath: /dev/a}, {name: claim, devicePath: /dev/b}, {name: claim, devicePath: ../c}, {name: x, devicePath: ''}]",
        "resources: {requests: {cpu: 2}, limits: {cpu: 1}}",
        "resources: {requests: {cpu: -1, foo: 1, example.com/gpu: 1}, limits: {memory: -1, example.com/gpu: 1500m}}",
        "resources: {limits: {hugepages-2Mi: 3Mi}}",
        "resources: {claims: [{name: x}]}",
        "livenessProbe: {}",
        "livenessProbe: {exec: {}, httpGet: {port: x}, successThreshold: 2, periodSeconds: -1}",
        "readinessProbe: {httpGet: {port: 0, scheme: FTP, httpHeaders: [{name: 'a b'}]}, terminationGracePeriodSeconds: 1}",
        "startupProbe: {grpc: {port: 70000}, terminationGracePeriodSeconds: 0}",
        "lifecycle: {preStop: {sleep: {seconds: 31}}, postStart: {}}",
        "securityContext: {runAsUser: -1, procMount: x, privileged: true, allowPrivilegeEscalation: false, seccompProfile: {type: Localhost}}",
        "securityContext: {appArmorProfile: {type: x}, capabilities: {add: [CAP_SYS_ADMIN]}, allowPrivilegeEscalation: false}",
        "resizePolicy: [{resourceName: cpu, restartPolicy: x}, {resourceName: cpu, restartPolicy: NotRequired}]",
        "restartPolicy: x",
    ];
    insta::assert_snapshot!(table(&cases, |case| create_problems(kind("", "pods"), &container(case))));
}

#[test]
fn the_pods_own_fields_are_checked() {
    let cases = [
        "restartPolicy: x",
        "dnsPolicy: x",
        "dnsPolicy: None",
        "dnsPolicy: None\ndnsConfig: {searches: [a]}",
        "dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, x], searches: ['a b', _dmarc.x, '.'], options: [{value: x}]}",
        "nodeSelector: {'a b': 'c d'}",
        "nodeName: A\nserviceAccountName: A\nhostname: a.b\nsubdomain: A",
        "hostnameOverride: 'a b'\nsetHostnameAsFQDN: true\nhostNetwork: true",
        "hostnameOverride: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "hostnameOverride: a.b",
        "activeDeadlineSeconds: 0",
        "runtimeClassName: A_b\npriorityClassName: A_b\npreemptionPolicy: x",
        "runtimeClassName: ''",
        "hostAliases: [{ip: x, hostnames: [A]}]",
        "hostNetwork: true\ncontainers: [{name: c, image: i, ports: [{containerPort: 1, hostPort: 2}]}]",
        "tolerations: [{operator: Equal}, {key: a, operator: Exists, value: x}, {key: a, operator: x}, {key: a, effect: x}, {key: a, tolerationSeconds: 1}]",
        "tolerations: [{operator: Exists}, {key: a, value: b, effect: NoExecute, tolerationSeconds: 5}]",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}",
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}, {key: a, operator: Exists, values: [b]}, {key: a, operator: Gt, values: []}, {key: 'a b', operator: x}], matchFields: [{key: metadata.uid, operator: In, values: [a]}]}]}}}",
        "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {}}]}}",
        "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: '', namespaces: [A], labelSelector: {matchLabels: {'a b': c}}}], preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, podAffinityTerm: {topologyKey: zone}}]}}",
        "topologySpreadConstraints: [{maxSkew: 0, whenUnsatisfiable: x, topologyKey: ''}, {maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, topologyKey: z, minDomains: 2, labelSelector: {}}]",
        "securityContext: {runAsUser: -1, fsGroup: 4294967296, supplementalGroups: [-1], sysctls: [{name: 'a b', value: x}, {name: kernel.shm_rmid_forced, value: '0'}], fsGroupChangePolicy: x, seccompProfile: {type: ''}}",
        "hostPID: true\nshareProcessNamespace: true",
        "hostUsers: false\nhostNetwork: true",
        "hostUsers: false\ncontainers: [{name: c, image: i, volumeDevices: [{name: v, devicePath: /d}]}]\nvolumes: [{name: v, persistentVolumeClaim: {claimName: p}}]",
        "readinessGates: [{conditionType: 'a b'}]\nschedulingGates: [{name: a/b}, {name: a/b}]",
        "schedulingGates: [{name: a/b}]\nnodeName: n",
        "schedulingGroup: {}",
        "schedulingGroup: {podGroupName: A}",
        "overhead: {cpu: -1}",
        "os: {name: plan9}",
        "resourceClaims: [{name: a}, {name: a, resourceClaimName: x}]",
        "resources: {requests: {cpu: 100m}, limits: {cpu: 50m, foo: 1}}",
        "terminationGracePeriodSeconds: -1",
    ];
    insta::assert_snapshot!(table(&cases, |case| create_problems(kind("", "pods"), &pod(case))));
}

#[test]
fn volumes_are_checked() {
    let cases = [
        "volumes: [{name: A}, {name: a}, {name: a}]",
        "volumes: [{name: a, emptyDir: {}, hostPath: {path: /x}}]",
        "volumes: [{name: a, hostPath: {path: ../x, type: Door}}, {name: b, hostPath: {path: ''}}]",
        "volumes: [{name: a, secret: {secretName: '', defaultMode: 1000, items: [{key: a, path: ..x}, {key: '', path: /abs, mode: 512}]}}]",
        "volumes: [{name: a, configMap: {items: [{key: a, path: a/../b}]}}]",
        "volumes: [{name: a, emptyDir: {sizeLimit: -1}}]",
        "volumes: [{name: a, downwardAPI: {items: [{path: x}, {path: '', fieldRef: {fieldPath: status.podIP}}, {path: y, resourceFieldRef: {resource: limits.cpu}}]}}]",
        "volumes: [{name: a, projected: {sources: [{serviceAccountToken: {path: '', expirationSeconds: 5}}, {secret: {name: s, items: [{key: a, path: p}]}, configMap: {name: c, items: [{key: a, path: p}]}}]}}]",
        "volumes: [{name: a, persistentVolumeClaim: {claimName: ''}}, {name: b, nfs: {server: '', path: x}}]",
        "volumes: [{name: a, ephemeral: {}}, {name: b, ephemeral: {volumeClaimTemplate: {spec: {}}}}]",
        "volumes: [{name: a, image: {reference: '', pullPolicy: x}}]",
        "volumes: [{name: a, csi: {driver: 'A b'}}]",
    ];
    insta::assert_snapshot!(table(&cases, |case| create_problems(kind("", "pods"), &pod(case))));
}

const BASE: &str = "metadata: {annotations: {kept: 'yes'}}\nspec: {nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}], containers: [{name: c, image: i}]}";

#[test]
fn a_pod_changes_in_its_images_and_little_else() {
    let cases = [
        "spec: {nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}], containers: [{name: c, image: other}]}",
        "spec: {nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists, effect: NoExecute}, {key: b, operator: Exists}], containers: [{name: c, image: i}]}",
        "spec: {nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}, {key: b, operator: Exists}], activeDeadlineSeconds: 5, containers: [{name: c, image: i}]}",
        "spec: {nodeSelector: {a: c}, tolerations: [{key: a, operator: Exists}], containers: [{name: c, image: i}]}",
        "spec: {nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}], hostname: x, containers: [{name: c, image: i, command: [x]}]}",
        "spec: {nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}], containers: [{name: c, image: i}, {name: d, image: i}]}",
        "spec: {nodeSelector: {a: b}, tolerations: [{key: a, operator: Exists}], containers: [{name: c, image: ''}]}",
        "spec: {nodeSelector: {a: b}, schedulingGates: [{name: a/b}], tolerations: [{key: a, operator: Exists}], containers: [{name: c, image: i}]}",
        "spec: {nodeSelector: {a: b}, schedulingGroup: {podGroupName: g}, tolerations: [{key: a, operator: Exists}], containers: [{name: c, image: i}]}",
        "metadata: {annotations: {kubernetes.io/config.mirror: x}}\nspec: {nodeSelector: {a: b}, nodeName: n, tolerations: [{key: a, operator: Exists}], containers: [{name: c, image: i}]}",
    ];
    insta::assert_snapshot!(table(&cases, |case| update_problems(kind("", "pods"), None, BASE, case)));
}

/// An absent `runAsUser` differs from `runAsUser: 0`; an absent `hostNetwork` equals `hostNetwork: false`.
#[test]
fn zeros_of_pointers_may_not_come_or_go() {
    let pod =
        |more: &str, container: &str| format!("spec: {{{more}containers: [{{name: c, image: i, securityContext: {{{container}}}}}]}}");
    for (old, new, change) in [
        (pod("", ""), pod("", "runAsUser: 0"), "containers[0].securityContext.runAsUser: -none +0"),
        (pod("", "allowPrivilegeEscalation: false"), pod("", ""), "containers[0].securityContext.allowPrivilegeEscalation: -false +none"),
        (pod("automountServiceAccountToken: false, ", ""), pod("", ""), "automountServiceAccountToken: -false +none"),
        (pod("securityContext: {}, ", ""), pod("securityContext: {fsGroup: 0}, ", ""), "securityContext.fsGroup: -none +0"),
        (pod("hostNetwork: false, ", ""), pod("", ""), "ok"),
    ] {
        let problems = update_problems(kind("", "pods"), None, &old, &new);
        assert!(problems.contains(change), "{old} to {new}: {problems}");
    }
}

#[test]
fn a_gated_pod_may_still_be_narrowed() {
    let gated = "spec: {schedulingGates: [{name: a/b}], nodeSelector: {a: b}, containers: [{name: c, image: i}]}";
    let cases = [
        "spec: {nodeSelector: {a: b, c: d}, containers: [{name: c, image: i}]}",
        "spec: {nodeSelector: {c: d}, containers: [{name: c, image: i}]}",
        "spec: {nodeSelector: {a: b}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}, containers: [{name: c, image: i}]}",
        "spec: {schedulingGates: [{name: c/d}], nodeSelector: {a: b}, containers: [{name: c, image: i}]}",
    ];
    insta::assert_snapshot!(table(&cases, |case| update_problems(kind("", "pods"), None, gated, case)));
}

#[test]
fn status_comes_through_its_own_door() {
    let pods = kind("", "pods");
    let old = new(pods, BASE);
    let mut changed = old.clone();
    changed["status"] = json!({"phase": "Running", "podIP": "10.0.0.1"});
    changed["spec"]["nodeName"] = json!("n");
    crate::default(pods, &mut changed);

    let mut main = changed.clone();
    crate::prepare_update(pods, None, &mut main, &old);
    assert_eq!(main.get("status"), old.get("status"));
    assert_eq!(main.pointer("/metadata/generation"), Some(&json!(2)));

    let mut status = changed;
    crate::prepare_update(pods, Some("status"), &mut status, &old);
    assert_eq!(status.get("spec"), old.get("spec"));
    assert_eq!(status.pointer("/metadata/generation"), Some(&json!(1)));
    assert_eq!(
        status.get("status"),
        Some(&json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "qosClass": "BestEffort"}))
    );
}

#[test]
fn status_updates_are_checked() {
    let cases = [
        "status: {phase: Running, podIP: 10.0.0.1}",
        "status: {qosClass: Guaranteed}",
        "status: {conditions: [{type: 'a b', status: 'True'}], nominatedNodeName: A}",
        "status: {podIPs: [{ip: x}, {ip: 10.0.0.1}, {ip: 10.0.0.2}]}",
        "status: {hostIP: 10.0.0.1, hostIPs: [{ip: 10.0.0.2}]}",
    ];
    insta::assert_snapshot!(table(&cases, |case| update_problems(kind("", "pods"), Some("status"), BASE, case)));
}

#[test]
fn containers_that_ended_stay_ended() {
    let pods = kind("", "pods");
    let mut old = new(pods, "spec: {restartPolicy: Never, containers: [{name: c, image: i}]}");
    api_model::meta::set(&mut old, "resourceVersion", "1");
    old["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": {"exitCode": 1}}}]);
    let mut changed = old.clone();
    changed["status"]["containerStatuses"] = json!([{"name": "c", "state": {"running": {}}}]);
    let errors = crate::validate_update(pods, Some("status"), &changed, &old, &mut Vec::new());
    assert_eq!(
        api_model::field::aggregate(&errors),
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    );
    old["spec"]["restartPolicy"] = json!("OnFailure");
    assert!(crate::validate_update(pods, Some("status"), &changed, &old, &mut Vec::new()).is_empty());
}

#[test]
fn ephemeral_containers_and_resources_have_their_own_doors() {
    let pods = kind("", "pods");
    let mut old = new(pods, "spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]}");
    api_model::meta::set(&mut old, "resourceVersion", "1");
    let mut changed = read(
        pods,
        "spec: {hostname: ignored, ephemeralContainers: [{name: debug, image: d}], containers: [{name: c, image: other, resources: {requests: {cpu: 200m}}}]}",
    );
    let mut ephemeral = changed.clone();
    crate::prepare_update(pods, Some("ephemeralcontainers"), &mut ephemeral, &old);
    assert_eq!(ephemeral.pointer("/spec/ephemeralContainers/0/name"), Some(&json!("debug")));
    assert_eq!(ephemeral.pointer("/spec/containers"), old.pointer("/spec/containers"));
    assert!(crate::validate_update(pods, Some("ephemeralcontainers"), &ephemeral, &old, &mut Vec::new()).is_empty());
    let errors = crate::validate_update(pods, Some("ephemeralcontainers"), &old, &ephemeral, &mut Vec::new());
    let forbidden: Vec<String> = errors.iter().map(ToString::to_string).filter(|error| error.contains("ephemeral")).collect();
    assert_eq!(forbidden, ["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"debug\" may not be removed\n"]);

    crate::prepare_update(pods, Some("resize"), &mut changed, &old);
    assert_eq!(changed.pointer("/spec/containers/0/resources/requests/cpu"), Some(&json!("200m")));
    assert_eq!(changed.pointer("/spec/containers/0/image"), Some(&json!("i")));
    assert_eq!(crate::validate_update(pods, Some("resize"), &changed, &old, &mut Vec::new()), []);
    if let Some(Value::Object(resources)) = changed.pointer_mut("/spec/containers/0/resources") {
        resources.clear();
    }
    assert!(!crate::validate_update(pods, Some("resize"), &changed, &old, &mut Vec::new()).is_empty());
}

#[test]
fn resources_of_the_whole_pod_are_resized_within_upstreams_rules() {
    let pods = kind("", "pods");
    let container = "containers: [{name: c, image: i, resources: {requests: {cpu: 200m}}}]";
    let spec = |resources: &str| format!("spec: {{resources: {resources}, {container}}}");
    let without = format!("spec: {{{container}}}");
    let resize = |old: &str, new: &str| {
        let (old, mut new) = (read(pods, old), read(pods, new));
        crate::prepare_update(pods, Some("resize"), &mut new, &old);
        let errors = crate::validate_update(pods, Some("resize"), &new, &old, &mut Vec::new());
        (new, errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let old = spec("{requests: {cpu: 500m, memory: 64Mi}, limits: {cpu: '1', memory: 64Mi}}");
    let errors = |new: &str| resize(&old, new).1;
    let none: [String; 0] = [];
    let (resized, problems) = resize(&old, &spec("{requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: '2', memory: 128Mi}}"));
    assert_eq!(problems, none);
    assert_eq!(resized.pointer("/spec/resources/limits"), Some(&json!({"cpu": "2", "memory": "128Mi"})));
    assert_eq!(resized.pointer("/spec/resources/requests/cpu"), Some(&json!("250m")));
    assert_eq!(errors(&without), ["spec.resources: Forbidden: pod-level resources cannot be removed"]);
    assert_eq!(
        errors(&spec("{requests: {cpu: 500m}, limits: {cpu: '1'}}")),
        [
            "spec.resources.requests: Forbidden: pod-level resource requests cannot be removed",
            "spec.resources.limits: Forbidden: pod-level resource limits cannot be removed",
        ]
    );
    let pages = "{requests: {cpu: 500m, memory: 64Mi, hugepages-2Mi: 2Mi}, limits: {cpu: '1', memory: 64Mi, hugepages-2Mi: 2Mi}}";
    let fixed = "spec: Forbidden: only cpu and memory resources are mutable at pod-level";
    assert_eq!(errors(&spec(pages)), [fixed]);
    let more = errors(&spec("{requests: {cpu: '2', memory: 64Mi}, limits: {cpu: '1', memory: 64Mi}}"));
    assert_eq!(more, ["spec.resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"]);
    let less = errors(&spec("{requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: '1', memory: 64Mi}}"));
    assert_eq!(
        less,
        ["spec.resources.requests[cpu]: Invalid value: \"100m\": must be greater than or equal to aggregate container requests of 200m"]
    );
    let guaranteed = errors(&spec("{requests: {cpu: '1', memory: 64Mi}, limits: {cpu: '1', memory: 64Mi}}"));
    assert_eq!(guaranteed.len(), 1);
    assert!(guaranteed.iter().all(|error| error.ends_with("Pod QOS Class may not change as a result of resizing")), "{guaranteed:?}");
    // Resources that are added get the defaults of new Pods.
    let (added, problems) = resize(&without, &spec("{limits: {cpu: '1', memory: 64Mi}}"));
    assert_eq!(problems, none);
    assert_eq!(added.pointer("/spec/resources/requests"), Some(&json!({"cpu": "200m", "memory": "64Mi"})));
    // An earlier version stored Pods without the default of their huge pages.
    let stored = "containers: [{name: c, image: i, resources: {requests: {cpu: 200m}, limits: {hugepages-2Mi: 2Mi}}}]";
    let stored = |cpu: &str| read(pods, &format!("spec: {{resources: {{limits: {{cpu: {cpu}}}}}, {stored}}}"));
    let mut old = stored("1");
    for list in ["/spec/resources/limits", "/spec/resources/requests"] {
        old.pointer_mut(list).and_then(Value::as_object_mut).expect("a list").remove("hugepages-2Mi").expect("a default");
    }
    let unchanged = crate::validate_update(pods, None, &stored("1"), &old, &mut Vec::new());
    assert_eq!(unchanged.iter().map(ToString::to_string).collect::<Vec<_>>(), none);
    let more = crate::validate_update(pods, Some("resize"), &stored("2"), &old, &mut Vec::new());
    assert_eq!(more.iter().map(ToString::to_string).collect::<Vec<_>>(), none);
    // So the huge pages of the containers would become resources of the Pod.
    let container = "containers: [{name: c, image: i, resources: {requests: {cpu: 200m}, limits: {hugepages-2Mi: 2Mi}}}]";
    let with = |resources: &str| format!("spec: {{{resources}{container}}}");
    assert_eq!(resize(&with(""), &with("resources: {limits: {cpu: '1', memory: 64Mi}}, ")).1, [fixed]);
}

#[test]
fn warnings_are_upstreams() {
    let pods = kind("", "pods");
    let object = new(
        pods,
        r"
metadata: {name: a.b}
spec:
  nodeSelector: {beta.kubernetes.io/os: linux}
  terminationGracePeriodSeconds: -1
  imagePullSecrets: [{name: x}, {name: x}, {}]
  hostAliases: [{ip: 1.1.1.1}, {ip: 1.1.1.1}]
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: failure-domain.beta.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]
  volumes: [{name: a, gitRepo: {repository: x}}]
  containers:
  - name: a
    image: i
    resources: {limits: {memory: 100m}}
    ports: [{containerPort: 80}, {containerPort: 80}]
    env: [{name: A, value: x}, {name: A, value: y}, {name: B, value: x}, {name: B, value: $(B)y}]
",
    );
    insta::assert_snapshot!(crate::warnings(pods, &object).join("\n"));
    assert!(crate::warnings(pods, &new(pods, BASE)).is_empty());
}

#[test]
fn label_keys_of_affinity_become_expressions() {
    let object = new(
        kind("", "pods"),
        r"
metadata: {labels: {hash: '1'}}
spec:
  containers: [{name: c, image: i}]
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - {topologyKey: zone, labelSelector: {matchLabels: {app: x}}, matchLabelKeys: [hash, absent]}
    podAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {}, mismatchLabelKeys: [hash]}}
",
    );
    let at = |path: &str| object.pointer(&format!("/spec/affinity/{path}/labelSelector/matchExpressions")).cloned();
    assert_eq!(
        at("podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0"),
        Some(json!([{"key": "hash", "operator": "In", "values": ["1"]}]))
    );
    assert_eq!(
        at("podAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm"),
        Some(json!([{"key": "hash", "operator": "NotIn", "values": ["1"]}]))
    );
}
