mod every_field;
mod golden;
mod hostile;
mod prost_structs;

use std::collections::BTreeSet;

use super::read::Reader;
use super::*;
use serde_json::json;

fn varint(mut number: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f | 0x80).expect("eight bits"));
        number >>= 7;
    }
    out.push(u8::try_from(number).expect("seven bits"));
    out
}

/// A field of bytes: text or a message.
fn bytes(tag: usize, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [varint(tag << 3 | 2), varint(content.len()), content.to_vec()].concat()
}

fn number(tag: u8, number: u8) -> Vec<u8> {
    vec![tag << 3, number]
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    [MAGIC, &bytes(1, [bytes(1, api_version), bytes(2, kind)].concat()), &bytes(2, raw), &bytes(3, ""), &bytes(4, "")].concat()
}

fn decoded(api_version: &str, kind: &str, raw: &[u8]) -> Value {
    decode(&envelope(api_version, kind, raw)).expect("decodes").value
}

#[test]
fn a_config_map() {
    let entry = |key: &str, value: &str| [bytes(1, key), bytes(2, value)].concat();
    let metadata = [bytes(1, "a"), bytes(2, ""), bytes(3, "default"), number(7, 0), bytes(8, ""), bytes(11, entry("l", ""))].concat();
    let raw = [bytes(1, metadata), bytes(2, entry("k", "v")), bytes(3, entry("b", "\x01")), number(4, 0)].concat();
    assert_eq!(
        decoded("v1", "ConfigMap", &raw),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default", "labels": {"l": ""}},
            "data": {"k": "v"}, "binaryData": {"b": "AQ=="}, "immutable": false})
    );
}

#[test]
fn a_pod_with_inlined_sources_ports_and_quantities() {
    let volume = [bytes(1, "v"), bytes(2, bytes(2, bytes(1, "")))].concat();
    let probe =
        [bytes(1, bytes(2, [bytes(1, "/"), bytes(2, [number(1, 1), number(2, 0), bytes(3, "http")].concat())].concat())), number(4, 0)]
            .concat();
    let limits = [bytes(1, "cpu"), bytes(2, bytes(1, "500m"))].concat();
    let port = [bytes(1, ""), number(2, 0), number(3, 80), bytes(5, "")].concat();
    let container = [bytes(1, "c"), bytes(2, "i"), bytes(6, port), bytes(8, bytes(1, limits)), bytes(10, probe)].concat();
    let spec = [bytes(1, volume), bytes(2, container), number(4, 0), number(11, 0)].concat();
    let pod = decoded("v1", "Pod", &bytes(2, spec));
    assert_eq!(
        pod["spec"],
        json!({"volumes": [{"name": "v", "emptyDir": {}}], "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i",
            "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "500m"}},
            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}}}]})
    );
}

#[test]
fn a_definition_with_schemas_in_schemas() {
    let size = [bytes(5, "integer"), vec![11 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0], bytes(8, bytes(1, "3"))].concat();
    let list = [bytes(5, "array"), bytes(24, bytes(1, bytes(5, "string")))].concat();
    let property = |name: &str, schema: &[u8]| bytes(29, [bytes(1, name), bytes(2, schema)].concat());
    let any = [bytes(5, "object"), bytes(30, number(1, 1))].concat();
    let unknown = [bytes(5, "object"), varint(38 << 3), vec![1], bytes(42, "map")].concat();
    let schema =
        [bytes(5, "object"), property("size", &size), property("list", &list), property("any", &any), property("kept", &unknown)].concat();
    let version = [bytes(1, "v1"), number(2, 1), number(3, 1), bytes(4, bytes(1, &schema)), bytes(5, bytes(1, ""))].concat();
    let found = decoded("apiextensions.k8s.io/v1", "CustomResourceDefinition", &bytes(2, bytes(7, version)));
    assert_eq!(
        found["spec"]["versions"][0],
        json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "size": {"type": "integer", "minimum": 0, "default": 3},
            "list": {"type": "array", "items": {"type": "string"}},
            "any": {"type": "object", "additionalProperties": true},
            "kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-list-type": "map"},
        }}}})
    );
}

#[test]
fn an_access_review_with_lists_that_are_messages() {
    let extra = [bytes(1, "k"), bytes(2, [bytes(1, "a"), bytes(1, "b")].concat())].concat();
    let raw = bytes(2, [bytes(3, "jane"), bytes(4, "g"), bytes(5, extra), bytes(2, bytes(1, "/x"))].concat());
    let review = decoded("authorization.k8s.io/v1", "SubjectAccessReview", &raw);
    assert_eq!(
        review["spec"],
        json!({"user": "jane", "groups": ["g"], "extra": {"k": ["a", "b"]}, "nonResourceAttributes": {"path": "/x"}})
    );
}

