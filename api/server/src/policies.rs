//! Admission policies. `api_admission::policy` decides which requests a policy concerns and what its expressions yield. This module
//! keeps the policies compiled, gives them the objects that they look at, and does what they decide.

mod asker;
mod mutate;
mod params;
mod rights;
pub(crate) mod seen;

use std::collections::HashMap;
use std::sync::Arc;

use api_admission::policy::{Binding, Bindings, Findings, Hook, Match, ParamError, Policy};
use api_admission::{Request, webhook};
use api_model::kind::{GroupResource, Kind};
use parking_lot::RwLock;
use serde_json::Value;

pub(crate) use self::mutate::mutate;
use self::params::Source;
pub(crate) use self::rights::check as check_rights;
use self::seen::Sight;
use crate::attributes::forms::Forms;
use crate::attributes::{AdmissionAttributes, request};
use crate::call::Call;
use api_cache::{Cache, Filter, Resource};
use api_wire::status::{ApiError, ApiResult};

/// The policies in force.
pub(crate) struct Policies {
    mutating: Configured,
    validating: Configured,
}

/// The policies of one kind with their bindings, compiled anew when one changes.
struct Configured {
    /// Policies and bindings; none: the plugin is switched off.
    resources: Option<(Arc<Resource>, Arc<Resource>)>,
    known: RwLock<CompiledPolicies>,
}

#[derive(Default)]
struct CompiledPolicies {
    revisions: (u64, u64),
    /// The compiled policies by name, with the revision of their objects.
    compiled: HashMap<Arc<str>, (u64, Arc<Policy>)>,
    hooks: Arc<[Hook]>,
}

impl Policies {
    /// The policies of the plugins that are not switched off.
    pub(crate) fn new(cache: &Arc<Cache>, off: &[String]) -> Self {
        let resource = |plural: &str| cache.resource(&GroupResource::new("admissionregistration.k8s.io", plural));
        let configured = |plugin: &str, policies: &str, bindings: &str| Configured {
            resources: (!off.iter().any(|name| name == plugin)).then(|| (resource(policies), resource(bindings))),
            known: RwLock::default(),
        };
        Self {
            mutating: configured("MutatingAdmissionPolicy", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
            validating: configured("ValidatingAdmissionPolicy", "validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        }
    }
}

#[cfg(test)]
impl Policies {
    pub(crate) fn validating_for_tests(&self) -> Arc<[Hook]> {
        self.validating.current()
    }
}

impl Configured {
    fn current(&self) -> Arc<[Hook]> {
        let Some((policies, bindings)) = &self.resources else { return Arc::default() };
        let revisions = (policies.revision(), bindings.revision());
        let before = {
            let known = self.known.read();
            if known.revisions == revisions {
                return Arc::clone(&known.hooks);
            }
            known.compiled.clone()
        };
        // What is listed is at least as new as the revisions: at worst it is listed once more.
        let objects = policies.list(&Filter::default(), revisions.0).items;
        let mut in_order = Vec::with_capacity(objects.len());
        let mut compiled = HashMap::with_capacity(objects.len());
        for object in objects {
            let unchanged =
                before.get(&object.name).filter(|(revision, _)| *revision == object.revision).map(|(_, policy)| Arc::clone(policy));
            let policy = unchanged.unwrap_or_else(|| Arc::new(Policy::from(&object.value())));
            compiled.insert(Arc::clone(&object.name), (object.revision, Arc::clone(&policy)));
            in_order.push(policy);
        }
        let bound: Vec<Arc<Value>> = bindings.list(&Filter::default(), revisions.1).items.iter().map(|object| object.value()).collect();
        let mut bindings = Bindings::new(bound.iter().map(|object| &**object));
        let hooks: Arc<[Hook]> = in_order.iter().filter_map(|policy| bindings.hook(policy)).collect();
        *self.known.write() = CompiledPolicies { revisions, compiled, hooks: Arc::clone(&hooks) };
        hooks
    }
}

/// A policy that a request concerns, by one binding and with one object of parameters.
struct Invocation<'h> {
    policy: &'h Policy,
    binding: &'h Binding,
    /// In which form it looks at the object.
    form: usize,
    params: Option<Arc<Value>>,
    /// Where these came from.
    source: Option<Arc<Source>>,
}

impl Invocation<'_> {
    /// Its parameters in the version that the policy names.
    async fn params_in_version(&self) -> ApiResult<Option<Arc<Value>>> {
        let (Some(source), Some(params)) = (&self.source, &self.params) else { return Ok(self.params.clone()) };
        source.converted(Arc::clone(params)).await.map(Some)
    }
}

/// Everything to be evaluated for a policy. What is not as it must be is told.
fn invocations<'h>(
    call: &Call,
    request: &Request<'_>,
    forms: &[&Kind],
    hook: &'h Hook,
    complain: &mut dyn FnMut(&Policy, Option<&Binding>, &str),
) -> Vec<Invocation<'h>> {
    let (policy, view, mut found) = (&*hook.policy, &*call.core.cache, Vec::new());
    let form = match policy.matched.form(request, forms, view) {
        Ok(Some(form)) => form,
        Ok(None) => return found,
        Err(denied) => {
            complain(policy, None, &denied.to_string());
            return found;
        }
    };
    let source = match policy.param_kind.as_ref().map(|kind| Source::of(&call.core, kind).ok_or_else(|| kind.missing())).transpose() {
        Ok(source) => source.map(Arc::new),
        Err(why) => {
            complain(policy, None, &why);
            return found;
        }
    };
    for binding in hook.bindings.iter() {
        let is_meant = |matched: &Match| matched.form(request, forms, view).map(|form| form.is_some());
        let params = match binding.matched.as_ref().map_or(Ok(true), is_meant) {
            Ok(false) => continue,
            Ok(true) => params(source.as_deref(), binding, request.namespace).map_err(|error| error.to_string()),
            Err(denied) => Err(denied.to_string()),
        };
        match params {
            Ok(params) => {
                found.extend(params.into_iter().map(|params| Invocation { policy, binding, form, params, source: source.clone() }));
            }
            Err(why) => complain(policy, Some(binding), &why),
        }
    }
    found
}

