//! Reviews: kinds whose objects are questions. They are answered and not stored.

use api_model::field::{FieldError, Path};
use api_model::meta;
use api_model::request::{Attributes, UserInfo};
use api_model::selector::{FieldSelector, FieldTerm};
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::call::Call;
use crate::present::Presentation;
use crate::registry::Served;
use crate::subresource::binding;
use crate::verbs::{WritePath, body};
use api_wire::json;
use api_wire::options::WriteOptions;
use api_wire::status::{ApiError, ApiResult};

/// Whether a kind is a review.
pub(crate) fn is_review(served: &Served) -> bool {
    served.kind.verbs == ["create"]
}

/// `POST` of a review.
pub(crate) async fn create(path: &WritePath, call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    if call.served.is("", "bindings") {
        return bind(path, call, bytes).await;
    }
    let presentation = Presentation::plain(&call.served, &call.headers, &call.query)?;
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let review = body::object(call, bytes, &options)?;
    let answered = answer(call, review.into_value())?;
    Ok(presentation.value(StatusCode::CREATED, &answered))
}

/// `POST` of a Binding to the collection `bindings` instead of the Pod's subresource.
async fn bind(path: &WritePath, call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let name = meta::name(&api_wire::body::decode(&call.headers, bytes)?.value).to_owned();
    let pods = call.core.registry.find("", "v1", "pods").ok_or_else(ApiError::no_such_resource)?;
    call.served = pods;
    call.name = name;
    call.subresource = "binding".to_owned();
    binding::bind(path, call, bytes).await
}

fn answer(call: &Call, mut review: Value) -> ApiResult<Value> {
    check_shape(call)?;
    let (core, view) = (&call.core, &*call.core.cache);
    match call.served.kind.plural.as_str() {
        "tokenreviews" if review.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default().is_empty() => {
            return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
        }
        "tokenreviews" => return Ok(core.authenticator.token_review(&review, view, api_clock::now())),
        "selfsubjectreviews" => {
            json::set(&mut review, &["metadata"], json!({"creationTimestamp": meta::time(api_clock::now())}));
            json::set(&mut review, &["status"], json!({"userInfo": *call.user}));
        }
        "selfsubjectrulesreviews" => {
            let namespace = review.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default();
            if namespace.is_empty() {
                return Err(ApiError::bad_request("no namespace on request"));
            }
            let status = core.authorizer.rules_for(&call.user, namespace, view);
            json::set(&mut review, &["status"], status);
        }
        _ => {
            let (user, attributes) = question(call, &review)?;
            let decision = core.authorizer.authorize(&user, &attributes, view);
            let mut status = json!({"allowed": decision.is_allowed()});
            if !decision.reason().is_empty() {
                json::set(&mut status, &["reason"], decision.reason());
            }
            json::set(&mut review, &["status"], status);
        }
    }
    if review.get("metadata").is_none() {
        json::set(&mut review, &["metadata"], json!({}));
    }
    Ok(review)
}

/// Rejects requests for a table or for metadata: a review has neither.
fn check_shape(call: &Call) -> ApiResult<()> {
    use api_wire::accept::Answer;
    use api_wire::media::Form;
    let presentation = crate::present::Presentation::negotiate(&call.served, &call.headers, &call.query, Answer::Object)?;
    match presentation.media.form {
        Form::Object => Ok(()),
        _ => Err(ApiError::not_acceptable("application/json, application/yaml")),
    }
}

/// The user and the attributes that an access review asks about.
fn question(call: &Call, review: &Value) -> ApiResult<(UserInfo, Attributes)> {
    let spec = review.get("spec").unwrap_or(&Value::Null);
    let plural = call.served.kind.plural.as_str();
    let user = if plural == "selfsubjectaccessreviews" { (*call.user).clone() } else { user(spec) };
    let given = |field: &str| spec.get(field).filter(|value| !value.is_null());
    let (resource, path) = (given("resourceAttributes"), given("nonResourceAttributes"));
    let mut errors = check_spec(&user, resource, path);
    let is_local = plural == "localsubjectaccessreviews";
    if has_metadata(review, is_local) {
        let detail = if is_local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid(&Path::new("metadata"), review.get("metadata").cloned().unwrap_or_default(), detail));
    }
    let attributes = match (resource, path) {
        (Some(resource), _) => resource_attributes(resource),
        (None, path) => path_attributes(path.unwrap_or(&Value::Null)),
    };
    let spec_path = Path::new("spec");
    if is_local && resource.is_some() && attributes.namespace != call.namespace {
        let path = spec_path.child("resourceAttributes").child("namespace");
        errors.push(FieldError::invalid(&path, attributes.namespace.as_str(), "must match metadata.namespace"));
    }
    if let Some(path) = path.filter(|_| is_local) {
        errors.push(FieldError::invalid(&spec_path.child("nonResourceAttributes"), path.clone(), "disallowed on this kind of request"));
    }
    if errors.is_empty() { Ok((user, attributes)) } else { Err(ApiError::invalid(&call.served.kind, "", &errors)) }
}