#[test]
fn options_of_a_deletion() {
    let raw = [number(1, 0), bytes(2, bytes(1, "uid")), bytes(4, "Background")].concat();
    let options = decoded("apps/v1", "DeleteOptions", &raw);
    assert_eq!((&options["gracePeriodSeconds"], &options["propagationPolicy"]), (&json!(0), &json!("Background")));
    assert_eq!(options["preconditions"], json!({"uid": "uid"}));
}

#[test]
fn times_are_times() {
    let raw = bytes(2, [bytes(3, [number(1, 60), number(2, 0)].concat()), bytes(1, "me")].concat());
    let lease = decoded("coordination.k8s.io/v1", "Lease", &raw);
    assert_eq!(lease["spec"], json!({"acquireTime": "1970-01-01T00:01:00.000000Z", "holderIdentity": "me"}));
}

#[test]
fn durations_are_written_as_go_writes_them() {
    for window in ["15.016s", "-1m0s", "0s"] {
        let object = json!({"window": window, "usage": {"cpu": "200m"}});
        assert_eq!(there_and_back("metrics.k8s.io/v1beta1", "NodeMetrics", object.clone()), object);
    }
    let raw = [bytes(3, number(1, 100)), bytes(4, [bytes(1, "cpu"), bytes(2, bytes(1, "1"))].concat())].concat();
    let found = decoded("metrics.k8s.io/v1beta1", "NodeMetrics", &raw);
    assert_eq!((&found["window"], &found["usage"]), (&json!("100ns"), &json!({"cpu": "1"})));
}

#[test]
fn a_message_in_pieces_is_merged() {
    let pod = decoded("v1", "Pod", &[bytes(2, bytes(10, "node")), bytes(2, bytes(16, "host"))].concat());
    assert_eq!(pod["spec"], json!({"nodeName": "node", "hostname": "host"}));
}

#[test]
fn zeros_that_mean_something_stay() {
    for (api_version, kind, object) in [
        ("apps/v1", "Deployment", json!({"spec": {"replicas": 0, "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}}}})),
        (
            "v1",
            "Pod",
            json!({"status": {"containerStatuses": [{"name": "", "ready": false, "restartCount": 0, "image": "", "imageID": ""}]}}),
        ),
        ("v1", "PersistentVolumeClaim", json!({"spec": {"storageClassName": ""}})),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "PriorityLevelConfiguration",
            json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 0}}}),
        ),
        ("v1", "ConfigMap", json!({"data": {"k": ""}, "binaryData": {"b": ""}})),
        // No pointers, but upstream writes them when they are zero.
        ("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 0})),
        ("policy/v1", "PodDisruptionBudget", json!({"status": {"disruptionsAllowed": 0, "expectedPods": 0}})),
    ] {
        assert_eq!(there_and_back(api_version, kind, object.clone()), object, "{kind}");
    }
}

#[test]
fn what_may_stand_instead_of_a_schema_does() {
    let schema = json!({"type": "object", "properties": {
        "none": {"type": "object", "additionalProperties": false},
        "one": {"items": {"type": "string"}, "default": false, "enum": [0, "", null, {"a": [1.5, null]}]},
        "many": {"items": [{"type": "string"}, {"type": "integer", "minimum": 0}], "$ref": "#/x", "$schema": "s"},
        "deps": {"dependencies": {"a": ["b", "c"], "b": {"type": "object"}}},
        "map": {"additionalProperties": {"x-kubernetes-int-or-string": true}, "not": {"allOf": [{"nullable": true}]}},
    }});
    let versions = json!([{"name": "v1", "served": false, "storage": true, "schema": {"openAPIV3Schema": schema}}]);
    let object = json!({"spec": {"group": "", "scope": "", "names": {"kind": "K", "plural": "ks"}, "versions": versions}});
    assert_eq!(there_and_back("apiextensions.k8s.io/v1", "CustomResourceDefinition", object.clone()), object);
}

