//! Kinds that are stored, defaulted and checked, although no part of Skiff acts on them.

use super::{changes, refused};
use crate::testing::{create_problems, kind, new, read, update_problems};

const CA: &str = include_str!("ca.pem");
const LEAF: &str = include_str!("leaf.pem");
/// An empty certificate request, signed.
const REQUEST: &str = "MIG6MGICAQAwADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJs2rIhKdmYV2cSnnnfMd7VF2S3FvESxZpNgR+pkWonhCEPD/IcweMle+cQVKHkW+jbRvgqoRaHBrUUGClgS90WgADAKBggqhkjOPQQDAgNIADBFAiBhvBfxC7po2LiHz35hM+/wgdSrWFy7Ss1IIBXtsPJwVQIhAO4NajvZuimK0GMRpG0j/wLTdVbCt6h/x5hXFFXE1BFp";
const SLICE: &str = "driver: d.example.com, pool: {name: a/b, resourceSliceCount: 1, generation: 0}";

fn pod_certificate(fields: &str) -> String {
    format!(
        "spec: {{signerName: example.com/s, podName: p, podUID: u, serviceAccountName: s, serviceAccountUID: v, nodeName: n, nodeUID: w, stubPKCS10Request: {REQUEST}{fields}}}"
    )
}

fn bundle(signer: &str, pem: &str) -> String {
    format!("spec: {{signerName: '{signer}', trustBundle: {}}}", serde_json::Value::from(pem))
}

/// `(group, plural, a valid body)`.
pub fn good() -> Vec<(&'static str, &'static str, String)> {
    let fixed = [
        (
            "autoscaling",
            "horizontalpodautoscalers",
            "spec: {scaleTargetRef: {kind: Deployment, name: web}, maxReplicas: 5, behavior: {scaleUp: {stabilizationWindowSeconds: 30}}}",
        ),
        (
            "networking.k8s.io",
            "ipaddresses",
            "metadata: {name: 10.96.0.7}\nspec: {parentRef: {resource: services, namespace: default, name: web}}",
        ),
        ("networking.k8s.io", "servicecidrs", "spec: {cidrs: [10.96.0.0/16, 'fd00::/64']}"),
        (
            "resource.k8s.io",
            "deviceclasses",
            "spec: {selectors: [{cel: {expression: 'true'}}], config: [{opaque: {driver: d.example.com, parameters: {a: b}}}]}",
        ),
        (
            "resource.k8s.io",
            "devicetaintrules",
            "spec: {deviceSelector: {driver: d.example.com}, taint: {key: a/b, effect: NoSchedule, timeAdded: '2026-01-01T00:00:00Z'}}",
        ),
        (
            "resource.k8s.io",
            "resourceclaims",
            "spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu, tolerations: [{key: x}]}}, {name: b, firstAvailable: [{name: x, deviceClassName: gpu, allocationMode: All}]}], constraints: [{requests: [a, b/x], matchAttribute: d.example.com/model}]}}",
        ),
        ("resource.k8s.io", "resourceclaimtemplates", "spec: {spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu}}]}}}"),
        (
            "resource.k8s.io",
            "resourceslices",
            "spec: {driver: d.example.com, pool: {name: n, resourceSliceCount: 1, generation: 1}, nodeName: n, devices: [{name: d0, attributes: {model: {string: x}, d.example.com/v: {version: 1.2.3}}, capacity: {memory: {value: 4Gi}}}]}",
        ),
        ("storage.k8s.io", "csistoragecapacities", "storageClassName: fast\ncapacity: 1Gi\nnodeTopology: {matchLabels: {a: b}}"),
        ("storage.k8s.io", "volumeattachments", "spec: {attacher: d.example.com, nodeName: n, source: {persistentVolumeName: pv}}"),
        ("storage.k8s.io", "volumeattributesclasses", "driverName: d.example.com\nparameters: {iops: '100'}"),
        ("storagemigration.k8s.io", "storageversionmigrations", "spec: {resource: {group: apps, resource: deployments}}"),
    ];
    let mut all: Vec<_> = fixed.into_iter().map(|(group, plural, yaml)| (group, plural, yaml.to_owned())).collect();
    all.push(("certificates.k8s.io", "clustertrustbundles", bundle("", CA)));
    all.push(("certificates.k8s.io", "podcertificaterequests", pod_certificate("")));
    all
}

