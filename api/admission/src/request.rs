//! The request that plugins check.

use api_model::kind::Kind;
use api_model::meta;
use api_model::request::UserInfo;
use serde_json::Value;

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object is replaced or patched.
    Update,
    /// The object is deleted.
    Delete,
    /// A connection is opened: `exec`, `attach`, `portforward`, `proxy`.
    Connect,
}

impl Operation {
    /// The name in rules and reviews.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A request. For a subresource, `kind` is the parent's kind and `object` is the body: the parent for `status`,
/// otherwise a Binding, an Eviction, a TokenRequest and so on.
#[derive(Debug)]
pub struct Request<'a> {
    /// The operation.
    pub operation: Operation,
    /// The kind in the path.
    pub kind: &'a Kind,
    /// Subresource; empty for the object itself.
    pub subresource: &'a str,
    /// Namespace in the path; empty at cluster scope.
    pub namespace: &'a str,
    /// Name in the path or of the created object; empty if the name is not generated yet.
    pub name: &'a str,
    /// The user.
    pub user: &'a UserInfo,
    /// The object to store, or the body. On connect: the options of the connection. `None` on delete.
    pub object: Option<&'a mut Value>,
    /// The stored object; `None` on create and connect.
    pub old: Option<&'a Value>,
    /// Whether the request is a dry run.
    pub dry_run: bool,
}

impl Request<'_> {
    /// Whether the request is for the given resource itself, not a subresource.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.kind.group == group && self.kind.plural == resource
    }

    /// Whether the request is for the given subresource of the given resource.
    pub fn is_sub(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.subresource == subresource && self.kind.group == group && self.kind.plural == resource
    }

    /// The object to store.
    pub fn object(&self) -> Option<&Value> {
        self.object.as_deref()
    }

    /// The name in the path; if it is empty, the name in the object.
    pub fn object_name(&self) -> &str {
        match self.name {
            "" => self.object().map(meta::name).unwrap_or_default(),
            name => name,
        }
    }
}
