//! One manifest: the text of a file becomes a static Pod, or why not. Defaults and checks are those of the API server. Pure.

use std::path::Path;

use api_model::decode::{DecodeError, decode};
use api_model::field::aggregate;
use api_model::kind;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use thiserror::Error;

use super::annotation;
use crate::layout::short_hash;

/// Bytes of the hash that is a static Pod's UID: 16 give 32 hex digits, as upstream's.
const UID_LEN: usize = 16;

/// Why a manifest is no static Pod. The words are upstream's where upstream has them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ManifestError {
    #[error("couldn't parse as pod({0}), please check manifest file")]
    Decode(#[from] DecodeError),
    #[error("couldn't parse as pod(it is a {0:?} of version {1:?}), please check manifest file")]
    OtherKind(String, String),
    #[error("couldn't parse as pod({0}), please check manifest file")]
    Type(String),
    #[error("invalid pod: name is needed for the pod")]
    NoName,
    #[error("invalid pod: {0}")]
    Invalid(String),
    #[error("static pods may not reference {0}")]
    Reference(&'static str),
}

/// The node, and the file that is read.
pub(crate) struct Origin<'a> {
    pub(crate) node: &'a str,
    pub(crate) path: &'a Path,
    /// When the node first read it, in the form of RFC 3339.
    pub(crate) first_read: &'a str,
}

/// The static Pod of a file. Another content, another file and another node are another UID.
pub(crate) fn parse(text: &[u8], origin: &Origin<'_>) -> Result<Pod, ManifestError> {
    let mut pod = decode(text, true)?.value;
    let field = |name: &str| pod.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, name) = (field("apiVersion"), field("kind"));
    let kind = kind::find_by_kind(&version, &name).filter(|kind| kind.group.is_empty() && kind.kind == "Pod");
    let Some(kind) = kind else { return Err(ManifestError::OtherKind(name, version)) };
    let uid = uid(&pod, origin);
    complete(&mut pod, &uid, origin)?;
    api_rules::default(kind, &mut pod);
    let errors = api_rules::validate_create(kind, &pod);
    if !errors.is_empty() {
        return Err(ManifestError::Invalid(aggregate(&errors)));
    }
    if let Some(resource) = pod.get("spec").and_then(api_admission::api_object_reference) {
        return Err(ManifestError::Reference(resource));
    }
    serde_json::from_value(pod).map_err(|error| ManifestError::Type(error.to_string()))
}

fn uid(pod: &Value, origin: &Origin<'_>) -> String {
    short_hash(&format!("{pod}\nhost:{}\nfile:{}", origin.node, origin.path.display()), UID_LEN)
}

