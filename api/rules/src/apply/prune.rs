//! Removes the fields that a manager no longer sets: a field is removed if the manager owned it, its configuration no
//! longer sets it, and no other manager owns it.

use serde_json::Value;

use super::extract::every;
use super::set::{Element, FieldSet};
use super::typing::{Form, Typing};

/// The merged object without the fields that the manager gave up. `last` are the fields that the manager owned before;
/// `owned` are the fields that any manager owns now, including those of the new configuration.
pub(super) fn prune(typing: Typing<'_>, merged: Value, last: &FieldSet, owned: &FieldSet) -> Value {
    if last.is_empty() {
        return merged;
    }
    let last = typing.with_parents(last);
    let all = every(typing, &merged).children;
    // First all of `last` is removed. Then the fields that a manager owns are put back, and also the fields that no
    // manager owned before, such as defaults beside a field that was given up.
    let bare = every(typing, &without(typing, &merged, &last)).children;
    let unowned = all.difference(&bare.union(&typing.with_parents(owned)));
    let retained = every(typing, &without(typing, &merged, &unowned)).children;
    without(typing, &merged, &all.difference(&retained).intersection(&last))
}

fn without(typing: Typing<'_>, object: &Value, removed: &FieldSet) -> Value {
    let mut object = object.clone();
    remove(typing, &mut object, removed);
    object
}

/// Removes the paths of a set. Returns whether anything is left.
fn remove(typing: Typing<'_>, value: &mut Value, removed: &FieldSet) -> bool {
    let form = typing.form(value);
    match (form, value) {
        (Form::Fields, Value::Object(fields)) if !fields.is_empty() => {
            fields.retain(|name, value| stays(typing.field(name), value, removed, &Element::field(name)));
            !fields.is_empty()
        }
        (Form::Elements(list), Value::Array(values)) if !values.is_empty() => {
            values.retain_mut(|value| list.name(value).map_or(true, |name| stays(list.items(), value, removed, &name)));
            !values.is_empty()
        }
        _ => true,
    }
}

fn stays(typing: Typing<'_>, value: &mut Value, removed: &FieldSet, name: &Element) -> bool {
    removed.get(name).is_none_or(|node| !node.member && remove(typing, value, &node.children))
}
