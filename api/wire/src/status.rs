//! Errors as clients get them: HTTP status and `metav1.Status` with upstream's reasons and words. This is the only place that
//! maps the errors of the crates below to HTTP.

use api_model::field::{FieldError, aggregate};
use api_model::kind::{GroupResource, Kind};
use api_model::selector::SelectorError;
use api_store::StoreError;
use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::json;
use crate::media::{Encoding, Indentable};
use crate::protobuf::{self, EncodeError, ProtobufError, order};
use api_cache::{Closed, NotYet, TooOld};

/// A failed request.
#[derive(Debug)]
pub struct ApiError(Box<Status>);

/// The result of every function that answers a request.
pub type ApiResult<T> = Result<T, ApiError>;

#[derive(Debug)]
struct Status {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Details,
    /// A token to continue with, for an expired one.
    next: Option<String>,
    /// Another server's Status, passed on unchanged.
    verbatim: Option<serde_json::Value>,
}

#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    field: String,
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Status { code, reason, message: message.into(), details: Details::default(), next: None, verbatim: None }))
    }

    fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        self.0.details =
            Details { name: name.to_owned(), group: resource.group.clone(), kind: resource.resource.clone(), ..Details::default() };
        self
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        self.0.details.retry_after_seconds = Some(seconds);
        self
    }

    fn cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        self.0.details.causes.push(Cause { reason: reason.to_owned(), message: message.to_owned(), field: field.to_owned() });
        self
    }

    /// `pods "x" not found`
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    /// Something was not found, in the words of another server.
    pub fn not_found_text(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    /// The path names nothing that is served.
    pub fn no_such_resource() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    /// The resource does not have this verb.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    /// The definition of the kind is being deleted.
    pub fn terminating(verb: &str) -> Self {
        let message = format!("{verb} not allowed while custom resource definition is terminating");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    /// `pods "x" already exists`
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "AlreadyExists", format!("{resource} \"{name}\" already exists")).about(resource, name)
    }

    /// Whether the name is taken.
    pub fn is_already_exists(&self) -> bool {
        self.0.reason == "AlreadyExists"
    }

    /// Every generated name was taken.
    pub fn generated_name_taken(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} \"{name}\" already exists, the server was not able to generate a unique name for the object");
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name).retry_after(1)
    }

    /// `Operation cannot be fulfilled on …`
    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    /// The object was changed since the revision that the request names.
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(resource, name, "the object has been modified; please apply your changes to the latest version and try again")
    }

    /// `Pod "x" is invalid: …` with a cause a field.
    pub fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_kind(&kind.group, &kind.kind, name, errors)
    }

    /// [`ApiError::invalid`] for a type that is not a served kind, such as `ListOptions`.
    pub fn invalid_kind(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let full = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{full} \"{name}\" is invalid: {}", aggregate(errors));
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        error.0.details = Details { name: name.to_owned(), group: group.to_owned(), kind: kind.to_owned(), ..Details::default() };
        for field in errors {
            error = error.cause(field.kind.reason(), &field.body(), &field.path.to_string());
        }
        error
    }

    /// The request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// The server cannot authenticate the request.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// Rejected by the authorizer, with its whole message.
    pub fn forbidden(resource: &GroupResource, name: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(resource, name)
    }

    /// `pods "x" is forbidden: …`
    pub fn denied(resource: &GroupResource, name: &str, why: &str) -> Self {
        let subject = if name.is_empty() { resource.to_string() } else { format!("{resource} \"{name}\"") };
        Self::forbidden(resource, name, format!("{subject} is forbidden: {why}"))
    }

    /// The body is longer than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The body has a media type that is not read.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// No media type that the client accepts is offered.
    pub fn not_acceptable(offered: &str) -> Self {
        let message = format!("only the following media types are accepted: {offered}");
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// Something that has no form in protobuf, for a client that wants that.
    pub fn not_encodable(error: &EncodeError) -> Self {
        let message = match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// A continue token that is too old, with one for an inconsistent continuation.
    pub fn continue_expired(next: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the \
                       continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with \
                       the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the \
                       first chunk was returned and now may show up in the list.";
        let mut error = Self::new(StatusCode::GONE, "Expired", message);
        error.0.next = Some(next);
        error
    }

    /// A list of a moment that is forgotten.
    pub fn list_too_old() -> Self {
        Self::expired("The resourceVersion for the provided list is too old.")
    }

    /// The revision of the request was compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The requested resource version was compacted.
    pub fn too_old(requested: u64, oldest: TooOld) -> Self {
        Self::expired(format!("too old resource version: {requested} ({})", oldest.oldest))
    }

    /// The requested resource version does not exist yet.
    pub fn too_large_version(requested: u64, at: NotYet) -> Self {
        let message = format!("Too large resource version: {requested}, current: {}", at.current);
        Self::timeout(&message, 1).cause("ResourceVersionTooLarge", "Too large resource version", "")
    }

    /// The request took longer than requests may take.
    pub fn took_too_long() -> Self {
        Self::timeout("request did not complete within requested timeout - context deadline exceeded", 0)
    }

    /// Something took too long. `seconds` 0 is no advice when to retry.
    pub fn timeout(what: &str, seconds: u32) -> Self {
        let error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: {what}"));
        if seconds > 0 { error.retry_after(seconds) } else { error }
    }

    /// The server cannot answer now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// The client should retry after `seconds`.
    pub fn too_many_requests(message: impl Into<String>, seconds: u32) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(seconds)
    }

    /// An eviction that a disruption budget does not allow. `seconds` 0 is no advice when to retry.
    pub fn disruption(message: &str, cause: &str, seconds: u32) -> Self {
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).cause("DisruptionBudget", cause, "");
        if seconds > 0 { error.retry_after(seconds) } else { error }
    }

    /// A fault of the server.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let text = message.to_string();
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", format!("Internal error occurred: {text}")).cause("", &text, "")
    }

    /// An applied configuration that does not fit its type: upstream gives no reason and code 500.
    pub fn untyped(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// A stored object that no key at hand opens.
    pub fn unreadable(key: &str, why: &str) -> Self {
        Self::internal(format!("unable to transform key {key:?}: {why}"))
    }

    /// An object that cannot be encrypted.
    pub fn unsealable(key: &str, why: &dyn std::fmt::Display) -> Self {
        tracing::error!(key, %why, "encrypting failed");
        Self::internal(format!("unable to transform key {key:?}: {why}"))
    }

    /// A Status in a webhook's words.
    pub fn verbatim(status: serde_json::Value) -> Self {
        let code = status.get("code").and_then(serde_json::Value::as_u64).and_then(|code| u16::try_from(code).ok());
        let code = code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut error = Self::new(code, "", json::text(&status, &["message"]));
        error.0.details.retry_after_seconds = status
            .pointer("/details/retryAfterSeconds")
            .and_then(serde_json::Value::as_u64)
            .and_then(|seconds| u32::try_from(seconds).ok());
        error.0.verbatim = Some(status);
        error
    }

    /// The HTTP status.
    pub fn code(&self) -> StatusCode {
        self.0.code
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The Status object.
    pub fn to_value(&self) -> serde_json::Value {
        let status = &*self.0;
        if let Some(verbatim) = &status.verbatim {
            return verbatim.clone();
        }
        let mut value = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": status.message, "reason": status.reason, "code": status.code.as_u16(),
        });
        if status.details != Details::default() || status.code == StatusCode::NOT_FOUND {
            json::set(&mut value, &["details"], serde_json::json!(status.details));
        }
        if let Some(next) = &status.next {
            json::set(&mut value, &["metadata", "continue"], next.as_str());
        }
        value
    }

    /// The answer to the request, in JSON.
    pub fn into_response(self) -> Response<Body> {
        self.into_response_in(Encoding::Json)
    }

    /// The answer to the request. A Status without a protobuf form, such as a webhook's own, is sent as JSON.
    pub fn into_response_in(self, encoding: Encoding) -> Response<Body> {
        let value = self.to_value();
        let encoded = (encoding == Encoding::Protobuf).then(|| protobuf::encode(&value).ok()).flatten();
        let is_json = encoded.is_none();
        let media = if is_json { "application/json" } else { protobuf::MEDIA };
        let mut response = Response::new(encoded.map_or_else(|| Body::from(order::line(&value)), Body::from));
        if is_json {
            response.extensions_mut().insert(Indentable);
        }
        *response.status_mut() = self.0.code;
        response.extensions_mut().insert(Own);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        if let Some(seconds) = self.0.details.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.0.code == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Marks an answer as the server's own error, complete and in memory, not one that is passed on.
#[derive(Clone, Copy, Debug)]
pub struct Own;

impl From<SelectorError> for ApiError {
    fn from(error: SelectorError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<Closed> for ApiError {
    fn from(_: Closed) -> Self {
        Self::unavailable("the server is shutting down").retry_after(1)
    }
}

/// The writer handles conflicts; the rest are failures of the backend.
impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Closed.into(),
            StoreError::Unguarded { key } => {
                tracing::warn!(key = &*key, "a write was too late: its lock is another server's, or was given back");
                let why = "its quota or addresses were found out too long ago; please try again";
                Self::new(StatusCode::CONFLICT, "Conflict", format!("Operation cannot be fulfilled: {why}"))
            }
            // Without Retry-After: a client that retries at once only adds to the load (docs/store.md).
            StoreError::DiskFull { .. } | StoreError::SpaceExceeded => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "InternalError", format!("Internal error occurred: {error}"))
            }
            error => {
                tracing::error!(%error, "the store failed");
                Self::internal(error)
            }
        }
    }
}

