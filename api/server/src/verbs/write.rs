//! The write path. Every create, update, patch, apply and write of a subresource goes through [`Write::run`], whose body is the
//! list of the stages in their order.
//!
//! The verbs decode a request into an object in internal form; what follows is the same for all of them. A verb that changes a
//! stored object runs the path again when somebody else was faster (`modify.rs`).

use std::sync::{Arc, OnceLock};

use api_admission::Operation;
use api_cache::Object;
use api_model::meta;
use api_model::request::REMOTE_ADDRESS;
use api_store::Expect;
use api_wire::status::{ApiError, ApiResult};
use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::Value;

use super::recording::Recording;
use super::{WritePath, body, owners};
use crate::admission::check_escalation;
use crate::attributes::Step;
use crate::call::Call;
use crate::core::WriteError;
use crate::present::Presentation;
use crate::quota::Hold;
use crate::registry::{Internal, Served};
use crate::services::{self, carry_over};
use crate::write_locks::WriteLocks;

/// Upstream's `maxNameGenerationCreateAttempts`.
const NAME_ATTEMPTS_MAX: usize = 8;

/// The result of a write.
pub(crate) enum Written {
    /// The object is stored, or there was nothing to change.
    Stored(Arc<Object>),
    /// Nothing holds a deleted object back any more, so it is gone.
    Gone(Arc<Object>),
    /// A dry run: the object that would have been stored.
    DryRun(Internal),
}

impl Written {
    /// The object as it is after the write.
    pub(crate) fn value(&self) -> Arc<Value> {
        match self {
            Self::Stored(object) | Self::Gone(object) => object.value(),
            Self::DryRun(new) => new.shared(),
        }
    }

    /// The answer with the object.
    pub(super) fn respond(self, presentation: &Presentation, status: StatusCode) -> Response<Body> {
        match self {
            Self::Stored(object) | Self::Gone(object) => presentation.object(status, &object),
            Self::DryRun(new) => presentation.unstored(status, &new),
        }
    }
}

/// The object that a write changes, in all forms that the write needs.
pub(crate) struct Old {
    pub(crate) stored: Arc<Object>,
    /// In the version of the request.
    pub(crate) in_version: Arc<Object>,
    served: Arc<Served>,
    value: OnceLock<Internal>,
}

impl Old {
    /// The object that the call names.
    pub(crate) async fn read(call: &Call) -> ApiResult<Self> {
        let stored = call.object()?;
        let in_version = call.served.one_in_version(Arc::clone(&stored)).await?;
        Ok(Self { stored, in_version, served: Arc::clone(&call.served), value: OnceLock::new() })
    }

    /// As the kind's definition says by now. Parsed when it is first needed.
    pub(crate) fn value(&self) -> &Internal {
        self.value.get_or_init(|| self.present())
    }

    /// The same for a change in place: nobody shares it, unless another request reads the object now.
    pub(super) fn present(&self) -> Internal {
        self.served.current(&self.in_version)
    }
}

/// One write of one object.
#[derive(Clone, Copy)]
pub(crate) struct Write<'w> {
    pub(crate) path: &'w WritePath,
    /// None: the object is new.
    pub(crate) old: Option<&'w Old>,
    /// Who owns the changed fields afterwards. None: the server itself makes the change, such as a Binding. Then the kind's rules
    /// for what clients may change do not apply, admission is not asked, and nobody owns the change.
    pub(crate) recording: Option<&'w Recording>,
    pub(crate) dry_run: bool,
}

