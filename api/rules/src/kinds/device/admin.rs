//! Administrator access to devices that are in use: the namespace of a claim that requests it must have a label
//! (upstream's DRAAdminAccess, KEP 5018).

use std::sync::Arc;

use api_model::field::{FieldError, FieldErrorKind, Path};
use api_model::kind::Kind;
use api_model::meta;
use serde_json::Value;

use crate::at::At;

/// The label of a namespace that allows administrator access when its value is `true`.
const LABEL: &str = "resource.kubernetes.io/admin-access";

/// The error of a claim, of its status or of a template. `old` is the object before a change. `namespace` returns the
/// namespace of the object; it is called only when the object requests administrator access.
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
    let path = match (kind.plural.as_str(), sub, old) {
        // The spec of a claim or template never changes, so only creation is checked.
        ("resourceclaims", None, None) => requested(&At::root(new).get("spec")),
        ("resourceclaimtemplates", None, None) => requested(&At::root(new).find("spec.spec")),
        ("resourceclaims", Some("status"), Some(old)) if granted(old).is_none() => granted(new),
        _ => None,
    };
    let Some(path) = path else { return Vec::new() };
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

/// The path of the first request with administrator access, in upstream's form: without `exactly`, and in a template
/// the same path as in a claim.
fn requested(spec: &At<'_>) -> Option<Path> {
    let asks = |request: &At<'_>| request.find("exactly.adminAccess").value() == Some(&Value::Bool(true));
    let index = spec.find("devices.requests").items().position(|request| asks(&request))?;
    Some(Path::new("spec").child("devices").child("requests").index(index).child("adminAccess"))
}

/// The path of the first device that is allocated with administrator access.
fn granted(claim: &Value) -> Option<Path> {
    let results = At::root(claim).find("status.allocation.devices.results");
    results.items().map(|result| result.get("adminAccess")).find(|given| given.value() == Some(&Value::Bool(true))).map(|given| given.path)
}
