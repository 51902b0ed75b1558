//! The forms in which a webhook or a policy can get an object, and the conversion back: a resource may be served in
//! several groups and versions, and at `scale` it is a Scale.

use std::sync::Arc;

use api_admission::webhook::Gvk;
use api_model::kind::Kind;
use api_rules::apply::Typing;
use api_rules::{FieldValidation, scale};
use serde_json::Value;

use crate::call::Call;
use crate::registry::Served;
use api_wire::status::{ApiError, ApiResult};

/// The forms of a call's object. The first is the form of the call itself.
pub(crate) struct Forms(Vec<Arc<Served>>);

impl Forms {
    pub(crate) fn of(call: &Call) -> Self {
        let mut forms = vec![Arc::clone(&call.served)];
        forms.extend(call.core.registry.equivalents(&call.served));
        Self(forms)
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.0.iter().map(|served| &*served.kind)
    }

    pub(crate) fn get(&self, index: usize) -> Option<Arc<Served>> {
        self.0.get(index).cloned()
    }
}

/// Whether the body of the subresource is the object itself.
fn shows_object(call: &Call, form: &Served) -> bool {
    call.subresource != "proxy" && form.kind.subresource(&call.subresource).is_none_or(|sub| sub.kind.is_none())
}

/// The object as the webhook gets it, from an object in the call's form.
///
/// # Errors
/// When the object cannot be converted.
pub(crate) async fn show(call: &Call, form: &Served, object: Option<&Value>) -> ApiResult<Option<Value>> {
    let Some(object) = object else { return Ok(None) };
    let external = match call.subresource.as_str() {
        "scale" => scale::read(&form.kind, object).unwrap_or_default(),
        _ if shows_object(call, form) => form.external_of_version(object).await?,
        _ => object.clone(),
    };
    Ok(Some(external))
}

/// The object in the call's form, after a patch of the result of [`show`].
///
/// # Errors
/// When the patch does not apply or changes the kind.
pub(crate) async fn patch(call: &Call, form: &Served, object: &Value, patch: &Value) -> ApiResult<Value> {
    let external = show(call, form, Some(object)).await?.unwrap_or_default();
    let patched = api_rules::patch::json(&external, patch).map_err(ApiError::internal)?;
    take_back(call, form, object, &external, patched).await
}

/// The object in the call's form, after a change to the result of [`show`].
///
/// # Errors
/// When the change changed the kind, or the object cannot be converted.
pub(crate) async fn take_back(call: &Call, form: &Served, object: &Value, external: &Value, mut patched: Value) -> ApiResult<Value> {
    let Gvk { group, version, kind } = Gvk::of_body(&form.kind, &call.subresource);
    for field in ["apiVersion", "kind"] {
        if patched.get(field) != external.get(field) {
            return Err(ApiError::internal(format!("a patch may not change {field} of {kind}.{version}.{group}")));
        }
    }
    // Unknown fields are dropped, as for a client that does not ask for warnings.
    let checked = match shows_object(call, form) {
        true => api_rules::check_fields(&form.kind, &mut patched, &[], FieldValidation::Ignore),
        false => api_rules::check_body(&group, &version, &kind, &mut patched, &[], FieldValidation::Ignore),
    };
    checked.map_err(ApiError::internal)?;
    if call.subresource == "scale" {
        let mut scaled = object.clone();
        scale::write(&form.kind, &mut scaled, &patched);
        return Ok(scaled);
    }
    if shows_object(call, form) {
        let mut patched = call.served.internal_from(form, patched).await?;
        api_rules::default(&call.served.stored, &mut patched);
        return Ok(patched.into_value());
    }
    Ok(patched)
}

/// The type of the result of [`show`].
pub(crate) fn typing<'s>(call: &Call, form: &'s Served) -> Typing<'s> {
    match call.subresource.as_str() {
        "scale" => api_schema::of_gvk("autoscaling", "v1", "Scale").map_or(Typing::Deduced, Typing::Known),
        _ if shows_object(call, form) => Typing::new(&form.kind),
        sub => {
            let Gvk { group, version, kind } = Gvk::of_body(&form.kind, sub);
            api_schema::of_gvk(&group, &version, &kind).map_or(Typing::Deduced, Typing::Known)
        }
    }
}
