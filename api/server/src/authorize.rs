//! Authorization of requests.

use api_auth::{Authorizer, Decision, forbidden_message};
use api_cache::Cache;
use api_model::kind::GroupResource;
use api_model::request::{Attributes, UserInfo};

use api_wire::status::{ApiError, ApiResult};

/// Rejects a request that the authorizer does not allow.
pub(crate) fn check((authorizer, cache): (&Authorizer, &Cache), user: &UserInfo, attributes: &Attributes) -> ApiResult<()> {
    enforce(user, attributes, &decide((authorizer, cache), user, attributes))
}

/// The authorizer's decision.
pub(crate) fn decide((authorizer, cache): (&Authorizer, &Cache), user: &UserInfo, attributes: &Attributes) -> Decision {
    authorizer.authorize(user, attributes, cache)
}

/// Rejects a request by a decision that does not allow it.
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
