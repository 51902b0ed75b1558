//! Keys of maps. Equal numbers of different types are the same key.

use std::fmt;
use std::sync::Arc;

use super::Value;

/// A key of a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// `true` and `false`
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that does not fit `Int`.
    Uint(u64),
    /// A text.
    String(Arc<str>),
}

impl Key {
    /// The key of a value; `None` if the value cannot be a key.
    pub(crate) fn from_value(value: &Value<'_>) -> Option<Self> {
        match value {
            Value::Bool(flag) => Some(Self::Bool(*flag)),
            Value::Int(number) => Some(Self::Int(*number)),
            Value::Uint(number) => Some(i64::try_from(*number).map_or(Self::Uint(*number), Self::Int)),
            Value::Double(number) => whole(*number).map(Self::Int),
            Value::String(text) => Some(Self::String((**text).into())),
            _ => None,
        }
    }

    pub(crate) fn value<'v>(&self) -> Value<'v> {
        match self {
            Self::Bool(flag) => Value::Bool(*flag),
            Self::Int(number) => Value::Int(*number),
            Self::Uint(number) => Value::Uint(*number),
            Self::String(text) => Value::String(super::Text::Shared(Arc::clone(text))),
        }
    }
}

/// The whole number of a float without a fraction.
#[expect(clippy::cast_possible_truncation, reason = "whole and within the range")]
pub(crate) fn whole(number: f64) -> Option<i64> {
    // 2^63, the first float beyond the range.
    const END: f64 = 9_223_372_036_854_775_808.0;
    (number.fract() == 0.0 && (-END..END).contains(&number)).then_some(number as i64)
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(flag) => flag.fmt(f),
            Self::Int(number) => number.fmt(f),
            Self::Uint(number) => number.fmt(f),
            Self::String(text) => f.write_str(text),
        }
    }
}
