//! Evaluates a checked expression, and counts the cost of every step.
//!
//! An error in an operand of `&&`, `||`, `all` or `exists` counts only if the other operands do not determine the
//! result. If the cost exceeds the limit, the whole evaluation ends.

mod fold;

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;

use crate::error::EvaluateError;
use crate::estimate::{LIST_COST, MAP_COST, MESSAGE_COST};
use crate::library;
use crate::library::regex::Patterns;
use crate::meter::Meter;
use crate::node::{Entry, Kind, Literal, Node};
use crate::operators;
use crate::scope::{Composed, Scope};
use crate::types::{Type, named_type};
use crate::value::{Key, Text, Value, size};

/// The maximum depth of recursion, including nested evaluations of composed variables.
const DEPTH_MAX: usize = 300;
/// The maximum nesting of the value of a variable.
const VALUE_DEPTH_MAX: usize = 200;
/// The number of parts of such a value that cost nothing.
const VALUE_PARTS_FREE: u64 = 1_000;

pub(crate) type Outcome<'v> = Result<Value<'v>, EvaluateError>;

/// Evaluates an expression. Returns the outcome and its cost.
pub(crate) fn run<'v>(root: &Node, scope: &Scope<'v>, limit: u64) -> (Outcome<'v>, u64) {
    let mut run = Run { scope, locals: Vec::new(), meter: Meter::new(limit), patterns: Patterns::default(), depth: 0 };
    let outcome = run.node(root);
    (outcome, run.meter.spent())
}

