//! Why an answer is dropped, and its bounds in bytes.

use thiserror::Error;

/// Bytes of an answer: about 20,000 containers.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Bytes of a line: the names of a container, a Pod and a namespace have 379 together.
pub(crate) const LINE_BYTES_MAX: usize = 4 << 10;

/// Why an answer is rejected as a whole.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum AnswerError {
    /// The answer is too large.
    #[error("the answer has more than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    /// A line is too long.
    #[error("a line has more than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// A line is no text.
    #[error("a line is not UTF-8")]
    NotText,
    /// A series of that metric has no readable value, labels or time.
    #[error("a malformed line of {0}")]
    Malformed(&'static str),
    /// A value or a time that cannot be: negative, infinite or not a number.
    #[error("an impossible value of {0}")]
    Impossible(&'static str),
}
