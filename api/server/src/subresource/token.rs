//! `serviceaccounts/token`: a token for a ServiceAccount.

use api_admission::Operation;
use axum::body::Body;
use http::{Response, StatusCode};

use crate::admission::Admission;
use crate::attributes::Step;
use crate::call::Call;
use crate::present::Presentation;
use api_wire::body;
use api_wire::json;
use api_wire::options::WriteOptions;
use api_wire::status::{ApiError, ApiResult};

/// `POST` of a TokenRequest.
pub(super) async fn request(admission: &Admission, call: &mut Call, bytes: &[u8]) -> ApiResult<Response<Body>> {
    let presentation = Presentation::plain(&call.served, &call.headers, &call.query)?;
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let decoded = body::decode(&call.headers, bytes)?;
    let mut request = decoded.value;
    let group = "authentication.k8s.io";
    let warnings = api_rules::check_body(group, "v1", "TokenRequest", &mut request, &decoded.duplicates, options.validation)
        .map_err(|error| ApiError::bad_request(error.handled_as("TokenRequest", "v1")))?;
    call.warn(warnings);
    json::set(&mut request, &["kind"], "TokenRequest");
    json::set(&mut request, &["apiVersion"], "authentication.k8s.io/v1");
    call.object()?;
    // A node gets tokens only for its own Pods: the plugin NodeRestriction checks that.
    let name = call.name.clone();
    let step = Step { operation: Operation::Create, name: &name, old: None, dry_run: options.dry_run };
    admission.mutate(call, step, Some(&mut request)).await?;
    admission.validate(call, step, Some(&mut request)).await?;
    let tokens = call.core.authenticator.tokens();
    let answer = tokens.request(&call.namespace, &call.name, &request, &*call.core.cache, api_clock::now())?;
    Ok(presentation.value(StatusCode::CREATED, &answer))
}
