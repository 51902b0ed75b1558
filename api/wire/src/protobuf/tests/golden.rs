//! Upstream's own examples: of every kind one object that has every field, as JSON and as protobuf, each
//! written by upstream's own code. They are published in the Go modules `k8s.io/api` (`testdata/HEAD`)
//! and `k8s.io/apiextensions-apiserver` (`pkg/apis/testdata/HEAD`) and not copied here:
//!
//! `KUBERNETES_TESTDATA=DIRECTORY:DIRECTORY cargo nextest run -p api-server --run-ignored only upstreams_examples`
//!
//! A kind's message must decode to its JSON, and the JSON must encode to that message: the same bytes except for the order of
//! fields and for zeros without a meaning, which upstream writes and this encoder does not.

use std::path::{Path, PathBuf};

use super::super::read::{Reader, Wire};
use super::super::special::Special;
use super::super::table::{Kind, Message, Shape};
use super::*;

/// Examples of what is neither served nor taken here, of one kind or, with a dot at the end, of a whole version.
#[rustfmt::skip]
const NOT_SERVED: &[&str] = &[
    "admission.k8s.io.v1.", "admission.k8s.io.v1beta1.", "admissionregistration.k8s.io.v1alpha1.",
    "admissionregistration.k8s.io.v1beta1.", "apidiscovery.k8s.io.v2.", "apidiscovery.k8s.io.v2beta1.",
    "apiextensions.k8s.io.v1.ConversionReview", "apiextensions.k8s.io.v1beta1.", "apps.v1beta1.", "apps.v1beta2.",
    "authentication.k8s.io.v1beta1.", "authorization.k8s.io.v1beta1.", "batch.v1beta1.", "certificates.k8s.io.v1alpha1.",
    "certificates.k8s.io.v1beta1.", "coordination.k8s.io.v1alpha2.", "coordination.k8s.io.v1beta1.", "core.v1.CreateOptions",
    "core.v1.GetOptions", "core.v1.ListOptions", "core.v1.NodeProxyOptions", "core.v1.PatchOptions", "core.v1.PodAttachOptions",
    "core.v1.PodExecOptions", "core.v1.PodLogOptions", "core.v1.PodPortForwardOptions", "core.v1.PodProxyOptions",
    "core.v1.PodStatusResult", "core.v1.RangeAllocation", "core.v1.SerializedReference", "core.v1.ServiceProxyOptions",
    "core.v1.UpdateOptions", "core.v1.WatchEvent", "discovery.k8s.io.v1beta1.", "events.k8s.io.v1beta1.", "extensions.v1beta1.",
    "flowcontrol.apiserver.k8s.io.v1beta1.", "flowcontrol.apiserver.k8s.io.v1beta2.", "flowcontrol.apiserver.k8s.io.v1beta3.",
    "imagepolicy.k8s.io.v1alpha1.", "internal.apiserver.k8s.io.v1alpha1.", "lifecycle.k8s.io.v1alpha1.", "networking.k8s.io.v1beta1.",
    "node.k8s.io.v1alpha1.", "node.k8s.io.v1beta1.", "policy.v1beta1.", "rbac.authorization.k8s.io.v1alpha1.",
    "rbac.authorization.k8s.io.v1beta1.", "resource.k8s.io.v1alpha3.", "resource.k8s.io.v1beta1.", "resource.k8s.io.v1beta2.",
    "scheduling.k8s.io.v1alpha2.", "scheduling.k8s.io.v1alpha3.", "scheduling.k8s.io.v1beta1.PriorityClass", "storage.k8s.io.v1alpha1.",
    "storage.k8s.io.v1beta1.", "storagemigration.k8s.io.v1beta1.",
];

