//! The table of kinds that a server serves: group, version, names, scope, verbs, subresources.
//!
//! Built-in kinds are rows of [`BUILTIN`]. The server creates further [`Kind`] values for custom resources at run time,
//! so every field is owned. The order of the rows is the order of discovery, which clients use as preference.

mod builtin;
mod custom;

use std::fmt;
use std::sync::Arc;

pub use builtin::{builtin, subresource};
pub use custom::{Custom, CustomColumn, ScalePaths, Slot, Slots};

/// The group of the metrics of resources: what nodes and Pods use.
pub const METRICS: &str = "metrics.k8s.io";

/// A group and a plural resource name, as in RBAC rules, storage keys and error messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural, lower-case resource name.
    pub resource: String,
}

impl GroupResource {
    /// A resource of a group; the name of the core group is empty.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

/// Upstream's spelling in messages: `pods`, `deployments.apps`.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.resource),
            group => write!(f, "{}.{group}", self.resource),
        }
    }
}

/// A subresource of an object: `status`, `scale`, `log` and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Last path segment, for example `status`.
    pub name: String,
    /// Group, version and kind of the bodies, if they differ from the parent's.
    pub kind: Option<(String, String, String)>,
    /// Verbs as discovery lists them.
    pub verbs: Vec<String>,
}

/// One served kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: String,
    /// Version, for example `v1`.
    pub version: String,
    /// Kind, for example `Deployment`.
    pub kind: String,
    /// Plural resource name, the path segment.
    pub plural: String,
    /// Singular resource name.
    pub singular: String,
    /// Short names, for example `deploy`.
    pub short_names: Vec<String>,
    /// Categories, for example `all`.
    pub categories: Vec<String>,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Verbs as discovery lists them, in upstream's alphabetical order.
    pub verbs: Vec<String>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// The content of its definition; `None` for built-in kinds.
    pub custom: Option<Arc<Custom>>,
}

impl Kind {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Group and plural.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.plural)
    }

    /// The kind of a list of these objects.
    pub fn list_kind(&self) -> String {
        self.custom.as_ref().map_or_else(|| format!("{}List", self.kind), |custom| custom.list_kind.clone())
    }

    /// The subresource of the given name, if it is served.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Whether discovery lists `verb` for the main resource.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// Whether another server answers for the kind as soon as an APIService names that server. All other built-in kinds are always
    /// answered here.
    pub fn is_delegable(&self) -> bool {
        self.custom.is_some() || self.group == METRICS
    }

    /// Whether the kind has a `status` subresource.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}

/// The built-in kind of the given group and plural.
pub fn find(group: &str, plural: &str) -> Option<&'static Arc<Kind>> {
    builtin().iter().find(|kind| kind.group == group && kind.plural == plural)
}

/// The built-in kind of the given `apiVersion` and `kind`.
pub fn find_by_kind(api_version: &str, kind: &str) -> Option<&'static Arc<Kind>> {
    builtin().iter().find(|k| k.kind == kind && k.api_version() == api_version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_rows_share_a_resource() {
        let mut seen = HashSet::new();
        for kind in builtin() {
            assert!(seen.insert((kind.group_resource(), kind.version.clone())), "{kind:?}");
        }
    }

    #[test]
    fn messages_spell_resources_as_upstream_does() {
        assert_eq!(GroupResource::new("", "pods").to_string(), "pods");
        assert_eq!(GroupResource::new("apps", "deployments").to_string(), "deployments.apps");
    }
}
