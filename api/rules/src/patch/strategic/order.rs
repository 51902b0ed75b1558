//! The order of a merged list. Elements of the patch have the order of the patch, and the other elements keep their
//! order. Where the two are interleaved, the old list decides.

use std::collections::HashMap;

use serde_json::Value;

use super::{ElementKey, PATCH};
use crate::patch::PatchError;

type Positions = HashMap<String, usize>;

fn positions(list: &[Value], key: &ElementKey) -> Positions {
    let mut positions = Positions::new();
    for (at, item) in list.iter().enumerate() {
        positions.entry(key.id(item)).or_insert(at);
    }
    positions
}

/// The patch's list must have the order that `$setElementOrder` states.
pub fn check(list: &[Value], wanted: &[Value], key: &ElementKey, field: &str) -> Result<(), PatchError> {
    let positions = positions(wanted, key);
    let mut last = None;
    for item in list.iter().filter(|item| item.get(PATCH).is_none()) {
        let at = positions.get(&key.id(item));
        if at.is_none() || at < last {
            let text = format!(
                "The order in patch list:\n{}\n doesn't match {} list:\n{}\n",
                Value::from(list),
                format_args!("$setElementOrder/{field}"),
                Value::from(wanted)
            );
            return Err(PatchError::Malformed(text));
        }
        last = at;
    }
    Ok(())
}

/// Sorts a merged list: `wanted` is the patch's order, `before` the old list.
pub fn normalize(merged: Vec<Value>, wanted: &[Value], before: &[Value], key: &ElementKey) -> Vec<Value> {
    let (wanted, before) = (positions(wanted, key), positions(before, key));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) = merged.into_iter().partition(|item| wanted.contains_key(&key.id(item)));
    named.sort_by_key(|item| wanted.get(&key.id(item)).copied());
    // Elements that the old list does not have stay last, in their present order.
    others.sort_by_key(|item| before.get(&key.id(item)).copied().unwrap_or(usize::MAX));
    let mut sorted = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let at = before.get(&key.id(&item));
        while let (Some(other), Some(at)) = (others.peek(), at) {
            match before.get(&key.id(other)) {
                Some(other_at) if other_at < at => sorted.extend(others.next()),
                _ => break,
            }
        }
        sorted.push(item);
    }
    sorted.extend(others);
    sorted
}
