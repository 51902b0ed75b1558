//! The fields of a value: those that an applied configuration claims, and all fields.

use serde_json::Value;

use super::set::{Element, FieldSet, Node};
use super::typing::{Bearers, Form, Typing};

/// The fields that an applied configuration claims. An object with fields is not claimed itself; nulls are not claimed.
pub(super) fn claimed(typing: Typing<'_>, config: &Value) -> FieldSet {
    claim(typing, config).children
}

fn claim(typing: Typing<'_>, value: &Value) -> Node {
    match (typing.form(value), value) {
        (Form::Fields, Value::Object(fields)) => {
            let stated = fields.iter().filter(|(_, value)| !value.is_null());
            let claims = stated.map(|(name, value)| {
                let mut node = claim(typing.field(name), value);
                node.member |= !typing.declares(name) || value.as_object().is_some_and(serde_json::Map::is_empty);
                (Element::field(name), node)
            });
            Node { member: false, children: claims.collect() }
        }
        (Form::Elements(list), Value::Array(values)) => {
            let Some(index) = list.index(values) else { return Node::LEAF };
            let claims = index.into_iter().map(|(name, bearers)| match bearers {
                Bearers::One(value) => (name, Node { member: true, ..claim(list.items(), value) }),
                Bearers::Many(_) => (name, Node::LEAF),
            });
            Node { member: false, children: claims.collect() }
        }
        _ => Node::LEAF,
    }
}

/// Every field of a value, and the value itself.
pub(super) fn every(typing: Typing<'_>, value: &Value) -> Node {
    let children = match (typing.form(value), value) {
        (Form::Fields, Value::Object(fields)) => {
            fields.iter().map(|(name, value)| (Element::field(name), every(typing.field(name), value))).collect()
        }
        (Form::Elements(list), Value::Array(values)) => {
            let each = |(name, bearers)| match bearers {
                Bearers::One(value) => (name, every(list.items(), value)),
                Bearers::Many(_) => (name, Node::LEAF),
            };
            list.index(values).unwrap_or_default().into_iter().map(each).collect()
        }
        _ => FieldSet::default(),
    };
    Node { member: true, children }
}