#[test]
fn autoscalers() {
    let spec = |fields: &str| format!("spec: {{scaleTargetRef: {{kind: Deployment, name: web}}, maxReplicas: 5, {fields}}}");
    let metric = |metric: &str| spec(&format!("metrics: [{metric}]"));
    let owned = [
        "spec: {}".to_owned(),
        "spec: {scaleTargetRef: {kind: a/b, name: ..}, minReplicas: 3, maxReplicas: 2}".to_owned(),
        spec("minReplicas: -1"),
        spec("minReplicas: 0"),
        metric("{}"),
        metric("{type: Magic, pods: {metric: {name: a}, target: {type: AverageValue, averageValue: 1}}}"),
        metric("{type: Pods, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}"),
        metric("{type: Resource, resource: {name: gpu, target: {type: Sum}}}"),
        metric("{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 0, averageValue: 0}}, pods: {}}"),
        metric("{type: ContainerResource, containerResource: {name: cpu, target: {type: Utilization}}}"),
        metric("{type: Object, object: {describedObject: {kind: Ingress}, metric: {name: a/b}, target: {type: Value}}}"),
        metric("{type: External, external: {metric: {}, target: {type: Value, value: 1, averageValue: 1}}}"),
        spec(
            "behavior: {scaleUp: {stabilizationWindowSeconds: 3601, selectPolicy: Most, policies: [{type: x, value: 0, periodSeconds: 1801}]}, scaleDown: {stabilizationWindowSeconds: -1, policies: [], tolerance: '-1'}}",
        ),
    ];
    refused("autoscaling", "horizontalpodautoscalers", &owned.iter().map(String::as_str).collect::<Vec<_>>());
    let autoscalers = kind("autoscaling", "horizontalpodautoscalers");
    let object = new(autoscalers, &spec("minReplicas: 2"));
    assert_eq!(object.pointer("/spec/metrics/0/resource/target/averageUtilization"), Some(&80.into()), "{object}");
    changes("autoscaling", "horizontalpodautoscalers", Some("status"), &["status: {currentReplicas: -1, desiredReplicas: -2}"]);
}

#[test]
fn service_ranges_and_addresses() {
    refused(
        "networking.k8s.io",
        "servicecidrs",
        &[
            "spec: {}",
            "spec: {cidrs: [10.0.0.0/8, 10.1.0.0/16]}",
            "spec: {cidrs: [a, b, c]}",
            "spec: {cidrs: [10.0.0.1/8]}",
            "spec: {cidrs: [x]}",
        ],
    );
    changes("networking.k8s.io", "servicecidrs", None, &["spec: {cidrs: [10.97.0.0/16]}"]);
    refused(
        "networking.k8s.io",
        "ipaddresses",
        &[
            "metadata: {name: a}\nspec: {}",
            "metadata: {name: '2001:DB8::1'}\nspec: {parentRef: {resource: services, name: a}}",
            "metadata: {name: 10.0.0.1}\nspec: {parentRef: {group: A, resource: a/b, namespace: '..'}}",
        ],
    );
    changes(
        "networking.k8s.io",
        "ipaddresses",
        None,
        &["metadata: {name: 10.96.0.7}\nspec: {parentRef: {resource: services, name: other}}"],
    );
}

