//! Checks an applied configuration against its type: no manager can own a field that the type does not have. The messages
//! are upstream's.

use api_schema::{Schema, Shape};
use serde_json::Value;

use super::set::Element;
use super::typing::{Bearers, Form, Typing};

/// Most listed errors.
const ERRORS_MAX: usize = 100;

/// The errors of a configuration, one per line; `None` for a valid one.
pub(super) fn complaint(typing: Typing<'_>, config: &Value) -> Option<String> {
    let mut walk = Walk::default();
    walk.value(typing, config);
    match walk.errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

#[derive(Default)]
struct Walk {
    path: Vec<Element>,
    errors: Vec<String>,
}

impl Walk {
    fn refuse(&mut self, why: &str) {
        let path: String = self.path.iter().map(Element::to_string).collect();
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(if path.is_empty() { why.to_owned() } else { format!("{path}: {why}") });
        }
    }

    fn below(&mut self, element: Element, visit: impl FnOnce(&mut Self)) {
        self.path.push(element);
        visit(self);
        self.path.pop();
    }

    fn value(&mut self, typing: Typing<'_>, value: &Value) {
        if let Typing::Known(schema) = typing
            && let Some(wanted) = mismatch(schema, value)
        {
            return self.refuse(&format!("expected {wanted}, got {value}"));
        }
        // The content of an atomic list or map must fit too.
        match (typing, typing.form(value), value) {
            (_, Form::Elements(list), Value::Array(values)) => self.elements(list, values),
            (_, _, Value::Object(fields)) => {
                let is_closed = matches!(typing, Typing::Known(schema) if matches!(schema.shape(), Shape::Object) && !schema.preserves_unknown_fields());
                for (name, value) in fields {
                    self.below(Element::field(name), |walk| match value {
                        _ if is_closed && !typing.declares(name) => walk.refuse("field not declared in schema"),
                        Value::Null => {}
                        value => walk.value(typing.field(name), value),
                    });
                }
            }
            (Typing::Known(schema), _, Value::Array(values)) => {
                let items = schema.items().map_or(Typing::Deduced, Typing::Known);
                for (at, value) in values.iter().enumerate() {
                    self.below(Element::index(at), |walk| walk.value(items, value));
                }
            }
            _ => {}
        }
    }

    fn elements(&mut self, list: super::typing::List<'_>, values: &[Value]) {
        for (at, value) in values.iter().enumerate() {
            match list.name(value) {
                Err(why) => self.refuse(&format!("element {at}: {why}")),
                Ok(name) => self.below(name, |walk| walk.value(list.items(), value)),
            }
        }
        for (name, bearers) in list.index(values).unwrap_or_default() {
            if matches!(bearers, Bearers::Many(_)) {
                self.refuse(&format!("duplicate entries for key {name}"));
            }
        }
    }
}

/// The expected type.
fn mismatch(schema: &Schema, value: &Value) -> Option<&'static str> {
    let (wanted, fits) = match schema.shape() {
        Shape::Any => return None,
        Shape::Object | Shape::Map(_) => ("map", value.is_object()),
        Shape::Array(_) => ("list", value.is_array()),
        Shape::String(_) => ("string", value.is_string()),
        Shape::Integer(_) | Shape::Number => ("numeric (int or float)", value.is_number()),
        Shape::Boolean => ("boolean", value.is_boolean()),
        Shape::IntOrString | Shape::Quantity => ("scalar", value.is_number() || value.is_string()),
    };
    (!fits && !value.is_null()).then_some(wanted)
}
