//! A cursor into an object: an optional value, with its path for messages.
//!
//! Rules use the cursor instead of typed structs, so that the same rule serves a Pod, a Pod template five levels down, and
//! the comparison of an old with a new object. `check_fields` has checked the types before any rule runs, so a getter
//! returns the zero value of its type for an absent field, as upstream's decoded structs do.

use api_model::field::Path;
use api_model::zero::{is_zero, same_field};
use serde_json::Value;

/// A position in an object.
#[derive(Clone, Debug)]
pub struct At<'a> {
    value: Option<&'a Value>,
    /// The path in messages.
    pub path: Path,
}

impl<'a> At<'a> {
    /// The object itself.
    pub fn root(object: &'a Value) -> Self {
        Self { value: Some(object), path: Path::default() }
    }

    /// A value with a given path.
    pub fn new(value: Option<&'a Value>, path: Path) -> Self {
        Self { value: value.filter(|v| !v.is_null()), path }
    }

    /// A field of this object.
    pub fn get(&self, name: &str) -> At<'a> {
        At::new(self.value.and_then(|v| v.get(name)), self.path.child(name))
    }

    /// A field several levels down, dotted.
    pub fn find(&self, dotted: &str) -> At<'a> {
        dotted.split('.').fold(self.clone(), |at, name| at.get(name))
    }

    /// An entry of this map.
    pub fn key(&self, key: &str) -> At<'a> {
        At::new(self.value.and_then(|v| v.get(key)), self.path.key(key))
    }

    /// An element of this list.
    pub fn index(&self, index: usize) -> At<'a> {
        At::new(self.value.and_then(|v| v.get(index)), self.path.index(index))
    }

    /// Whether a field of this object exists, as `get(name).exists()` without a path.
    pub fn has(&self, name: &str) -> bool {
        self.value.and_then(|v| v.get(name)).is_some_and(|v| !v.is_null())
    }

    /// Whether the value exists.
    pub fn exists(&self) -> bool {
        self.value.is_some()
    }

    /// Whether the value is absent or the zero value of its type.
    pub fn is_zero(&self) -> bool {
        self.value.is_none_or(is_zero)
    }

    /// The value.
    pub fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// The value for a message; null when absent.
    pub fn value_or_null(&self) -> Value {
        self.value.cloned().unwrap_or(Value::Null)
    }

    /// The text; empty when absent.
    pub fn text(&self) -> &'a str {
        self.value.and_then(Value::as_str).unwrap_or_default()
    }

    /// The number, if there is one.
    pub fn number(&self) -> Option<i64> {
        self.value.and_then(Value::as_i64)
    }

    /// The number; 0 when absent.
    pub fn int(&self) -> i64 {
        self.number().unwrap_or_default()
    }

    /// The boolean; false when absent.
    pub fn flag(&self) -> bool {
        self.value.and_then(Value::as_bool).unwrap_or_default()
    }

    /// Elements of a list, or of a map (in key order); 0 when absent.
    pub fn len(&self) -> usize {
        match self.value {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    /// The elements of this list.
    pub fn items(&self) -> impl Iterator<Item = At<'a>> + use<'a> {
        let path = self.path.clone();
        let list = self.value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().enumerate().map(move |(at, value)| At { value: Some(value), path: path.index(at) })
    }

    /// The texts of this list.
    pub fn texts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    /// The entries of this map, in key order.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, At<'a>)> + use<'a> {
        let path = self.path.clone();
        let map = self.value.and_then(Value::as_object);
        map.into_iter().flatten().map(move |(key, value)| (key.as_str(), At { value: Some(value), path: path.key(key) }))
    }

    /// Names of the fields that are set.
    pub fn fields(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let map = self.value.and_then(Value::as_object);
        map.into_iter().flatten().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str())
    }

    /// Whether two values are equal, where a zero value equals an absent one.
    pub fn same(&self, other: &At<'_>) -> bool {
        same_field(self.path.field(), self.value, other.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_follow_the_walk() {
        let object = json!({"spec": {"containers": [{"name": "a"}]}});
        let at = At::root(&object).get("spec").get("containers").index(0).get("name");
        assert_eq!((at.text(), at.path.to_string().as_str()), ("a", "spec.containers[0].name"));
    }

    #[test]
    fn a_field_that_is_null_does_not_exist() {
        let object = json!({"set": 0, "null": null});
        let at = At::root(&object);
        for name in ["set", "null", "absent"] {
            assert_eq!((at.has(name), at.get(name).exists()), (name == "set", name == "set"), "{name}");
        }
    }
}
