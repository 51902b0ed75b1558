//! Names in an expression against the schema: a variable or field that does not exist is told when the
//! definition is written, with its place in the text.

use api_schema::{Additional, Structural};
use cel::common::ast::{EntryExpr, Expr, LiteralValue};
use cel::{IdedExpr, Program};

use crate::Yields;
use crate::infer::{Root, Variables};
use crate::names::unescape;

/// Names that stand for types or for families of functions.
const GLOBAL: [&str; 17] = [
    "bool",
    "bytes",
    "double",
    "dyn",
    "duration",
    "google",
    "int",
    "list",
    "map",
    "math",
    "null_type",
    "optional",
    "optional_type",
    "string",
    "strings",
    "timestamp",
    "uint",
];
const TYPE: &str = "type";
/// Fields of every object.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// What is wrong, in cel-go's form.
pub fn names(program: &Program, schema: &Structural, is_root: bool, yields: Yields) -> Result<(), String> {
    let checker = Checker { program, root: Root { schema, is_root } };
    let variables = Variables::new(schema);
    checker.check(program.expression(), &variables)?;
    let is_wrong = match (result(program.expression(), &variables), yields) {
        (Some(found), Yields::Bool) => found != "boolean",
        (Some(found), Yields::Text) => found != "string",
        (None, _) => false,
    };
    match (is_wrong, yields) {
        (false, _) => Ok(()),
        (true, Yields::Bool) => Err("cel expression must evaluate to a bool".to_owned()),
        (true, Yields::Text) => Err("messageExpression must evaluate to a string".to_owned()),
    }
}

struct Checker<'p> {
    program: &'p Program,
    root: Root<'p>,
}

impl<'p> Checker<'p> {
    fn check(&self, expression: &IdedExpr, variables: &Variables<'p>) -> Result<(), String> {
        match &expression.expr {
            Expr::Ident(name) if variables.has(name) || GLOBAL.contains(&name.as_str()) || name == TYPE => Ok(()),
            Expr::Ident(name) => Err(self.error(expression, &format!("undeclared reference to '{name}' (in container '')"))),
            Expr::Select(select) => {
                self.check(&select.operand, variables)?;
                match variables.infer(&select.operand) {
                    Some(schema) if !self.has_field(schema, &unescape(&select.field)) => {
                        Err(self.error(expression, &format!("undefined field '{}'", select.field)))
                    }
                    _ => Ok(()),
                }
            }
            Expr::Call(call) => {
                call.target.iter().map(|target| &**target).chain(&call.args).try_for_each(|part| self.check(part, variables))
            }
            Expr::List(list) => list.elements.iter().try_for_each(|part| self.check(part, variables)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.check_entry(&entry.expr, variables)),
            Expr::Struct(made) => made.entries.iter().try_for_each(|entry| self.check_entry(&entry.expr, variables)),
            Expr::Comprehension(comprehension) => {
                self.check(&comprehension.iter_range, variables)?;
                self.check(&comprehension.accu_init, variables)?;
                let inner = variables.within(comprehension);
                [&comprehension.loop_cond, &comprehension.loop_step, &comprehension.result]
                    .into_iter()
                    .try_for_each(|part| self.check(part, &inner))
            }
            Expr::Literal(_) | Expr::Unspecified => Ok(()),
        }
    }

    fn check_entry(&self, entry: &EntryExpr, variables: &Variables<'p>) -> Result<(), String> {
        match entry {
            EntryExpr::StructField(field) => self.check(&field.value, variables),
            EntryExpr::MapEntry(entry) => {
                self.check(&entry.key, variables)?;
                self.check(&entry.value, variables)
            }
        }
    }

    fn has_field(&self, schema: &Structural, field: &str) -> bool {
        let is_whole = schema.embedded_resource || self.root.is_root && std::ptr::eq(schema, self.root.schema);
        match schema.kind.as_str() {
            "object" => {
                // Metadata has fields of which no schema speaks.
                let is_open = schema.preserve_unknown_fields || schema.properties.is_empty() && !is_whole;
                let has_further = !matches!(schema.additional, Additional::Unsaid | Additional::Forbidden);
                is_open || has_further || schema.properties.contains_key(field) || is_whole && META_FIELDS.contains(&field)
            }
            "" => true,
            _ => false,
        }
    }

    /// An error with its place, as cel-go draws it.
    fn error(&self, expression: &IdedExpr, message: &str) -> String {
        let source = &self.program.source_info().source;
        let offset = self.program.source_info().offset_for(expression.id).map_or(0, |(start, _)| start as usize);
        let before = source.get(..offset.min(source.len())).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().map_or(0, |text| text.chars().count());
        let text = source.lines().nth(line).unwrap_or_default();
        format!("ERROR: <input>:{}:{}: {message}\n | {text}\n | {}^", line + 1, column + 1, ".".repeat(column))
    }
}

/// The type of what the expression yields, where that is plain to see.
fn result<'e>(expression: &'e IdedExpr, variables: &Variables<'e>) -> Option<&'e str> {
    match &expression.expr {
        Expr::Literal(LiteralValue::Boolean(_)) => Some("boolean"),
        Expr::Literal(LiteralValue::String(_)) => Some("string"),
        Expr::Literal(_) => Some("other"),
        Expr::List(_) | Expr::Map(_) => Some("other"),
        Expr::Select(select) if select.test => Some("boolean"),
        Expr::Ident(_) | Expr::Select(_) => {
            let schema = variables.infer(expression)?;
            (!schema.kind.is_empty() && schema.format.is_empty()).then_some(schema.kind.as_str())
        }
        Expr::Call(call) => match call.func_name.as_str() {
            "_&&_" | "_||_" | "!_" | "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "@in" => Some("boolean"),
            "size" | "_-_" | "_*_" | "_/_" | "_%_" => Some("other"),
            _ => None,
        },
        _ => None,
    }
}
