//! Reads the response of a webhook.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use thiserror::Error;

use crate::json;

/// Why a response is invalid. The message follows `received invalid webhook response: `.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BadAnswer {
    /// The review has no `response`.
    #[error("webhook response was absent")]
    Absent,
    /// The response has the uid of another request.
    #[error("expected response.uid={expected:?}, got {found:?}")]
    Uid {
        /// The uid of the request.
        expected: String,
        /// The uid of the response.
        found: String,
    },
    /// The response has another kind or version.
    #[error("expected webhook response of admission.k8s.io/{version}, Kind=AdmissionReview, got {found}")]
    Kind {
        /// The version of the request.
        version: String,
        /// The version and kind of the response.
        found: String,
    },
    /// A patch without a patch type.
    #[error("webhook returned response.patch but not response.patchType")]
    NoPatchType,
    /// A patch type without a patch.
    #[error("webhook returned response.patchType but not response.patch")]
    NoPatch,
    /// A patch type other than JSON Patch.
    #[error("webhook returned invalid response.patchType of {0:?}")]
    PatchType(String),
    /// The patch is not base64 of JSON.
    #[error("webhook returned a response.patch that is no JSON: {0}")]
    Patch(String),
    /// A validating webhook may not change the object.
    #[error("validating webhook may not return response.{0}")]
    Forbidden(&'static str),
}

/// A valid response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Whether the webhook allows the request.
    pub allowed: bool,
    /// The JSON Patch of a mutating webhook.
    pub patch: Option<Value>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// The Status of a rejection.
    pub status: Option<Value>,
}

impl Answer {
    /// Reads the AdmissionReview that responds to the request of the given uid and version.
    ///
    /// # Errors
    /// The review is invalid.
    pub fn read(review: &Value, uid: &str, version: &str, mutating: bool) -> Result<Self, BadAnswer> {
        let response = review.get("response").filter(|response| response.is_object()).ok_or(BadAnswer::Absent)?;
        let found = json::text(response, "uid");
        if found != uid {
            return Err(BadAnswer::Uid { expected: uid.to_owned(), found: found.to_owned() });
        }
        let (api_version, kind) = (json::text(review, "apiVersion"), json::text(review, "kind"));
        // The first version of the API did not require kind and version in a response.
        if version == "v1" && (api_version != "admission.k8s.io/v1" || kind != "AdmissionReview") {
            return Err(BadAnswer::Kind { version: version.to_owned(), found: format!("{api_version}, Kind={kind}") });
        }
        let warnings = json::list(response, "warnings").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(Self {
            allowed: response.get("allowed").and_then(Value::as_bool).unwrap_or_default(),
            patch: patch(response, mutating)?,
            warnings,
            status: response.get("status").filter(|status| status.is_object()).cloned(),
        })
    }
}

fn patch(response: &Value, mutating: bool) -> Result<Option<Value>, BadAnswer> {
    let patch = json::text(response, "patch");
    let kind = response.get("patchType").and_then(Value::as_str);
    match (mutating, patch.is_empty(), kind) {
        (_, true, None) => Ok(None),
        (false, false, _) => Err(BadAnswer::Forbidden("patch")),
        (false, true, Some(_)) => Err(BadAnswer::Forbidden("patchType")),
        (true, false, None) => Err(BadAnswer::NoPatchType),
        (true, true, Some(_)) => Err(BadAnswer::NoPatch),
        (true, false, Some("JSONPatch")) => {
            let bytes = STANDARD.decode(patch).map_err(|error| BadAnswer::Patch(error.to_string()))?;
            let patch = serde_json::from_slice(&bytes).map_err(|error| BadAnswer::Patch(error.to_string()))?;
            // A patch without operations counts as no patch.
            Ok(Some(patch).filter(|patch: &Value| patch.as_array().is_none_or(|operations| !operations.is_empty())))
        }
        (true, false, Some(other)) => Err(BadAnswer::PatchType(other.to_owned())),
    }
}

/// The Status of a request that a webhook rejects: the webhook's own Status, with a message that names the webhook.
pub fn rejection(webhook: &str, status: Option<Value>) -> Value {
    let mut status = status.unwrap_or_else(|| json!({}));
    let denied = format!("admission webhook {webhook:?} denied the request");
    let message = match (json::text(&status, "message"), json::text(&status, "reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = status.get("code").and_then(Value::as_i64).filter(|code| *code >= 400).unwrap_or(400);
    let metadata = status.get("metadata").filter(|metadata| metadata.is_object()).cloned().unwrap_or_else(|| json!({}));
    for (field, value) in [
        ("kind", "Status".into()),
        ("apiVersion", "v1".into()),
        ("metadata", metadata),
        ("status", "Failure".into()),
        ("message", message.into()),
        ("code", code.into()),
    ] {
        json::set(&mut status, field, value);
    }
    status
}
