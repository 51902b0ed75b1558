//! Reads optional fields of objects. As in the Go structs behind kube-state-metrics, an absent text or list is empty.

use std::borrow::Cow;

/// The value, or an empty one.
pub(crate) fn or_empty<T: Clone + Default>(value: &Option<T>) -> Cow<'_, T> {
    value.as_ref().map_or_else(|| Cow::Owned(T::default()), Cow::Borrowed)
}

/// The text; empty when it is absent.
pub(crate) fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

/// The list; empty when it is absent.
pub(crate) fn list<T>(value: &Option<Vec<T>>) -> &[T] {
    value.as_deref().unwrap_or_default()
}

/// `true` or `false`; empty when the flag is absent.
pub(crate) fn flag(value: Option<bool>) -> &'static str {
    match value {
        Some(true) => "true",
        Some(false) => "false",
        None => "",
    }
}