impl Write<'_> {
    /// Takes an object in internal form through the stages.
    pub(crate) async fn run(self, call: &mut Call, mut new: Internal) -> Result<Written, WriteError> {
        let Some(recording) = self.recording else { return self.commit(call, new, WriteLocks::default()).await };
        self.default(call, &mut new);
        self.record(call, &mut new, recording).await?;
        self.mutate(call, &mut new).await?;
        if !self.is_name_generated(&new) {
            return self.finish(call, new).await;
        }
        // Rules may use the name in other fields, so a new name is a new object.
        let warnings = call.warnings.len();
        for _ in 0..NAME_ATTEMPTS_MAX {
            call.warnings.truncate(warnings);
            match self.finish(call, new.clone()).await {
                Err(WriteError::Api(error)) if error.is_already_exists() => {}
                finished => return finished,
            }
        }
        Err(ApiError::generated_name_taken(&call.served.name, meta::text(&new, "generateName")).into())
    }

    /// The stages of an object that nobody changes any more but the server.
    async fn finish(self, call: &mut Call, mut new: Internal) -> Result<Written, WriteError> {
        self.complete(call, &mut new);
        self.validate(call, &new)?;
        let locks = self.reserve(call, &mut new).await?;
        self.admit(call, &mut new).await?;
        let name = self.name(&new);
        match self.commit(call, new, locks).await {
            Err(WriteError::Conflict) if self.old.is_none() => Err(ApiError::already_exists(&call.served.name, &name).into()),
            committed => committed,
        }
    }

    /// Fills in the defaults of the kind.
    fn default(self, call: &Call, new: &mut Internal) {
        if let Some(old) = self.old.filter(|_| call.served.is("", "services") && call.sub().is_none()) {
            carry_over(new, old.value());
        }
        api_rules::default(&call.served.stored, new);
        api_rules::drop_empty(&call.served.stored, new);
    }

    /// Enters the manager of the changed fields in `managedFields`.
    async fn record(self, call: &Call, new: &mut Internal, recording: &Recording) -> ApiResult<()> {
        recording.enter(call, self.old.map(Old::value), new);
        match self.old {
            Some(old) => owners::settle(call, old.value(), new, recording).await,
            None => Ok(()),
        }
    }

    /// Mutating admission.
    async fn mutate(self, call: &mut Call, new: &mut Internal) -> ApiResult<()> {
        let name = self.name(new);
        let (admission, step) = (&self.path.admission, self.step(&name));
        if self.old.is_some() {
            return admission.mutate(call, step, Some(new)).await;
        }
        admission.mutate_patiently(call, step, new).await?;
        // A webhook may not move the object elsewhere.
        body::set_namespace(call, new)
    }

    /// Fills in what only the server writes (upstream's `PrepareForCreate` and `PrepareForUpdate`).
    fn complete(self, call: &Call, new: &mut Internal) {
        match self.old {
            Some(old) => api_rules::prepare_update(&call.served.stored, call.sub(), new, old.value()),
            None => {
                set_identity(new);
                api_rules::prepare_create(&call.served.stored, new);
                sign(call, new);
            }
        }
    }

    /// The rules of the kind.
    fn validate(self, call: &mut Call, new: &Internal) -> ApiResult<()> {
        let mut errors = call.misplaced(new, self.old_value());
        match self.old {
            Some(old) => {
                let mut warnings = Vec::new();
                errors.extend(call.served.validate_update(call.sub(), new, old.value(), &mut warnings));
                call.warn(warnings);
            }
            None => errors.extend(call.served.validate_create(new)),
        }
        if !errors.is_empty() {
            return Err(ApiError::invalid(&call.served.kind, &self.name(new), &errors));
        }
        // Before the server fills in addresses that nobody asked for.
        if matches!(call.sub(), None | Some("ephemeralcontainers" | "resize")) {
            call.warn_of_unacted(new, self.old_value());
        }
        Ok(())
    }

    /// Reserves addresses and ports, so that validating admission sees them.
    async fn reserve(self, call: &Call, new: &mut Internal) -> ApiResult<WriteLocks> {
        let alone = services::alone(&self.path.locks, &call.served, self.dry_run).await?;
        let reservation = self.path.allocator.reserve(&call.served, new, self.old_value(), &call.core.cache)?;
        Ok(WriteLocks { reservation, alone, ..WriteLocks::default() })
    }

    /// Validating admission.
    async fn admit(self, call: &mut Call, new: &mut Internal) -> ApiResult<()> {
        let name = self.name(new);
        let step = self.step(&name);
        check_escalation(call, step, new)?;
        self.path.admission.validate(call, step, Some(new)).await?;
        // Those who write a status hear nothing about the spec.
        if call.sub().is_none() {
            call.warn(api_rules::warnings(&call.served.stored, new));
        }
        Ok(())
    }

    /// Converts the object to the version that is stored, lets quotas reject it, and writes it.
    async fn commit(self, call: &Call, mut new: Internal, mut locks: WriteLocks) -> Result<Written, WriteError> {
        let (core, served) = (&call.core, &call.served);
        let name = self.name(&new);
        if self.dry_run {
            self.hold_quota(call, &name, &mut new).await?;
            let is_taken = self.old.is_none() && served.resource.get(call.namespace_key(), &name).is_some();
            return if is_taken { Err(WriteError::Conflict) } else { Ok(Written::DryRun(new)) };
        }
        if let Some(old) = self.old {
            if is_released(&new) {
                return core.remove_in_version(served, &old.stored, &old.in_version, call.fence.as_ref()).await.map(Written::Gone);
            }
            // A change that nobody owns leaves the owners as they are.
            if self.recording.is_some() {
                api_rules::apply::keep_times(old.value(), &mut new);
            }
        }
        let mut new = served.for_storage(new).await?;
        let bytes = new.encode();
        if let Some(old) = self.old.filter(|old| old.stored.is_stored_as(&bytes)) {
            return Ok(Written::Stored(Arc::clone(&old.in_version)));
        }
        locks.quota = self.hold_quota(call, &name, &mut new).await?;
        locks.fence.clone_from(&call.fence);
        // Before the wait, after which another thread may go on.
        drop(new);
        let (namespace, expect) = match self.old {
            Some(old) => (&*old.stored.namespace, Expect::At(old.stored.revision)),
            None => (call.namespace_key(), Expect::Absent),
        };
        let stored = locks.put(core, served, (namespace, &name), expect, bytes).await?;
        Ok(Written::Stored(served.one_in_version(stored).await?))
    }

    /// Lets the quotas of the namespace reject the object. Without quotas, nobody needs the old object for that.
    async fn hold_quota(self, call: &Call, name: &str, new: &mut Value) -> ApiResult<Option<Hold>> {
        if !self.path.admission.has_quotas(call) {
            return Ok(None);
        }
        self.path.admission.hold_quota(call, self.step(name), new).await
    }

    fn old_value(&self) -> Option<&Value> {
        self.old.map(|old| &**old.value())
    }

    /// The name of the object, which a change cannot change.
    fn name(self, new: &Internal) -> String {
        self.old.map_or_else(|| meta::name(new), |old| &*old.stored.name).to_owned()
    }

    fn step<'s>(&'s self, name: &'s str) -> Step<'s> {
        let operation = if self.old.is_some() { Operation::Update } else { Operation::Create };
        Step { operation, name, old: self.old_value(), dry_run: self.dry_run }
    }

    fn is_name_generated(self, new: &Internal) -> bool {
        self.old.is_none() && meta::name(new).is_empty() && !meta::text(new, "generateName").is_empty()
    }
}

