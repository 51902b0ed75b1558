//! Admission: plugins, then policies, then webhooks. Those that change objects are asked before validation, those that only
//! allow or reject are asked when the object is final. Quotas come last.

use std::sync::Arc;
use std::time::Duration;

use api_admission::webhook::Reinvocation;
use api_admission::{Allows, Awaited, Chain, Denied, UnknownPlugin};
use api_auth::authorize::escalation::Write;
use api_cache::{Filter, Since};
use api_model::selector::{FieldSelector, FieldTerm};
use api_wire::options::DeleteOptions;
use api_wire::status::{ApiError, ApiResult};
use serde_json::Value;

use crate::attributes::{AdmissionAttributes, Step, request};
use crate::call::Call;
use crate::core::Core;
use crate::exclusive::Locks;
use crate::policies::{self, Policies};
use crate::quota::{Hold, Quotas};
use crate::webhooks::{self, Webhooks};

/// How long a create waits for an object that it needs and that a controller is about to make. Upstream waits so for a new
/// namespace's ServiceAccount.
const AWAITED_FOR: Duration = Duration::from_secs(1);

/// Who is asked about a request before it is done.
pub(crate) struct Admission {
    chain: Chain,
    pub(crate) policies: Policies,
    pub(crate) webhooks: Webhooks,
    pub(crate) quotas: Arc<Quotas>,
}

impl Admission {
    /// # Errors
    /// When a plugin that is switched off does not exist.
    pub(crate) fn new(core: &Arc<Core>, locks: &Arc<Locks>) -> Result<Self, UnknownPlugin> {
        let authorizer = Arc::clone(&core.authorizer);
        let allows: Allows = Arc::new(move |user, attributes, view| authorizer.authorize(user, attributes, view).is_allowed());
        let off = &core.config.disable_admission_plugins;
        Ok(Self {
            chain: Chain::new(off, allows, core.config.mirror_pods)?,
            policies: Policies::new(&core.cache, off),
            webhooks: Webhooks::new(&core.cache, off),
            quotas: Quotas::new(core, locks),
        })
    }

    /// Lets plugins, policies and webhooks change the object, or reject it.
    pub(crate) async fn mutate(&self, call: &mut Call, step: Step<'_>, mut object: Option<&mut Value>) -> ApiResult<()> {
        self.plugins_mutate(call, step, object.as_deref_mut())?;
        self.others_mutate(call, AdmissionAttributes { step, delete: None }, object).await
    }

    /// [`Admission::mutate`] that asks the plugins once more when a missing object appears within a moment.
    pub(crate) async fn mutate_patiently(&self, call: &mut Call, step: Step<'_>, object: &mut Value) -> ApiResult<()> {
        if let Err(denied) = self.plugins_mutate(call, step, Some(object)) {
            match denied.awaits() {
                Some(awaited) if appears(call, awaited).await => self.plugins_mutate(call, step, Some(object))?,
                _ => return Err(denied.into()),
            }
        }
        self.others_mutate(call, AdmissionAttributes { step, delete: None }, Some(object)).await
    }

    /// Lets plugins, policies and webhooks reject the final object.
    pub(crate) async fn validate(&self, call: &mut Call, step: Step<'_>, object: Option<&mut Value>) -> ApiResult<()> {
        self.all_validate(call, AdmissionAttributes { step, delete: None }, object).await
    }

    /// Lets plugins, policies and webhooks reject a deletion. The deletion of an eviction was admitted as an eviction.
    pub(crate) async fn delete(&self, call: &mut Call, step: Step<'_>, options: &DeleteOptions) -> ApiResult<()> {
        if call.subresource == "eviction" {
            return Ok(());
        }
        let attributes = AdmissionAttributes { step, delete: Some(options) };
        self.plugins_mutate(call, step, None)?;
        self.others_mutate(call, attributes, None).await?;
        self.all_validate(call, attributes, None).await
    }

    /// Whether the call's namespace has quotas.
    pub(crate) fn has_quotas(&self, call: &Call) -> bool {
        self.quotas.has(&call.namespace)
    }

    /// Lets the namespace's quotas reject the object as it would be stored. The hold is to be kept until the write is done.
    pub(crate) async fn hold_quota(&self, call: &Call, step: Step<'_>, object: &mut Value) -> ApiResult<Option<Hold>> {
        self.quotas.check(&request(call, step, Some(object))).await
    }

    /// Asks the mutating policies and webhooks. When some changed something, plugins and all of these get a second round.
    async fn others_mutate(&self, call: &mut Call, attributes: AdmissionAttributes<'_>, mut object: Option<&mut Value>) -> ApiResult<()> {
        let (mut by_policies, mut by_webhooks) = (Reinvocation::default(), Reinvocation::default());
        loop {
            policies::mutate(&self.policies, call, attributes, object.as_deref_mut(), &mut by_policies).await?;
            webhooks::mutate(&self.webhooks, call, attributes, object.as_deref_mut(), &mut by_webhooks).await?;
            if !Reinvocation::goes_on([&mut by_policies, &mut by_webhooks]) {
                return Ok(());
            }
            self.plugins_mutate(call, attributes.step, object.as_deref_mut())?;
        }
    }

    fn plugins_mutate(&self, call: &mut Call, step: Step<'_>, object: Option<&mut Value>) -> Result<(), Denied> {
        let mut request = request(call, step, object);
        let warnings = self.chain.admit(&mut request, &*call.core.cache)?;
        call.warn(warnings);
        Ok(())
    }

    async fn all_validate(&self, call: &mut Call, attributes: AdmissionAttributes<'_>, mut object: Option<&mut Value>) -> ApiResult<()> {
        let request = request(call, attributes.step, object.as_deref_mut());
        let warnings = self.chain.validate(&request, &*call.core.cache)?;
        call.warn(warnings);
        policies::validate(&self.policies, call, attributes, object.as_deref_mut()).await?;
        webhooks::validate(&self.webhooks, call, attributes, object).await
    }
}

/// Whether the object exists by the end of the wait.
async fn appears(call: &Call, awaited: &Awaited) -> bool {
    let cache = &call.core.cache;
    let name = FieldTerm { path: "metadata.name".to_owned(), value: awaited.name.clone(), negated: false };
    let filter = Filter { namespace: Some(awaited.namespace.clone()), fields: FieldSelector { terms: vec![name] }, ..Filter::default() };
    let watched = cache.resource(&awaited.resource).watch(filter, Since::Everything, true, cache.applied());
    let Ok((beginning, mut subscription)) = watched else { return false };
    if !beginning.state.is_empty() {
        return true;
    }
    // The first event about an object that did not exist is its creation.
    tokio::time::timeout(AWAITED_FOR, subscription.events.changed()).await.unwrap_or(false)
}

/// Nobody may hand out rights that they do not have: see `api_auth::authorize::escalation`. Nor may they make a policy read what
/// they may not read.
pub(crate) fn check_escalation(call: &Call, step: Step<'_>, new: &Value) -> ApiResult<()> {
    let resource = &call.served.name;
    let write = Write { resource, namespace: call.namespace_key(), name: step.name, new, old: step.old };
    let checked = call.core.authorizer.check_escalation(&call.user, &write, &*call.core.cache);
    checked.map_err(|error| ApiError::denied(resource, step.name, &error.to_string()))?;
    policies::check_rights(call, step.old, new)
}
