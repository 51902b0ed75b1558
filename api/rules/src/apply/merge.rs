//! Merges an applied configuration into an object: fields of the configuration win, other fields stay.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::set::Element;
use super::typing::{Form, List, Typing};

/// The merged object. Nulls are ignored.
pub(super) fn merge(typing: Typing<'_>, live: Value, config: &Value) -> Value {
    match (typing.form(config), live, config) {
        (Form::Fields, Value::Object(live), Value::Object(config)) => Value::Object(merge_fields(typing, live, config)),
        (Form::Elements(list), Value::Array(live), Value::Array(config)) => Value::Array(merge_elements(list, live, config)),
        (_, live, Value::Null) => live,
        (_, _, config) => config.clone(),
    }
}

fn merge_fields(typing: Typing<'_>, mut live: Map<String, Value>, config: &Map<String, Value>) -> Map<String, Value> {
    for (name, stated) in config.iter().filter(|(_, stated)| !stated.is_null()) {
        let merged = match live.remove(name) {
            Some(old) => merge(typing.field(name), old, stated),
            None => stated.clone(),
        };
        live.insert(name.clone(), merged);
    }
    live
}

/// Elements have the order of the configuration; elements that it does not mention keep their position among their
/// neighbours.
fn merge_elements(list: List<'_>, live: Vec<Value>, config: &[Value]) -> Vec<Value> {
    let names = |values: &[Value]| values.iter().map(|value| list.name(value).ok()).collect::<Option<Vec<Element>>>();
    let (Some(live_names), Some(config_names)) = (names(&live), names(config)) else {
        return config.to_vec();
    };
    let stated: HashSet<&Element> = config_names.iter().collect();
    let mut merging = Merging { list, shared: HashMap::new(), merged: Vec::with_capacity(live.len() + config.len()) };
    let mut slots = Vec::with_capacity(live.len());
    for (name, value) in live_names.into_iter().zip(live) {
        if stated.contains(&name) {
            slots.push(Slot::Shared(name.clone()));
            merging.shared.insert(name, value);
        } else {
            slots.push(Slot::Existing(value));
        }
    }
    let shared: Vec<&Element> = config_names.iter().filter(|name| merging.shared.contains_key(*name)).collect();
    let (mut shared, mut rest) = (shared.into_iter().peekable(), config_names.iter().zip(config));
    for slot in slots {
        match slot {
            Slot::Existing(value) => merging.merged.push(value),
            Slot::Shared(name) if shared.next_if(|next| **next == name).is_some() => {
                for (stated, value) in rest.by_ref() {
                    merging.push(stated, value);
                    if *stated == name {
                        break;
                    }
                }
            }
            // The merge puts this element at another position, in the order of the configuration.
            Slot::Shared(_) => {}
        }
    }
    rest.for_each(|(name, value)| merging.push(name, value));
    merging.merged
}

/// An element of the live list.
enum Slot {
    /// The configuration does not mention it.
    Existing(Value),
    /// The configuration and the live list have it.
    Shared(Element),
}

struct Merging<'s> {
    list: List<'s>,
    /// Live elements of the configuration that are not merged yet.
    shared: HashMap<Element, Value>,
    merged: Vec<Value>,
}

impl Merging<'_> {
    fn push(&mut self, name: &Element, stated: &Value) {
        let merged = match self.shared.remove(name) {
            Some(live) => merge(self.list.items(), live, stated),
            None => stated.clone(),
        };
        self.merged.push(merged);
    }
}