#[test]
fn doubles_may_be_above_every_whole_number() {
    let definition = |maximum: Value| {
        let schema = json!({"openAPIV3Schema": {"properties": {"a": {"maximum": maximum, "minimum": i64::MIN}}}});
        json!({"spec": {"group": "", "names": {"kind": "", "plural": ""}, "scope": "", "versions":
            [{"name": "", "served": false, "storage": false, "schema": schema}]}})
    };
    let back = there_and_back("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition(json!(u64::MAX)));
    let sizes = &back["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"];
    assert_eq!((sizes["maximum"].as_f64(), sizes["minimum"].as_f64()), (Some(2_f64.powi(64)), Some(-(2_f64.powi(63)))));
}

#[test]
fn an_inlined_message_is_written_once_in_whatever_order_its_fields_come() {
    let rule = json!({"rules": [{"apiGroups": ["a"], "operations": ["*"], "apiVersions": ["v"], "scope": "*", "resources": ["r"]}]});
    let object = json!({"webhooks": [{"name": "n", "rules": rule["rules"], "clientConfig": {}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}]});
    let form = Form::of("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration").expect("a form");
    let raw = form.message(object.to_string().as_bytes()).expect("encodes");
    let webhook = read::last_bytes(&raw, 2).expect("a webhook");
    let rules = read::last_bytes(webhook, 3).expect("rules");
    let mut reader = Reader::new(rules);
    let mut tags = Vec::new();
    while let Some((tag, _)) = reader.next().expect("well formed") {
        tags.push(tag);
    }
    assert_eq!(tags, [1, 2]);
    assert_eq!(there_and_back("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", object.clone()), object);
}

#[test]
fn times_before_1970_and_between_seconds() {
    for at in ["1969-12-31T23:59:58.500000Z", "2026-01-02T03:04:05.000001Z"] {
        let object = json!({"spec": {"renewTime": at}});
        assert_eq!(there_and_back("coordination.k8s.io/v1", "Lease", object.clone()), object);
    }
}

#[test]
fn partial_metadata_is_taken_from_the_whole_object() {
    let form = Form::of("meta.k8s.io/v1", "PartialObjectMetadata").expect("a form");
    let whole = json!({"kind": "Thing", "apiVersion": "example.com/v1", "metadata": {"name": "t", "labels": {"a": "b"}}, "spec": {"x": [1, {"y": null}]}});
    let decoded = decode(&form.encode(whole.to_string().as_bytes()).expect("encodes")).expect("decodes").value;
    assert_eq!(
        decoded,
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "t", "labels": {"a": "b"}}})
    );
}

#[test]
fn kinds_of_groups_that_are_called_alike_have_no_form() {
    assert!(matches!(Form::of("apps.example.com/v1", "Deployment"), Err(EncodeError::NoForm(_))));
    assert_eq!(decode(&envelope("apps.example.com/v1", "Deployment", b"")), Err(ProtobufError::UnknownKind));
}

#[test]
fn frames_tell_their_length() {
    let (one, other) = (frame("ADDED", b"one"), frame("DELETED", b"other"));
    let events = frames([one.clone(), other].concat().into());
    assert_eq!(events.len(), 2);
    assert_eq!(events[0], [bytes(1, "ADDED"), bytes(2, bytes(1, "one"))].concat());
    assert_eq!(one[..4], [0, 0, 0, u8::try_from(one.len() - 4).expect("short")]);
}

/// Where two values differ: the fields that only one has, or that say something else, as `.spec.containers[0].image`.
fn differences(one: &Value, other: &Value) -> Vec<String> {
    let below = |at: &str, one: Option<&Value>, other: Option<&Value>| match (one, other) {
        (Some(one), Some(other)) => differences(one, other).into_iter().map(|path| format!("{at}{path}")).collect(),
        _ => vec![at.to_owned()],
    };
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            names.into_iter().flat_map(|name| below(&format!(".{name}"), one.get(name), other.get(name))).collect()
        }
        (Value::Array(one), Value::Array(other)) => {
            (0..one.len().max(other.len())).flat_map(|at| below(&format!("[{at}]"), one.get(at), other.get(at))).collect()
        }
        _ if one == other => Vec::new(),
        _ => vec![format!(": {one} and {other}")],
    }
}

/// An object sent, and read again.
fn there_and_back(api_version: &str, kind: &str, object: Value) -> Value {
    let form = Form::of(api_version, kind).expect("a form");
    let encoded = form.encode(object.to_string().as_bytes()).expect("encodes");
    let mut decoded = decode(&encoded).expect("decodes").value;
    let fields = decoded.as_object_mut().expect("an object");
    assert_eq!(fields.remove("apiVersion"), Some(api_version.into()));
    assert_eq!(fields.remove("kind"), Some(kind.into()));
    decoded
}
