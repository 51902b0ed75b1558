//! Evaluates the expressions of a policy for a request.

use api_model::message::Message;
use std::time::{Duration, Instant};

use api_cel::admission::namespace_shape;
use api_cel::{Authorizer, Budget, Check, OBJECT_COST_MAX, Scope, Shape, Value};
use serde_json::Value as Json;

use super::change::Change;
use super::compiled::Failed;
use super::hooks::{Policy, Validation};

/// The maximum of bytes of a message from an expression; a longer message is ignored.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// The variables of the expressions of a policy: cel-go's activation.
#[derive(Clone)]
pub struct Activation<'a> {
    /// `request`.
    pub request: &'a Json,
    /// The new object in the policy's form.
    pub object: Option<&'a Json>,
    /// The stored object in the policy's form.
    pub old: Option<&'a Json>,
    /// The Namespace that the object is in.
    pub namespace: Option<&'a Json>,
    /// The authorizer, for the user of the request.
    pub authorizer: &'a dyn Authorizer,
    /// The authorization check of the request, without the verb.
    pub check: Check,
}

/// A failed validation, or a failed evaluation that rejects the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The index of the validation.
    pub(super) index: usize,
    /// The message.
    pub(super) message: String,
    /// The reason of the Status; empty for the default reason.
    pub(super) reason: String,
    /// The duration of its evaluation.
    pub(super) took: Duration,
}

/// A failed evaluation and its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Valueless {
    /// The message.
    pub(super) message: String,
    pub(super) took: Duration,
}

/// The result of a validating policy.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Validated {
    pub(super) refusals: Vec<Refusal>,
    /// Failed evaluations that the policy ignores.
    pub(super) passed_over: Vec<Valueless>,
    /// Keys and values for the audit log.
    pub(super) annotations: Vec<(String, String)>,
    /// Failed evaluations of annotations. They reject the request with any actions of the binding.
    pub(super) failed_annotations: Vec<Valueless>,
}