struct Run<'r, 'v> {
    scope: &'r Scope<'v>,
    /// Variables of folds, innermost last. The value of an accumulator may be an error, which a later step may replace.
    locals: Vec<(Arc<str>, Outcome<'v>)>,
    meter: Meter,
    patterns: Patterns,
    depth: usize,
}

impl<'v> Run<'_, 'v> {
    fn node(&mut self, node: &Node) -> Outcome<'v> {
        if self.depth >= DEPTH_MAX {
            return Err(EvaluateError::failed(format!("evaluation is deeper than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        let outcome = self.part(node);
        self.depth -= 1;
        outcome
    }

    fn part(&mut self, node: &Node) -> Outcome<'v> {
        match &node.kind {
            Kind::Literal(literal) => Ok(of_literal(literal)),
            Kind::Ident(name) => self.named(name),
            Kind::Select { operand, field, is_test } => self.select(node, operand, field, *is_test),
            Kind::Call { function, is_member, args, pattern } => self.call(function, *is_member, args, pattern.as_deref()),
            Kind::List(entries) => self.list(entries),
            Kind::Map(entries) => self.map(entries),
            Kind::Message { name, fields } => self.message(name, fields),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn named(&mut self, name: &str) -> Outcome<'v> {
        self.meter.pay(1)?;
        if let Some((_, value)) = self.locals.iter().rev().find(|(local, _)| **local == *name) {
            return value.clone();
        }
        if let Some(value) = self.scope.value(name) {
            return Ok(value.clone());
        }
        match named_type(name) {
            Some(Type::Type(of)) => Ok(Value::Type((*of).clone())),
            _ => Err(EvaluateError::failed(format!("no such attribute(s): {name}"))),
        }
    }

    fn select(&mut self, node: &Node, operand: &Node, field: &str, is_test: bool) -> Outcome<'v> {
        if !is_test && let Some(value) = self.whole(node, operand, field)? {
            return Ok(value);
        }
        let of = self.node(operand)?;
        if is_test {
            return Ok(Value::Bool(has(&of, field)?));
        }
        self.meter.pay(1)?;
        selected(&of, field)
    }

    /// The value of a qualified name: a variable, a type or a composed variable.
    fn whole(&mut self, node: &Node, operand: &Node, field: &str) -> Result<Option<Value<'v>>, EvaluateError> {
        let Kind::Ident(first) = &operand.kind else {
            let known = node.qualified_name().filter(|name| name.starts_with("google.")).and_then(|name| named_type(&name));
            return Ok(match known {
                Some(Type::Type(of)) => Some(Value::Type((*of).clone())),
                _ => None,
            });
        };
        if self.locals.iter().any(|(local, _)| **local == **first) {
            return Ok(None);
        }
        if **first == *"variables"
            && let Some(composed) = self.scope.composed(field)
        {
            self.meter.pay(2)?;
            return self.composed(composed).map(Some).map_err(|error| error.of_variable(field));
        }
        if self.scope.value(first).is_some() && self.scope.value(&format!("{first}.{field}")).is_none() {
            return Ok(None);
        }
        let name = format!("{first}.{field}");
        if let Some(value) = self.scope.value(&name) {
            self.meter.pay(1)?;
            return Ok(Some(value.clone()));
        }
        Ok(match named_type(&name) {
            Some(Type::Type(of)) => Some(Value::Type((*of).clone())),
            _ => None,
        })
    }

    fn composed(&mut self, composed: &Composed<'v>) -> Outcome<'v> {
        if let Some(outcome) = composed.outcome.get() {
            return outcome.clone();
        }
        // The expression of a composed variable cannot use the variables of enclosing folds.
        let locals = std::mem::take(&mut self.locals);
        let outcome = self.node(&composed.expression.root).and_then(|value| self.bounded(value));
        self.locals = locals;
        if outcome.as_ref().is_err_and(EvaluateError::is_final) {
            return outcome;
        }
        composed.outcome.get_or_init(|| outcome).clone()
    }

    /// Limits the size and nesting of the value of a variable. Other values can contain such a value many times and
    /// nest it deeper each time. Drop, comparison and output of a value are recursive.
    pub(super) fn bounded(&mut self, value: Value<'v>) -> Outcome<'v> {
        if !matches!(value, Value::List(_) | Value::Map(_) | Value::MapWithDefault(_) | Value::Message(_) | Value::Optional(Some(_))) {
            return Ok(value);
        }
        match size::made(&value, VALUE_DEPTH_MAX, self.meter.left().saturating_mul(10)) {
            Some(parts) => self.meter.pay(parts.saturating_sub(VALUE_PARTS_FREE) / 10).map(|()| value),
            None => Err(EvaluateError::failed(format!("a value is larger than can be paid for, or deeper than {VALUE_DEPTH_MAX} levels"))),
        }
    }

    fn list(&mut self, entries: &[Entry]) -> Outcome<'v> {
        self.meter.pay(LIST_COST)?;
        let mut list = Vec::with_capacity(entries.len());
        for entry in entries {
            list.extend(self.entry(entry)?);
        }
        Ok(Value::list(list))
    }

    /// The value of an entry; `None` for an absent optional entry.
    fn entry(&mut self, entry: &Entry) -> Result<Option<Value<'v>>, EvaluateError> {
        let value = self.node(&entry.value)?;
        match (entry.is_optional, value) {
            (false, value) => Ok(Some(value)),
            (true, Value::Optional(value)) => Ok(value.map(Arc::unwrap_or_clone)),
            (true, _) => Err(EvaluateError::no_overload()),
        }
    }

    fn map(&mut self, entries: &[(Node, Entry)]) -> Outcome<'v> {
        self.meter.pay(MAP_COST)?;
        let mut map = BTreeMap::new();
        for (key, entry) in entries {
            let key = key_of(&self.node(key)?)?;
            let Some(value) = self.entry(entry)? else { continue };
            if map.insert(key.clone(), value).is_some() {
                return Err(EvaluateError::failed(format!("Failed with repeated key {key}")));
            }
        }
        Ok(Value::Map(Arc::new(map)))
    }