#[test]
fn administrators_access_needs_a_marked_namespace() {
    let namespace = |label: Option<&str>| {
        let labels = label.map(|value| serde_json::json!({"resource.kubernetes.io/admin-access": value}));
        Some(std::sync::Arc::new(serde_json::json!({"metadata": {"name": "default", "labels": labels}})))
    };
    let errors = |plural: &str, sub: Option<&str>, body: &str, old: Option<&str>, namespace: Option<std::sync::Arc<serde_json::Value>>| {
        let kind = kind("resource.k8s.io", plural);
        let (body, old) = (new_with_status(kind, body), old.map(|old| new_with_status(kind, old)));
        let errors = crate::validate_admin_access(kind, sub, &body, old.as_ref(), || namespace);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    let requests =
        "devices: {requests: [{name: a, exactly: {deviceClassName: gpu}}, {name: b, exactly: {deviceClassName: gpu, adminAccess: true}}]}";
    let (claim, template) = (format!("spec: {{{requests}}}"), format!("spec: {{spec: {{{requests}}}}}"));
    let wanted = "spec.devices.requests[1].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    for (plural, body) in [("resourceclaims", &claim), ("resourceclaimtemplates", &template)] {
        for label in [None, Some("false"), Some("")] {
            assert_eq!(errors(plural, None, body, None, namespace(label)), wanted, "{plural}");
        }
        assert_eq!(errors(plural, None, body, None, namespace(Some("true"))), "");
        assert_eq!(errors(plural, None, body, Some(body), namespace(None)), "", "what is there stays");
        let lost = "spec.devices.requests[1].adminAccess: Internal error: could not retrieve namespace to verify admin access: namespaces \"default\" not found";
        assert_eq!(errors(plural, None, body, None, None), lost);
        assert_eq!(errors(plural, None, &body.replace("true", "false"), None, None), "");
    }
    let given = |access: &str| {
        format!(
            "{claim}\nstatus: {{allocation: {{devices: {{results: [{{request: b, driver: d, pool: p, device: x, adminAccess: {access}}}]}}}}}}"
        )
    };
    let wanted = wanted.replace("spec.devices.requests[1]", "status.allocation.devices.results[0]");
    let status = |new: &str, old: &str, label| errors("resourceclaims", Some("status"), new, Some(old), namespace(label));
    assert_eq!(status(&given("true"), &claim, None), wanted);
    assert_eq!(status(&given("true"), &claim, Some("true")), "");
    assert_eq!(status(&given("true"), &given("true"), None), "", "it was given before");
    assert_eq!(status(&given("false"), &claim, None), "");
}

/// A new object with its status.
fn new_with_status(kind: &api_model::kind::Kind, yaml: &str) -> serde_json::Value {
    let (mut object, status) = (new(kind, yaml), read(kind, yaml).get("status").cloned());
    if let Some(status) = status {
        object["status"] = status;
    }
    object
}

#[test]
fn claims_for_devices() {
    let devices = |fields: &str| format!("spec: {{devices: {{{fields}}}}}");
    let request = |fields: &str| devices(&format!("requests: [{{name: a, {fields}}}]"));
    let exactly = |fields: &str| request(&format!("exactly: {{deviceClassName: gpu, {fields}}}"));
    let good = "requests: [{name: a, exactly: {deviceClassName: gpu}}]";
    let owned = [
        devices("requests: [{}, {name: A}, {name: A}]"),
        request("exactly: {}, firstAvailable: [{name: a}]"),
        request("firstAvailable: [{name: x}, {name: x, deviceClassName: B}]"),
        exactly("allocationMode: Some, tolerations: [{operator: Is}, {operator: Exists, value: a, effect: x}, {key: 'a b', value: 'c d'}]"),
        exactly("allocationMode: All, count: 2"),
        exactly("count: -1, selectors: [{}]"),
        exactly("derivedAttributes: [{name: a.b/c, expression: '1'}, {}]"),
        devices(&format!(
            "{good}, constraints: [{{}}, {{requests: [b, a/b/c, a/x], matchAttribute: model}}, {{matchAttribute: 'A/b/c'}}, {{distinctAttribute: '/1'}}]"
        )),
        devices(&format!("{good}, config: [{{}}, {{requests: [a, a], opaque: {{driver: 'x y', parameters: [1]}}}}]")),
        devices(&format!("requests: [{}]", vec!["{name: a, exactly: {deviceClassName: gpu}}"; 33].join(","))),
    ];
    let cases: Vec<&str> = owned.iter().map(String::as_str).collect();
    refused("resource.k8s.io", "resourceclaims", &cases);
    let (claims, old) = (kind("resource.k8s.io", "resourceclaims"), devices(good));
    assert!(update_problems(claims, None, &old, "spec: {}").contains("field is immutable"));
    let status = |fields: &str| update_problems(claims, Some("status"), &old, &format!("{old}\nstatus: {{{fields}}}"));
    let device = "driver: d.example.com, pool: p, device: x";
    let allocation = format!("allocation: {{devices: {{results: [{{request: a, {device}}}]}}}}");
    assert_eq!(status(&format!("{allocation}, reservedFor: [{{resource: pods, name: p, uid: u}}], devices: [{{{device}}}]")), "ok");
    insta::assert_snapshot!(
        [
            "reservedFor: [{}]",
            "allocation: {devices: {results: [{request: b, driver: '', pool: '', device: '', shareID: x, skipNodeOperations: [NodePrepareResources]}], config: [{source: x}]}, nodeSelector: {}}",
            &format!("{allocation}, devices: [{{driver: d.example.com, pool: p, device: y, data: 5, networkData: {{ips: [10.0.0.1, 10.0.0.1/24, '2001:DB8::1/64']}}, conditions: [{{type: a b, status: x}}]}}]"),
        ]
        .map(status)
        .join("\n--\n")
    );
    assert!(
        create_problems(
            kind("resource.k8s.io", "resourceclaimtemplates"),
            "spec: {metadata: {labels: {'a b': c}}, spec: {devices: {requests: [{}]}}}"
        )
        .starts_with("spec.metadata.labels: Invalid value: \"a b\"")
    );
    assert!(
        create_problems(kind("resource.k8s.io", "deviceclasses"), "spec: {extendedResourceName: gpu, selectors: [{}], config: [{}]}")
            .contains("spec.extendedResourceName: Invalid value: \"gpu\": must be a valid extended resource name")
    );
    let selecting = |expression: &str| {
        let classes = kind("resource.k8s.io", "deviceclasses");
        create_problems(classes, &format!("spec: {{selectors: [{{cel: {{expression: {}}}}}]}}", serde_json::json!(expression)))
    };
    assert_eq!(selecting("device.driver == 'd.example.com'"), "ok");
    assert!(
        selecting("device.name == 'x'")
            .contains("spec.selectors[0].cel.expression: Invalid value: \"device.name == 'x'\": compilation failed: ")
    );
    assert!(selecting("1").contains("Invalid value: \"1\": must evaluate to bool or the unknown type, not int"));
    let ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let costly = (0..6).fold("int('1'.find('[0-9]*')) < 100".to_owned(), |inner, n| format!("{ten}.all(v{n}, {inner})"));
    assert!(selecting(&costly).contains("spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"));
    refused(
        "resource.k8s.io",
        "devicetaintrules",
        &[
            "spec: {taint: {}}",
            "spec: {deviceSelector: {driver: '', pool: /, device: A}, taint: {key: a, value: b c, effect: PreferNoSchedule}}",
        ],
    );
}

