//! What expressions ask of an authorizer (`authorizer.group('apps').resource('deployments').check('create')`).

use std::fmt;

/// Answers whether a request would be allowed. Asked within an evaluation, so it must not wait.
pub trait Authorizer: Send + Sync {
    /// Whether the user of the request (or the service account of the check) may do this.
    fn authorize(&self, check: &Check) -> Decision;
}

/// What is asked, gathered step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Namespace and name of the service account that is asked about instead of the request's user.
    pub service_account: Option<(String, String)>,
    /// A path that is no resource.
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

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why; may be empty.
    pub reason: String,
    /// What went wrong while it was found out; may be empty.
    pub error: String,
}

/// How far a question has been put together.
#[derive(Clone)]
pub enum Stage {
    /// The authorizer itself.
    Authorizer,
    /// A path is known.
    Path,
    /// A group is known.
    Group,
    /// A resource is known.
    Resource,
    /// It has been answered.
    Decided(Decision),
}

/// An authorizer as a value, with what has been said so far.
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
