//! Errors of fields with upstream's messages (`k8s.io/apimachinery/pkg/util/validation/field`), and paths of fields.

use std::fmt;

use serde_json::Value;
use smallvec::SmallVec;

/// Bytes of a path that need no memory of their own: enough for most paths of a Pod, and few enough for errors that contain one.
const INLINE_LEN: usize = 40;

/// A path such as `spec.containers[0].ports[1].name` or `metadata.labels[a/b]`.
///
/// Checks make some hundred paths for each object, and messages contain few of them, so a path of the usual length is copied and
/// extended without an allocation.
#[derive(Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(SmallVec<[u8; INLINE_LEN]>);

impl Clone for Path {
    /// Copies the bytes at once. [`SmallVec`] clones its elements one after the other, which costs ten times as much.
    fn clone(&self) -> Self {
        Self(SmallVec::from_slice(&self.0))
    }
}

impl Path {
    /// Starts at a top-level field; an empty name is the object itself.
    pub fn new(name: &str) -> Self {
        Self(SmallVec::from_slice(name.as_bytes()))
    }

    /// The path of a field of this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self::new(name) } else { self.followed_by(&[".", name]) }
    }

    /// The name of the field at the end of the path; empty for elements and entries.
    pub fn field(&self) -> &str {
        self.text().rsplit(['.', '[', ']']).next().unwrap_or_default()
    }

    /// The path of an element of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.followed_by(&["[", &index.to_string(), "]"])
    }

    /// Joins this path with a path relative to it.
    #[must_use]
    pub fn join(&self, below: &Self) -> Self {
        match (self.text(), below.text()) {
            (_, "") => self.clone(),
            ("", _) => below.clone(),
            (_, below) if below.starts_with('[') => self.followed_by(&[below]),
            (_, below) => self.followed_by(&[".", below]),
        }
    }

    /// The path of an entry of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.followed_by(&["[", key, "]"])
    }

    fn followed_by(&self, parts: &[&str]) -> Self {
        let mut path = SmallVec::with_capacity(self.0.len() + parts.iter().map(|part| part.len()).sum::<usize>());
        path.extend_from_slice(&self.0);
        parts.iter().for_each(|part| path.extend_from_slice(part.as_bytes()));
        Self(path)
    }

    fn text(&self) -> &str {
        // Paths are made of whole texts.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { self.text() })
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Path").field(&self.text()).finish()
    }
}

/// Upstream's `field.ErrorType`; `reason` returns its name for Status causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// `FieldValueRequired`
    Required,
    /// `FieldValueInvalid`
    Invalid,
    /// `FieldValueNotSupported`
    NotSupported,
    /// `FieldValueForbidden`
    Forbidden,
    /// `FieldValueDuplicate`
    Duplicate,
    /// `FieldValueNotFound`
    NotFound,
    /// `FieldValueTooLong`
    TooLong,
    /// `FieldValueTooMany`
    TooMany,
    /// `FieldValueTypeInvalid`
    TypeInvalid,
    /// `InternalError`
    Internal,
}

impl FieldErrorKind {
    /// The `reason` in `status.details.causes`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// An error of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The type of the error.
    pub kind: FieldErrorKind,
    /// The field.
    pub path: Path,
    /// The invalid value, if the message contains it.
    pub value: Option<Value>,
    /// Upstream's detail text; may be empty.
    pub detail: String,
}

impl FieldError {
    /// The field must be set.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Required, path: path.clone(), value: None, detail: detail.into() }
    }

    /// The value is malformed or out of range.
    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Invalid, path: path.clone(), value: Some(value.into()), detail: detail.into() }
    }

    /// The value is not supported.
    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        let detail = if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        Self { kind: FieldErrorKind::NotSupported, path: path.clone(), value: Some(value.into()), detail }
    }

    /// The field may not be set, or may not be changed.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self { kind: FieldErrorKind::Forbidden, path: path.clone(), value: None, detail: detail.into() }
    }

    /// The value is a duplicate in a list that is a set.
    pub fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self { kind: FieldErrorKind::Duplicate, path: path.clone(), value: Some(value.into()), detail: String::new() }
    }

    /// The value names something that does not exist.
    pub fn not_found(path: &Path, value: impl Into<Value>) -> Self {
        Self { kind: FieldErrorKind::NotFound, path: path.clone(), value: Some(value.into()), detail: String::new() }
    }

    /// The value has more than `max` bytes.
    pub fn too_long(path: &Path, max: usize) -> Self {
        let detail = format!("may not be more than {max} bytes");
        Self { kind: FieldErrorKind::TooLong, path: path.clone(), value: None, detail }
    }

    /// The message without the path, as in a Status cause.
    pub fn body(&self) -> String {
        let words = self.kind.words();
        let mut text = match &self.value {
            None => words.to_owned(),
            Some(Value::String(s)) => format!("{words}: {}", Value::from(s.as_str())),
            Some(value) => format!("{words}: {value}"),
        };
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

/// Upstream's aggregate message: one error unchanged, several in brackets. Duplicates are left out.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_the_same_whether_it_is_short_or_long() {
        for name in ["a", &"b".repeat(INLINE_LEN), &"\u{fc}".repeat(INLINE_LEN)] {
            let path = Path::new("spec").key(name).child("x").index(12);
            assert_eq!(path.to_string(), format!("spec[{name}].x[12]"));
            assert_eq!((path.child("y").field(), path.field()), ("y", ""));
            assert_eq!(Path::new("spec").join(&Path::new(name)), Path::new("spec").child(name));
            assert_eq!(format!("{path:?}"), format!("Path({:?})", path.to_string()));
        }
        assert_eq!(Path::default().to_string(), "<nil>");
    }

    #[test]
    fn messages_read_like_upstreams() {
        let path = Path::new("spec").child("containers").index(0).child("name");
        assert_eq!(FieldError::required(&path, "").to_string(), "spec.containers[0].name: Required value");
        assert_eq!(
            FieldError::not_supported(&Path::new("spec").child("type"), "X", &["A", "B"]).to_string(),
            "spec.type: Unsupported value: \"X\": supported values: \"A\", \"B\""
        );
    }
}
