//! Request bodies: read within a limit, decoded as JSON, YAML or protobuf.

use api_model::decode::{self, DecodeError, Decoded};
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::protobuf::{self, ProtobufError};
use crate::status::{ApiError, ApiResult};

/// Upstream's `MaxRequestBodyBytes`.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Bytes of a body that an error shows.
const SUMMARY_LEN: usize = 30;
const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Reads a body to its end.
pub async fn read(body: Body) -> ApiResult<Bytes> {
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::too_large(BODY_BYTES_MAX)),
        Err(error) => Err(ApiError::bad_request(format!("unable to read the request body: {error}"))),
    }
}

/// The media type of a body, without parameters; JSON without a header.
pub fn content_type(headers: &HeaderMap) -> &str {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text.split(';').next().unwrap_or_default().trim() {
        "" => "application/json",
        media => media,
    }
}

/// Decodes an object that was posted or put.
pub fn decode(headers: &HeaderMap, body: &[u8]) -> ApiResult<Decoded> {
    let yaml = match content_type(headers) {
        "application/json" | "*/*" => false,
        "application/yaml" => true,
        protobuf::MEDIA => return protobuf::decode(body).map_err(Into::into),
        _ => return Err(ApiError::unsupported_media_type(ACCEPTED)),
    };
    decode::decode(body, yaml).map_err(Into::into)
}

/// [`decode`] of an object of that kind: upstream's error names the kind.
pub fn decode_as(headers: &HeaderMap, body: &[u8], kind: &str) -> ApiResult<Decoded> {
    let yaml = match content_type(headers) {
        "application/json" | "*/*" => false,
        "application/yaml" => true,
        protobuf::MEDIA => {
            return protobuf::decode(body).map_err(|error| match error {
                ProtobufError::UnknownKind => error.into(),
                _ => unrecognized(kind, body, &error.to_string()),
            });
        }
        _ => return decode(headers, body),
    };
    decode::decode(body, yaml).map_err(|error| {
        let why = match error {
            DecodeError::Json(_) => error.to_string(),
            error => format!("couldn't get version/kind; json parse error: {error}"),
        };
        unrecognized(kind, body, &why)
    })
}

fn unrecognized(kind: &str, body: &[u8], why: &str) -> ApiError {
    ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({})", summary(body)))
}

/// Upstream's few first bytes of a body, for an error's text.
fn summary(body: &[u8]) -> String {
    let head = body.get(..SUMMARY_LEN);
    let text = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(head.unwrap_or(body)).into_owned(),
        Some(_) => head.unwrap_or(body).iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if head.is_some() { format!("{text} ...") } else { text }
}
