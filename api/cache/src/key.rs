//! The key of an object in the store: `group/resource/namespace/name`, with `core` for the core group and an empty namespace
//! for cluster-scoped kinds. None of the parts can contain a slash.

use std::sync::Arc;

use api_model::kind::GroupResource;

/// The parts of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// API group; empty for core.
    pub group: &'a str,
    /// Plural name of the kind.
    pub resource: &'a str,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
}

/// The key of an object.
pub fn object_key(resource: &GroupResource, namespace: &str, name: &str) -> Arc<str> {
    let group = if resource.group.is_empty() { "core" } else { &resource.group };
    format!("{group}/{}/{namespace}/{name}", resource.resource).into()
}

/// Splits a key into its parts.
pub fn parse(key: &str) -> Option<Parts<'_>> {
    let mut parts = key.splitn(4, '/');
    let (group, resource, namespace, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    Some(Parts { group: if group == "core" { "" } else { group }, resource, namespace, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_apart_as_they_were_made() {
        for (group, namespace) in [("", "default"), ("apps", "default"), ("", "")] {
            let key = object_key(&GroupResource::new(group, "things"), namespace, "x");
            assert_eq!(parse(&key), Some(Parts { group, resource: "things", namespace, name: "x" }), "{key}");
        }
        assert_eq!(parse("no/key"), None);
    }
}