#[test]
fn slices_of_devices() {
    let slice = |fields: &str| format!("spec: {{{SLICE}, {fields}}}");
    let device = |fields: &str| slice(&format!("nodeName: n, devices: [{{name: d, {fields}}}]"));
    let owned = [
        "spec: {pool: {}}".to_owned(),
        slice("nodeName: '', allNodes: false, perDeviceNodeSelection: false"),
        slice("nodeName: n, allNodes: true, nodeSelector: {nodeSelectorTerms: []}"),
        slice("nodeName: n, devices: [{name: A}, {name: A}], sharedCounters: [{}, {name: c, counters: {B: {value: 1}}}]"),
        slice("perDeviceNodeSelection: true, devices: [{name: a}, {name: b, nodeName: n, allNodes: true}]"),
        device("allNodes: true"),
        device("attributes: {a-b: {}, a/b/c: {int: 1, bool: true}, /x: {string: s}, v: {version: '1'}, l: {strings: []}}"),
        device("capacity: {c: {value: 1, requestPolicy: {default: 1}}}"),
        device("allowMultipleAllocations: true, capacity: {c: {value: 10, requestPolicy: {default: 3, validValues: [2, 1, 11]}}}"),
        device(
            "allowMultipleAllocations: true, capacity: {c: {value: 10, requestPolicy: {default: 3, validRange: {min: 2, max: 9, step: 2}}}}",
        ),
        device(
            "allowMultipleAllocations: true, capacity: {c: {value: 10, requestPolicy: {validRange: {min: 2}}}, d: {value: 1, requestPolicy: {default: 1, validRange: {}}}}",
        ),
        device("taints: [{}], consumesCounters: [{}, {counterSet: A, counters: {c: {value: 1}}}, {counterSet: b}]"),
        device("bindingConditions: [a, a], bindingFailureConditions: [a, 'b c']"),
        device(
            "nodeAllocatableResources: {cpu: {}, gpu: {mapping: {capacityKey: x}}, memory: {overhead: {}, mapping: {capacityMultiplier: 1}}}",
        ),
        slice("nodeName: n, partitionTypeAttribute: model, skipNodeOperations: [x]"),
        slice(
            "nodeName: n, partitionTypeAttribute: d.example.com/model, devices: [{name: a, consumesCounters: [{counterSet: b, counters: {c: {value: 1}}}]}, {name: b, attributes: {model: {int: 1}}, consumesCounters: [{counterSet: b, counters: {c: {value: 1}}}]}]",
        ),
    ];
    refused("resource.k8s.io", "resourceslices", &owned.iter().map(String::as_str).collect::<Vec<_>>());
    changes(
        "resource.k8s.io",
        "resourceslices",
        None,
        &["spec: {driver: e.example.com, pool: {name: m, resourceSliceCount: 1, generation: 1}, nodeName: m}"],
    );
}

