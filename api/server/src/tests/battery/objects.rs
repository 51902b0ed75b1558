//! The smallest object of every kind.

use api_model::kind::Kind;
use serde_json::{Map, Value, json};

/// A certificate of any authority; nothing is signed with it.
const CA: &str = include_str!("ca.pem");
/// A minimal certificate request (PKCS#10).
const REQUEST: &str = "MIG6MGICAQAwADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJs2rIhKdmYV2cSnnnfMd7VF2S3FvESxZpNgR+pkWonhCEPD/IcweMle+cQVKHkW+jbRvgqoRaHBrUUGClgS90WgADAKBggqhkjOPQQDAgNIADBFAiBhvBfxC7po2LiHz35hM+/wgdSrWFy7Ss1IIBXtsPJwVQIhAO4NajvZuimK0GMRpG0j/wLTdVbCt6h/x5hXFFXE1BFp";

/// An object of that kind, with a name and a label.
pub(super) fn of(kind: &Kind) -> Value {
    let mut object =
        json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": name(kind), "labels": {"battery": "one"}}});
    let body = body(&kind.group, &kind.version, &kind.plural);
    let Some(body) = body.unwrap_or_else(|| panic!("no body for {kind:?}")).as_object().cloned() else { panic!("no object") };
    object.as_object_mut().expect("an object").extend(body);
    object
}

/// Most names are free; the names of these kinds must have a certain form.
fn name(kind: &Kind) -> &'static str {
    match kind.plural.as_str() {
        "apiservices" => "v1.none.example.com",
        "customresourcedefinitions" => "widgets.battery.example.com",
        "ipaddresses" => "10.96.0.77",
        _ => "battery",
    }
}

fn body(group: &str, version: &str, plural: &str) -> Option<Value> {
    Some(match group {
        "" => core(plural)?,
        "apps" | "batch" => workload(plural)?,
        "admissionregistration.k8s.io" => admission(plural)?,
        "resource.k8s.io" => device(plural)?,
        "storage.k8s.io" => storage(plural)?,
        "rbac.authorization.k8s.io" => access(plural)?,
        "certificates.k8s.io" => certificate(plural)?,
        "networking.k8s.io" => network(plural)?,
        _ => other(plural, version)?,
    })
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn job_template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}})
}

fn core(plural: &str) -> Option<Value> {
    Some(match plural {
        "configmaps" | "limitranges" | "namespaces" | "nodes" | "resourcequotas" | "secrets" | "serviceaccounts" => Map::new().into(),
        "endpoints" => json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
        "events" => json!({"involvedObject": {"namespace": "default"}, "reason": "R"}),
        "persistentvolumeclaims" => json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        "persistentvolumes" => {
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}})
        }
        "pods" => json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
        "podtemplates" => json!({"template": template()}),
        "replicationcontrollers" => json!({"spec": {"replicas": 0, "template": template()}}),
        "services" => json!({"spec": {"ports": [{"port": 80}]}}),
        _ => return None,
    })
}

fn workload(plural: &str) -> Option<Value> {
    Some(match plural {
        "controllerrevisions" => json!({"data": {"a": 1}, "revision": 1}),
        "cronjobs" => json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": job_template()}}}}),
        "jobs" => json!({"spec": {"template": job_template()}}),
        "daemonsets" | "deployments" | "replicasets" | "statefulsets" => {
            json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template()}})
        }
        _ => return None,
    })
}

/// None of these may match requests of the battery.
fn admission(plural: &str) -> Option<Value> {
    let matched = json!({"resourceRules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"]}]});
    Some(match plural {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => json!({"webhooks": []}),
        "validatingadmissionpolicies" => json!({"spec": {"matchConstraints": matched, "validations": [{"expression": "true"}]}}),
        "mutatingadmissionpolicies" => {
            let change = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}});
            json!({"spec": {"matchConstraints": matched, "reinvocationPolicy": "Never", "mutations": [change]}})
        }
        "validatingadmissionpolicybindings" => json!({"spec": {"policyName": "none", "validationActions": ["Deny"]}}),
        "mutatingadmissionpolicybindings" => json!({"spec": {"policyName": "none"}}),
        _ => return None,
    })
}

