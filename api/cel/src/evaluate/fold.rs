//! Folds: the expansion of `all`, `exists`, `map`, `filter`, `cel.bind` and similar macros.

use std::sync::Arc;

use super::{Outcome, Run, key_of};
use crate::error::EvaluateError;
use crate::macros::MAP_INSERT;
use crate::node::{Fold, Kind, Node};
use crate::value::{Key, Value};

/// The accumulator of macros that build a list or a map. An expression cannot contain this name.
const ACCUMULATOR: &str = "@result";

impl<'v> Run<'_, 'v> {
    pub(super) fn fold(&mut self, fold: &Fold) -> Outcome<'v> {
        let range = self.node(&fold.range)?;
        let start = self.node(&fold.start)?;
        let start = self.bounded(start)?;
        let depth = self.locals.len();
        self.locals.push((Arc::clone(&fold.accumulator), Ok(start)));
        let outcome = self.steps(fold, &range, depth).and_then(|()| self.node(&fold.result));
        self.locals.truncate(depth);
        outcome
    }

    fn steps(&mut self, fold: &Fold, range: &Value<'v>, depth: usize) -> Result<(), EvaluateError> {
        if let Some(elements) = range.elements() {
            for (index, element) in elements.enumerate() {
                let index = Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
                let (first, second) = if fold.second.is_some() { (index, Some(element)) } else { (element, None) };
                if !self.step(fold, depth, first, second)? {
                    break;
                }
            }
            return Ok(());
        }
        let entries = range.entries().ok_or_else(EvaluateError::no_overload)?;
        // `entries` copied all entries of the map.
        self.meter.pay_text(entries.len() as u64)?;
        for (key, value) in entries {
            if !self.step(fold, depth, key.value(), fold.second.is_some().then_some(value))? {
                break;
            }
        }
        Ok(())
    }

    /// Executes one step. Returns whether to continue.
    fn step(&mut self, fold: &Fold, depth: usize, first: Value<'v>, second: Option<Value<'v>>) -> Result<bool, EvaluateError> {
        self.locals.push((Arc::clone(&fold.variable), Ok(first)));
        if let Some((name, value)) = fold.second.as_ref().zip(second) {
            self.locals.push((Arc::clone(name), Ok(value)));
        }
        let goes_on = self.node(&fold.condition)?;
        if matches!(goes_on, Value::Bool(false)) {
            self.locals.truncate(depth + 1);
            return Ok(false);
        }
        let outcome = self.node(&fold.step);
        self.locals.truncate(depth + 1);
        // In `all` and `exists` a later element can decide despite an error.
        let may_recover = matches!(&fold.condition.kind, Kind::Call { function, .. } if **function == *"@not_strictly_false");
        match outcome {
            Err(error) if error.is_final() || !may_recover => Err(error),
            outcome => {
                if let Some((_, accumulator)) = self.locals.get_mut(depth) {
                    *accumulator = outcome;
                }
                Ok(true)
            }
        }
    }

    /// Whether a node is the accumulator of an enclosing macro.
    pub(super) fn is_accumulator(&self, node: &Node) -> bool {
        matches!(&node.kind, Kind::Ident(name) if **name == *ACCUMULATOR)
    }

    /// Adds to the list or map that a macro builds. Meanwhile the accumulator is moved out of its variable, so that it
    /// is not copied: a list of n elements takes n steps and not n².
    pub(super) fn accumulate(&mut self, function: &str, accumulator: &Node, added: &[Node]) -> Outcome<'v> {
        let mut values = Vec::with_capacity(added.len());
        for part in added {
            values.push(self.node(part)?);
        }
        let position = self.locals.iter().rposition(|(name, _)| **name == *ACCUMULATOR);
        let Some((_, accumulated)) = position.and_then(|position| self.locals.get_mut(position)) else {
            return self.node(accumulator);
        };
        self.meter.pay(2)?;
        match (function, std::mem::replace(accumulated, Ok(Value::Null))?, values.as_slice()) {
            ("_+_", Value::List(mut list), [more]) => {
                let more = more.elements().ok_or_else(EvaluateError::no_overload)?;
                Arc::make_mut(&mut list).extend(more);
                Ok(Value::List(list))
            }
            ("_+_", Value::Int(count), [Value::Int(one)]) => {
                count.checked_add(*one).map(Value::Int).ok_or_else(|| EvaluateError::failed("integer overflow"))
            }
            (MAP_INSERT, Value::Map(map), [key, value]) => self.insert(map, [(key_of(key)?, value.clone())]),
            (MAP_INSERT, Value::Map(map), [entries]) => {
                let entries = entries.entries().ok_or_else(EvaluateError::no_overload)?;
                self.insert(map, entries)
            }
            _ => Err(EvaluateError::no_overload()),
        }
    }

    fn insert(
        &mut self,
        mut map: Arc<std::collections::BTreeMap<Key, Value<'v>>>,
        entries: impl IntoIterator<Item = (Key, Value<'v>)>,
    ) -> Outcome<'v> {
        let inserted = Arc::make_mut(&mut map);
        for (key, value) in entries {
            self.meter.pay(1)?;
            if inserted.insert(key.clone(), value).is_some() {
                return Err(EvaluateError::failed(format!("insert failed: key {key} already exists")));
            }
        }
        Ok(Value::Map(map))
    }
}
