//! Types of the API in a strictly decoded file. Their own decoders ignore unknown fields.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A value without unknown fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Strict<T>(pub T);

impl<'de, T: DeserializeOwned + Serialize> Deserialize<'de> for Strict<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Value::deserialize(deserializer)?;
        let value = T::deserialize(&given).map_err(D::Error::custom)?;
        let decoded = serde_json::to_value(&value).map_err(D::Error::custom)?;
        match unknown_field(&given, &decoded, "") {
            Some(path) => Err(D::Error::custom(format!("unknown field {path:?}"))),
            None => Ok(Self(value)),
        }
    }
}

/// The path of the first field that the decoded value does not have. A field without a value may be missing.
fn unknown_field(given: &Value, decoded: &Value, path: &str) -> Option<String> {
    let child = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (given, decoded) {
        (Value::Object(given), Value::Object(decoded)) => given.iter().filter(|(_, value)| !value.is_null()).find_map(|(name, value)| {
            let path = child(name);
            match decoded.get(name) {
                Some(decoded) => unknown_field(value, decoded, &path),
                None => Some(path),
            }
        }),
        (Value::Array(given), Value::Array(decoded)) => {
            let mut pairs = given.iter().zip(decoded).enumerate();
            pairs.find_map(|(index, (given, decoded))| unknown_field(given, decoded, &format!("{path}[{index}]")))
        }
        _ => None,
    }
}
