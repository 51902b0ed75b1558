//! The targets, in the order of their names, and their common parts.

mod bodies;
mod frames;
mod images;
mod metrics;
mod patches;
mod selectors;

use serde_json::Value;

/// A fuzz target.
pub struct Target {
    /// The target's name, also in the corpus.
    pub name: &'static str,
    /// Words that have a meaning for the target.
    pub words: &'static [&'static str],
    /// Takes an input; panics when a promise is broken.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "apply", words: FIELDS, run: patches::apply },
    Target { name: "archive", words: TAR, run: images::archive },
    Target { name: "decode_json", words: FIELDS, run: bodies::json },
    Target { name: "decode_yaml", words: YAML, run: bodies::yaml },
    Target { name: "field_selector", words: SELECTORS, run: selectors::field },
    Target { name: "image_manifest", words: MANIFEST, run: images::manifest },
    Target { name: "json_patch", words: POINTERS, run: patches::json },
    Target { name: "label_selector", words: SELECTORS, run: selectors::label },
    Target { name: "merge_patch", words: FIELDS, run: patches::merge },
    Target { name: "node_metrics", words: METRICS, run: metrics::node },
    Target { name: "protobuf", words: &["k8s\0", "v1", "ConfigMap", "Pod"], run: bodies::protobuf },
    Target { name: "spdy", words: &["\u{80}\u{3}", ":path", "streamtype"], run: frames::spdy },
    Target { name: "spdy_headers", words: &["streamtype", "port", ":", "\n", "requestid"], run: frames::spdy_headers },
    Target { name: "strategic_patch", words: FIELDS, run: patches::strategic },
    Target { name: "websocket", words: &["\u{0}", "{\"Width\":1,\"Height\":1}"], run: frames::websocket },
];

/// Names and values of a node's metrics.
const METRICS: &[&str] = &[
    "node_cpu_usage_seconds_total",
    "container_memory_working_set_bytes",
    "{container=\"a\",namespace=\"ns\",pod=\"web\"}",
    " -1",
    " NaN",
    " 1e308",
    "\n",
];

/// Names in the schemas and in the directives of patches.
const FIELDS: &[&str] = &[
    "metadata",
    "spec",
    "status",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "name",
    "containers",
    "ports",
    "containerPort",
    "protocol",
    "env",
    "value",
    "valueFrom",
    "volumes",
    "tolerations",
    "conditions",
    "type",
    "template",
    "selector",
    "matchLabels",
    "matchExpressions",
    "replicas",
    "$patch",
    "delete",
    "replace",
    "merge",
    "$retainKeys",
    "$setElementOrder/containers",
    "$setElementOrder/ports",
    "$deleteFromPrimitiveList/finalizers",
    "strategy",
    "rollingUpdate",
    "resources",
    "limits",
    "cpu",
    "500m",
];
const POINTERS: &[&str] = &[
    "op",
    "path",
    "from",
    "value",
    "add",
    "remove",
    "replace",
    "move",
    "copy",
    "test",
    "/",
    "/-",
    "/0",
    "/metadata",
    "/metadata/labels",
    "/spec/containers/0",
    "/spec/containers/-",
    "/a~1b",
    "/a~0b",
    "/01",
    "/-1",
    "/18446744073709551616",
];
const SELECTORS: &[&str] =
    &["=", "==", "!=", "in", "notin", " in (", ")", ",", "!", ">", "<", "\\", "\\=", "\\,", "metadata.name", "a/b", " "];
const YAML: &[&str] =
    &["- ", ": ", "&a ", "*a", "<<: *a", "---\n", "...\n", "|\n", ">-\n", "!!str ", "? ", "\t", "\n  ", "#", "'", "\"", "{", "["];

const TAR: &[&str] = &["ustar\u{0}00", "ustar  \u{0}", "13 size=4096\n", "12 path=a/b\n", "0000000", "x", "g", "L", "K", "S", "\u{0}"];
const MANIFEST: &[&str] = &[
    "manifests",
    "config",
    "layers",
    "mediaType",
    "digest",
    "size",
    "platform",
    "os",
    "architecture",
    "linux",
    "wasm",
    "amd64",
    "application/wasm",
    "application/vnd.oci.image.config.v1+json",
    "sha256:",
    "rootfs",
    "diff_ids",
    "Env",
    "Entrypoint",
    "Cmd",
];

/// The separator between the documents of one input.
pub const BETWEEN: &[u8] = b"\n%%\n";

/// The documents of an input.
pub fn documents(input: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut rest) = (Vec::new(), input);
    while let Some(at) = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN) {
        parts.push(&rest[..at]);
        rest = &rest[at + BETWEEN.len()..];
    }
    parts.push(rest);
    parts
}

/// A document, decoded as the server decodes a body.
fn decoded(document: &[u8]) -> Option<Value> {
    api_model::decode::decode(document, false).ok().map(|decoded| decoded.value)
}

/// Whether two values are equal. The last digits of fractions may differ, because printing may change them.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            (a - b).abs() <= a.abs() * 1e-12
        }
        (a, b) => a == b,
    }
}

/// Checks that a value which may be stored can be read again.
fn is_readable(value: &Value) {
    let text = value.to_string();
    let again =
        api_model::decode::decode(text.as_bytes(), false).unwrap_or_else(|error| panic!("not readable again: {error}: {text:.200}"));
    assert!(same(&again.value, value), "read again as something else: {} {value}", again.value);
    assert!(again.duplicates.is_empty());
}
