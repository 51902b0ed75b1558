//! The admission chain, as the verbs call it.

use api_admission::{Operation, Request};
use serde_json::Value;

use crate::app::Call;
use crate::status::ApiResult;

/// What is about to happen.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) operation: Operation,
    /// Name of the object; empty where it is still to be generated.
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
}

/// Lets plugins change the object, or refuse.
pub(crate) fn mutate(call: &mut Call, step: Step<'_>, object: Option<&mut Value>) -> ApiResult<()> {
    let mut request = request(call, step, object);
    let warnings = call.app.chain.admit(&mut request, &*call.app.cache)?;
    call.warn(warnings);
    Ok(())
}

/// Lets plugins refuse the final object.
pub(crate) fn validate(call: &mut Call, step: Step<'_>, object: Option<&mut Value>) -> ApiResult<()> {
    let request = request(call, step, object);
    let warnings = call.app.chain.validate(&request, &*call.app.cache)?;
    call.warn(warnings);
    Ok(())
}

fn request<'a>(call: &'a Call, step: Step<'a>, object: Option<&'a mut Value>) -> Request<'a> {
    Request {
        operation: step.operation,
        kind: &call.served.stored,
        subresource: &call.subresource,
        namespace: &call.namespace,
        name: step.name,
        user: &call.user,
        object,
        old: step.old,
        dry_run: step.dry_run,
    }
}
