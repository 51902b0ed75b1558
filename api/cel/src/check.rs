//! Checks the names, functions and types of an expression, with the messages of cel-go.
//!
//! Type parameters of functions are solved during the check. `dyn` fits every type. The result type of a function is known
//! only if all matching overloads have the same result.

mod solve;

use std::sync::Arc;

use self::solve::Solver;
use crate::env::Env;
use crate::error::Issue;
use crate::functions;
use crate::library::literal_issue;
use crate::node::{Entry, Fold, Kind, Literal, Node};
use crate::types::{Type, named_type};

/// The maximum of reported issues of one expression. Further issues mostly repeat them.
const ISSUES_MAX: usize = 100;

/// The type of an expression, or its issues.
pub(crate) fn check(root: &Node, env: &Env) -> Result<Type, Vec<Issue>> {
    let mut checker = Checker { env, solver: Solver::default(), locals: Vec::new(), issues: Vec::new() };
    let result = checker.node(root);
    if checker.issues.is_empty() { Ok(checker.solver.finish(&result)) } else { Err(checker.issues) }
}

struct Checker<'e> {
    env: &'e Env,
    solver: Solver,
    /// Variables of folds, innermost last.
    locals: Vec<(Arc<str>, Type)>,
    issues: Vec<Issue>,
}

