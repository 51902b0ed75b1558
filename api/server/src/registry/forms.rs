//! The forms that an object has in the server, a type for each:
//!
//! | form | what it is |
//! |---|---|
//! | [`External`] | in the group, version and kind of the path, as clients send and get it |
//! | [`Internal`] | the form in which the server works on the object: defaults, rules, admission, patches |
//! | [`Stored`] | in the version that is stored |
//! | `Bytes` | the stored object, encoded |
//!
//! For most kinds the first three are equal. A kind that is a view of another one (Events of `events.k8s.io`, version 1
//! of HorizontalPodAutoscaler) is internally of the other kind, and stored so. A custom resource with several versions
//! is internally of the version in the path, and stored in another.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use api_cache::Object;
use api_model::field::FieldError;
use api_wire::json;
use api_wire::status::{ApiError, ApiResult};
use bytes::Bytes;
use serde_json::Value;

use super::Served;

/// An object as clients of the path's kind send and get it.
pub(crate) struct External<'a>(Cow<'a, Value>);

/// An object in the form in which the server works on it. A clone costs nothing until one of the two is changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Internal(Arc<Value>);

/// An object in the version that is stored.
pub(crate) struct Stored(Value);

impl External<'_> {
    pub(crate) fn new(value: Value) -> Self {
        Self(Cow::Owned(value))
    }

    pub(crate) fn into_value(self) -> Value {
        self.0.into_owned()
    }
}

impl Deref for External<'_> {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl Internal {
    pub(crate) fn new(value: Value) -> Self {
        Self(Arc::new(value))
    }

    pub(crate) fn into_value(self) -> Value {
        Arc::unwrap_or_clone(self.0)
    }

    pub(crate) fn shared(&self) -> Arc<Value> {
        Arc::clone(&self.0)
    }
}

impl Deref for Internal {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl DerefMut for Internal {
    fn deref_mut(&mut self) -> &mut Value {
        Arc::make_mut(&mut self.0)
    }
}

impl Stored {
    pub(crate) fn encode(&self) -> Bytes {
        api_cache::encode(&self.0)
    }

    pub(crate) fn into_value(self) -> Value {
        self.0
    }
}

impl Deref for Stored {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl DerefMut for Stored {
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.0
    }
}

impl Served {
    /// A client's object in internal form.
    pub(crate) fn internal(&self, external: External<'_>) -> Internal {
        let mut value = external.into_value();
        if let Some(conversion) = &self.conversion {
            (conversion.to_stored)(&mut value);
        }
        Internal::new(value)
    }

    /// An object as clients of this kind see it.
    pub(crate) fn external<'a>(&self, internal: &'a Internal) -> External<'a> {
        External(self.external_value(internal))
    }

    fn external_value<'a>(&self, internal: &'a Value) -> Cow<'a, Value> {
        match &self.conversion {
            None => Cow::Borrowed(internal),
            Some(conversion) => {
                let mut value = internal.clone();
                (conversion.from_stored)(&mut value);
                Cow::Owned(value)
            }
        }
    }

    /// An object as clients of this kind see it, whose internal form is that of another version of the same resource.
    pub(crate) async fn external_of_version(&self, internal: &Value) -> ApiResult<Value> {
        let value = self.external_value(internal).into_owned();
        match self.converter() {
            Some(converter) => converter.value(&self.kind, value).await,
            None => Ok(value),
        }
    }

    /// The internal form of an object that clients of `form`, another version of the same resource, see so.
    pub(crate) async fn internal_from(&self, form: &Self, external: Value) -> ApiResult<Internal> {
        let internal = form.internal(External::new(external));
        match self.converter() {
            Some(converter) => converter.value(&self.kind, internal.into_value()).await.map(Internal::new),
            None => Ok(internal),
        }
    }

    /// An object of the cache, in this kind's version, as the kind's definition says by now.
    pub(crate) fn current(&self, object: &Object) -> Internal {
        match self.plain_custom() {
            Some(custom) if object.written <= custom.since => {
                let mut value = (*object.value()).clone();
                api_rules::read_stored(&self.kind, &mut value);
                json::set(&mut value, &["apiVersion"], custom.api_version.as_str());
                Internal::new(value)
            }
            _ => Internal(object.value()),
        }
    }

    /// Stored objects in this kind's version. Kinds of one version return what is stored.
    pub(crate) async fn in_version(&self, objects: Vec<Arc<Object>>) -> ApiResult<Vec<Arc<Object>>> {
        match self.converter() {
            Some(converter) => converter.objects(&self.kind, |object| self.is_written_since(object), objects).await,
            None => Ok(objects),
        }
    }

    /// [`Served::in_version`] of one object.
    pub(crate) async fn one_in_version(&self, object: Arc<Object>) -> ApiResult<Arc<Object>> {
        if self.converter().is_none() {
            return Ok(object);
        }
        let converted = self.in_version(vec![object]).await?;
        converted.into_iter().next().ok_or_else(|| ApiError::internal("an object was lost"))
    }

    /// An object in the version that is stored. It gets the defaults of the stored version now; upstream applies them
    /// at each read.
    pub(crate) async fn for_storage(&self, internal: Internal) -> ApiResult<Stored> {
        let value = internal.into_value();
        let Some(converter) = self.converter() else { return Ok(Stored(value)) };
        let storage = converter.storage();
        let mut stored = converter.value(storage, value).await?;
        if *self.kind != **storage {
            api_rules::default(storage, &mut stored);
        }
        Ok(Stored(stored))
    }

    /// The faults of a new object.
    pub(crate) fn validate_create(&self, new: &Internal) -> Vec<FieldError> {
        match self.has_own_rules() {
            true => api_rules::validate_create(&self.kind, &self.external(new)),
            false => api_rules::validate_create(&self.stored, new),
        }
    }

    /// The faults of a changed object.
    pub(crate) fn validate_update(&self, sub: Option<&str>, new: &Internal, old: &Internal, warnings: &mut Vec<String>) -> Vec<FieldError> {
        match self.has_own_rules() {
            true => api_rules::validate_update(&self.kind, sub, &self.external(new), &self.external(old), warnings),
            false => api_rules::validate_update(&self.stored, sub, new, old, warnings),
        }
    }

    /// Whether the kind has rules beyond those of the kind that it is a view of.
    fn has_own_rules(&self) -> bool {
        self.is("events.k8s.io", "events")
    }

    /// Whether managers own the fields of the external form. They do so for Events: nobody applies Events, so that no
    /// manager of the other version loses a field by a change in this one.
    pub(crate) fn is_recorded_externally(&self) -> bool {
        self.is("events.k8s.io", "events")
    }

    /// Whether clients see objects in another form than the internal one.
    pub(crate) fn is_view(&self) -> bool {
        self.conversion.is_some()
    }
}
