//! The user and the attributes of a request. Authentication provides the user; authorization, admission and audit use
//! both.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::selector::FieldSelector;

/// The key in a CertificateSigningRequest's `spec.extra` under which the server stores the client's address. The server
/// drops values that a client writes there.
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
    /// Additional information from the authenticator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// A user with groups.
    pub fn new(username: impl Into<String>, groups: &[&str]) -> Self {
        Self { username: username.into(), groups: groups.iter().map(|&g| g.to_owned()).collect(), ..Self::default() }
    }

    /// Whether the user is in the given group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// The attributes of a request, which are the input of authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// API verb (`get`, `list`, `watch`, `create`, …) or, for a path, the lower-case HTTP method.
    pub verb: String,
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural resource; empty if the path is no resource.
    pub resource: String,
    /// Subresource; may be empty.
    pub subresource: String,
    /// Namespace; empty for cluster scope and for all namespaces.
    pub namespace: String,
    /// Object name; empty for collections and creates.
    pub name: String,
    /// Path of a request that is no resource, for example `/healthz`.
    pub path: String,
    /// Field selector of a list or watch. A node may watch Pods only with its own name as `spec.nodeName`.
    pub field_selector: Option<FieldSelector>,
}

impl Attributes {
    /// Whether the request is for a resource; otherwise it is for a path.
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }
}