impl From<api_model::decode::DecodeError> for ApiError {
    fn from(error: api_model::decode::DecodeError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<api_rules::patch::PatchError> for ApiError {
    fn from(error: api_rules::patch::PatchError) -> Self {
        use api_rules::patch::PatchError;
        match error {
            PatchError::Malformed(_) => Self::bad_request(error.to_string()),
            PatchError::TooManyOperations(_) | PatchError::CopyTooLarge(_) => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", error.to_string())
            }
            PatchError::NotApplicable(_) | PatchError::TestFailed(_) => {
                let message = "the server rejected our request due to an error in our request";
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
            }
        }
    }
}

impl From<api_rules::apply::ApplyConflict> for ApiError {
    fn from(conflict: api_rules::apply::ApplyConflict) -> Self {
        let error = Self::new(StatusCode::CONFLICT, "Conflict", conflict.to_string());
        let each = conflict.0.each().into_iter();
        each.fold(error, |error, conflict| error.cause("FieldManagerConflict", &conflict.message, &conflict.field))
    }
}

impl From<ProtobufError> for ApiError {
    fn from(error: ProtobufError) -> Self {
        match error {
            ProtobufError::UnknownKind => Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", error.to_string()),
            _ => Self::bad_request(error.to_string()),
        }
    }
}

impl From<api_auth::Unauthenticated> for ApiError {
    fn from(error: api_auth::Unauthenticated) -> Self {
        tracing::debug!(reason = error.reason, "refused credentials");
        Self::unauthorized()
    }
}

impl From<api_admission::Denied> for ApiError {
    fn from(denied: api_admission::Denied) -> Self {
        use api_admission::Denied;
        let message = denied.to_string();
        match denied {
            Denied::Forbidden { resource, name, causes, .. } => {
                let error = Self::forbidden(&resource, &name, message);
                causes.iter().fold(error, |error, cause| error.cause(&cause.reason, &cause.message, &cause.field))
            }
            Denied::Invalid { group, kind, name, errors } => Self::invalid_kind(&group, &kind, &name, &errors),
            Denied::NotFound { resource, name } => Self::not_found(&resource, &name),
            Denied::BadRequest(_) => Self::bad_request(message),
            Denied::Internal(why) => Self::internal(why),
        }
    }
}

impl From<api_auth::tokens::RequestError> for ApiError {
    fn from(error: api_auth::tokens::RequestError) -> Self {
        use api_auth::tokens::RequestError;
        match error {
            RequestError::NotFound { resource, name } => Self::not_found(&resource, &name),
            RequestError::BadRequest(message) => Self::bad_request(message),
            RequestError::Conflict { resource, name, message } => Self::conflict(&resource, &name, &message),
            RequestError::Invalid(errors) => Self::invalid_kind("authentication.k8s.io", "TokenRequest", "", &errors),
            RequestError::Key(error) => Self::internal(error),
        }
    }
}
