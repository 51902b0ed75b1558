//! A user who writes a policy or a binding must have the right to read its parameters, because messages could reveal
//! their content.

use api_model::field::{FieldError, Path};
use api_model::kind::GroupResource;
use api_model::request::Attributes;
use api_model::view::View as _;
use serde_json::Value;

use crate::authorize::decide;
use crate::call::Call;
use api_wire::json;
use api_wire::status::{ApiError, ApiResult};

const GROUP: &str = "admissionregistration.k8s.io";
const ANY: &str = "*";

/// Rejects a policy or binding with parameters that its author may not read. References that an update does not change
/// are not checked again.
pub(crate) fn check(call: &Call, old: Option<&Value>, new: &Value) -> ApiResult<()> {
    let kind = &call.served.kind;
    if kind.group != GROUP || !call.subresource.is_empty() {
        return Ok(());
    }
    let complaint = match kind.plural.as_str() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => policy(call, old, new),
        "validatingadmissionpolicybindings" => binding(call, "validatingadmissionpolicies", old, new),
        "mutatingadmissionpolicybindings" => binding(call, "mutatingadmissionpolicies", old, new),
        _ => None,
    };
    let name = json::text(new, &["metadata", "name"]);
    complaint.map_or(Ok(()), |error| Err(ApiError::invalid(kind, name, &[error])))
}

fn policy(call: &Call, old: Option<&Value>, new: &Value) -> Option<FieldError> {
    let kind = part(new, "paramKind")?;
    if old.and_then(|old| part(old, "paramKind")) == Some(kind) {
        return None;
    }
    let attributes = Attributes { verb: "get".to_owned(), namespace: ANY.to_owned(), name: ANY.to_owned(), ..of_kind(call, Some(kind)) };
    let why = format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        call.user.username,
        json::text(kind, &["kind"]),
        json::text(kind, &["apiVersion"])
    );
    refusal(call, &attributes, "paramKind", why)
}

fn binding(call: &Call, policies: &str, old: Option<&Value>, new: &Value) -> Option<FieldError> {
    let reference = part(new, "paramRef")?;
    if old.is_some_and(|old| part(old, "paramRef") == Some(reference) && policy_name(old) == policy_name(new)) {
        return None;
    }
    let policy = call.core.cache.get(&GroupResource::new(GROUP, policies), None, policy_name(new));
    let or_any = |field: &str| match json::text(reference, &[field]) {
        "" => ANY.to_owned(),
        text => text.to_owned(),
    };
    let verb = if json::text(reference, &["name"]).is_empty() { "list" } else { "get" };
    let of_kind = of_kind(call, policy.as_ref().and_then(|policy| part(policy, "paramKind")));
    let attributes = Attributes { verb: verb.to_owned(), namespace: or_any("namespace"), name: or_any("name"), ..of_kind };
    let why = format!("user {} does not have {verb:?} permission on the object referenced by paramRef", call.user.username);
    refusal(call, &attributes, "paramRef", why)
}

fn part<'v>(object: &'v Value, field: &str) -> Option<&'v Value> {
    object.get("spec")?.get(field).filter(|part| !part.is_null())
}

fn policy_name(binding: &Value) -> &str {
    json::text(binding, &["spec", "policyName"])
}

/// The resource of a kind; all resources if the kind is not known.
fn of_kind(call: &Call, kind: Option<&Value>) -> Attributes {
    let text = |kind: &Value, field: &str| json::text(kind, &[field]).to_owned();
    let served = kind.and_then(|kind| call.core.registry.find_kind(&text(kind, "apiVersion"), &text(kind, "kind")));
    let [group, version, resource] = served.map_or([ANY, ANY, ANY].map(str::to_owned), |served| {
        [served.kind.group.clone(), served.kind.version.clone(), served.kind.plural.clone()]
    });
    Attributes { group, version, resource, ..Attributes::default() }
}

fn refusal(call: &Call, attributes: &Attributes, field: &str, why: String) -> Option<FieldError> {
    let is_allowed = decide((&call.core.authorizer, &call.core.cache), &call.user, attributes).is_allowed();
    (!is_allowed).then(|| FieldError::forbidden(&Path::new("spec").child(field), why))
}
