//! The rules of a FlowSchema, which match users and requests. Every request is matched, so matching does not allocate.

use api_model::request::{Attributes, UserInfo};
use serde_json::Value;

use crate::json::{list, text};

/// `PolicyRulesWithSubjects`.
#[derive(Debug, Default)]
pub(crate) struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    User(Words),
    Group(Words),
    ServiceAccount { namespace: String, name: Words },
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Words,
    groups: Words,
    resources: Words,
    namespaces: Words,
    cluster_scope: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Words,
    paths: Vec<String>,
}

/// A list in which `*` means everything.
#[derive(Debug)]
enum Words {
    All,
    These(Vec<String>),
}

impl From<&[Value]> for Words {
    fn from(list: &[Value]) -> Self {
        let words = list.iter().filter_map(Value::as_str);
        if words.clone().any(|word| word == "*") { Self::All } else { Self::These(words.map(str::to_owned).collect()) }
    }
}

impl Words {
    fn one(word: &str) -> Self {
        if word == "*" { Self::All } else { Self::These(vec![word.to_owned()]) }
    }

    fn has(&self, word: &str) -> bool {
        self.any(|known| known == word)
    }

    fn any(&self, is_it: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::All => true,
            Self::These(words) => words.iter().any(|word| is_it(word)),
        }
    }
}

impl From<&Value> for Rule {
    fn from(rule: &Value) -> Self {
        Self {
            subjects: list(rule, "/subjects").iter().filter_map(Subject::parse).collect(),
            resources: list(rule, "/resourceRules").iter().map(ResourceRule::from).collect(),
            paths: list(rule, "/nonResourceRules").iter().map(PathRule::from).collect(),
        }
    }
}

impl Rule {
    pub(crate) fn matches(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        let is_meant = match attributes.is_resource() {
            true => self.resources.iter().any(|rule| rule.matches(attributes)),
            false => self.paths.iter().any(|rule| rule.matches(attributes)),
        };
        is_meant && self.subjects.iter().any(|subject| subject.is(user))
    }
}

impl Subject {
    fn parse(subject: &Value) -> Option<Self> {
        match text(subject, "/kind") {
            "User" => Some(Self::User(Words::one(text(subject, "/user/name")))),
            "Group" => Some(Self::Group(Words::one(text(subject, "/group/name")))),
            "ServiceAccount" => Some(Self::ServiceAccount {
                namespace: text(subject, "/serviceAccount/namespace").to_owned(),
                name: Words::one(text(subject, "/serviceAccount/name")),
            }),
            _ => None,
        }
    }

    fn is(&self, user: &UserInfo) -> bool {
        match self {
            Self::User(name) => name.has(&user.username),
            Self::Group(name) => name.any(|name| user.in_group(name)),
            Self::ServiceAccount { namespace, name } => {
                let account = user.username.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
                account.is_some_and(|(in_namespace, account)| in_namespace == namespace && name.has(account))
            }
        }
    }
}

impl From<&Value> for ResourceRule {
    fn from(rule: &Value) -> Self {
        let words = |field: &str| Words::from(list(rule, field));
        Self {
            verbs: words("/verbs"),
            groups: words("/apiGroups"),
            resources: words("/resources"),
            namespaces: words("/namespaces"),
            cluster_scope: rule.get("clusterScope").and_then(Value::as_bool).unwrap_or_default(),
        }
    }
}

impl ResourceRule {
    fn matches(&self, attributes: &Attributes) -> bool {
        self.verbs.has(&attributes.verb)
            && self.groups.has(&attributes.group)
            && self.resources.any(|resource| is_resource(resource, attributes))
            && match attributes.namespace.as_str() {
                "" => self.cluster_scope,
                namespace => self.namespaces.has(namespace),
            }
    }
}

/// Whether `pods` or `pods/status` is the resource of the request.
fn is_resource(resource: &str, attributes: &Attributes) -> bool {
    let (name, sub) = resource.split_once('/').unwrap_or((resource, ""));
    name == attributes.resource && sub == attributes.subresource
}

impl From<&Value> for PathRule {
    fn from(rule: &Value) -> Self {
        let paths = list(rule, "/nonResourceURLs").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self { verbs: Words::from(list(rule, "/verbs")), paths }
    }
}

impl PathRule {
    fn matches(&self, attributes: &Attributes) -> bool {
        let is_path = |path: &String| match path.strip_suffix('*') {
            Some(prefix) => attributes.path.starts_with(prefix),
            None => *path == attributes.path,
        };
        self.verbs.has(&attributes.verb) && self.paths.iter().any(is_path)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_is_about_somebody_and_something() {
        let account = json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}});
        let leases =
            json!({"verbs": ["get", "update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]});
        let nodes = json!({"verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true});
        let rule = Rule::from(&json!({
            "subjects": [{"kind": "User", "user": {"name": "jane"}}, {"kind": "Group", "group": {"name": "devs"}}, account],
            "resourceRules": [leases, nodes],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*"]}],
        }));
        let resource = |verb: &str, group: &str, resource: &str, sub: &str, namespace: &str| Attributes {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: sub.to_owned(),
            namespace: namespace.to_owned(),
            ..Attributes::default()
        };
        let path = |path: &str| Attributes { verb: "get".to_owned(), path: path.to_owned(), ..Attributes::default() };
        let lease = resource("get", "coordination.k8s.io", "leases", "", "here");
        for (user, groups, attributes, wanted) in [
            ("jane", "", lease.clone(), true),
            ("joe", "", lease.clone(), false),
            ("joe", "devs", lease.clone(), true),
            ("system:serviceaccount:kube-system:any", "", lease.clone(), true),
            ("system:serviceaccount:default:any", "", lease, false),
            ("jane", "", resource("create", "coordination.k8s.io", "leases", "", "here"), false),
            ("jane", "", resource("list", "coordination.k8s.io", "leases", "", ""), false),
            ("jane", "", resource("patch", "", "nodes", "status", ""), true),
            ("jane", "", resource("patch", "", "nodes", "proxy", ""), false),
            ("jane", "", path("/healthz"), true),
            ("jane", "", path("/healthz/x"), false),
            ("jane", "", path("/logs/a/b"), true),
        ] {
            assert_eq!(rule.matches(&UserInfo::new(user, &[groups]), &attributes), wanted, "{user} {groups} {attributes:?}");
        }
    }
}
