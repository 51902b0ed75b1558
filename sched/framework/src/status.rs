//! The answer of a filter plugin for a Pod on a node.

use std::borrow::Cow;

/// What users see of a plugin's answer.
pub type Reason = Cow<'static, str>;

/// The answer of a filter plugin: upstream's `Status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The Pod may run on the node.
    Success,
    /// The Pod does not fit now; it may fit when other Pods leave the node. Users see the reasons.
    Unschedulable(Vec<Reason>),
    /// The Pod does not fit as long as node and Pod stay as they are, whichever Pods leave the node. Users see the reasons.
    UnschedulableAndUnresolvable(Vec<Reason>),
}

impl Status {
    /// `Success` when the Pod fits, else `UnschedulableAndUnresolvable` with the reason.
    pub fn unless(fits: bool, reason: &'static str) -> Self {
        if fits { Self::Success } else { Self::UnschedulableAndUnresolvable(vec![reason.into()]) }
    }

    /// Whether the Pod does not fit, and may fit when other Pods leave the node.
    pub fn is_resolvable(&self) -> bool {
        matches!(self, Self::Unschedulable(_))
    }
}
