//! Devices for administrators: who asks for access to what others use has to be in a namespace that is marked
//! for it (upstream's DRAAdminAccess, KEP 5018).

use std::sync::Arc;

use api_model::field::{FieldError, FieldErrorKind, Path};
use api_model::kind::Kind;
use api_model::meta;
use serde_json::Value;

use crate::at::At;

/// A namespace's label that allows it, with the value `true`.
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// What is wrong with a claim or a template, or with a claim's status, where it is. `old` is the object before a
/// change, `namespace` finds the namespace that it is in; that is asked for only where access is.
pub fn validate_admin_access(
    kind: &Kind,
    sub: Option<&str>,
    new: &Value,
    old: Option<&Value>,
    namespace: impl FnOnce() -> Option<Arc<Value>>,
) -> Vec<FieldError> {
    if kind.group != "resource.k8s.io" {
        return Vec::new();
    }
    let asked = match (kind.plural.as_str(), sub, old) {
        // Neither spec changes later.
        ("resourceclaims", None, None) => requested(&At::root(new).get("spec")),
        ("resourceclaimtemplates", None, None) => requested(&At::root(new).find("spec.spec")),
        ("resourceclaims", Some("status"), Some(old)) if granted(old).is_none() => granted(new),
        _ => None,
    };
    let Some(path) = asked else { return Vec::new() };
    let error = match namespace() {
        None => {
            let name = meta::namespace(new);
            let detail = format!("could not retrieve namespace to verify admin access: namespaces {name:?} not found");
            FieldError { kind: FieldErrorKind::Internal, path, value: None, detail }
        }
        Some(namespace) if is_marked(&namespace) => return Vec::new(),
        Some(_) => {
            let detail = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
            FieldError::forbidden(&path, detail)
        }
    };
    vec![error]
}

fn is_marked(namespace: &Value) -> bool {
    meta::labels(namespace).and_then(|labels| labels.get(LABEL)).and_then(Value::as_str) == Some("true")
}

/// The first request that asks for it, as upstream names it: without `exactly`, and in a template like in a claim.
fn requested(spec: &At<'_>) -> Option<Path> {
    let asks = |request: &At<'_>| request.find("exactly.adminAccess").value() == Some(&Value::Bool(true));
    let index = spec.find("devices.requests").items().position(|request| asks(&request))?;
    Some(Path::new("spec").child("devices").child("requests").index(index).child("adminAccess"))
}

/// The first device that was given so.
fn granted(claim: &Value) -> Option<Path> {
    let results = At::root(claim).find("status.allocation.devices.results");
    results.items().map(|result| result.get("adminAccess")).find(|given| given.value() == Some(&Value::Bool(true))).map(|given| given.path)
}
