//! What plugins look at.

use api_model::kind::Kind;
use api_model::meta;
use api_model::request::UserInfo;
use serde_json::Value;

/// What is about to happen to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is stored for the first time.
    Create,
    /// It is replaced or patched.
    Update,
    /// It is deleted.
    Delete,
    /// A connection to it is opened: `exec`, `attach`, `portforward`, `proxy`.
    Connect,
}

impl Operation {
    /// Its name in rules and reviews.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A request on its way through the chain. For a subresource, `kind` is the parent's and `object`
/// the body: the parent for `status`, else a Binding, an Eviction, a TokenRequest, …
#[derive(Debug)]
pub struct Request<'a> {
    /// What is about to happen.
    pub operation: Operation,
    /// The kind that the path names.
    pub kind: &'a Kind,
    /// Subresource; empty for the object itself.
    pub subresource: &'a str,
    /// Namespace in the path; empty at cluster scope.
    pub namespace: &'a str,
    /// Name in the path, or of the object created; empty where a name is still to be generated.
    pub name: &'a str,
    /// Who asks.
    pub user: &'a UserInfo,
    /// The object to be stored or the body sent, on connect what is asked of the connection; none on delete.
    pub object: Option<&'a mut Value>,
    /// The object stored now; none on create and connect.
    pub old: Option<&'a Value>,
    /// Whether nothing is to be kept.
    pub dry_run: bool,
}

impl Request<'_> {
    /// Whether the request is for that resource itself, not a subresource.
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.kind.group == group && self.kind.plural == resource
    }

    /// Whether the request is for that subresource of that resource.
    pub fn is_sub(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.subresource == subresource && self.kind.group == group && self.kind.plural == resource
    }

    /// The object to be stored.
    pub fn object(&self) -> Option<&Value> {
        self.object.as_deref()
    }

    /// The name in the path, else the object's own.
    pub fn object_name(&self) -> &str {
        match self.name {
            "" => self.object().map(meta::name).unwrap_or_default(),
            name => name,
        }
    }
}
