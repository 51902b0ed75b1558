//! `x-kubernetes-validations`: rules of the schema over the values of an object.
//!
//! Rules run only where the object fits its schema otherwise. They run from the outside in, each at every
//! value of its place, until the budget of the object is used up. Where an update leaves a value as it was, a
//! rule that does not hold is only warned of, but for rules that compare with what was before; a rule that
//! comes to no result is an error all the same.

mod before;
mod compiled;

use api_cel::{Budget, EvaluateError, OBJECT_COST_MAX, Scope, Shape, Value as CelValue};
use api_model::field::{FieldError, FieldErrorKind, Path};
use api_model::kind::{Kind, Slot};
use api_schema::{Structural, ValidationRule};
use serde_json::Value;

use self::before::Before;
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

/// What was found so far.
#[derive(Debug, Default)]
pub struct Found {
    /// What refuses the object.
    pub errors: Vec<FieldError>,
    /// What its writer is told all the same.
    pub warnings: Vec<String>,
}

/// Adds what the rules of a kind say of an object to what was found before.
pub fn check(kind: &Kind, schema: &Structural, object: &Value, old: Option<&Value>, found: &mut Found) {
    let Some(compiled) = kind.custom.as_ref().and_then(|custom| custom.kept(Slot::Rules, || Compiled::of(schema, true))) else { return };
    let Some(compiled) = compiled else { return };
    if found.errors.iter().any(|error| BLOCKING.contains(&error.kind)) {
        found.errors.push(FieldError::invalid(&Path::default(), Value::Null, NOT_CHECKED));
        return;
    }
    let mut run = Run { budget: Budget::new(OBJECT_COST_MAX), found };
    // Only the end of the budget ends the walk early, and that is among what was found.
    let _ = run.walk(compiled, Place { schema, is_root: true }, object, Before::of(old), &Path::default());
}

/// Nothing more is evaluated; why is among what was found.
struct Ended;

#[derive(Clone, Copy)]
struct Place<'s> {
    schema: &'s Structural,
    is_root: bool,
}

struct Run<'r> {
    budget: Budget,
    found: &'r mut Found,
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
                let within = before.is_within(schema, value);
                for (key, value) in map {
                    let (Some(compiled), Some(field)) = (compiled.field(key), schema.field(key)) else { continue };
                    let path = if schema.properties.contains_key(key) { path.child(key) } else { path.key(key) };
                    let before = before.field(key, place.is_root, within);
                    self.walk(compiled, inner(field), value, before, &path)?;
                }
                Ok(())
            }
            Value::Array(list) => {
                let (Some(compiled), Some(items)) = (&compiled.items, &schema.items) else { return Ok(()) };
                let elements = Elements::of(schema, before.old);
                let within = before.is_within(schema, value);
                list.iter().enumerate().try_for_each(|(index, element)| {
                    let before = before.element(elements.as_ref(), element, within);
                    self.walk(compiled, inner(items), element, before, &path.index(index))
                })
            }
            _ => Ok(()),
        }
    }

    fn rules(&mut self, compiled: &Compiled, place: Place<'_>, value: &Value, before: Before<'_>, path: &Path) -> Result<(), Ended> {
        let old = before.old.filter(|old| !old.is_null());
        let schema = place.schema;
        let shape = if place.is_root { Shape::Whole(schema) } else { Shape::Schema(schema) };
        let this = CelValue::json(value, shape);
        let known = old.map(|old| CelValue::json(old, shape));
        for (rule, told) in compiled.rules.iter().zip(&schema.rules) {
            let has_old = old.is_some() || told.optional_old_self;
            if rule.is_transition && !has_old {
                continue;
            }
            let scope = Scope::default().with("self", this.clone());
            let scope = match (told.optional_old_self, known.clone()) {
                (true, known) => scope.with("oldSelf", CelValue::optional(known)),
                (false, Some(known)) => scope.with("oldSelf", known),
                (false, None) => scope,
            };
            self.rule(rule, told, &scope, (schema, value, before, path))?;
        }
        Ok(())
    }

    fn rule<'v>(
        &mut self,
        rule: &'v Rule,
        told: &ValidationRule,
        scope: &Scope<'v>,
        (schema, value, before, path): (&Structural, &Value, Before<'_>, &Path),
    ) -> Result<(), Ended> {
        let invalid = |detail: String| FieldError::invalid(path, schema.kind.as_str(), detail);
        let expression = match &rule.expression {
            Ok(Some(expression)) => expression,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.found.errors.push(invalid(format!("rule compile error: {error}")));
                return Ok(());
            }
        };
        match expression.evaluate(scope, &mut self.budget) {
            Ok(CelValue::Bool(true)) => Ok(()),
            Ok(_) => {
                let message = self.message(rule, told, scope);
                let ended = message.is_err();
                let error = message.map_or_else(&invalid, |message| failed(rule, told, schema, value, path, message));
                if !rule.is_transition && before.is_unchanged(schema, value) {
                    self.found.warnings.push(error.to_string());
                } else {
                    self.found.errors.push(error);
                }
                if ended { Err(Ended) } else { Ok(()) }
            }
            Err(EvaluateError::OutOfBudget) => {
                self.found.errors.push(invalid(OUT_OF_BUDGET.to_owned()));
                Err(Ended)
            }
            Err(error @ EvaluateError::CallCost) => {
                let why = "no further validation rules will be run due to call cost exceeds limit for rule";
                self.found.errors.push(invalid(format!("'{error}': {why}: {}", short(told))));
                Err(Ended)
            }
            Err(EvaluateError::Failed(error)) if error.starts_with("no such overload") => {
                let why = "call arguments did not match a supported operator, function or macro signature for rule";
                self.found.errors.push(invalid(format!("'{error}': {why}: {}", short(told))));
                Ok(())
            }
            Err(error) => {
                self.found.errors.push(invalid(format!("{error} evaluating rule: {}", short(told))));
                Ok(())
            }
        }
    }

    /// What the rule's own expression says, else its message, else the rule; or why nothing more is evaluated.
    fn message<'v>(&mut self, rule: &'v Rule, told: &ValidationRule, scope: &Scope<'v>) -> Result<String, String> {
        match rule.message.as_ref().map(|message| message.evaluate(scope, &mut self.budget)) {
            Some(Err(EvaluateError::OutOfBudget)) => {
                Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned())
            }
            Some(Err(EvaluateError::CallCost)) => {
                let why = "no further validation rules will be run due to call cost exceeds limit for messageExpression";
                Err(format!("{why}: {:?}", told.message_expression))
            }
            // A message that cannot be made, or that cannot be shown, is replaced, as upstream does.
            Some(Ok(value)) => Ok(value.as_str().map(str::trim).filter(|text| is_message(text)).map_or_else(|| fixed(told), str::to_owned)),
            Some(Err(EvaluateError::Failed(_))) | None => Ok(fixed(told)),
        }
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
