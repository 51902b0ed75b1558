//! Events as values: a plan returns them, and `apply` records them.

use api_client::events::Recorder;
use k8s_openapi::api::core::v1::ObjectReference;

/// An event to record on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// `Warning` rather than `Normal`.
    pub is_warning: bool,
    /// Upstream's reason.
    pub reason: &'static str,
    /// Upstream's message.
    pub message: String,
}

/// An event of type `Normal`.
pub fn normal(reason: &'static str, message: impl Into<String>) -> Note {
    Note { is_warning: false, reason, message: message.into() }
}

/// An event of type `Warning`.
pub fn warning(reason: &'static str, message: impl Into<String>) -> Note {
    Note { is_warning: true, reason, message: message.into() }
}

/// Records the events on an object, in their order.
pub fn record(recorder: &Recorder, object: &ObjectReference, notes: Vec<Note>) {
    for Note { is_warning, reason, message } in notes {
        let record = if is_warning { Recorder::warning } else { Recorder::normal };
        record(recorder, object, reason, message);
    }
}
