//! A message for the user as the result of a check.

use thiserror::Error;

/// Why a value is invalid, as text for the user. A check returns it if only the text matters. An operation that can
/// fail in several ways has an error enum instead.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Message(String);

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl std::ops::Deref for Message {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<&str> for Message {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl From<Message> for String {
    fn from(message: Message) -> Self {
        message.0
    }
}
