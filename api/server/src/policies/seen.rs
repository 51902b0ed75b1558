//! The variables of policies' expressions: the objects in the form that the policy matches, the request, and the
//! Namespace.

use std::sync::Arc;

use api_admission::webhook::Review;
use api_admission::{Denied, Request, policy};
use api_cel::Check;
use api_model::kind::GroupResource;
use api_model::view::View as _;
use serde_json::Value;

use super::asker::Asker;
use crate::attributes::forms::{self, Forms};
use crate::attributes::{AdmissionAttributes, options};
use crate::call::Call;
use crate::registry::Served;
use api_wire::status::ApiResult;

/// The request and its objects in one form.
pub(crate) struct FormVariables {
    form: usize,
    object: Option<Value>,
    old: Option<Value>,
    request: Value,
}

impl FormVariables {
    /// # Errors
    /// When an object cannot be converted to the form.
    pub(crate) async fn of(
        call: &Call,
        attributes: AdmissionAttributes<'_>,
        request: &Request<'_>,
        (index, form): (usize, &Served),
    ) -> ApiResult<Self> {
        Ok(Self {
            form: index,
            object: forms::show(call, form, request.object()).await?,
            old: forms::show(call, form, request.old).await?,
            request: as_variable(call, attributes, request, form),
        })
    }
}

/// The variable `request`: an AdmissionRequest without the fields that are separate variables.
fn as_variable(call: &Call, attributes: AdmissionAttributes<'_>, request: &Request<'_>, form: &Served) -> Value {
    let options = options::of(call, attributes);
    let (requested, form) = (&*call.served.kind, &*form.kind);
    let review = Review { uid: "", version: "v1", request, form, requested, object: None, old: None, options };
    let mut request = review.into_value().get_mut("request").map(Value::take).unwrap_or_default();
    if let Some(fields) = request.as_object_mut() {
        fields.retain(|name, value| !matches!(name.as_str(), "uid" | "object" | "oldObject") && !value.is_null());
    }
    request
}

/// The variables that do not depend on the form, and those of the forms that were used.
pub(crate) struct Sight<'a> {
    call: &'a Call,
    asker: Asker<'a>,
    namespace: Option<Arc<Value>>,
    check: Check,
    seen: Vec<Arc<FormVariables>>,
}

impl<'a> Sight<'a> {
    /// # Errors
    /// When the request's namespace does not exist.
    pub(crate) fn of(call: &'a Call, request: &Request<'_>) -> ApiResult<Self> {
        let is_namespace = request.kind.group.is_empty() && request.kind.plural == "namespaces";
        let name = if is_namespace { "" } else { request.namespace };
        let resource = GroupResource::new("", "namespaces");
        let namespace = match name {
            "" => None,
            name => Some(call.core.cache.get(&resource, None, name).ok_or_else(|| Denied::NotFound { resource, name: name.to_owned() })?),
        };
        let kind = &call.served.kind;
        let check = Check {
            group: kind.group.clone(),
            resource: kind.plural.clone(),
            subresource: call.subresource.clone(),
            namespace: request.namespace.to_owned(),
            name: request.object_name().to_owned(),
            ..Check::default()
        };
        Ok(Self { call, asker: Asker { core: &call.core, user: &call.user }, namespace, check, seen: Vec::new() })
    }

    /// The variables in a form. They are computed once.
    ///
    /// # Errors
    /// When an object cannot be converted to the form.
    pub(crate) async fn in_form(
        &mut self,
        attributes: AdmissionAttributes<'_>,
        request: &Request<'_>,
        forms: &Forms,
        form: usize,
    ) -> ApiResult<Arc<FormVariables>> {
        if let Some(seen) = self.seen.iter().find(|seen| seen.form == form) {
            return Ok(Arc::clone(seen));
        }
        let served = forms.get(form).unwrap_or_else(|| Arc::clone(&self.call.served));
        let seen = Arc::new(FormVariables::of(self.call, attributes, request, (form, &served)).await?);
        self.seen.push(Arc::clone(&seen));
        Ok(seen)
    }

    /// The variables for an evaluation.
    pub(crate) fn attributes<'s>(&'s self, seen: &'s FormVariables) -> policy::Activation<'s> {
        policy::Activation {
            request: &seen.request,
            object: seen.object.as_ref(),
            old: seen.old.as_ref(),
            namespace: self.namespace.as_deref(),
            authorizer: &self.asker,
            check: self.check.clone(),
        }
    }
}
