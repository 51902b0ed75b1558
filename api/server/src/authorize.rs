//! Whether the user may do what the request asks.

use api_auth::{Decision, forbidden_message};
use api_model::kind::GroupResource;
use api_model::request::{Attributes, UserInfo};

use crate::app::{App, Call};
use api_wire::status::{ApiError, ApiResult};

/// Refuses what the authorizer does not allow.
pub(crate) fn check(app: &App, user: &UserInfo, attributes: &Attributes) -> ApiResult<()> {
    enforce(user, attributes, &decide(app, user, attributes))
}

/// What the authorizer says.
pub(crate) fn decide(app: &App, user: &UserInfo, attributes: &Attributes) -> Decision {
    app.authorizer.authorize(user, attributes, &*app.cache)
}

/// Refuses what was not allowed.
pub(crate) fn enforce(user: &UserInfo, attributes: &Attributes, decision: &Decision) -> ApiResult<()> {
    match decision {
        Decision::Allow(_) => Ok(()),
        Decision::NoOpinion(reason) => {
            let message = forbidden_message(user, attributes, reason);
            if !attributes.is_resource() {
                return Err(ApiError::forbidden(&GroupResource::new("", ""), "", format!("forbidden: {message}")));
            }
            let resource = GroupResource::new(&attributes.group, &attributes.resource);
            Err(ApiError::denied(&resource, &attributes.name, &message))
        }
    }
}

/// Whether the caller may also do something else to the object that the call is for.
pub(crate) fn may(call: &Call, verb: &str) -> ApiResult<()> {
    check(&call.app, &call.user, &attributes(call, verb))
}

/// What a call asks for.
pub(crate) fn attributes(call: &Call, verb: &str) -> Attributes {
    Attributes {
        verb: verb.to_owned(),
        group: call.served.kind.group.clone(),
        version: call.served.kind.version.clone(),
        resource: call.served.kind.plural.clone(),
        subresource: call.subresource.clone(),
        namespace: call.namespace.clone(),
        name: call.name.clone(),
        ..Attributes::default()
    }
}