#[test]
fn a_taint_says_since_when_it_has_its_effect() {
    const OLD: &str = "2020-01-01T00:00:00Z";
    const OTHER: &str = "2021-01-01T00:00:00Z";
    let is_now = |time: &str| {
        let time: jiff::Timestamp = time.parse().expect("a time");
        (api_clock::now().as_second() - time.as_second()).abs() < 60
    };
    let rules = kind("resource.k8s.io", "devicetaintrules");
    let rule = |effect: &str, time: &str| new(rules, &format!("spec: {{taint: {{key: a, effect: {effect}, timeAdded: {time}}}}}"));
    let quoted = |time: &str| format!("'{time}'");
    assert!(is_now(rule("None", "null")["spec"]["taint"]["timeAdded"].as_str().expect("a time")));
    // The effect and the time that the update says, its subresource, and the time that is stored; now if there is none.
    let cases = [
        ("None", OLD, None, Some(OLD)),
        ("NoExecute", OLD, None, None),
        ("NoExecute", OTHER, None, Some(OTHER)),
        ("NoExecute", OLD, Some("status"), Some(OLD)),
    ];
    for (effect, time, sub, wanted) in cases {
        let mut changed = rule(effect, &quoted(time));
        crate::prepare_update(rules, sub, &mut changed, &rule("None", &quoted(OLD)));
        let stored = changed["spec"]["taint"]["timeAdded"].as_str().expect("a time");
        assert!(wanted.map_or_else(|| is_now(stored), |wanted| stored == wanted), "{effect} {time} {sub:?}: {stored}");
    }
    let slices = kind("resource.k8s.io", "resourceslices");
    let taints = format!("[{{key: a, effect: NoExecute}}, {{key: b, effect: NoExecute, timeAdded: '{OLD}'}}]");
    let slice = new(slices, &format!("spec: {{{SLICE}, nodeName: n, devices: [{{name: d, taints: {taints}}}]}}"));
    let time = |index: usize| slice["spec"]["devices"][0]["taints"][index]["timeAdded"].as_str().expect("a time");
    assert!(is_now(time(0)) && time(1) == OLD, "{slice}");
}

#[test]
fn attachments_and_classes_of_volumes() {
    let attachment = |fields: &str| format!("spec: {{attacher: d.example.com, nodeName: n, source: {{{fields}}}}}");
    let owned = [
        "spec: {source: {}}".to_owned(),
        attachment("persistentVolumeName: a, inlineVolumeSpec: {}"),
        attachment("persistentVolumeName: ''"),
        attachment("persistentVolumeName: A"),
        attachment("inlineVolumeSpec: {claimRef: {name: a}}"),
    ];
    refused("storage.k8s.io", "volumeattachments", &owned.iter().map(String::as_str).collect::<Vec<_>>());
    changes("storage.k8s.io", "volumeattachments", None, &[&attachment("persistentVolumeName: other")]);
    refused("storage.k8s.io", "volumeattributesclasses", &["driverName: ''", "driverName: a b\nparameters: {'': x}"]);
    changes("storage.k8s.io", "volumeattributesclasses", None, &["driverName: e.example.com\nparameters: {iops: '200'}"]);
    refused(
        "storage.k8s.io",
        "csistoragecapacities",
        &["storageClassName: ''\ncapacity: -1", "storageClassName: A\nmaximumVolumeSize: -1Gi"],
    );
    changes("storage.k8s.io", "csistoragecapacities", None, &["storageClassName: slow\ncapacity: 2Gi"]);
    refused(
        "storage.k8s.io",
        "csidrivers",
        &[
            "spec: {nodeAllocatableUpdatePeriodSeconds: 5, fsGroupPolicy: x, volumeLifecycleModes: [y], tokenRequests: [{audience: a}, {audience: a, expirationSeconds: 5}]}",
        ],
    );
    changes("storage.k8s.io", "csidrivers", None, &["spec: {attachRequired: false, volumeLifecycleModes: [Ephemeral]}"]);
    refused(
        "storage.k8s.io",
        "csinodes",
        &["spec: {drivers: [{name: '', nodeID: ''}, {name: a.b, nodeID: n, allocatable: {count: -1}, topologyKeys: ['', 'a b', x, x]}]}"],
    );
    changes("storage.k8s.io", "csinodes", None, &["spec: {drivers: [{name: a.b, nodeID: m}]}"]);
}