/// The objects of parameters that a policy is evaluated with, once for each.
fn params(source: Option<&Source>, binding: &Binding, namespace: &str) -> Result<Vec<Option<Arc<Value>>>, ParamError> {
    match (source, &binding.param_ref) {
        (Some(source), Some(reference)) => Ok(reference.find(source, namespace)?.into_iter().map(Some).collect()),
        _ => Ok(vec![None]),
    }
}

/// Asks the validating policies whom it concerns whether they agree.
pub(crate) async fn validate(
    policies: &Policies,
    call: &mut Call,
    attributes: AdmissionAttributes<'_>,
    object: Option<&mut Value>,
) -> ApiResult<()> {
    let hooks = policies.validating.current();
    if hooks.is_empty() || webhook::is_policy(&call.served.kind) {
        return Ok(());
    }
    let (mut findings, refusal) = examine(call, attributes, object, &hooks).await?;
    findings.checks.iter().for_each(|checked| call.core.metrics.policies.validated(checked));
    if let Some(trail) = &call.trail {
        findings.annotations.drain(..).for_each(|(name, text)| trail.annotate(name, text));
    }
    call.warn(findings.warnings);
    refusal.map_or(Ok(()), |status| Err(ApiError::verbatim(status)))
}

async fn examine(
    call: &Call,
    attributes: AdmissionAttributes<'_>,
    object: Option<&mut Value>,
    hooks: &[Hook],
) -> ApiResult<(Findings, Option<Value>)> {
    let (request, forms, mut findings) = (request(call, attributes.step, object), Forms::of(call), Findings::default());
    let kinds: Vec<&Kind> = forms.kinds().collect();
    let mut sight = None;
    for hook in hooks {
        let mut complain = |policy: &Policy, binding: Option<&Binding>, why: &str| findings.misconfigured(policy, binding, why);
        let invocations = invocations(call, &request, &kinds, hook, &mut complain);
        for invocation in invocations {
            let params = invocation.params_in_version().await;
            let Invocation { policy, binding, form, .. } = invocation;
            let params = match params {
                Ok(params) => params,
                Err(error) => {
                    findings.misconfigured(policy, Some(binding), error.message());
                    continue;
                }
            };
            let sight: &mut Sight<'_> = match &mut sight {
                Some(sight) => sight,
                none => none.insert(Sight::of(call, &request)?),
            };
            let seen = sight.in_form(attributes, &request, &forms, form).await?;
            findings.validate(policy, binding, &sight.attributes(&seen), params.as_deref());
        }
        findings.publish(&hook.policy);
    }
    let refusal = findings.refusal(&request);
    Ok((findings, refusal))
}
