//! The forms in which an object can be shown to a webhook or a policy, and the way back: a resource may be served
//! in several groups and versions, and at `scale` it is a Scale.

use std::sync::Arc;

use api_admission::webhook::Gvk;
use api_model::kind::Kind;
use api_rules::apply::Typing;
use api_rules::{FieldValidation, scale};
use serde_json::Value;

use crate::app::Call;
use crate::registry::Served;

/// The forms of a call's object; the first is the one that the call is for.
pub(crate) struct Forms(Vec<Arc<Served>>);

impl Forms {
    pub(crate) fn of(call: &Call) -> Self {
        let mut forms = vec![Arc::clone(&call.served)];
        forms.extend(call.app.registry.equivalents(&call.served));
        Self(forms)
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.0.iter().map(|served| &*served.kind)
    }

    pub(crate) fn get(&self, index: usize) -> Option<Arc<Served>> {
        self.0.get(index).cloned()
    }
}

/// Whether the subresource's bodies are the object itself.
fn shows_object(call: &Call, form: &Served) -> bool {
    form.kind.subresource(&call.subresource).is_none_or(|sub| sub.kind.is_none())
}

/// What the webhook sees of an object in stored form.
pub(crate) fn show(call: &Call, form: &Served, object: &Value) -> Value {
    let of_scale = || scale::read(&form.kind, object);
    match call.subresource.as_str() {
        "scale" => of_scale().unwrap_or_default(),
        _ if shows_object(call, form) => form.shown(object.clone()),
        _ => object.clone(),
    }
}

/// The object, in stored form, after a patch of what [`show`] shows.
///
/// # Errors
/// When the patch does not apply or makes something of another kind.
pub(super) fn patch(call: &Call, form: &Served, object: &Value, patch: &Value) -> Result<Value, String> {
    let shown = show(call, form, object);
    let patched = api_rules::patch::json(&shown, patch).map_err(|error| error.to_string())?;
    take_back(call, form, object, &shown, patched)
}

/// The object, in stored form, after somebody changed what [`show`] shows of it.
///
/// # Errors
/// When it has become something of another kind.
pub(crate) fn take_back(call: &Call, form: &Served, object: &Value, shown: &Value, mut patched: Value) -> Result<Value, String> {
    let Gvk { group, version, kind } = Gvk::of(&form.kind, &call.subresource);
    for field in ["apiVersion", "kind"] {
        if patched.get(field) != shown.get(field) {
            return Err(format!("a patch may not change {field} of {kind}.{version}.{group}"));
        }
    }
    // Unknown fields go, as they do when a client sends them without asking for warnings.
    api_rules::check_body(&group, &version, &kind, &mut patched, &[], FieldValidation::Ignore).map_err(|error| error.to_string())?;
    if call.subresource == "scale" {
        let mut scaled = object.clone();
        scale::write(&form.kind, &mut scaled, &patched);
        return Ok(scaled);
    }
    if shows_object(call, form) {
        patched = form.to_stored(patched);
        api_rules::default(&form.stored, &mut patched);
    }
    Ok(patched)
}

/// The type of what [`show`] shows.
pub(crate) fn typing<'s>(call: &Call, form: &'s Served) -> Typing<'s> {
    match call.subresource.as_str() {
        "scale" => api_schema::of_gvk("autoscaling", "v1", "Scale").map_or(Typing::Deduced, Typing::Known),
        _ if shows_object(call, form) => Typing::of(&form.kind),
        sub => {
            let Gvk { group, version, kind } = Gvk::of(&form.kind, sub);
            api_schema::of_gvk(&group, &version, &kind).map_or(Typing::Deduced, Typing::Known)
        }
    }
}
