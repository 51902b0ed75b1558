//! An object from a request's body: decoded, its fields checked, in internal form, with the path's namespace and without what
//! only the server writes.

use api_model::decode::{DecodeError, Decoded, Duplicate};
use api_model::go::json_type;
use api_model::kind::Kind;
use api_model::{field, meta};
use api_rules::check_fields;
use serde_json::Value;

use crate::call::Call;
use crate::registry::{External, Internal};
use api_wire::body;
use api_wire::json;
use api_wire::options::WriteOptions;
use api_wire::status::{ApiError, ApiResult};

/// Decodes and checks a body that must be an object of the call's kind.
pub(crate) fn object(call: &mut Call, body: &[u8], options: &WriteOptions) -> ApiResult<Internal> {
    let Decoded { value, duplicates } = body::decode_as(&call.headers, body, &call.served.kind.kind)?;
    checked(call, value, &duplicates, options, |error, kind| ApiError::bad_request(error.handled_as(&kind.kind, &kind.version)))
}

/// Checks a value that must be an object of the call's kind, and brings it into internal form. `unfit` makes the error for an
/// object whose fields do not fit.
pub(crate) fn checked(
    call: &mut Call,
    mut value: Value,
    duplicates: &[Duplicate],
    options: &WriteOptions,
    unfit: impl FnOnce(DecodeError, &Kind) -> ApiError,
) -> ApiResult<Internal> {
    let kind = &call.served.kind;
    if !value.is_object() {
        let message = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct",
            json_type(&value)
        );
        return Err(ApiError::bad_request(message));
    }
    check_kind(kind, &mut value)?;
    let warnings = check_fields(kind, &mut value, duplicates, options.validation).map_err(|error| unfit(error, kind))?;
    call.warn(warnings);
    let mut object = call.served.internal(External::new(value));
    meta::unset(&mut object, "selfLink");
    Ok(object)
}

/// `apiVersion` and `kind` must be the path's; where they are left out, they are filled in.
fn check_kind(kind: &Kind, value: &mut Value) -> ApiResult<()> {
    let api_version = kind.api_version();
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (found_version, found_kind) = (text("apiVersion"), text("kind"));
    if !found_version.is_empty() && found_version != api_version {
        let message = format!("the API version in the data ({found_version}) does not match the expected API version ({api_version})");
        return Err(ApiError::bad_request(message));
    }
    if !found_kind.is_empty() && found_kind != kind.kind {
        let version = &kind.version;
        let (found, wanted) = (format!("{version}.{found_kind}"), format!("{version}.{}", kind.kind));
        let message = format!(
            "{found_kind} in version \"{version}\" cannot be handled as a {}: converting ({found}) to ({wanted}): unknown conversion",
            kind.kind
        );
        return Err(ApiError::bad_request(message));
    }
    json::set(value, &["apiVersion"], api_version);
    json::set(value, &["kind"], kind.kind.as_str());
    Ok(())
}

/// A created object must be in the path's namespace. An object without a namespace gets that one.
pub(crate) fn set_namespace(call: &Call, value: &mut Value) -> ApiResult<()> {
    let namespace = meta::namespace(value);
    if !call.served.kind.namespaced {
        if !namespace.is_empty() {
            let path = field::Path::new("metadata").child("namespace");
            let error = field::FieldError::forbidden(&path, "not allowed on this type");
            return Err(ApiError::invalid(&call.served.kind, meta::name(value), &[error]));
        }
        meta::unset(value, "namespace");
        return Ok(());
    }
    if !namespace.is_empty() && namespace != call.namespace {
        return Err(ApiError::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
    }
    meta::set(value, "namespace", call.namespace.as_str());
    Ok(())
}

/// A replaced object must bear the path's name and namespace.
pub(crate) fn check_name(call: &Call, value: &mut Value) -> ApiResult<()> {
    let (name, namespace) = (meta::name(value), meta::namespace(value));
    if name.is_empty() {
        let message = format!("the name of the object ({} based on URL) was undeterminable: name must be provided", call.name);
        return Err(ApiError::bad_request(message));
    }
    if name != call.name {
        let message = format!("the name of the object ({name}) does not match the name on the URL ({})", call.name);
        return Err(ApiError::bad_request(message));
    }
    if !call.served.kind.namespaced {
        return Ok(());
    }
    if !namespace.is_empty() && namespace != call.namespace {
        let message = format!("the namespace of the object ({namespace}) does not match the namespace on the request ({})", call.namespace);
        return Err(ApiError::bad_request(message));
    }
    meta::set(value, "namespace", call.namespace.as_str());
    Ok(())
}