impl Checker<'_> {
    fn issue(&mut self, at: usize, message: impl Into<String>) -> Type {
        if self.issues.len() < ISSUES_MAX {
            self.issues.push(Issue { at, message: message.into() });
        }
        // `dyn` avoids follow-up issues of the surrounding expression.
        Type::Dyn
    }

    fn node(&mut self, node: &Node) -> Type {
        match &node.kind {
            Kind::Literal(literal) => of_literal(literal),
            Kind::Ident(name) => self.named(node, name),
            Kind::Select { operand, field, is_test } => self.select(node, operand, field, *is_test),
            Kind::Call { function, is_member, args, .. } => self.call(node, function, *is_member, args),
            Kind::List(entries) => {
                let of = self.all_of(entries.iter());
                Type::list(of)
            }
            Kind::Map(entries) => self.map(entries),
            Kind::Message { name, fields } => self.message(node, name, fields),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn named(&mut self, node: &Node, name: &str) -> Type {
        match self.find(name) {
            Some(of) => of,
            None => self.issue(node.at, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn find(&self, name: &str) -> Option<Type> {
        let local = self.locals.iter().rev().find(|(local, _)| **local == *name);
        local.map(|(_, of)| of.clone()).or_else(|| self.env.variable(name).cloned()).or_else(|| named_type(name))
    }

    fn select(&mut self, node: &Node, operand: &Node, field: &str, is_test: bool) -> Type {
        // A qualified name may be declared as one name.
        let whole = if is_test { None } else { node.qualified_name().filter(|name| !self.is_local(name)) };
        if let Some(of) = whole.and_then(|name| self.env.variable(&name).cloned().or_else(|| named_type(&name))) {
            return of;
        }
        let operand = self.node(operand);
        let found = self.field(node, &operand, field);
        if is_test { Type::Bool } else { found }
    }

    fn is_local(&self, qualified: &str) -> bool {
        let first = qualified.split('.').next().unwrap_or_default();
        self.locals.iter().any(|(name, _)| **name == *first)
    }

    fn field(&mut self, node: &Node, of: &Type, field: &str) -> Type {
        match self.solver.shallow(of) {
            Type::Dyn | Type::Var(_) => Type::Dyn,
            Type::Map(key, value) => match self.solver.fits(&Type::String, &key) {
                true => (*value).clone(),
                false => self.issue(node.at, format!("type '{}' does not support field selection", self.solver.finish(of))),
            },
            Type::Object(object) => match object.fields.get(field) {
                Some(of) => of.clone(),
                None if object.is_open => Type::Dyn,
                None => self.issue(node.at, format!("undefined field '{field}'")),
            },
            Type::Optional(inner) => Type::optional(self.field(node, &inner, field)),
            _ => self.issue(node.at, format!("type '{}' does not support field selection", self.solver.finish(of))),
        }
    }

    fn call(&mut self, node: &Node, function: &str, is_member: bool, args: &[Node]) -> Type {
        if function == "_?._" {
            return self.optional_select(node, args);
        }
        let given: Vec<Type> = args.iter().map(|arg| self.node(arg)).collect();
        let overloads = functions::overloads(function);
        if overloads.is_empty() {
            return self.issue(node.at, format!("undeclared reference to '{function}' (in container '')"));
        }
        let mut yields: Option<Type> = None;
        for overload in overloads.iter().filter(|one| one.is_member == is_member && one.args.len() == given.len()) {
            let Some(result) = self.solver.call(overload, &given) else { continue };
            yields = Some(match yields {
                None => result,
                Some(before) if self.solver.finish(&before) == self.solver.finish(&result) => before,
                Some(_) => Type::Dyn,
            });
        }
        self.texts(function, args);
        match yields {
            Some(of) => of,
            None => {
                let signature = self.signature(&given, is_member);
                self.issue(node.at, format!("found no matching overload for '{function}' applied to '{signature}'"))
            }
        }
    }

    fn signature(&self, given: &[Type], is_member: bool) -> String {
        let types: Vec<String> = given.iter().map(|of| self.solver.finish(of).to_string()).collect();
        match types.split_first() {
            Some((target, args)) if is_member => format!("{target}.({})", args.join(", ")),
            _ => format!("({})", types.join(", ")),
        }
    }

    /// Checks string literals that functions parse, so that the compiler reports errors in them.
    fn texts(&mut self, function: &str, args: &[Node]) {
        let position = match function {
            "matches" => 1,
            "duration" | "timestamp" => 0,
            _ => return,
        };
        let Some(Node { at, kind: Kind::Literal(Literal::String(text)) }) = args.get(position) else { return };
        if let Some(why) = literal_issue(function, text) {
            self.issue(*at, why);
        }
    }

    fn optional_select(&mut self, node: &Node, args: &[Node]) -> Type {
        let [operand, Node { kind: Kind::Literal(Literal::String(field)), .. }] = args else {
            return self.issue(node.at, "unsupported optional field selection");
        };
        let operand = self.node(operand);
        match self.field(node, &operand, field) {
            already @ Type::Optional(_) if matches!(self.solver.shallow(&operand), Type::Optional(_)) => already,
            of => Type::optional(of),
        }
    }

    /// The common type of all entries.
    fn all_of<'n>(&mut self, entries: impl Iterator<Item = &'n Entry>) -> Type {
        let mut common = None;
        for entry in entries {
            let mut of = self.node(&entry.value);
            if entry.is_optional {
                of = match self.solver.shallow(&of) {
                    Type::Optional(of) => (*of).clone(),
                    Type::Dyn | Type::Var(_) => Type::Dyn,
                    other => self.issue(entry.value.at, format!("expected type 'optional_type({other})' but found '{other}'")),
                };
            }
            common = Some(self.joined(common, of, entry.value.at));
        }
        common.unwrap_or_else(|| self.solver.fresh())
    }

    /// Literals have elements of one type: Kubernetes enables `HomogeneousAggregateLiterals`.
    fn joined(&mut self, common: Option<Type>, of: Type, at: usize) -> Type {
        match common {
            None => of,
            Some(common) if self.solver.unify(&common, &of) => {
                if matches!(self.solver.shallow(&of), Type::Dyn) {
                    Type::Dyn
                } else {
                    common
                }
            }
            Some(common) => {
                let (wanted, found) = (self.solver.finish(&common), self.solver.finish(&of));
                self.issue(at, format!("expected type '{wanted}' but found '{found}'"));
                common
            }
        }
    }

    fn map(&mut self, entries: &[(Node, Entry)]) -> Type {
        let mut key = None;
        for (name, _) in entries {
            let of = self.node(name);
            key = Some(self.joined(key, of, name.at));
        }
        let value = self.all_of(entries.iter().map(|(_, entry)| entry));
        let key = key.unwrap_or_else(|| self.solver.fresh());
        Type::Map(Arc::new(key), Arc::new(value))
    }

    fn message(&mut self, node: &Node, name: &str, fields: &[(Box<str>, Entry)]) -> Type {
        let Some(of) = self.env.message(name) else {
            return self.issue(node.at, format!("undeclared reference to '{name}' (in container '')"));
        };
        for (field, entry) in fields {
            let wanted = self.field(node, &of, field);
            let mut found = self.node(&entry.value);
            if entry.is_optional
                && let Type::Optional(inner) = self.solver.shallow(&found)
            {
                found = (*inner).clone();
            }
            if !self.solver.unify(&wanted, &found) {
                let (wanted, found) = (self.solver.finish(&wanted), self.solver.finish(&found));
                self.issue(entry.value.at, format!("expected type of field '{field}' is '{wanted}' but provided type is '{found}'"));
            }
        }
        of
    }

    fn fold(&mut self, fold: &Fold) -> Type {
        let range = self.node(&fold.range);
        let (first, second) = match (self.solver.shallow(&range), fold.second.is_some()) {
            (Type::List(of), false) => ((*of).clone(), Type::Dyn),
            (Type::List(of), true) => (Type::Int, (*of).clone()),
            (Type::Map(key, value), _) => ((*key).clone(), (*value).clone()),
            (Type::Dyn | Type::Var(_), _) => (Type::Dyn, Type::Dyn),
            (other, _) => {
                let other = self.solver.finish(&other);
                let message = format!("expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)");
                (self.issue(fold.range.at, message), Type::Dyn)
            }
        };
        let start = self.node(&fold.start);
        let depth = self.locals.len();
        self.locals.push((fold.accumulator.clone(), start.clone()));
        self.locals.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second {
            self.locals.push((name.clone(), second));
        }
        let condition = self.node(&fold.condition);
        self.expect(&fold.condition, &Type::Bool, &condition);
        let step = self.node(&fold.step);
        self.expect(&fold.step, &start, &step);
        self.locals.truncate(depth);
        self.locals.push((fold.accumulator.clone(), start));
        let result = self.node(&fold.result);
        self.locals.truncate(depth);
        result
    }

    fn expect(&mut self, node: &Node, wanted: &Type, found: &Type) {
        if !self.solver.unify(wanted, found) {
            let (wanted, found) = (self.solver.finish(wanted), self.solver.finish(found));
            self.issue(node.at, format!("expected type '{wanted}' but found '{found}'"));
        }
    }
}

fn of_literal(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
