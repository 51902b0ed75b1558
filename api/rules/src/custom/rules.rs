//! `x-kubernetes-validations`: rules of the schema over the values of an object.
//!
//! Rules run only where the object otherwise fits its schema. They run from the outside in, each at every value that its
//! schema describes, until the budget of the object is spent. Where an update does not change a value, a failed rule is
//! a warning, except for a rule that compares with the old value. A rule that yields no result is always an error.

mod before;
mod compiled;

use api_cel::{Budget, EvaluateError, OBJECT_COST_MAX, Scope, Shape, Value as CelValue};
use api_model::field::{FieldError, FieldErrorKind, Path};
use api_model::kind::{Kind, Slot};
use api_model::message::Message;
use api_schema::{Structural, ValidationRule};
use serde_json::Value;

use self::before::Before;
pub use self::compiled::env;
use self::compiled::{Compiled, Rule};
use super::values::Elements;

/// Errors after which rules do not run.
const BLOCKING: [FieldErrorKind; 5] =
    [FieldErrorKind::NotSupported, FieldErrorKind::Required, FieldErrorKind::TooLong, FieldErrorKind::TooMany, FieldErrorKind::TypeInvalid];
const NOT_CHECKED: &str =
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
const OUT_OF_BUDGET: &str = "validation failed due to running out of cost budget, no further validation rules will be run";
/// Most bytes of a message from an expression; a longer one is replaced.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// The errors and warnings of a validation.
#[derive(Debug, Default)]
pub struct ValidationResult {
    /// Reasons to reject the object.
    pub errors: Vec<FieldError>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// Adds the errors and warnings of a kind's rules to those of the schema.
pub fn check(kind: &Kind, schema: &Structural, object: &Value, old: Option<&Value>, result: &mut ValidationResult) {
    let Some(compiled) = kind.custom.as_ref().and_then(|custom| custom.cached(Slot::Rules, || Compiled::new(schema, true))) else { return };
    let Some(compiled) = compiled else { return };
    if result.errors.iter().any(|error| BLOCKING.contains(&error.kind)) {
        result.errors.push(FieldError::invalid(&Path::default(), Value::Null, NOT_CHECKED));
        return;
    }
    let mut run = Run { budget: Budget::new(OBJECT_COST_MAX), result };
    // Only an exhausted budget ends the walk early; its error is in `result` already.
    let _ = run.walk(compiled, SchemaNode { schema, is_root: true }, object, Before::new(old), &Path::default());
}

/// No further rule is evaluated; the error is in the result already.
struct Ended;

#[derive(Clone, Copy)]
struct SchemaNode<'s> {
    schema: &'s Structural,
    is_root: bool,
}

struct Run<'r> {
    budget: Budget,
    result: &'r mut ValidationResult,
}

