//! What a plugin says of a Pod on a node.

/// A filter's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The Pod may run there.
    Fits,
    /// Not now: other Pods' leaving could help. The reasons are shown to users.
    Unschedulable(Vec<String>),
    /// Not at all as node and Pod are: no Pod's leaving helps. The reasons are shown to users.
    Unresolvable(Vec<String>),
}

impl Verdict {
    /// `Fits` if so, else unresolvable for that reason.
    pub fn unless(fits: bool, reason: &str) -> Self {
        if fits { Self::Fits } else { Self::Unresolvable(vec![reason.to_owned()]) }
    }
}
