//! `fieldsV1`: a set as JSON. A path that is in the set is an empty object or, where others go on
//! below it, has a `.` among them.

use serde_json::{Map, Value};

use super::set::{Element, FieldSet, Node};

const SELF: &str = ".";

/// Reads a set; `None` where the JSON is none.
pub(super) fn decode(fields: &Map<String, Value>) -> Option<FieldSet> {
    fields.iter().filter(|(key, _)| *key != SELF).map(|(key, value)| Some((Element::parse(key)?, node(value)?))).collect()
}

fn node(value: &Value) -> Option<Node> {
    let fields = value.as_object()?;
    Some(Node { member: fields.is_empty() || fields.contains_key(SELF), children: decode(fields)? })
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
