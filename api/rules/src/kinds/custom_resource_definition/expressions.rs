//! The validation rules of a schema (`x-kubernetes-validations`): each must compile against its schema, and
//! its estimated cost must be below the limits.

use api_cel::{ESTIMATED_COST_MAX, Expression, Type, repeated};
use api_model::field::{FieldError, Path};
use api_schema::{Structural, ValidationRule};
use serde_json::Value;

use crate::at::At;
use crate::checks::Checks;
use crate::custom::field_path;
use crate::custom::rules::env;

const RULES: &str = "x-kubernetes-validations";
/// Upstream's `StaticEstimatedCRDCostLimit`: the limit for the cost of all rules of a schema together.
const TOTAL_COST_MAX: u64 = 100_000_000;
/// Above this factor, the message no longer gives the exact factor.
const FACTOR_MAX: f64 = 100.0;

/// The context of a schema from the schemas above it: upstream's `CELSchemaContext`.
#[derive(Clone)]
struct SchemaContext {
    is_root: bool,
    /// The most values of this schema that one object can have.
    repeated: u64,
    /// The list or map whose elements have no identity, so that an element has no old value.
    uncorrelatable: Option<Path>,
}

/// Checks every rule of a schema. The other checks of the schema must have passed.
pub fn validate(schema: &At<'_>, checks: &mut Checks) {
    let structural = Structural::parse(&schema.value_or_null());
    let mut walk = Walk { total: 0, checks };
    walk.schema(schema, &structural, &SchemaContext { is_root: true, repeated: 1, uncorrelatable: None });
    if walk.total > TOTAL_COST_MAX {
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let message = too_expensive(what, walk.total, TOTAL_COST_MAX);
        walk.checks.forbidden(schema, message);
    }
}

struct Walk<'c> {
    /// The estimated cost of all rules so far.
    total: u64,
    checks: &'c mut Checks,
}

/// The location of a rule: its path, the schema that it belongs to, and the context of that schema.
struct RuleLocation<'r> {
    path: &'r Path,
    schema: &'r Structural,
    context: &'r SchemaContext,
}

impl Walk<'_> {
    fn schema(&mut self, at: &At<'_>, schema: &Structural, context: &SchemaContext) {
        for (index, (rule, json)) in schema.rules.iter().zip(at.get(RULES).items()).enumerate() {
            let path = at.path.child(RULES).index(index);
            self.rule(rule, &json.value_or_null(), &RuleLocation { path: &path, schema, context });
        }
        let outer = |is_atomic: bool| context.uncorrelatable.clone().or(is_atomic.then(|| at.path.clone()));
        for (name, property) in &schema.properties {
            let inner = SchemaContext { is_root: false, repeated: context.repeated, uncorrelatable: outer(schema.map_type == "atomic") };
            self.schema(&at.get("properties").key(name), property, &inner);
        }
        let inside = repeated(context.repeated, schema);
        if let api_schema::Additional::Schema(values) = &schema.additional {
            let inner = SchemaContext { is_root: false, repeated: inside, uncorrelatable: outer(schema.map_type == "atomic") };
            self.schema(&at.get("additionalProperties"), values, &inner);
        }
        if let Some(items) = &schema.items {
            let inner = SchemaContext { is_root: false, repeated: inside, uncorrelatable: outer(schema.list_type != "map") };
            self.schema(&at.get("items"), items, &inner);
        }
    }

    fn rule(&mut self, rule: &ValidationRule, json: &Value, location: &RuleLocation<'_>) {
        let RuleLocation { path, schema, context } = *location;
        if !rule.field_path.trim().is_empty()
            && let Err(why) = field_path::read(rule.field_path.trim(), schema)
        {
            let detail = format!("fieldPath must be a valid path: {why}");
            self.checks.invalid_value(&path.child("fieldPath"), rule.field_path.as_str(), detail);
        }
        let env = env(schema, context.is_root, rule.optional_old_self);
        let mut compile = |text: &str, of: &Type, field: &str, wrong: &str| {
            let compiled = Expression::compile(text, &env).map_err(|error| error.to_string());
            let compiled = compiled.and_then(|compiled| if compiled.result() == of { Ok(compiled) } else { Err(wrong.to_owned()) });
            compiled.map_err(|error| self.checks.push(FieldError::invalid(&path.child(field), json.clone(), error))).ok()
        };
        let Some(expression) = compile(&rule.rule, &Type::Bool, "rule", "cel expression must evaluate to a bool") else { return };
        let message = if rule.message_expression.trim().is_empty() {
            None
        } else {
            compile(&rule.message_expression, &Type::String, "messageExpression", "messageExpression must evaluate to a string")
        };
        self.spend(&expression, ("rule", "estimated rule cost"), location);
        if let Some(message) = &message {
            self.spend(message, ("messageExpression", "estimated messageExpression cost"), location);
        }
        if !expression.uses("oldSelf") {
            if let Some(optional) = json.get("optionalOldSelf") {
                let detail = "may not be set if oldSelf is not used in rule";
                self.checks.invalid_value(&path.child("optionalOldSelf"), optional.clone(), detail);
            }
        } else if let Some(uncorrelatable) = &context.uncorrelatable {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}");
            self.checks.invalid_value(&path.child("rule"), rule.rule.as_str(), detail);
        }
    }

    /// Adds the cost of an expression, for all values of its schema.
    fn spend(&mut self, expression: &Expression, (field, what): (&str, &str), location: &RuleLocation<'_>) {
        let cost = expression.estimate(location.schema).saturating_mul(location.context.repeated);
        if cost > ESTIMATED_COST_MAX {
            self.checks.push(FieldError::forbidden(&location.path.child(field), too_expensive(what, cost, ESTIMATED_COST_MAX)));
        }
        self.total = self.total.saturating_add(cost);
    }
}

fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a factor for people to read")]
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        factor if factor > FACTOR_MAX => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where \
         arrays, maps, and strings are declared)"
    )
}