#[test]
#[ignore = "reads examples from KUBERNETES_TESTDATA"]
fn upstreams_examples_are_the_same_in_both_forms() {
    let directories = std::env::var_os("KUBERNETES_TESTDATA").expect("KUBERNETES_TESTDATA names directories");
    let examples = std::env::split_paths(&directories).flat_map(|directory| examples(&directory));
    let (mut compared, mut wrong) = (Vec::new(), Vec::new());
    for path in examples {
        let json = std::fs::read(&path).expect("an example in JSON");
        let object: Value = serde_json::from_slice(&json).expect("JSON");
        let text = |name: &str| object[name].as_str().unwrap_or_default();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let form = Form::of(text("apiVersion"), text("kind"));
        if NOT_SERVED.iter().any(|skipped| name == *skipped || (skipped.ends_with('.') && name.starts_with(skipped))) {
            assert!(form.is_err(), "{name} is served");
            continue;
        }
        let form = form.unwrap_or_else(|error| panic!("{name}: {error}"));
        let theirs = std::fs::read(path.with_extension("pb")).expect("an example in protobuf");
        let decoded = decode(&theirs).expect("decodes").value;
        let ours = form.encode(&json).expect("encodes");
        wrong.extend(differences(&object, &decoded).into_iter().map(|path| format!("{name}, decoded: {path}")));
        if said(form.message, object_of(&ours)) != said(form.message, object_of(&theirs)) {
            wrong.push(format!("{name}, encoded"));
        }
        compared.push(name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!compared.is_empty(), "no examples");
    println!("{} kinds are the same: {}", compared.len(), compared.join(", "));
}

fn examples(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory of examples");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths
}

/// The message in an envelope.
fn object_of(bytes: &[u8]) -> &[u8] {
    read::last_bytes(bytes.strip_prefix(MAGIC).expect("an envelope"), 2).expect("an object")
}

/// What bytes say, whatever the order of fields.
#[derive(Debug, PartialEq)]
enum Said {
    Number(u64),
    Bytes(Vec<u8>),
    Json(Value),
    /// By number.
    Fields(Vec<(u64, Said)>),
}

impl Said {
    fn is_zero(&self) -> bool {
        matches!(self, Self::Number(0)) || matches!(self, Self::Bytes(bytes) if bytes.is_empty())
    }
}

fn said(message: &'static Message, bytes: &[u8]) -> Said {
    fields(bytes, |tag, wire| {
        let field = message.numbered(tag).unwrap_or_else(|| panic!("{message:?} has no field {tag}"));
        let said = match (field.shape, wire) {
            (Shape::Map, Wire::Bytes(entry)) => fields(entry, |tag, wire| {
                let kind = if tag == 1 { Kind::Text } else { field.kind };
                Some(value(kind, wire))
            }),
            (_, wire) => value(field.kind, wire),
        };
        let says_nothing = field.shape == Shape::One && !field.keeps_zero && said.is_zero();
        (!says_nothing).then_some(said)
    })
}

fn fields<'a>(bytes: &'a [u8], mut said: impl FnMut(u64, Wire<'a>) -> Option<Said>) -> Said {
    let mut found = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((tag, wire)) = reader.next().expect("well formed") {
        found.extend(said(tag, wire).map(|said| (tag, said)));
    }
    found.sort_by_key(|(tag, _)| *tag);
    Said::Fields(found)
}

fn value(kind: Kind, wire: Wire<'_>) -> Said {
    match (kind, wire) {
        (Kind::Message(inner), Wire::Bytes(bytes)) => said(inner, bytes),
        (Kind::Special(Special::Json), Wire::Bytes(bytes)) => {
            let raw = read::last_bytes(bytes, 1).expect("well formed");
            Said::Json(serde_json::from_slice(raw).expect("JSON"))
        }
        (Kind::Special(special), Wire::Bytes(bytes)) => fields(bytes, |tag, wire| {
            let is_schema = match special {
                Special::SchemaOrBool => tag == 2,
                Special::SchemaOrArray => true,
                Special::SchemaOrNames => tag == 1,
                _ => false,
            };
            let kind = if is_schema { Kind::Message(special::schemas().expect("schemas")) } else { Kind::Text };
            Some(value(kind, wire)).filter(|said| !said.is_zero())
        }),
        (_, Wire::Number(number) | Wire::Fixed64(number)) => Said::Number(number),
        (_, Wire::Bytes(bytes)) => Said::Bytes(bytes.to_vec()),
        (_, Wire::Fixed32) => panic!("nothing has four bytes"),
    }
}
