//! `x-kubernetes-validations`: rules of the schema over the values of an object.
//!
//! Rules run only where the object fits its schema otherwise. They run from the outside in, each at every
//! value of its place, until the budget of the object is used up. What an update leaves as it was is passed
//! over, but for rules that compare with what was before.

use std::collections::HashMap;

use api_cel::{Expression, OBJECT_COST_MAX, Scope, Sizes, sizes};
use api_model::field::{FieldError, FieldErrorKind, Path};
use api_model::kind::{Kind, Slot};
use api_schema::{Structural, ValidationRule};
use serde_json::Value;

/// Compiled expressions by their text; those that do not compile were refused with their definition.
type Compiled = HashMap<String, Option<Expression>>;

/// Errors after which rules would only see a broken object.
const BLOCKING: [FieldErrorKind; 5] =
    [FieldErrorKind::NotSupported, FieldErrorKind::Required, FieldErrorKind::TooLong, FieldErrorKind::TooMany, FieldErrorKind::TypeInvalid];

/// Adds what the rules of a kind say of an object to the errors found before.
pub fn check(kind: &Kind, schema: &Structural, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(compiled) = kind.custom.as_ref().and_then(|custom| custom.kept(Slot::Rules, || compile_all(schema))) else { return };
    if compiled.is_empty() {
        return;
    }
    if errors.iter().any(|error| BLOCKING.contains(&error.kind)) {
        let detail =
            "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        errors.push(FieldError::invalid(&Path::default(), Value::Null, detail));
        return;
    }
    let sizes = old.map(sizes).unwrap_or_default().max(sizes(object));
    let mut run = Run { compiled, sizes, budget: OBJECT_COST_MAX, errors };
    // Only the end of the budget ends the walk early, and that is among the errors.
    let _ = run.walk(schema, object, old, &Path::default());
}

fn compile_all(schema: &Structural) -> Compiled {
    let mut compiled = Compiled::new();
    collect(schema, &mut compiled);
    compiled
}

fn collect(schema: &Structural, compiled: &mut Compiled) {
    for rule in &schema.rules {
        for text in [&rule.rule, &rule.message_expression] {
            if !text.trim().is_empty() {
                compiled.entry(text.clone()).or_insert_with(|| Expression::parse(text).ok());
            }
        }
    }
    schema.children().for_each(|child| collect(child, compiled));
}

/// The budget is used up.
struct Exhausted;

struct Run<'r> {
    compiled: &'r Compiled,
    sizes: Sizes,
    budget: u64,
    errors: &'r mut Vec<FieldError>,
}

impl Run<'_> {
    fn walk(&mut self, schema: &Structural, value: &Value, old: Option<&Value>, path: &Path) -> Result<(), Exhausted> {
        if value.is_null() {
            return Ok(());
        }
        if !schema.rules.is_empty() {
            self.rules(schema, value, old, path)?;
        }
        match value {
            Value::Object(map) => {
                let old = old.filter(|_| schema.map_type != "atomic");
                for (key, value) in map {
                    let Some(field) = schema.field(key) else { continue };
                    let path = if schema.properties.contains_key(key) { path.child(key) } else { path.key(key) };
                    self.walk(field, value, old.and_then(|old| old.get(key)), &path)?;
                }
                Ok(())
            }
            Value::Array(list) => {
                let Some(items) = &schema.items else { return Ok(()) };
                let old = old.and_then(Value::as_array);
                list.iter().enumerate().try_for_each(|(index, element)| {
                    let before = old.and_then(|old| super::values::same_element(schema, element, old));
                    self.walk(items, element, before, &path.index(index))
                })
            }
            _ => Ok(()),
        }
    }

    fn rules(&mut self, schema: &Structural, value: &Value, old: Option<&Value>, path: &Path) -> Result<(), Exhausted> {
        let scope = Scope::new(schema, value, old);
        let is_unchanged = old == Some(value);
        for rule in &schema.rules {
            let Some(Some(expression)) = self.compiled.get(&rule.rule) else { continue };
            let is_transition = expression.uses_old_self();
            if is_transition && old.is_none() && !rule.optional_old_self || is_unchanged && !is_transition {
                continue;
            }
            self.pay(expression.cost(schema, Some(self.sizes)), schema, path)?;
            match expression.holds(&scope, rule.optional_old_self) {
                Ok(true) => {}
                Ok(false) => {
                    let message = self.message(rule, schema, &scope, path)?;
                    self.errors.push(failed(rule, schema, value, path, message));
                }
                Err(error) => {
                    let detail = format!("{error} evaluating rule: {}", short(rule));
                    self.errors.push(FieldError::invalid(path, schema.kind.as_str(), detail));
                }
            }
        }
        Ok(())
    }

    fn pay(&mut self, cost: u64, schema: &Structural, path: &Path) -> Result<(), Exhausted> {
        match self.budget.checked_sub(cost) {
            Some(left) => {
                self.budget = left;
                Ok(())
            }
            None => {
                let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
                self.errors.push(FieldError::invalid(path, schema.kind.as_str(), detail));
                Err(Exhausted)
            }
        }
    }

    /// What the rule's own expression says, else its message, else the rule.
    fn message(&mut self, rule: &ValidationRule, schema: &Structural, scope: &Scope, path: &Path) -> Result<String, Exhausted> {
        if let Some(Some(expression)) = self.compiled.get(&rule.message_expression) {
            self.pay(expression.cost(schema, Some(self.sizes)), schema, path)?;
            match expression.text(scope, rule.optional_old_self) {
                Ok(text) if !text.is_empty() && !text.contains(['\n', '\r']) => return Ok(text),
                // A message that cannot be made is replaced, as upstream does.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(if rule.message.is_empty() { format!("failed rule: {}", short(rule)) } else { rule.message.trim().to_owned() })
    }
}

fn short(rule: &ValidationRule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}

fn failed(rule: &ValidationRule, schema: &Structural, value: &Value, path: &Path, message: String) -> FieldError {
    let below = rule.field_path.trim().trim_start_matches('.').replace("['", "[").replace("']", "]");
    let path = if below.is_empty() { path.clone() } else { path.join(&Path::new(&below)) };
    // Of whole objects and lists the value is not shown.
    let shown = (!matches!(schema.kind.as_str(), "object" | "array")).then(|| value.clone());
    match rule.reason.as_str() {
        "FieldValueForbidden" => FieldError::forbidden(&path, message),
        "FieldValueRequired" => FieldError::required(&path, message),
        "FieldValueDuplicate" => FieldError { kind: FieldErrorKind::Duplicate, path, value: shown, detail: String::new() },
        _ => FieldError { kind: FieldErrorKind::Invalid, path, value: shown, detail: message },
    }
}
