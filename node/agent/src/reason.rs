//! The content of a status or event: a reason for programs and a message for users.

/// `reason` and `message` of a condition, a waiting container or an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    /// One word, upstream's.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Reason {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}
