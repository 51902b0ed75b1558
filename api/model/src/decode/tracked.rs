//! A deserializer to JSON values that records duplicate fields and limits the size of the result.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Most recorded duplicates; upstream reports no more.
const DUPLICATES_MAX: usize = 100;

/// The state of one decoding.
pub struct Context<'t> {
    path: String,
    duplicates: Vec<String>,
    spent: usize,
    budget: usize,
    /// The text, for YAML.
    yaml: Option<&'t str>,
    whole_floats: bool,
    /// The number of duplicates before the one at which decoding stops.
    passes: Option<usize>,
    stopped_at: Option<String>,
}

impl<'t> Context<'t> {
    /// `budget` limits the number of values and bytes.
    pub fn new(budget: usize) -> Self {
        Self {
            path: String::new(),
            duplicates: Vec::new(),
            spent: 0,
            budget,
            yaml: None,
            whole_floats: false,
            passes: None,
            stopped_at: None,
        }
    }

    /// For a YAML text: `<<` merges, and plain scalars have their meaning of YAML 1.1.
    pub fn yaml(self, text: &'t str) -> Self {
        Self { yaml: Some(text), whole_floats: true, ..self }
    }

    /// Converts floats without a fraction to integers, as Go does for YAML.
    pub fn whole_floats(self) -> Self {
        Self { whole_floats: true, ..self }
    }

    /// Fails at the duplicate field after the first `skipped` ones; the error has its line.
    pub fn stop_after(self, skipped: usize) -> Self {
        Self { passes: Some(skipped), ..self }
    }

    /// The name of the duplicate field at which decoding stopped.
    pub fn stopped_at(self) -> Option<String> {
        self.stopped_at
    }

    /// The paths of duplicate fields.
    pub fn into_duplicates(self) -> Vec<String> {
        self.duplicates
    }

    /// The value of a string of a YAML text that is not a string in YAML 1.1.
    fn resolved(&self, value: &str) -> Option<Value> {
        super::yaml11::resolve(self.yaml?, value)
    }

    fn spend<E: Error>(&mut self, amount: usize) -> Result<(), E> {
        self.spent = self.spent.saturating_add(amount);
        if self.spent > self.budget {
            return Err(E::custom("document contains excessive aliasing"));
        }
        Ok(())
    }

    fn enter_field(&mut self, name: &str) -> usize {
        let len = self.path.len();
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
        len
    }
}

/// The deserialization seed of one value.
pub struct Tracked<'c, 't>(pub &'c mut Context<'t>);

impl<'de> DeserializeSeed<'de> for Tracked<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.spend(1)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tracked<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        if self.0.whole_floats
            && let Some(whole) = crate::numbers::whole(value)
        {
            return Ok(whole.into());
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("infinity and NaN are no JSON numbers"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.0.spend(value.len())?;
        Ok(value.into())
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Value, E> {
        match self.0.resolved(value) {
            Some(resolved) => {
                self.0.spend(value.len())?;
                Ok(resolved)
            }
            None => self.visit_str(value),
        }
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.0.spend(value.len())?;
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let len = self.0.path.len();
            self.0.path.push_str(&format!("[{}]", list.len()));
            let next = access.next_element_seed(Tracked(self.0));
            self.0.path.truncate(len);
            match next? {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let mut merged = Vec::new();
        while let Some(key) = access.next_key_seed(Key { map: &map, context: &mut *self.0 })? {
            self.0.spend(key.len())?;
            let len = self.0.enter_field(&key);
            if map.contains_key(&key) && self.0.duplicates.len() < DUPLICATES_MAX {
                self.0.duplicates.push(self.0.path.clone());
            }
            let value = access.next_value_seed(Tracked(self.0));
            self.0.path.truncate(len);
            if self.0.yaml.is_some() && key == "<<" {
                merged.push(value?);
            } else {
                map.insert(key, value?);
            }
        }
        for value in merged {
            merge_into(&mut map, value);
        }
        Ok(Value::Object(map))
    }
}

/// YAML's merge key: adds the fields of other maps that this map does not have.
fn merge_into(map: &mut Map<String, Value>, value: Value) {
    match value {
        Value::Object(other) => other.into_iter().for_each(|(key, value)| {
            map.entry(key).or_insert(value);
        }),
        Value::Array(list) => list.into_iter().for_each(|value| merge_into(map, value)),
        _ => {}
    }
}

/// A key: a string, or in YAML any scalar, as JSON writes it.
struct Key<'k, 't> {
    /// The previous fields.
    map: &'k Map<String, Value>,
    context: &'k mut Context<'t>,
}

impl Key<'_, '_> {
    /// Stops at the wanted duplicate.
    fn checked<E: Error>(self, key: String) -> Result<String, E> {
        match &mut self.context.passes {
            Some(passes) if self.map.contains_key(&key) => match passes.checked_sub(1) {
                Some(left) => *passes = left,
                None => {
                    self.context.stopped_at = Some(key);
                    return Err(E::custom("a duplicate field"));
                }
            },
            _ => {}
        }
        Ok(key)
    }
}

impl<'de> DeserializeSeed<'de> for Key<'_, '_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_, '_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map key that is a string, a number or a boolean")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<String, E> {
        self.checked(value.to_owned())
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<String, E> {
        match self.context.resolved(value) {
            Some(value) => self.checked(value.to_string()),
            None => self.visit_str(value),
        }
    }

    fn visit_string<E: Error>(self, value: String) -> Result<String, E> {
        self.checked(value)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<String, E> {
        self.checked(value.to_string())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<String, E> {
        self.checked(value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<String, E> {
        self.checked(value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<String, E> {
        self.checked(value.to_string())
    }
}
