//! The rules of a schema, compiled once, as a tree like the schema. The tree has no nodes without rules.

use std::collections::BTreeMap;

use api_cel::{CompileError, Env, Expression, type_of};
use api_model::field::Path;
use api_schema::{Additional, Structural, ValidationRule};

use crate::custom::field_path;

/// The rules of a schema and of the schemas below it.
pub struct Compiled {
    /// In the order of the schema.
    pub rules: Vec<Rule>,
    properties: BTreeMap<String, Compiled>,
    additional: Option<Box<Compiled>>,
    /// Of the elements of a list.
    pub items: Option<Box<Compiled>>,
}

/// One rule.
pub struct Rule {
    /// The expression; `None` for an empty rule. One that does not compile was stored by another version of the server.
    pub expression: Result<Option<Expression>, CompileError>,
    /// The message expression, if it compiles.
    pub message: Option<Expression>,
    /// Whether the rule compares with the old value.
    pub is_transition: bool,
    /// The field of the error.
    pub field_path: Path,
}

impl Compiled {
    /// Compiles the rules of a schema; `None` where there are none.
    pub fn new(schema: &Structural, is_root: bool) -> Option<Self> {
        let below = |schema: &Structural| Self::new(schema, false);
        let compiled = Self {
            rules: schema.rules.iter().map(|rule| Rule::new(rule, schema, is_root)).collect(),
            properties: schema.properties.iter().filter_map(|(name, schema)| Some((name.clone(), below(schema)?))).collect(),
            additional: match &schema.additional {
                Additional::Schema(schema) => below(schema).map(Box::new),
                _ => None,
            },
            items: schema.items.as_deref().and_then(below).map(Box::new),
        };
        let is_empty =
            compiled.rules.is_empty() && compiled.properties.is_empty() && compiled.additional.is_none() && compiled.items.is_none();
        (!is_empty).then_some(compiled)
    }

    /// Of a field.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }
}

impl Rule {
    fn new(rule: &ValidationRule, schema: &Structural, is_root: bool) -> Self {
        let env = env(schema, is_root, rule.optional_old_self);
        let compile = |text: &str| if text.trim().is_empty() { Ok(None) } else { Expression::compile(text, &env).map(Some) };
        let expression = compile(&rule.rule);
        let is_transition = matches!(&expression, Ok(Some(expression)) if expression.uses("oldSelf"));
        let field_path = field_path::read(rule.field_path.trim(), schema).unwrap_or_default();
        Self { expression, message: compile(&rule.message_expression).ok().flatten(), is_transition, field_path }
    }
}

/// The variables of the rules of a schema: `self` and `oldSelf`.
pub fn env(schema: &Structural, is_root: bool, optional_old_self: bool) -> Env {
    // Without a type there are no variables.
    let Some(of) = type_of(schema, is_root) else { return Env::default() };
    let old = if optional_old_self { api_cel::Type::optional(of.clone()) } else { of.clone() };
    Env::default().with("self", of).with("oldSelf", old)
}
