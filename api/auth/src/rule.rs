//! One rule of a role: the verbs and the resources or paths that it allows, and whether it covers a request or another
//! rule.

use api_model::request::Attributes;
use serde_json::{Value, json};

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Verbs, or `*`.
    pub verbs: Vec<String>,
    /// API groups, or `*`.
    pub groups: Vec<String>,
    /// `pods`, `pods/log`, `*/scale` or `*`.
    pub resources: Vec<String>,
    /// Object names; empty means all.
    pub names: Vec<String>,
    /// Non-resource paths; a `*` at the end matches any suffix.
    pub paths: Vec<String>,
}

impl Rule {
    /// Reads a `PolicyRule` value.
    pub fn from_value(value: &Value) -> Self {
        let list = |field: &str| -> Vec<String> {
            value.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub fn of_role(role: &Value) -> Vec<Self> {
        role.get("rules").and_then(Value::as_array).into_iter().flatten().map(Self::from_value).collect()
    }

    /// All verbs on all resources.
    pub fn everything() -> Self {
        Self { verbs: star(), groups: star(), resources: star(), ..Self::default() }
    }

    /// All verbs on all paths.
    pub fn every_path() -> Self {
        Self { verbs: star(), paths: star(), ..Self::default() }
    }

    /// Whether the rule allows the request.
    pub fn allows(&self, attributes: &Attributes) -> bool {
        if !has(&self.verbs, &attributes.verb) {
            return false;
        }
        if !attributes.is_resource() {
            return self.paths.iter().any(|p| path_matches(p, &attributes.path));
        }
        has(&self.groups, &attributes.group)
            && self.resource_matches(&attributes.resource, &attributes.subresource)
            && (self.names.is_empty() || self.names.contains(&attributes.name))
    }

    fn resource_matches(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|rule| match rule.as_str() {
            "*" => true,
            rule if subresource.is_empty() => rule == resource,
            rule => rule.split_once('/').is_some_and(|(r, s)| s == subresource && (r == "*" || r == resource)),
        })
    }

    /// Whether the rule allows everything that `other` allows, which must be a [single](Rule::singles) rule.
    pub fn covers(&self, other: &Self) -> bool {
        let all = |own: &[String], others: &[String]| others.iter().all(|o| has(own, o));
        if !all(&self.verbs, &other.verbs) {
            return false;
        }
        let resources = all(&self.groups, &other.groups) && other.resources.iter().all(|r| self.covers_resource(r));
        let names = self.names.is_empty() || (!other.names.is_empty() && other.names.iter().all(|n| self.names.contains(n)));
        let paths = other.paths.iter().all(|p| self.paths.iter().any(|own| own == p || path_matches(own, p)));
        resources && names && paths
    }

    fn covers_resource(&self, wanted: &str) -> bool {
        let everywhere = wanted.split_once('/').map(|(_, sub)| format!("*/{sub}"));
        self.resources.iter().any(|own| own == wanted || own == "*" || Some(own) == everywhere.as_ref())
    }

    /// The same rights as a list of rules. Each has one verb, and one group, resource and name or one path.
    pub fn singles(&self) -> Vec<Self> {
        let one = |s: &String| vec![s.clone()];
        let mut out = Vec::new();
        for verb in &self.verbs {
            for (group, resource) in self.groups.iter().flat_map(|g| self.resources.iter().map(move |r| (g, r))) {
                let base = Self { verbs: one(verb), groups: one(group), resources: one(resource), ..Self::default() };
                if self.names.is_empty() {
                    out.push(base.clone());
                }
                out.extend(self.names.iter().map(|n| Self { names: one(n), ..base.clone() }));
            }
            out.extend(self.paths.iter().map(|p| Self { verbs: one(verb), paths: one(p), ..Self::default() }));
        }
        out
    }

    /// The rule as a `PolicyRule` value, without empty lists.
    pub fn to_value(&self) -> Value {
        let lists = [
            ("apiGroups", &self.groups),
            ("nonResourceURLs", &self.paths),
            ("resourceNames", &self.names),
            ("resources", &self.resources),
            ("verbs", &self.verbs),
        ];
        lists
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| (name.to_owned(), json!(list)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    /// The rule as a `ResourceRule` of a rules review.
    pub fn to_resource_rule(&self) -> Value {
        let mut value = json!({ "verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources });
        if let (false, Some(map)) = (self.names.is_empty(), value.as_object_mut()) {
            map.insert("resourceNames".to_owned(), json!(self.names));
        }
        value
    }

    /// The rule as a `NonResourceRule` of a rules review.
    pub fn to_path_rule(&self) -> Value {
        json!({ "verbs": self.verbs, "nonResourceURLs": self.paths })
    }

    /// Upstream's `CompactString`: `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
    pub fn describe(&self) -> String {
        let lists = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let parts: Vec<String> =
            lists.iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// Go's `%q` of a list of strings.
pub fn quoted(list: &[String]) -> String {
    let words: Vec<String> = list.iter().map(|s| format!("{s:?}")).collect();
    format!("[{}]", words.join(" "))
}

fn star() -> Vec<String> {
    vec!["*".to_owned()]
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|own| own == "*" || own == wanted)
}

fn path_matches(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Rule {
        let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect();
        Rule { verbs: own(verbs), groups: own(groups), resources: own(resources), names: own(names), paths: Vec::new() }
    }

    fn ask(verb: &str, group: &str, resource: &str, name: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let own = str::to_owned;
        Attributes {
            verb: own(verb),
            group: own(group),
            resource: own(resource),
            subresource: own(subresource),
            name: own(name),
            ..Attributes::default()
        }
    }

    #[test]
    fn rules_allow_as_upstreams_do() {
        let cases: &[(&str, Rule, Attributes, bool)] = &[
            ("exact", rule(&["get"], &[""], &["pods"], &[]), ask("get", "", "pods", "a"), true),
            ("verb", rule(&["get"], &[""], &["pods"], &[]), ask("list", "", "pods", ""), false),
            ("group", rule(&["get"], &[""], &["pods"], &[]), ask("get", "apps", "pods", "a"), false),
            ("a resource is not its subresource", rule(&["get"], &[""], &["pods"], &[]), ask("get", "", "pods/log", "a"), false),
            ("subresource", rule(&["get"], &[""], &["pods/log"], &[]), ask("get", "", "pods/log", "a"), true),
            ("a subresource is not its resource", rule(&["get"], &[""], &["pods/log"], &[]), ask("get", "", "pods", "a"), false),
            ("star covers subresources", rule(&["*"], &["*"], &["*"], &[]), ask("get", "x", "pods/log", "a"), true),
            ("any resource's scale", rule(&["get"], &["apps"], &["*/scale"], &[]), ask("get", "apps", "deployments/scale", "a"), true),
            (
                "any resource's scale is not status",
                rule(&["get"], &["apps"], &["*/scale"], &[]),
                ask("get", "apps", "deployments/status", "a"),
                false,
            ),
            ("pods/* means nothing", rule(&["get"], &[""], &["pods/*"], &[]), ask("get", "", "pods/log", "a"), false),
            ("name", rule(&["get"], &[""], &["pods"], &["a"]), ask("get", "", "pods", "a"), true),
            ("other name", rule(&["get"], &[""], &["pods"], &["a"]), ask("get", "", "pods", "b"), false),
            ("a named rule has no say on lists", rule(&["list"], &[""], &["pods"], &["a"]), ask("list", "", "pods", ""), false),
            ("empty rule", Rule::default(), ask("get", "", "pods", "a"), false),
        ];
        for (what, rule, ask, wanted) in cases {
            assert_eq!(rule.allows(ask), *wanted, "{what}");
        }
    }

    #[test]
    fn paths_match_by_prefix_only_with_a_star() {
        let paths = |list: &[&str]| Rule { verbs: vec!["get".into()], paths: list.iter().map(|&p| p.into()).collect(), ..Rule::default() };
        let ask = |path: &str| Attributes { verb: "get".into(), path: path.into(), ..Attributes::default() };
        assert!(paths(&["/healthz"]).allows(&ask("/healthz")));
        assert!(!paths(&["/healthz"]).allows(&ask("/healthz/ping")));
        assert!(paths(&["/healthz/*"]).allows(&ask("/healthz/ping")));
        assert!(!paths(&["/healthz/*"]).allows(&ask("/healthz")));
        assert!(paths(&["*"]).allows(&ask("/")));
        assert!(!Rule::everything().allows(&ask("/healthz")), "resources are not paths");
    }

    #[test]
    fn covering_is_by_single_rights() {
        let owner = rule(&["get", "list"], &["", "apps"], &["pods", "*/scale"], &[]);
        for single in rule(&["get", "list"], &["apps"], &["pods", "deployments/scale"], &["x"]).singles() {
            assert!(owner.covers(&single), "{}", single.describe());
        }
        for (verbs, group, resource) in [("watch", "", "pods"), ("get", "batch", "pods"), ("get", "", "pods/log"), ("get", "", "*")] {
            let wanted = rule(&[verbs], &[group], &[resource], &[]);
            assert!(!owner.covers(&wanted), "{}", wanted.describe());
        }
        let named = rule(&["get"], &[""], &["pods"], &["a"]);
        assert!(named.covers(&rule(&["get"], &[""], &["pods"], &["a"])));
        assert!(!named.covers(&rule(&["get"], &[""], &["pods"], &[])), "all names are more than one");
    }
}
