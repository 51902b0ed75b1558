//! Expressions of policies. They are compiled when the policy is written, so that its author gets the errors, and
//! not the users whose requests it matches.

use api_cel::Env;
use api_cel::admission::{self, Wanted};

use super::MATCH_CONDITIONS_MAX;
use crate::at::At;
use crate::checks::Checks;

/// The variables of the expressions of one policy.
pub struct Expressions {
    has_params: bool,
    builds_objects: bool,
    variables: Vec<(String, api_cel::Type)>,
}

impl Expressions {
    /// For a policy with this spec; no variables are declared yet.
    pub fn new(spec: &At<'_>, builds_objects: bool) -> Self {
        Self { has_params: spec.get("paramKind").exists(), builds_objects, variables: Vec::new() }
    }

    fn env(&self, has_authorizer: bool) -> Env {
        let env = admission::env(self.has_params, has_authorizer);
        let env = if self.builds_objects { env.building_objects() } else { env };
        match self.variables.as_slice() {
            [] => env,
            variables => env.with_composed(variables.iter().map(|(name, of)| (name.as_str(), of.clone()))),
        }
    }

    /// Checks the variables and declares them; each may refer to the variables before it.
    pub fn declare(&mut self, variables: &At<'_>, checks: &mut Checks) {
        for variable in variables.items() {
            let (name, expression) = (variable.get("name"), variable.get("expression"));
            if name.text().trim().is_empty() {
                checks.required(&name, "name is not specified");
            } else if !is_identifier(name.text()) {
                checks.invalid(&name, "name is not a valid CEL identifier");
            }
            if expression.text().trim().is_empty() {
                checks.required(&expression, "expression is not specified");
                continue;
            }
            match admission::compile(expression.text(), &self.env(true), Wanted::Anything) {
                Ok(compiled) => self.variables.push((name.text().to_owned(), compiled.result().clone())),
                Err(complaint) => checks.invalid(&expression, complaint.to_string()),
            }
        }
    }

    /// Checks an expression, which may use the authorizer.
    pub fn check(&self, at: &At<'_>, text: &str, wanted: Wanted, checks: &mut Checks) {
        if let Err(complaint) = admission::compile(text, &self.env(true), wanted) {
            checks.invalid(at, complaint.to_string());
        }
    }

    /// Checks the expression of a message, which may not use the authorizer.
    pub fn check_message(&self, at: &At<'_>, checks: &mut Checks) {
        if let Err(complaint) = admission::compile(at.text(), &self.env(false), Wanted::Text) {
            checks.invalid(at, complaint.to_string());
        }
    }

    /// Checks match conditions. They are evaluated before the variables, so they cannot refer to them.
    pub fn conditions(&self, conditions: &At<'_>, checks: &mut Checks) {
        if conditions.len() > MATCH_CONDITIONS_MAX {
            checks.too_many(conditions, MATCH_CONDITIONS_MAX);
        }
        let env = admission::env(self.has_params, true);
        let mut names: Vec<&str> = Vec::new();
        for condition in conditions.items() {
            let (name, expression) = (condition.get("name"), condition.get("expression"));
            let text = expression.text().trim();
            if text.is_empty() {
                checks.required(&expression, "");
            } else if let Err(complaint) = admission::compile(text, &env, Wanted::Bool) {
                checks.invalid_value(&expression.path, text, complaint.to_string());
            }
            if name.text().is_empty() {
                checks.required(&name, "");
                continue;
            }
            checks.qualified_name(&name);
            if names.contains(&name.text()) {
                checks.duplicate(&name);
            } else {
                names.push(name.text());
            }
        }
    }
}

/// Whether the conditions need no check, because the conditions and the kind of parameters have not changed.
pub fn conditions_are_old(new: &At<'_>, old: &At<'_>) -> bool {
    ["paramKind", "matchConditions"].iter().all(|field| new.get(field).same(&old.get(field)))
}

fn is_identifier(name: &str) -> bool {
    let is_letter = |c: char| c == '_' || c.is_ascii_alphabetic();
    name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit()) && !api_cel::is_reserved(name)
}
