//! The server's authorizer, for expressions.

use api_auth::tokens;
use api_cel::{Authorizer, Check, Decision};
use api_model::request::{Attributes, UserInfo};
use api_model::selector::FieldSelector;

use crate::authorize::decide;
use crate::core::Core;

/// Checks the rights of the request's user, or of a service account.
pub(crate) struct Asker<'a> {
    pub(super) core: &'a Core,
    pub(super) user: &'a UserInfo,
}

impl Authorizer for Asker<'_> {
    fn authorize(&self, check: &Check) -> Decision {
        let account = check.service_account.as_ref().map(|(namespace, name)| UserInfo {
            username: tokens::username(namespace, name),
            groups: tokens::groups(namespace),
            ..UserInfo::default()
        });
        // As in upstream, a selector that cannot be parsed does not narrow the check.
        let field_selector = (!check.field_selector.is_empty()).then(|| FieldSelector::parse(&check.field_selector).ok()).flatten();
        let attributes = Attributes {
            verb: check.verb.clone(),
            group: check.group.clone(),
            version: "*".to_owned(),
            resource: check.resource.clone(),
            subresource: check.subresource.clone(),
            namespace: check.namespace.clone(),
            name: check.name.clone(),
            path: check.path.clone().unwrap_or_default(),
            field_selector,
        };
        let decision = decide((&self.core.authorizer, &self.core.cache), account.as_ref().unwrap_or(self.user), &attributes);
        Decision { allowed: decision.is_allowed(), reason: decision.reason().to_owned(), error: String::new() }
    }
}
