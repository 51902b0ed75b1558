//! The kinds for which a policy's expressions are checked: those that its rules name, at most ten of each rule.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::admissionregistration::v1::{NamedRuleWithOperations, ParamKind, ValidatingAdmissionPolicySpec};

use crate::discovery::Resource;

/// The highest number of kinds of one rule that are checked, as upstream.
const KINDS_MAX: usize = 10;

/// A kind in a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gvk {
    /// API group; empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

impl Gvk {
    /// Of parameters.
    pub fn of_params(kind: &ParamKind) -> Self {
        let api_version = kind.api_version.as_deref().unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.kind.clone().unwrap_or_default() }
    }
}

/// The kinds that a policy's rules name, in order. Wildcards and subresources name no kind.
pub fn named(spec: &ValidatingAdmissionPolicySpec, served: &[Resource]) -> BTreeSet<Gvk> {
    let mut kinds = BTreeSet::new();
    let constraints = spec.match_constraints.as_ref();
    for rule in constraints.and_then(|constraints| constraints.resource_rules.as_ref()).into_iter().flatten() {
        let mut count = 0;
        for resource in named_resources(rule).iter().flat_map(|name| served.iter().filter(move |resource| name.is(resource))) {
            kinds.insert(Gvk { group: resource.group.clone(), version: resource.version.clone(), kind: resource.kind.clone() });
            count += 1;
            // Upstream does not read further rules then either.
            if count == KINDS_MAX {
                return kinds;
            }
        }
    }
    kinds
}

/// A resource as a rule names it.
struct GroupVersionResource<'r> {
    group: &'r str,
    version: &'r str,
    resource: String,
}

impl GroupVersionResource<'_> {
    /// A match by plural or singular. The core group matches every group that has the version: upstream's RESTMapper
    /// treats an empty group as any group.
    fn is(&self, resource: &Resource) -> bool {
        (self.group.is_empty() || self.group == resource.group)
            && self.version == resource.version
            && (self.resource == resource.plural || self.resource == resource.singular)
    }
}

fn named_resources(rule: &NamedRuleWithOperations) -> Vec<GroupVersionResource<'_>> {
    let (groups, versions) = (sorted(rule.api_groups.as_ref()), sorted(rule.api_versions.as_ref()));
    if groups.iter().chain(&versions).any(|name| name.contains('*')) {
        return Vec::new();
    }
    let mut resources = sorted(rule.resources.as_ref());
    resources.retain(|resource| !resource.contains(['*', '/']));
    let mut places = Vec::new();
    for group in groups {
        for version in &versions {
            places.extend(resources.iter().map(|resource| GroupVersionResource { group, version, resource: resource.to_lowercase() }));
        }
    }
    places
}

fn sorted(names: Option<&Vec<String>>) -> Vec<&str> {
    let mut names: Vec<&str> = names.into_iter().flatten().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn served() -> Vec<Resource> {
        let resource = |group: &str, version: &str, kind: &str| {
            let singular = kind.to_lowercase();
            Resource {
                group: group.to_owned(),
                version: version.to_owned(),
                plural: format!("{singular}s"),
                singular,
                kind: kind.to_owned(),
                has_scale: false,
            }
        };
        let mut served = vec![
            resource("", "v1", "Pod"),
            resource("", "v1", "Event"),
            resource("events.k8s.io", "v1", "Event"),
            resource("apps", "v1", "Deployment"),
            resource("apps", "v1", "ReplicaSet"),
        ];
        served.extend((0..12).map(|at| resource("many.example.com", "v1", &format!("Kind{at:02}"))));
        served
    }

    fn kinds_of(rules: Value) -> Vec<String> {
        let spec = serde_json::from_value(json!({"matchConstraints": {"resourceRules": rules}})).expect("a spec");
        named(&spec, &served()).iter().map(ToString::to_string).collect()
    }

    fn rule(groups: &[&str], versions: &[&str], resources: &[&str]) -> Value {
        json!({"apiGroups": groups, "apiVersions": versions, "resources": resources, "operations": ["*"]})
    }

    #[test]
    fn kinds_are_those_that_rules_name() {
        let rules = json!([
            rule(&["apps"], &["v1", "v2"], &["replicasets", "deployment", "nothings", "deployments/scale"]),
            rule(&[""], &["v1"], &["pods"])
        ]);
        assert_eq!(kinds_of(rules), ["/v1, Kind=Pod", "apps/v1, Kind=Deployment", "apps/v1, Kind=ReplicaSet"]);
        assert_eq!(kinds_of(json!([rule(&[""], &["v1"], &["events"])])), ["/v1, Kind=Event", "events.k8s.io/v1, Kind=Event"]);
    }

    #[test]
    fn wildcards_name_no_kind() {
        for rule in
            [rule(&["*"], &["v1"], &["pods"]), rule(&["apps"], &["*"], &["deployments"]), rule(&["apps"], &["v1"], &["*", "*/scale"])]
        {
            assert_eq!(kinds_of(json!([rule])), Vec::<String>::new());
        }
    }

    #[test]
    fn ten_kinds_are_enough() {
        let many: Vec<String> = (0..12).map(|at| format!("kind{at:02}s")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let found = kinds_of(json!([
            rule(&[""], &["v1"], &["pods"]),
            rule(&["many.example.com"], &["v1"], &many),
            rule(&["apps"], &["v1"], &["deployments"])
        ]));
        assert_eq!(found.len(), 11, "ten of the rule with too many, and those of the rules before");
        assert!(!found.contains(&"apps/v1, Kind=Deployment".to_owned()));
    }
}
