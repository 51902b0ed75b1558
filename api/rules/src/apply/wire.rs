//! `fieldsV1`: a set as JSON. A path of the set is an empty object or, where it has children in the set, has a child `.`.

use serde_json::{Map, Value};

use super::set::{Element, FieldSet, Node};

const SELF: &str = ".";

/// Reads a set; `None` where the JSON is not valid.
pub(super) fn decode(fields: &Map<String, Value>) -> Option<FieldSet> {
    fields.iter().filter(|(key, _)| *key != SELF).map(|(key, value)| Some((Element::parse(key)?, node(value)?))).collect()
}

fn node(value: &Value) -> Option<Node> {
    let fields = value.as_object()?;
    Some(Node { member: is_member(fields), children: decode(fields)? })
}

/// Whether the path to these fields is in the set.
fn is_member(fields: &Map<String, Value>) -> bool {
    fields.is_empty() || fields.contains_key(SELF)
}

/// Whether all paths of a set are in the JSON.
pub(super) fn covers(fields: &Map<String, Value>, set: &FieldSet) -> bool {
    set.iter().all(|(element, node)| {
        let below = fields.get(element.as_str()).and_then(Value::as_object);
        below.is_some_and(|below| (!node.member || is_member(below)) && covers(below, &node.children))
    })
}

/// Whether one path of a set is in the JSON.
pub(super) fn meets(fields: &Map<String, Value>, set: &FieldSet) -> bool {
    set.iter().any(|(element, node)| {
        let below = fields.get(element.as_str()).and_then(Value::as_object);
        below.is_some_and(|below| (node.member && is_member(below)) || meets(below, &node.children))
    })
}

/// Writes a set.
pub(super) fn encode(set: &FieldSet) -> Map<String, Value> {
    set.iter().map(|(element, node)| (element.as_str().to_owned(), Value::Object(encode_node(node)))).collect()
}

fn encode_node(node: &Node) -> Map<String, Value> {
    let mut fields = encode(&node.children);
    if node.member && !fields.is_empty() {
        fields.insert(SELF.to_owned(), Value::Object(Map::new()));
    }
    fields
}