fn device(plural: &str) -> Option<Value> {
    let devices = json!({"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}});
    Some(match plural {
        "deviceclasses" => json!({"spec": {}}),
        "devicetaintrules" => json!({"spec": {"taint": {"key": "a", "effect": "None"}}}),
        "resourceclaims" => json!({"spec": devices}),
        "resourceclaimtemplates" => json!({"spec": {"spec": devices}}),
        "resourceslices" => {
            json!({"spec": {"driver": "d.example.com", "pool": {"name": "p", "resourceSliceCount": 1, "generation": 1}, "allNodes": true}})
        }
        _ => return None,
    })
}

fn storage(plural: &str) -> Option<Value> {
    Some(match plural {
        "csidrivers" => json!({"spec": {}}),
        "csinodes" => json!({"spec": {"drivers": []}}),
        "csistoragecapacities" => json!({"storageClassName": "none"}),
        "storageclasses" => json!({"provisioner": "example.com/none"}),
        "volumeattachments" => json!({"spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "none"}}}),
        "volumeattributesclasses" => json!({"driverName": "d.example.com", "parameters": {"a": "b"}}),
        _ => return None,
    })
}

fn access(plural: &str) -> Option<Value> {
    Some(match plural {
        "clusterroles" | "roles" => json!({"rules": []}),
        "clusterrolebindings" | "rolebindings" => {
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}, "subjects": []})
        }
        _ => return None,
    })
}

fn certificate(plural: &str) -> Option<Value> {
    let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{REQUEST}\n-----END CERTIFICATE REQUEST-----\n");
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
    Some(match plural {
        "certificatesigningrequests" => json!({"spec": {"signerName": "example.com/none", "usages": ["client auth"], "request": encoded}}),
        "clustertrustbundles" => json!({"spec": {"trustBundle": CA}}),
        "podcertificaterequests" => json!({"spec": {
            "signerName": "example.com/none", "podName": "p", "podUID": "u", "serviceAccountName": "s", "serviceAccountUID": "v",
            "nodeName": "n", "nodeUID": "w", "stubPKCS10Request": REQUEST,
        }}),
        _ => return None,
    })
}

fn network(plural: &str) -> Option<Value> {
    Some(match plural {
        "ingressclasses" => json!({"spec": {"controller": "example.com/none"}}),
        "ingresses" => json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
        "ipaddresses" => json!({"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "none"}}}),
        "networkpolicies" => json!({"spec": {"podSelector": {}}}),
        "servicecidrs" => json!({"spec": {"cidrs": ["10.250.0.0/24"]}}),
        _ => return None,
    })
}

fn other(plural: &str, version: &str) -> Option<Value> {
    Some(match (plural, version) {
        ("apiservices", _) => {
            let service = json!({"namespace": "default", "name": "none"});
            json!({"spec": {"group": "none.example.com", "version": "v1", "service": service, "groupPriorityMinimum": 1, "versionPriority": 1, "insecureSkipTLSVerify": true}})
        }
        ("customresourcedefinitions", _) => {
            let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
            json!({"spec": {"group": "battery.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [version]}})
        }
        ("endpointslices", _) => json!({"addressType": "IPv4", "endpoints": []}),
        ("events", _) => json!({
            "eventTime": "2024-01-01T00:00:00.000000Z", "regarding": {"namespace": "default"}, "reportingController": "example.com/x",
            "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal",
        }),
        ("flowschemas", _) => json!({"spec": {"priorityLevelConfiguration": {"name": "none"}}}),
        ("horizontalpodautoscalers", _) => json!({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "none"}, "maxReplicas": 2}}),
        ("leases" | "poddisruptionbudgets", _) => json!({"spec": {}}),
        ("podgroups", _) => json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}),
        ("workloads", _) => json!({"spec": {"podGroupTemplates": [{"name": "a", "schedulingPolicy": {"basic": {}}}]}}),
        ("priorityclasses", _) => json!({"value": 1}),
        ("prioritylevelconfigurations", _) => json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}}),
        ("runtimeclasses", _) => json!({"handler": "none"}),
        ("storageversionmigrations", _) => json!({"spec": {"resource": {"resource": "none"}}}),
        _ => return None,
    })
}