impl Run<'_> {
    fn walk(&mut self, compiled: &Compiled, node: SchemaNode<'_>, value: &Value, before: Before<'_>, path: &Path) -> Result<(), Ended> {
        if value.is_null() {
            return Ok(());
        }
        if !compiled.rules.is_empty() {
            self.rules(compiled, node, value, before, path)?;
        }
        let schema = node.schema;
        let inner = |schema| SchemaNode { schema, is_root: false };
        match value {
            Value::Object(map) => {
                let within = before.is_within(schema, value);
                for (key, value) in map {
                    let (Some(compiled), Some(field)) = (compiled.field(key), schema.field(key)) else { continue };
                    let path = if schema.properties.contains_key(key) { path.child(key) } else { path.key(key) };
                    let before = before.field(key, node.is_root, within);
                    self.walk(compiled, inner(field), value, before, &path)?;
                }
                Ok(())
            }
            Value::Array(list) => {
                let (Some(compiled), Some(items)) = (&compiled.items, &schema.items) else { return Ok(()) };
                let elements = Elements::by_keys(schema, before.old);
                let within = before.is_within(schema, value);
                list.iter().enumerate().try_for_each(|(index, element)| {
                    let before = before.element(elements.as_ref(), element, within);
                    self.walk(compiled, inner(items), element, before, &path.index(index))
                })
            }
            _ => Ok(()),
        }
    }

    fn rules(&mut self, compiled: &Compiled, node: SchemaNode<'_>, value: &Value, before: Before<'_>, path: &Path) -> Result<(), Ended> {
        let old = before.old.filter(|old| !old.is_null());
        let schema = node.schema;
        let shape = if node.is_root { Shape::Whole(schema) } else { Shape::Schema(schema) };
        let this = CelValue::json(value, shape);
        let old_value = old.map(|old| CelValue::json(old, shape));
        for (rule, validation) in compiled.rules.iter().zip(&schema.rules) {
            let has_old = old.is_some() || validation.optional_old_self;
            if rule.is_transition && !has_old {
                continue;
            }
            let scope = Scope::default().with("self", this.clone());
            let scope = match (validation.optional_old_self, old_value.clone()) {
                (true, old_value) => scope.with("oldSelf", CelValue::optional(old_value)),
                (false, Some(old_value)) => scope.with("oldSelf", old_value),
                (false, None) => scope,
            };
            self.rule(rule, validation, &scope, (schema, value, before, path))?;
        }
        Ok(())
    }

    fn rule<'v>(
        &mut self,
        rule: &'v Rule,
        validation: &ValidationRule,
        scope: &Scope<'v>,
        (schema, value, before, path): (&Structural, &Value, Before<'_>, &Path),
    ) -> Result<(), Ended> {
        let invalid = |detail: String| FieldError::invalid(path, schema.kind.as_str(), detail);
        let expression = match &rule.expression {
            Ok(Some(expression)) => expression,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.result.errors.push(invalid(format!("rule compile error: {error}")));
                return Ok(());
            }
        };
        match expression.evaluate(scope, &mut self.budget) {
            Ok(CelValue::Bool(true)) => Ok(()),
            Ok(_) => {
                let message = self.message(rule, validation, scope);
                let ended = message.is_err();
                let error = message
                    .map_or_else(|message| invalid(message.into()), |message| failed(rule, validation, schema, value, path, message));
                if !rule.is_transition && before.is_unchanged(schema, value) {
                    self.result.warnings.push(error.to_string());
                } else {
                    self.result.errors.push(error);
                }
                if ended { Err(Ended) } else { Ok(()) }
            }
            Err(EvaluateError::OutOfBudget) => {
                self.result.errors.push(invalid(OUT_OF_BUDGET.to_owned()));
                Err(Ended)
            }
            Err(error @ EvaluateError::CallCost) => {
                let why = "no further validation rules will be run due to call cost exceeds limit for rule";
                self.result.errors.push(invalid(format!("'{error}': {why}: {}", short(validation))));
                Err(Ended)
            }
            Err(EvaluateError::Failed(error)) if error.starts_with("no such overload") => {
                let why = "call arguments did not match a supported operator, function or macro signature for rule";
                self.result.errors.push(invalid(format!("'{error}': {why}: {}", short(validation))));
                Ok(())
            }
            Err(error) => {
                self.result.errors.push(invalid(format!("{error} evaluating rule: {}", short(validation))));
                Ok(())
            }
        }
    }

    /// The message of a failed rule: of its message expression, else its message, else the rule itself. An error ends the
    /// evaluation of further rules.
    fn message<'v>(&mut self, rule: &'v Rule, validation: &ValidationRule, scope: &Scope<'v>) -> Result<String, Message> {
        match rule.message.as_ref().map(|message| message.evaluate(scope, &mut self.budget)) {
            Some(Err(EvaluateError::OutOfBudget)) => {
                Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".into())
            }
            Some(Err(EvaluateError::CallCost)) => {
                let why = "no further validation rules will be run due to call cost exceeds limit for messageExpression";
                Err(format!("{why}: {:?}", validation.message_expression).into())
            }
            // As upstream, a message expression that fails or yields an unusable text is replaced by the fixed message.
            Some(Ok(value)) => {
                Ok(value.as_str().map(str::trim).filter(|text| is_message(text)).map_or_else(|| fixed(validation), str::to_owned))
            }
            Some(Err(EvaluateError::Failed(_))) | None => Ok(fixed(validation)),
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

fn failed(rule: &Rule, validation: &ValidationRule, schema: &Structural, value: &Value, path: &Path, message: String) -> FieldError {
    let path = path.join(&rule.field_path);
    // The message contains no value of an object or list.
    let bad_value = (!matches!(schema.kind.as_str(), "object" | "array")).then(|| value.clone());
    match validation.reason.as_str() {
        "FieldValueForbidden" => FieldError::forbidden(&path, message),
        "FieldValueRequired" => FieldError::required(&path, message),
        "FieldValueDuplicate" => FieldError { kind: FieldErrorKind::Duplicate, path, value: bad_value, detail: String::new() },
        _ => FieldError { kind: FieldErrorKind::Invalid, path, value: bad_value, detail: message },
    }
}
