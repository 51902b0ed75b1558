//! Policies with their bindings, parsed and compiled once for all requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_cel::Env;
use api_cel::admission::{self, Wanted};
use api_model::meta;
use serde_json::Value;

use super::compiled::Compiled;
use super::conditions::Conditions;
use super::matching::Match;
use super::params::{ParamKind, ParamRef};
use crate::json;

/// A compiled policy.
#[derive(Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// The kind of its parameter objects.
    pub param_kind: Option<ParamKind>,
    /// Whether a failed evaluation is ignored (failure policy `Ignore`).
    pub fails_open: bool,
    /// Whether a mutating policy is evaluated again when the object changes after it.
    pub is_reinvoked: bool,
    /// The requests that it matches.
    pub matched: Match,
    pub(super) conditions: Conditions,
    pub(super) variables: Vec<(String, Compiled)>,
    pub(super) validations: Vec<Validation>,
    pub(super) annotations: Vec<(String, Compiled)>,
    pub(super) mutations: Vec<Mutation>,
}

#[derive(Debug)]
pub(super) struct Validation {
    pub(super) expression: Compiled,
    pub(super) made_message: Option<Compiled>,
    pub(super) message: String,
    pub(super) reason: String,
}

#[derive(Debug)]
pub(super) struct Mutation {
    pub(super) is_apply: bool,
    pub(super) expression: Compiled,
}

/// A binding, which enforces a policy.
#[derive(Clone, Debug)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// The requests that it matches; `None` means all requests of the policy.
    pub matched: Option<Match>,
    /// The reference to its parameters.
    pub param_ref: Option<ParamRef>,
    /// The actions on a failed validation: `Deny`, `Warn`, `Audit`.
    pub actions: Vec<String>,
    policy: String,
}

/// A policy and its bindings, in the order of their names.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its bindings; at least one.
    pub bindings: Arc<[Binding]>,
}

impl Policy {
    /// Reads a policy of either kind. Policies are validated before they are stored, so missing fields count as empty.
    pub fn from(object: &Value) -> Self {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let param_kind = spec.get("paramKind").filter(|kind| !kind.is_null()).map(ParamKind::from);
        let has_params = param_kind.is_some();
        let is_mutating = spec.get("mutations").is_some_and(|mutations| !mutations.is_null());
        let (env, variables) = variables(spec, is_mutating, has_params);
        let message_env = with_composed(admission::env(has_params, false), &variables);
        let annotation = |annotation: &Value| {
            let value = Compiled::new(json::text(annotation, "valueExpression").trim(), &env, Wanted::TextOrNull);
            (json::text(annotation, "key").to_owned(), value)
        };
        Self {
            name: meta::name(object).to_owned(),
            fails_open: json::text(spec, "failurePolicy") == "Ignore",
            is_reinvoked: json::text(spec, "reinvocationPolicy") == "IfNeeded",
            matched: Match::from(spec.get("matchConstraints").unwrap_or(&Value::Null)),
            conditions: Conditions::new(spec, has_params),
            validations: json::list(spec, "validations").iter().map(|item| Validation::from(item, &env, &message_env)).collect(),
            annotations: json::list(spec, "auditAnnotations").iter().map(annotation).collect(),
            mutations: json::list(spec, "mutations").iter().map(|item| Mutation::from(item, &env)).collect(),
            variables,
            param_kind,
        }
    }

    /// The number of mutations.
    pub fn mutations(&self) -> usize {
        self.mutations.len()
    }
}

/// The variables, and the names that the other expressions may use. Each variable may use the variables before it.
fn variables(spec: &Value, builds_objects: bool, has_params: bool) -> (Env, Vec<(String, Compiled)>) {
    let env = admission::env(has_params, true);
    let env = if builds_objects { env.building_objects() } else { env };
    let mut variables: Vec<(String, Compiled)> = Vec::new();
    for variable in json::list(spec, "variables") {
        let compiled = Compiled::new(json::text(variable, "expression"), &with_composed(env.clone(), &variables), Wanted::Anything);
        variables.push((json::text(variable, "name").to_owned(), compiled));
    }
    (with_composed(env, &variables), variables)
}

fn with_composed(env: Env, variables: &[(String, Compiled)]) -> Env {
    if variables.is_empty() {
        return env;
    }
    let typed = variables.iter().filter_map(|(name, compiled)| Some((name.as_str(), compiled.expression()?.result().clone())));
    env.with_composed(typed)
}

impl Validation {
    fn from(item: &Value, env: &Env, message_env: &Env) -> Self {
        let made = json::text(item, "messageExpression");
        Self {
            expression: Compiled::new(json::text(item, "expression"), env, Wanted::Bool),
            made_message: (!made.is_empty()).then(|| Compiled::new(made, message_env, Wanted::Text)),
            message: json::text(item, "message").trim().to_owned(),
            reason: json::text(item, "reason").to_owned(),
        }
    }
}

impl Mutation {
    fn from(item: &Value, env: &Env) -> Self {
        let is_apply = json::text(item, "patchType") == "ApplyConfiguration";
        let (field, wanted) = if is_apply { ("applyConfiguration", Wanted::Object) } else { ("jsonPatch", Wanted::Patches) };
        let text = item.get(field).map(|change| json::text(change, "expression").trim()).unwrap_or_default();
        Self { is_apply, expression: Compiled::new(text, env, wanted) }
    }
}

impl Binding {
    fn from(object: &Value) -> Self {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let part = |field: &str| spec.get(field).filter(|part| !part.is_null());
        Self {
            name: meta::name(object).to_owned(),
            matched: part("matchResources").map(Match::from),
            param_ref: part("paramRef").map(ParamRef::from),
            actions: json::list(spec, "validationActions").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            policy: json::text(spec, "policyName").to_owned(),
        }
    }
}

/// All bindings by the name of their policy.
#[derive(Debug, Default)]
pub struct Bindings(BTreeMap<String, Vec<Binding>>);

impl Bindings {
    /// Reads bindings of either kind, in the order of their names.
    pub fn new<'a>(objects: impl Iterator<Item = &'a Value>) -> Self {
        let mut bindings = Self::default();
        for binding in objects.map(Binding::from) {
            bindings.0.entry(binding.policy.clone()).or_default().push(binding);
        }
        bindings
    }

    /// A policy with its bindings; `None` if it has no binding.
    pub fn hook(&mut self, policy: &Arc<Policy>) -> Option<Hook> {
        let bindings = self.0.remove(&policy.name)?.into();
        Some(Hook { policy: Arc::clone(policy), bindings })
    }
}
