//! Errors of fields with upstream's messages (`k8s.io/apimachinery/pkg/util/validation/field`), and paths of fields.

use std::fmt;

use serde_json::Value;

/// A path such as `spec.containers[0].ports[1].name` or `metadata.labels[a/b]`.
///
/// Checks make some hundred paths for each object, so they are joined without the machinery of `format!`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(String);

impl Path {
    /// Starts at a top-level field; an empty name is the object itself.
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The path of a field of this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        match self.0.as_str() {
            "" => Self(name.to_owned()),
            path => Self([path, ".", name].concat()),
        }
    }

    /// The name of the field at the end of the path; empty for elements and entries.
    pub fn field(&self) -> &str {
        self.0.rsplit(['.', '[', ']']).next().unwrap_or_default()
    }

    /// The path of an element of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// Joins this path with a path relative to it.
    #[must_use]
    pub fn join(&self, below: &Self) -> Self {
        match (self.0.as_str(), below.0.as_str()) {
            (_, "") => self.clone(),
            ("", _) => below.clone(),
            (path, below) if below.starts_with('[') => Self(format!("{path}{below}")),
            (path, below) => Self(format!("{path}.{below}")),
        }
    }

    /// The path of an entry of this map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self([&self.0, "[", key, "]"].concat())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
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
    fn messages_read_like_upstreams() {
        let path = Path::new("spec").child("containers").index(0).child("name");
        assert_eq!(FieldError::required(&path, "").to_string(), "spec.containers[0].name: Required value");
        assert_eq!(
            FieldError::not_supported(&Path::new("spec").child("type"), "X", &["A", "B"]).to_string(),
            "spec.type: Unsupported value: \"X\": supported values: \"A\", \"B\""
        );
    }
}