#[test]
fn certificates_of_pods_and_of_authorities() {
    let twice = format!("{CA}{CA}");
    let owned = [
        bundle("", ""),
        bundle("", "nonsense"),
        bundle("", LEAF),
        bundle("", &twice),
        bundle("", "-----BEGIN JUNK-----\nAAAA\n-----END JUNK-----\n"),
        bundle("", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        bundle("example.com/s", CA),
        format!("metadata: {{name: 'a:b'}}\n{}", bundle("", CA)),
        format!("metadata: {{name: 'example.com:s:B'}}\n{}", bundle("example.com/s", CA)),
    ];
    let problems: Vec<String> =
        owned.iter().map(|yaml| create_problems(kind("certificates.k8s.io", "clustertrustbundles"), yaml)).collect();
    insta::assert_snapshot!(problems.join("\n"));
    let good = format!("metadata: {{name: 'example.com:s:b'}}\n{}", bundle("example.com/s", CA));
    assert_eq!(create_problems(kind("certificates.k8s.io", "clustertrustbundles"), &good), "ok");
    let requests = kind("certificates.k8s.io", "podcertificaterequests");
    let refused = [
        "spec: {}".to_owned(),
        pod_certificate(", maxExpirationSeconds: 60"),
        pod_certificate(", unverifiedUserAnnotations: {a: b, 'a.b/c d': e}").replace(REQUEST, "aGk="),
    ];
    insta::assert_snapshot!(refused.map(|yaml| create_problems(requests, &yaml)).join("\n--\n"));
    let old = pod_certificate("");
    let condition = |kind: &str| format!("{{type: {kind}, status: 'True', reason: R, lastTransitionTime: 2024-01-01T00:00:00Z}}");
    let status = |fields: &str| update_problems(requests, Some("status"), &old, &format!("{old}\nstatus: {{{fields}}}"));
    assert_eq!(status(&format!("conditions: [{}]", condition("Denied"))), "ok");
    let issued = condition("Issued");
    let chain = serde_json::Value::from(LEAF);
    insta::assert_snapshot!(
        [
            format!("conditions: [{}, {issued}]", condition("Denied")),
            format!("conditions: [{}]", condition("Maybe")),
            format!("conditions: [{issued}]"),
            "notBefore: 2024-01-01T00:00:00Z".to_owned(),
            format!("certificateChain: {chain}"),
            format!("certificateChain: nonsense, conditions: [{issued}]"),
            format!("certificateChain: {chain}, conditions: [{issued}], notBefore: 2024-01-01T00:00:00Z"),
            format!("certificateChain: {chain}, conditions: [{issued}], notBefore: 2026-11-22T00:27:12Z, notAfter: 2126-10-29T00:27:12Z"),
        ]
        .map(|fields| status(&fields))
        .join("\n--\n")
    );
    assert!(update_problems(requests, None, &old, &old.replace("podName: p", "podName: q")).contains("field is immutable"));
}

#[test]
fn migrations_of_what_is_stored() {
    refused("storagemigration.k8s.io", "storageversionmigrations", &["spec: {resource: {}}", "spec: {resource: {resource: A, group: B}}"]);
    changes("storagemigration.k8s.io", "storageversionmigrations", None, &["spec: {resource: {group: apps, resource: replicasets}}"]);
    let condition = |kind: &str| format!("{{type: {kind}, status: 'True', reason: R, lastTransitionTime: 2024-01-01T00:00:00Z}}");
    changes(
        "storagemigration.k8s.io",
        "storageversionmigrations",
        Some("status"),
        &[
            "status: {resourceVersion: x, conditions: [{type: a, status: b}]}",
            &format!("status: {{conditions: [{}, {}]}}", condition("Succeeded"), condition("Failed")),
        ],
    );
}
