//! Who asks, and for what: the values that authentication yields and authorization, admission and
//! audit look at.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::selector::FieldSelector;

/// Under which key of a CertificateSigningRequest's `spec.extra` the server notes the address that the request came
/// from. Whatever a client writes there is dropped.
pub const REMOTE_ADDRESS: &str = "skiff.internal/remote-address";

/// An authenticated user, as in `authentication.k8s.io/v1 UserInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserInfo {
    /// Unique name, for example `system:serviceaccount:default:builder`.
    pub username: String,
    /// Unique id across time; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups, for example `system:masters`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What else the authenticator knows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user in groups.
    pub fn new(username: impl Into<String>, groups: &[&str]) -> Self {
        Self { username: username.into(), groups: groups.iter().map(|&g| g.to_owned()).collect(), ..Self::default() }
    }

    /// Whether the user is in that group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// What a request wants to do: the input of authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// API verb (`get`, `list`, `watch`, `create`, …) or, for a path, the lower-case HTTP method.
    pub verb: String,
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural resource; empty when the request is for a path that is no resource.
    pub resource: String,
    /// Subresource; empty when none.
    pub subresource: String,
    /// Namespace; empty for cluster scope and for all namespaces.
    pub namespace: String,
    /// Object name; empty for collections and creates.
    pub name: String,
    /// Path of a request that is for no resource, for example `/healthz`.
    pub path: String,
    /// Field selector of a list or watch: a node may watch Pods only with `spec.nodeName` its own.
    pub field_selector: Option<FieldSelector>,
}

impl Attributes {
    /// Whether the request is for a resource rather than a bare path.
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }
}
