//! Objects for tables of cases.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::meta;

/// An object of the fields of `base` and `more`; those of `more` win, and its nulls remove.
pub fn object<K: DeserializeOwned>(mut base: Value, more: &Value) -> K {
    meta::overlay(&mut base, more);
    drop_nulls(&mut base);
    serde_json::from_value(base).expect("an object")
}

fn drop_nulls(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
        fields.values_mut().for_each(drop_nulls);
    }
}
