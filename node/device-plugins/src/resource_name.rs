//! Names of extended resources.

use api_model::format::qualified_name;

/// Whether a resource is an extended one: upstream's `IsExtendedResourceName`.
pub fn is_extended_resource(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    // As a quota names it.
    !is_native && !name.starts_with("requests.") && qualified_name(&format!("requests.{name}")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_domain_of_their_own_are_extended() {
        for name in ["example.com/thing", "nvidia.com/mig-1g.5gb", "a/b"] {
            assert!(is_extended_resource(name), "{name}");
        }
        let native = ["cpu", "thing", "kubernetes.io/thing", "x.kubernetes.io/thing", "requests.example.com/thing"];
        for name in native.into_iter().chain(["", "/", "example.com/", "example.com/a/b", "example.com/../x", "exa mple.com/x"]) {
            assert!(!is_extended_resource(name), "{name}");
        }
    }
}