fn check_spec(user: &UserInfo, resource: Option<&Value>, path: Option<&Value>) -> Vec<FieldError> {
    let field = |name: &str| Path::new("spec").child(name);
    let mut errors = Vec::new();
    match (resource, path) {
        (Some(_), Some(path)) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            errors.push(FieldError::invalid(&field("nonResourceAttributes"), path.clone(), detail));
        }
        (None, None) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(FieldError::invalid(&field("resourceAttributes"), Value::Null, detail));
        }
        _ => {}
    }
    if user.username.is_empty() && user.groups.is_empty() {
        errors.push(FieldError::invalid(&field("user"), "", "at least one of user or group must be specified"));
    }
    for name in ["fieldSelector", "labelSelector"] {
        let Some(selector) = resource.and_then(|resource| resource.get(name)).filter(|selector| !selector.is_null()) else { continue };
        let at = field("resourceAttributes").child(name);
        let has_requirements = selector.get("requirements").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        match (text(selector, "rawSelector"), has_requirements) {
            (raw, true) if !raw.is_empty() => {
                errors.push(FieldError::invalid(&at.child("rawSelector"), raw, "may not specified at the same time as requirements"));
            }
            (raw, false) if raw.is_empty() => {
                let detail = format!("when {name} is specified, requirements or rawSelector is required");
                errors.push(FieldError::required(&at.child("requirements"), detail));
            }
            _ => {}
        }
    }
    errors
}

/// Whether a review has metadata. None may have any, but for the namespace of a local one.
fn has_metadata(review: &Value, is_local: bool) -> bool {
    let fields = review.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let mut fields = fields.filter(|(name, value)| !value.is_null() && *name != "managedFields" && !(is_local && *name == "namespace"));
    fields.next().is_some()
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn user(spec: &Value) -> UserInfo {
    let strings = |value: &Value| value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    UserInfo {
        username: text(spec, "user"),
        uid: text(spec, "uid"),
        groups: spec.get("groups").map(strings).unwrap_or_default(),
        extra: spec
            .get("extra")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), strings(value)))
            .collect(),
    }
}

fn resource_attributes(value: &Value) -> Attributes {
    Attributes {
        verb: text(value, "verb"),
        group: text(value, "group"),
        version: text(value, "version"),
        resource: text(value, "resource"),
        subresource: text(value, "subresource"),
        namespace: text(value, "namespace"),
        name: text(value, "name"),
        path: String::new(),
        field_selector: value.get("fieldSelector").and_then(field_selector),
    }
}

fn field_selector(value: &Value) -> Option<FieldSelector> {
    if let Some(raw) = value.get("rawSelector").and_then(Value::as_str) {
        return FieldSelector::parse(raw).ok();
    }
    let requirements = value.get("requirements")?.as_array()?.iter();
    let terms = requirements.filter_map(|requirement| {
        let negated = match requirement.get("operator")?.as_str()? {
            "In" => false,
            "NotIn" => true,
            _ => return None,
        };
        // Only a requirement with a single value equals a term.
        let [only] = requirement.get("values")?.as_array()?.as_slice() else { return None };
        Some(FieldTerm { path: text(requirement, "key"), value: only.as_str()?.to_owned(), negated })
    });
    Some(FieldSelector { terms: terms.collect() })
}

fn path_attributes(value: &Value) -> Attributes {
    Attributes { verb: text(value, "verb"), path: text(value, "path"), ..Attributes::default() }
}