impl<'a> Activation<'a> {
    /// The scope with these variables and `params`.
    pub(crate) fn scope(&self, params: Option<&'a Json>) -> Scope<'a> {
        let json = |json: Option<&'a Json>| json.map_or(Value::Null, |json| Value::json(json, Shape::Free));
        let namespace = self.namespace.map_or(Value::Null, |namespace| Value::json(namespace, namespace_shape()));
        Scope::default()
            .with("object", json(self.object))
            .with("oldObject", json(self.old))
            .with("request", json(Some(self.request)))
            .with("namespaceObject", namespace)
            .with("params", json(params))
            .with("authorizer", Value::authorizer(self.authorizer))
            .with("authorizer.requestResource", Value::resource_check(self.authorizer, self.check.clone()))
    }
}

impl Policy {
    fn scope<'v>(&'v self, activation: &Activation<'v>, params: Option<&'v Json>) -> Scope<'v> {
        let mut scope = activation.scope(params);
        for (name, variable) in &self.variables {
            if let Some(expression) = variable.expression() {
                scope = scope.with_composed(name, expression);
            }
        }
        scope
    }

    /// Evaluates a validating policy with one parameter object.
    pub(super) fn validate(&self, activation: &Activation<'_>, params: Option<&Json>) -> Validated {
        let scope = self.scope(activation, params);
        let fails = |message: String| {
            let mut validated = Validated::default();
            self.fail(&mut validated, 0, message, Duration::ZERO);
            validated
        };
        match self.conditions.hold(&scope) {
            Ok(true) => {}
            Ok(false) => return Validated::default(),
            Err(message) => return fails(message.into()),
        }
        let mut budget = Budget::new(OBJECT_COST_MAX);
        let mut results = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            let started = Instant::now();
            match validation.expression.evaluate(&scope, &mut budget) {
                Err(Failed::Budget) => return fails(Failed::Budget.message()),
                result => results.push((result.map(|value| value.as_bool() == Some(true)), started.elapsed())),
            }
        }
        let mut validated = Validated::default();
        for (index, (validation, (result, took))) in self.validations.iter().zip(results).enumerate() {
            match result {
                Ok(true) => {}
                Ok(false) => match validation.words(&scope, &mut budget) {
                    Ok(message) => validated.refusals.push(Refusal { index, message, reason: validation.reason.clone(), took }),
                    Err(failed) => self.fail(&mut validated, index, format!("failed messageExpression: {}", failed.message()), took),
                },
                Err(failed) => self.fail(&mut validated, index, failed.message(), took),
            }
        }
        match self.annotate(&scope, &mut validated) {
            Ok(()) => validated,
            Err(failed) => fails(failed.message()),
        }
    }

    /// A failed evaluation rejects the request, unless the failure policy is `Ignore`.
    fn fail(&self, validated: &mut Validated, index: usize, message: String, took: Duration) {
        match self.fails_open {
            true => validated.passed_over.push(Valueless { message, took }),
            false => validated.refusals.push(Refusal { index, message, reason: String::new(), took }),
        }
    }

    fn annotate<'v>(&'v self, scope: &Scope<'v>, validated: &mut Validated) -> Result<(), Failed> {
        let mut budget = Budget::new(OBJECT_COST_MAX);
        for (key, expression) in &self.annotations {
            let started = Instant::now();
            let result = expression.evaluate(scope, &mut budget);
            let mut failed = |message: String| validated.failed_annotations.push(Valueless { message, took: started.elapsed() });
            match result {
                Ok(Value::Null) => {}
                Ok(value) => match value.as_str().map(str::trim) {
                    Some("") => {}
                    Some(text) => validated.annotations.push((key.clone(), text.to_owned())),
                    None => failed(format!(
                        "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                        expression.text,
                        value.type_of()
                    )),
                },
                Err(Failed::Budget) => return Err(Failed::Budget),
                Err(Failed::Alone(message)) if !self.fails_open => failed(message),
                Err(Failed::Alone(_)) => {}
            }
        }
        Ok(())
    }

    /// Whether a request meets the match conditions of a mutating policy.
    ///
    /// # Errors
    /// The conditions fail to evaluate.
    pub fn is_due(&self, activation: &Activation<'_>, params: Option<&Json>) -> Result<bool, Message> {
        self.conditions.hold(&self.scope(activation, params))
    }

    /// Evaluates one mutation of a policy.
    ///
    /// # Errors
    /// The expression fails, or its result is no change.
    pub fn change(&self, index: usize, activation: &Activation<'_>, params: Option<&Json>) -> Result<Change, Message> {
        let Some(mutation) = self.mutations.get(index) else { return Err(format!("policy {} has no mutation {index}", self.name).into()) };
        let scope = self.scope(activation, params);
        let value = mutation.expression.evaluate(&scope, &mut Budget::new(OBJECT_COST_MAX)).map_err(Failed::message)?;
        if mutation.is_apply { Change::apply(&value) } else { Change::patch(&value) }
    }
}

impl Validation {
    /// The message of a failed validation: the result of the message expression if it is usable, else the fixed
    /// message, else the expression's text.
    fn words<'v>(&'v self, scope: &Scope<'v>, budget: &mut Budget) -> Result<String, Failed> {
        let made = match self.made_message.as_ref().map(|message| message.evaluate(scope, budget)) {
            Some(Err(Failed::Budget)) => return Err(Failed::Budget),
            Some(Err(Failed::Alone(why))) => {
                tracing::debug!(why, "a message expression has no value");
                None
            }
            Some(Ok(value)) => value.as_str().map(|text| text.trim().to_owned()),
            None => None,
        };
        let made = made.filter(|text| !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n'));
        let fixed = || (!self.message.is_empty()).then(|| self.message.clone());
        Ok(made.or_else(fixed).unwrap_or_else(|| format!("failed expression: {}", self.expression.text.trim())))
    }
}
