//! `x-kubernetes-validations`: rules of the schema over the values of an object.
//!
//! Rules run only where the object fits its schema otherwise. They run from the outside in, each at every
//! value of its place, until the budget of the object is used up. What an update leaves as it was is passed
//! over, but for rules that compare with what was before.

mod compiled;

use api_cel::{Budget, EvaluateError, OBJECT_COST_MAX, Scope, Shape, Value as CelValue};
use api_model::field::{FieldError, FieldErrorKind, Path};
use api_model::kind::{Kind, Slot};
use api_schema::{Structural, ValidationRule};
use serde_json::Value;

pub use self::compiled::env;
use self::compiled::{Compiled, Rule};
use super::values::Elements;

/// Errors after which rules would only see a broken object.
const BLOCKING: [FieldErrorKind; 5] =
    [FieldErrorKind::NotSupported, FieldErrorKind::Required, FieldErrorKind::TooLong, FieldErrorKind::TooMany, FieldErrorKind::TypeInvalid];
const NOT_CHECKED: &str =
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
const OUT_OF_BUDGET: &str = "validation failed due to running out of cost budget, no further validation rules will be run";
/// Bytes of a made message; a longer one is replaced.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// Adds what the rules of a kind say of an object to the errors found before.
pub fn check(kind: &Kind, schema: &Structural, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(compiled) = kind.custom.as_ref().and_then(|custom| custom.kept(Slot::Rules, || Compiled::of(schema, true))) else { return };
    let Some(compiled) = compiled else { return };
    if errors.iter().any(|error| BLOCKING.contains(&error.kind)) {
        errors.push(FieldError::invalid(&Path::default(), Value::Null, NOT_CHECKED));
        return;
    }
    let mut run = Run { budget: Budget::new(OBJECT_COST_MAX), errors };
    // Only the end of the budget ends the walk early, and that is among the errors.
    let _ = run.walk(compiled, Place { schema, is_root: true }, object, Before { old, is_within_unchanged: false }, &Path::default());
}

/// Nothing more is evaluated; why is among the errors.
struct Ended;

#[derive(Clone, Copy)]
struct Place<'s> {
    schema: &'s Structural,
    is_root: bool,
}

/// What was at a place before.
#[derive(Clone, Copy)]
struct Before<'v> {
    /// None where that cannot be told.
    old: Option<&'v Value>,
    /// Whether it cannot be told, and the nearest place above of which it can has not changed.
    is_within_unchanged: bool,
}

impl Before<'_> {
    fn is_unchanged(self, value: &Value) -> bool {
        self.old.map_or(self.is_within_unchanged, |old| old == value)
    }
}

struct Run<'r> {
    budget: Budget,
    errors: &'r mut Vec<FieldError>,
}

