//! What admission knows of a request: the operation with its objects and options, and the forms in which plugins, policies and
//! webhooks see the objects. Upstream's `admission.Attributes`.

pub(crate) mod forms;
pub(crate) mod options;

use api_admission::{Operation, Request};
use api_wire::options::DeleteOptions;
use serde_json::Value;

use crate::call::Call;

/// The operation on one object.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) operation: Operation,
    /// Name of the object; empty where it is still to be generated.
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
}

/// A step with the options that the query does not have.
#[derive(Clone, Copy)]
pub(crate) struct AdmissionAttributes<'a> {
    pub(crate) step: Step<'a>,
    /// Of a deletion. All other operations have their options in the query.
    pub(crate) delete: Option<&'a DeleteOptions>,
}

/// A step as plugins and webhooks see it.
pub(crate) fn request<'a>(call: &'a Call, step: Step<'a>, object: Option<&'a mut Value>) -> Request<'a> {
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