    fn message(&mut self, name: &str, fields: &[(Box<str>, Entry)]) -> Outcome<'v> {
        self.meter.pay(MESSAGE_COST)?;
        let mut made = BTreeMap::new();
        for (field, entry) in fields {
            if let Some(value) = self.entry(entry)? {
                made.insert(Key::String((**field).into()), value);
            }
        }
        Ok(Value::Message(Arc::new((name.to_owned(), made))))
    }

    fn call(&mut self, function: &str, is_member: bool, args: &[Node], pattern: Option<&Regex>) -> Outcome<'v> {
        match (function, args) {
            ("_&&_", [left, right]) => self.junction(left, right, false),
            ("_||_", [left, right]) => self.junction(left, right, true),
            ("_?_:_", [test, yes, no]) => match self.node(test)? {
                Value::Bool(true) => self.node(yes),
                Value::Bool(false) => self.node(no),
                _ => Err(EvaluateError::no_overload()),
            },
            ("@not_strictly_false", [test]) => self.not_false(test),
            ("_?._", [operand, Node { kind: Kind::Literal(Literal::String(field)), .. }]) => {
                let of = self.node(operand)?;
                self.meter.pay(1)?;
                optional_field(&of, field)
            }
            ("or", [first, second]) if is_member => match self.node(first)? {
                Value::Optional(None) => self.node(second),
                found => Ok(found),
            },
            ("orValue", [first, second]) if is_member => match self.node(first)? {
                Value::Optional(None) => self.node(second),
                Value::Optional(Some(value)) => Ok(Arc::unwrap_or_clone(value)),
                _ => Err(EvaluateError::no_overload()),
            },
            ("_+_" | crate::macros::MAP_INSERT, [accumulator, added @ ..]) if self.is_accumulator(accumulator) => {
                self.accumulate(function, accumulator, added)
            }
            _ => {
                let mut values = Vec::with_capacity(args.len());
                for arg in args {
                    values.push(self.node(arg)?);
                }
                match operators::call(function, &values, &mut self.meter)? {
                    Some(value) => Ok(value),
                    None => library::call(function, &values, &mut self.meter, (pattern, &mut self.patterns)),
                }
            }
        }
    }

    /// `&&` and `||`: `decides` is the operand that decides the result.
    fn junction(&mut self, left: &Node, right: &Node, decides: bool) -> Outcome<'v> {
        let left = self.node(left);
        match &left {
            Ok(Value::Bool(flag)) if *flag == decides => return left,
            Err(error) if error.is_final() => return left,
            _ => {}
        }
        let right = self.node(right);
        match (left, right) {
            (_, Err(error)) if error.is_final() => Err(error),
            (_, Ok(Value::Bool(flag))) if flag == decides => Ok(Value::Bool(flag)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(flag))) => Ok(Value::Bool(flag)),
            (Err(error), _) | (Ok(Value::Bool(_)), Err(error)) => Err(error),
            _ => Err(EvaluateError::no_overload()),
        }
    }

    fn not_false(&mut self, test: &Node) -> Outcome<'v> {
        self.meter.pay(1)?;
        match self.node(test) {
            Ok(Value::Bool(flag)) => Ok(Value::Bool(flag)),
            Err(error) if error.is_final() => Err(error),
            _ => Ok(Value::Bool(true)),
        }
    }
}

fn of_literal<'v>(literal: &Literal) -> Value<'v> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(flag) => Value::Bool(*flag),
        Literal::Int(number) => Value::Int(*number),
        Literal::Uint(number) => Value::Uint(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::String(text) => Value::String(Text::Shared(Arc::clone(text))),
        Literal::Bytes(bytes) => Value::Bytes(Arc::clone(bytes)),
    }
}

fn key_of(value: &Value<'_>) -> Result<Key, EvaluateError> {
    Key::from_value(value).ok_or_else(|| EvaluateError::failed("unsupported key type"))
}

fn has(of: &Value<'_>, field: &str) -> Result<bool, EvaluateError> {
    match of {
        Value::Optional(None) => Ok(false),
        Value::Optional(Some(value)) => has(value, field),
        value if value.is_map() => Ok(value.field(field).is_some()),
        _ => Err(EvaluateError::no_overload()),
    }
}

/// `value.field`.
fn selected<'v>(of: &Value<'v>, field: &str) -> Outcome<'v> {
    match of {
        Value::Optional(_) => optional_field(of, field),
        value if value.is_map() => value.field(field).ok_or_else(|| EvaluateError::failed(format!("no such key: {field}"))),
        _ => Err(EvaluateError::no_overload()),
    }
}

/// `value.?field`.
fn optional_field<'v>(of: &Value<'v>, field: &str) -> Outcome<'v> {
    match of {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(value)) => optional_field(value, field),
        value if value.is_map() => Ok(Value::optional(value.field(field))),
        _ => Err(EvaluateError::no_overload()),
    }
}
