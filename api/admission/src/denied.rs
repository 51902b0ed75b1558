//! The error of admission, with the content of a `Status` and without HTTP.

use api_model::field::{FieldError, aggregate};
use api_model::kind::GroupResource;
use api_model::meta;
use thiserror::Error;

use crate::request::Request;

/// One of `status.details.causes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Machine-readable reason, for example `NamespaceTerminating`.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The field; may be empty.
    pub field: String,
}

/// An object that a controller is about to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The resource.
    pub resource: GroupResource,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A request is not admitted. `Display` is the message of upstream's Status.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Denied {
    /// Reason `Forbidden`.
    #[error("{}", forbidden(resource, name, message))]
    Forbidden {
        /// The resource of the object.
        resource: GroupResource,
        /// The name in the message; empty for the resource itself.
        name: String,
        /// The text after `is forbidden: `.
        message: String,
        /// Causes for `details`.
        causes: Box<[Cause]>,
        /// The object after whose creation the request would be admitted, if a controller is about to create it.
        awaits: Option<Box<Awaited>>,
    },
    /// Reason `Invalid`.
    #[error("{} \"{name}\" is invalid: {}", kind_and_group(kind, group), aggregate(errors))]
    Invalid {
        /// API group of the kind.
        group: String,
        /// Kind.
        kind: String,
        /// The object's name.
        name: String,
        /// The errors.
        errors: Vec<FieldError>,
    },
    /// Reason `NotFound`.
    #[error("{resource} \"{name}\" not found")]
    NotFound {
        /// The resource.
        resource: GroupResource,
        /// The name.
        name: String,
    },
    /// Reason `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// Reason `InternalError`: stored objects contradict each other.
    #[error("Internal error occurred: {0}")]
    Internal(String),
}

impl Denied {
    /// A Forbidden for the request's object.
    pub fn forbidden(request: &Request<'_>, message: impl Into<String>) -> Self {
        Self::Forbidden {
            resource: request.kind.group_resource(),
            name: reported_name(request).to_owned(),
            message: message.into(),
            causes: Box::default(),
            awaits: None,
        }
    }

    /// The same error, with the object whose creation makes a retry worthwhile. Upstream retries for one second.
    #[must_use]
    pub fn until(mut self, awaited: Awaited) -> Self {
        if let Self::Forbidden { awaits, .. } = &mut self {
            *awaits = Some(Box::new(awaited));
        }
        self
    }

    /// The object that the server briefly waits for before it returns the error to the client.
    pub fn awaits(&self) -> Option<&Awaited> {
        match self {
            Self::Forbidden { awaits, .. } => awaits.as_deref(),
            _ => None,
        }
    }

    /// An Invalid for the request's object.
    pub fn invalid(request: &Request<'_>, errors: Vec<FieldError>) -> Self {
        let kind = request.kind;
        Self::Invalid { group: kind.group.clone(), kind: kind.kind.clone(), name: request.object_name().to_owned(), errors }
    }
}

/// Upstream's `extractResourceName`. The name of an object with `generateName` is generated only after admission.
fn reported_name<'r>(request: &'r Request<'_>) -> &'r str {
    let generated = || request.object().map(|object| meta::text(object, "generateName")).unwrap_or_default();
    [request.object_name(), generated()].into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
}

/// Upstream's `GroupKind`: `Pod`, `Deployment.apps`.
fn kind_and_group(kind: &str, group: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

fn forbidden(resource: &GroupResource, name: &str, message: &str) -> String {
    match (resource.resource.as_str(), name) {
        ("", _) => format!("forbidden: {message}"),
        (_, "") => format!("{resource} is forbidden: {message}"),
        _ => format!("{resource} {name:?} is forbidden: {message}"),
    }
}