/// What the node itself sets. A status is the node's, and so is every field of the metadata that the server would set.
fn complete(pod: &mut Value, uid: &str, origin: &Origin<'_>) -> Result<(), ManifestError> {
    let wrong = |what: &str| ManifestError::Type(format!("{what} is not an object"));
    let fields = pod.as_object_mut().ok_or_else(|| wrong("it"))?;
    fields.insert("status".to_owned(), json!({"phase": "Pending"}));
    let metadata = fields.get_mut("metadata").and_then(Value::as_object_mut).ok_or(ManifestError::NoName)?;
    let name = metadata.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()).ok_or(ManifestError::NoName)?;
    let name = format!("{name}-{}", origin.node.to_lowercase());
    let own = ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers", "generateName", "generation"];
    for field in own.into_iter().chain(["managedFields", "ownerReferences", "resourceVersion", "selfLink"]) {
        metadata.remove(field);
    }
    metadata.insert("name".to_owned(), json!(name));
    metadata.insert("uid".to_owned(), json!(uid));
    let namespace = metadata.entry("namespace").or_insert(Value::Null);
    if namespace.as_str().is_none_or(str::is_empty) {
        *namespace = json!("default");
    }
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = json!({});
    }
    let annotations = annotations.as_object_mut().ok_or_else(|| wrong("metadata.annotations"))?;
    annotations.remove(annotation::MIRROR);
    for (name, value) in [(annotation::HASH, uid), (annotation::FIRST_READ, origin.first_read), (annotation::SOURCE, "file")] {
        annotations.insert(name.to_owned(), json!(value));
    }
    let spec = fields.get_mut("spec").and_then(Value::as_object_mut).ok_or_else(|| wrong("spec"))?;
    spec.insert("nodeName".to_owned(), json!(origin.node));
    // No admission plugin of the API server resolves the class of a static Pod.
    let class = spec.get("priorityClassName").and_then(Value::as_str);
    if let (Some(priority), None) = (class.and_then(api_admission::system_priority), spec.get("priority")) {
        spec.insert("priority".to_owned(), json!(priority));
    }
    // As upstream: problems of the node end no static Pod.
    let tolerated = json!({"operator": "Exists", "effect": "NoExecute"});
    let tolerations = spec.entry("tolerations").or_insert(Value::Null);
    match tolerations {
        Value::Array(list) if list.contains(&tolerated) => {}
        Value::Array(list) => list.push(tolerated),
        Value::Null => *tolerations = json!([tolerated]),
        _ => return Err(ManifestError::Type("spec.tolerations is not a list".to_owned())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n";

    fn read_at(text: &str, node: &str, path: &str) -> Result<Pod, ManifestError> {
        parse(text.as_bytes(), &Origin { node, path: Path::new(path), first_read: "2026-01-01T00:00:00Z" })
    }

    fn read(text: &str) -> Result<Pod, ManifestError> {
        read_at(text, "node-1", "/m/web.yaml")
    }

    fn with_spec(more: &str) -> Result<Pod, ManifestError> {
        read(&PLAIN.replace("spec: {", &format!("spec: {{{more}, ")))
    }

    #[test]
    fn a_static_pod_has_its_nodes_name_a_hash_and_defaults() {
        let pod = read(PLAIN).expect("a pod");
        let annotations = pod.metadata.annotations.clone().expect("annotations");
        let uid = pod.metadata.uid.clone().expect("a uid");
        assert_eq!((pod.metadata.name.as_deref(), pod.metadata.namespace.as_deref()), (Some("web-node-1"), Some("default")));
        assert_eq!((uid.len(), &annotations[annotation::HASH], annotations[annotation::SOURCE].as_str()), (32, &uid, "file"));
        let spec = pod.spec.expect("a spec");
        assert_eq!((spec.node_name.as_deref(), spec.restart_policy.as_deref()), (Some("node-1"), Some("Always")));
        let tolerations = spec.tolerations.expect("tolerations");
        assert_eq!((tolerations.len(), tolerations[0].effect.as_deref()), (1, Some("NoExecute")));
        let priority = |more: &str| with_spec(more).expect("a pod").spec.and_then(|spec| spec.priority);
        assert_eq!(priority("priorityClassName: system-node-critical"), Some(2_000_001_000));
        assert_eq!(
            [priority("priorityClassName: other"), priority("priorityClassName: system-cluster-critical, priority: 7")],
            [None, Some(7)]
        );
        assert_eq!(pod.status.and_then(|status| status.phase).as_deref(), Some("Pending"));
    }

    #[test]
    fn json_is_read_too_and_the_same_content_is_the_same_pod() {
        let json = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
        let uid = |pod: Result<Pod, ManifestError>| pod.expect("a pod").metadata.uid;
        assert_eq!(uid(read(json)), uid(read(PLAIN)));
        for other in
            [read(&PLAIN.replace("image: i", "image: j")), read_at(PLAIN, "other", "/m/web.yaml"), read_at(PLAIN, "node-1", "/m/b")]
        {
            assert_ne!(uid(other), uid(read(PLAIN)));
        }
        // What the server would set is not the user's to choose.
        let claims = PLAIN.replace("name: web", "name: web, uid: mine, finalizers: [a/b], annotations: {kubernetes.io/config.mirror: x}");
        let pod = read(&claims).expect("a pod");
        assert_eq!((pod.metadata.uid.as_ref().map(String::len), &pod.metadata.finalizers), (Some(32), &None));
        assert_eq!(super::super::mirrored_uid(&pod), None);
    }

    #[test]
    fn what_is_no_pod_says_why() {
        for (text, wanted) in [
            ("", "couldn't parse as pod"),
            ("{", "couldn't parse as pod"),
            ("apiVersion: apps/v1\nkind: Deployment", "it is a \"Deployment\" of version \"apps/v1\""),
            ("apiVersion: v1\nkind: Pod\nspec: {}", "name is needed for the pod"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}", "spec is not an object"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {tolerations: 1}", "spec.tolerations is not a list"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}", "invalid pod: spec.containers: Required value"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: A_}\nspec: {containers: [{name: c, image: i}]}", "invalid pod: metadata.name"),
        ] {
            let said = read(text).expect_err(text).to_string();
            assert!(said.contains(wanted), "{text}: {said}");
        }
    }

    #[test]
    fn a_static_pod_refers_to_no_other_object() {
        for (more, wanted) in [
            ("serviceAccountName: default", "serviceaccounts"),
            ("imagePullSecrets: [{name: s}]", "secrets"),
            ("volumes: [{name: v, secret: {secretName: s}}]", "secrets"),
            ("volumes: [{name: v, configMap: {name: s}}]", "configmaps"),
            ("volumes: [{name: v, persistentVolumeClaim: {claimName: s}}]", "persistentvolumeclaims"),
            ("volumes: [{name: v, projected: {sources: [{secret: {name: s}}]}}]", "secrets"),
            ("initContainers: [{name: i, image: i, envFrom: [{configMapRef: {name: s}}]}]", "configmaps"),
            ("initContainers: [{name: i, image: i, env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]", "secrets"),
            ("resourceClaims: [{name: r, resourceClaimName: s}]", "resourceclaims"),
        ] {
            let said = with_spec(more).expect_err(more).to_string();
            assert_eq!(said, format!("static pods may not reference {wanted}"), "{more}");
        }
        for more in ["volumes: [{name: v, hostPath: {path: /}}, {name: e, emptyDir: {}}]", "hostNetwork: true"] {
            with_spec(more).expect(more);
        }
    }
}
