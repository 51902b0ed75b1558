//! Authorization checks of expressions (`authorizer.group('apps').resource('deployments').check('create')`).

use std::fmt;

/// Decides whether a request would be allowed. It is called within an evaluation, so it must not block.
pub trait Authorizer: Send + Sync {
    /// Decides for the service account of the check, or else for the user of the request.
    fn authorize(&self, check: &Check) -> Decision;
}

/// A check, built step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Namespace and name of the service account to check instead of the request's user.
    pub service_account: Option<(String, String)>,
    /// A non-resource path.
    pub path: Option<String>,
    /// The verb.
    pub verb: String,
    /// Group of the resource.
    pub group: String,
    /// Resource.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// Field selector, or empty.
    pub field_selector: String,
    /// Label selector, or empty.
    pub label_selector: String,
}

/// The decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// The reason; may be empty.
    pub reason: String,
    /// The error of the authorizer; may be empty.
    pub error: String,
}

/// The stage of building a check.
#[derive(Clone)]
pub enum Stage {
    /// The authorizer itself.
    Authorizer,
    /// With a path.
    Path,
    /// With a group.
    Group,
    /// With a resource.
    Resource,
    /// The check is decided.
    Decided(Decision),
}

/// An authorizer as a value, with the check so far.
#[derive(Clone)]
pub struct Question<'v> {
    pub(crate) authorizer: &'v dyn Authorizer,
    pub(crate) check: Check,
    pub(crate) stage: Stage,
}

impl fmt::Debug for Question<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("check", &self.check).finish_non_exhaustive()
    }
}