impl Run<'_> {
    fn walk(&mut self, compiled: &Compiled, place: Place<'_>, value: &Value, before: Before<'_>, path: &Path) -> Result<(), Ended> {
        if value.is_null() {
            return Ok(());
        }
        if !compiled.rules.is_empty() {
            self.rules(compiled, place, value, before, path)?;
        }
        let schema = place.schema;
        let inner = |schema| Place { schema, is_root: false };
        match value {
            Value::Object(map) => {
                let old = before.old.filter(|_| schema.map_type != "atomic");
                let is_within_unchanged = old.is_none() && before.is_unchanged(value);
                for (key, value) in map {
                    let (Some(compiled), Some(field)) = (compiled.field(key), schema.field(key)) else { continue };
                    let path = if schema.properties.contains_key(key) { path.child(key) } else { path.key(key) };
                    let before = Before { old: old.and_then(|old| old.get(key)), is_within_unchanged };
                    self.walk(compiled, inner(field), value, before, &path)?;
                }
                Ok(())
            }
            Value::Array(list) => {
                let (Some(compiled), Some(items)) = (&compiled.items, &schema.items) else { return Ok(()) };
                let old = Elements::of(schema, before.old);
                let is_within_unchanged = old.is_none() && before.is_unchanged(value);
                list.iter().enumerate().try_for_each(|(index, element)| {
                    let old = old.as_ref().and_then(|old| old.same_as(element));
                    let before = Before { old, is_within_unchanged };
                    self.walk(compiled, inner(items), element, before, &path.index(index))
                })
            }
            _ => Ok(()),
        }
    }

    fn rules(&mut self, compiled: &Compiled, place: Place<'_>, value: &Value, before: Before<'_>, path: &Path) -> Result<(), Ended> {
        let is_unchanged = before.is_unchanged(value);
        let old = before.old.filter(|old| !old.is_null());
        let schema = place.schema;
        let shape = if place.is_root { Shape::Whole(schema) } else { Shape::Schema(schema) };
        let this = CelValue::json(value, shape);
        let known = old.map(|old| CelValue::json(old, shape));
        for (rule, told) in compiled.rules.iter().zip(&schema.rules) {
            let has_old = old.is_some() || told.optional_old_self;
            if rule.is_transition && !has_old || is_unchanged && !rule.is_transition {
                continue;
            }
            let scope = Scope::default().with("self", this.clone());
            let scope = match (told.optional_old_self, known.clone()) {
                (true, known) => scope.with("oldSelf", CelValue::optional(known)),
                (false, Some(known)) => scope.with("oldSelf", known),
                (false, None) => scope,
            };
            self.rule(rule, told, &scope, (schema, value, path))?;
        }
        Ok(())
    }

    fn rule<'v>(
        &mut self,
        rule: &'v Rule,
        told: &ValidationRule,
        scope: &Scope<'v>,
        (schema, value, path): (&Structural, &Value, &Path),
    ) -> Result<(), Ended> {
        let invalid = |detail: String| FieldError::invalid(path, schema.kind.as_str(), detail);
        let expression = match &rule.expression {
            Ok(Some(expression)) => expression,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.errors.push(invalid(format!("rule compile error: {error}")));
                return Ok(());
            }
        };
        match expression.evaluate(scope, &mut self.budget) {
            Ok(CelValue::Bool(true)) => Ok(()),
            Ok(_) => {
                let message = self.message(rule, told, scope, &invalid)?;
                self.errors.push(failed(rule, told, schema, value, path, message));
                Ok(())
            }
            Err(EvaluateError::OutOfBudget) => {
                self.errors.push(invalid(OUT_OF_BUDGET.to_owned()));
                Err(Ended)
            }
            Err(error @ EvaluateError::CallCost) => {
                let why = "no further validation rules will be run due to call cost exceeds limit for rule";
                self.errors.push(invalid(format!("'{error}': {why}: {}", short(told))));
                Err(Ended)
            }
            Err(EvaluateError::Failed(error)) if error.starts_with("no such overload") => {
                let why = "call arguments did not match a supported operator, function or macro signature for rule";
                self.errors.push(invalid(format!("'{error}': {why}: {}", short(told))));
                Ok(())
            }
            Err(error) => {
                self.errors.push(invalid(format!("{error} evaluating rule: {}", short(told))));
                Ok(())
            }
        }
    }

    /// What the rule's own expression says, else its message, else the rule.
    fn message<'v>(
        &mut self,
        rule: &'v Rule,
        told: &ValidationRule,
        scope: &Scope<'v>,
        invalid: &dyn Fn(String) -> FieldError,
    ) -> Result<String, Ended> {
        let made = rule.message.as_ref().map(|message| message.evaluate(scope, &mut self.budget));
        let ended = match &made {
            Some(Err(EvaluateError::OutOfBudget)) => {
                "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned()
            }
            Some(Err(EvaluateError::CallCost)) => {
                let why = "no further validation rules will be run due to call cost exceeds limit for messageExpression";
                format!("{why}: {:?}", told.message_expression)
            }
            // A message that cannot be made, or that cannot be shown, is replaced, as upstream does.
            Some(Ok(value)) => {
                return Ok(value.as_str().map(str::trim).filter(|text| is_message(text)).map_or_else(|| fixed(told), str::to_owned));
            }
            Some(Err(EvaluateError::Failed(_))) | None => return Ok(fixed(told)),
        };
        self.errors.push(invalid(ended));
        Err(Ended)
    }
}

fn is_message(text: &str) -> bool {
    !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n')
}

fn fixed(rule: &ValidationRule) -> String {
    if rule.message.is_empty() { format!("failed rule: {}", short(rule)) } else { rule.message.trim().to_owned() }
}

fn short(rule: &ValidationRule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}

fn failed(rule: &Rule, told: &ValidationRule, schema: &Structural, value: &Value, path: &Path, message: String) -> FieldError {
    let path = path.join(&rule.field_path);
    // Of whole objects and lists the value is not shown.
    let shown = (!matches!(schema.kind.as_str(), "object" | "array")).then(|| value.clone());
    match told.reason.as_str() {
        "FieldValueForbidden" => FieldError::forbidden(&path, message),
        "FieldValueRequired" => FieldError::required(&path, message),
        "FieldValueDuplicate" => FieldError { kind: FieldErrorKind::Duplicate, path, value: shown, detail: String::new() },
        _ => FieldError { kind: FieldErrorKind::Invalid, path, value: shown, detail: message },
    }
}