/// The identity of a new object.
fn set_identity(object: &mut Value) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        meta::unset(object, field);
    }
    meta::set(object, "uid", meta::new_uid());
    meta::set(object, "creationTimestamp", meta::time(api_clock::now()));
    if meta::name(object).is_empty() {
        let name = match meta::text(object, "generateName") {
            "" => return,
            base => meta::generated_name(base),
        };
        meta::set(object, "name", name);
    }
}

/// A signing request names its author, and only the server may enter the name.
fn sign(call: &Call, object: &mut Value) {
    if !call.served.is("certificates.k8s.io", "certificatesigningrequests") {
        return;
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let user = &*call.user;
    spec.retain(|field, _| !matches!(field.as_str(), "username" | "uid" | "groups" | "extra"));
    spec.insert("username".to_owned(), user.username.as_str().into());
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), user.groups.clone().into());
    }
    let mut extra = user.extra.clone();
    // The address of the machine that asks. Nobody but the server may state it.
    extra.remove(REMOTE_ADDRESS);
    extra.extend(call.remote.map(|remote| (REMOTE_ADDRESS.to_owned(), vec![remote.to_string()])));
    if !extra.is_empty() {
        spec.insert("extra".to_owned(), serde_json::json!(extra));
    }
}

/// Whether an object is deleted and nothing holds it back: no grace and no finalizers, neither in its metadata nor, for a
/// Namespace, in its spec.
fn is_released(object: &Value) -> bool {
    let grace = object.get("metadata").and_then(|m| m.get("deletionGracePeriodSeconds")).and_then(Value::as_i64);
    meta::is_deleting(object) && meta::finalizers(object).is_empty() && grace.unwrap_or_default() == 0 && spec_finalizers(object) == 0
}

/// The number of a Namespace's own finalizers.
pub(super) fn spec_finalizers(object: &Value) -> usize {
    let is_namespace = object.get("kind").and_then(Value::as_str) == Some("Namespace");
    let finalizers = object.get("spec").and_then(|spec| spec.get("finalizers")).and_then(Value::as_array);
    finalizers.filter(|_| is_namespace).map_or(0, Vec::len)
}
