//! Mutating policies run one after the other; each gets the object as the previous one left it.

use std::time::{Duration, Instant};

use api_admission::Operation;
use api_admission::policy::{Binding, Change, Failures, Hook, Policy};
use api_admission::webhook::{self, Gvk, Reinvocation};
use api_model::kind::Kind;
use api_model::message::Message;
use api_model::meta;
use api_rules::apply;
use api_rules::patch::{self, PatchError};
use serde_json::Value;

use super::seen::{FormVariables, Sight};
use super::{Invocation, Policies, invocations};
use crate::attributes::forms::{self, Forms};
use crate::attributes::{AdmissionAttributes, request};
use crate::call::Call;
use crate::registry::Served;
use api_wire::json;
use api_wire::status::{ApiError, ApiResult};

/// Runs the mutating policies that match the request, and applies their changes.
pub(crate) async fn mutate(
    policies: &Policies,
    call: &Call,
    attributes: AdmissionAttributes<'_>,
    object: Option<&mut Value>,
    rounds: &mut Reinvocation,
) -> ApiResult<()> {
    let hooks = policies.mutating.current();
    let Some(object) = object.filter(|_| !hooks.is_empty() && !webhook::is_policy(&call.served.kind)) else { return Ok(()) };
    rounds.begin(Some(&*object));
    let (forms, mut failures) = (Forms::of(call), Failures::default());
    let due = due(call, attributes, object, &forms, &hooks, &mut failures);
    let mut round = MutationRound { call, attributes, forms: &forms, rounds, failures: &mut failures };
    for invocation in &due {
        round.invoke(invocation, object).await?;
    }
    rounds.end(Some(&*object));
    let refusal = failures.refusal(&request(call, attributes.step, Some(object)));
    refusal.map_or(Ok(()), |status| Err(ApiError::verbatim(status)))
}

/// The invocations that match the request as it came in: the change of a policy does not make other policies match.
fn due<'h>(
    call: &Call,
    attributes: AdmissionAttributes<'_>,
    object: &mut Value,
    forms: &Forms,
    hooks: &'h [Hook],
    failures: &mut Failures,
) -> Vec<Invocation<'h>> {
    let request = request(call, attributes.step, Some(object));
    let kinds: Vec<&Kind> = forms.kinds().collect();
    let mut complain = |policy: &Policy, binding: Option<&Binding>, why: &str| failures.misconfigured(policy, binding, why);
    hooks.iter().flat_map(|hook| invocations(call, &request, &kinds, hook, &mut complain)).collect()
}

/// The run of the policies in one round.
struct MutationRound<'t> {
    call: &'t Call,
    attributes: AdmissionAttributes<'t>,
    forms: &'t Forms,
    rounds: &'t mut Reinvocation,
    failures: &'t mut Failures,
}

impl MutationRound<'_> {
    async fn invoke(&mut self, invocation: &Invocation<'_>, object: &mut Value) -> ApiResult<()> {
        let Invocation { policy, binding, form, .. } = invocation;
        let Some(served) = self.forms.get(*form) else { return Ok(()) };
        let params = match invocation.params_in_version().await {
            Ok(params) => params,
            Err(error) => {
                self.failures.misconfigured(policy, Some(binding), error.message());
                return Ok(());
            }
        };
        let form = (*form, &*served);
        let is_due = {
            let (sight, seen) = self.look(form, object).await?;
            policy.is_due(&sight.attributes(&seen), params.as_deref())
        };
        match is_due {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(why) => {
                self.failures.failed(policy, binding, &why);
                return Ok(());
            }
        }
        let id = id(invocation);
        if !self.rounds.is_due(&id) {
            return Ok(());
        }
        let before = object.clone();
        for index in 0..policy.mutations() {
            let (change, evaluating) = {
                let (sight, seen) = self.look(form, object).await?;
                timed(|| policy.change(index, &sight.attributes(&seen), params.as_deref()))
            };
            let external = forms::show(self.call, &served, Some(&*object)).await?.unwrap_or_default();
            let (changed, patching) = timed(|| change.and_then(|change| self.changed(&served, &external, change)));
            let failure = changed.as_ref().err().map(|why| &**why);
            self.call.core.metrics.policies.mutated(&policy.name, &binding.name, failure, evaluating + patching);
            match changed {
                Ok(Some(changed)) => *object = forms::take_back(self.call, &served, object, &external, changed).await?,
                Ok(None) => {}
                Err(why) => self.failures.failed(policy, binding, &why),
            }
        }
        if before != *object {
            self.rounds.changed();
        }
        if policy.is_reinvoked {
            self.rounds.invoked(&id);
        }
        Ok(())
    }

    async fn look(&self, form: (usize, &Served), object: &mut Value) -> ApiResult<(Sight<'_>, FormVariables)> {
        let request = request(self.call, self.attributes.step, Some(object));
        let sight = Sight::of(self.call, &request)?;
        Ok((sight, FormVariables::of(self.call, self.attributes, &request, form).await?))
    }

    /// The changed form of the object; `None` if a `test` operation of a patch fails.
    fn changed(&self, form: &Served, external: &Value, change: Change) -> Result<Option<Value>, Message> {
        let changed = match change {
            Change::Apply(mut config) => {
                let Gvk { group, version, kind } = Gvk::of_body(&form.kind, &self.call.subresource);
                if self.attributes.step.operation == Operation::Connect {
                    // There is no schema for the options of connections, so they cannot be merged.
                    let why = "error applying patch: failed to convert patch object to typed object";
                    return Err(format!("{why}: no corresponding type for {group}/{version}, Kind={kind}").into());
                }
                let api_version = if group.is_empty() { version } else { format!("{group}/{version}") };
                json::set(&mut config, &["apiVersion"], api_version);
                json::set(&mut config, &["kind"], kind);
                let changed = apply::overlay(forms::typing(self.call, form), external, &config);
                changed.map_err(|why| format!("error applying patch: {why}"))?
            }
            Change::Patch(operations) => match patch::json(external, &operations) {
                Ok(changed) => changed,
                Err(PatchError::TestFailed(_)) => return Ok(None),
                Err(error) => return Err(format!("JSONPath: {error}").into()),
            },
        };
        Ok(Some(changed))
    }
}

/// The result of a function, and its duration.
fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let outcome = what();
    (outcome, started.elapsed())
}

/// Identifies an invocation among those of a request.
fn id(Invocation { policy, binding, params, .. }: &Invocation<'_>) -> String {
    let params = params.as_deref();
    let (namespace, name) = (params.map(meta::namespace).unwrap_or_default(), params.map(meta::name).unwrap_or_default());
    format!("{}/{}/{namespace}/{name}", policy.name, binding.name)
}
