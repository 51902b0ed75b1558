//! Which requests are recorded, and with how much data: an `audit.k8s.io/v1` Policy. The first rule that matches
//! decides. A request without a matching rule is not recorded.

use std::collections::BTreeSet;

use api_model::field::{FieldError, Path, aggregate};
use api_model::request::{Attributes, UserInfo};
use serde::{Deserialize, Serialize};
use thiserror::Error;

const API_VERSION: &str = "audit.k8s.io/v1";
const KIND: &str = "Policy";

/// How much of a request is recorded; each level includes the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Level {
    /// Nothing.
    #[default]
    None,
    /// User, time, resource and the like, without bodies.
    Metadata,
    /// The request's body too.
    Request,
    /// The answer's body too.
    RequestResponse,
}

/// The moments of a request at which an event is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// Before the request was handled.
    RequestReceived,
    /// The answer has begun and continues: watches, logs.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

/// Why a policy was rejected.
#[derive(Debug, Error)]
pub enum AuditPolicyError {
    /// The text cannot be parsed.
    #[error("the audit policy cannot be read")]
    Unreadable(#[from] serde_yaml::Error),
    /// The object is no Policy of this version.
    #[error("the audit policy must be of kind {KIND} in version {API_VERSION}, not {kind:?} in {api_version:?}")]
    Kind {
        /// Its kind.
        kind: String,
        /// Its version.
        api_version: String,
    },
    /// The policy has no rules.
    #[error("loaded illegal policy with 0 rules")]
    Empty,
    /// Fields are wrong.
    #[error("the audit policy is invalid: {}", aggregate(.0))]
    Invalid(Vec<FieldError>),
}

/// The policy, from the content of `--audit-policy-file`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditPolicy {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_yaml::Value,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: BTreeSet<Stage>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Option<Level>,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Resources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    paths: Vec<String>,
    #[serde(default)]
    omit_stages: BTreeSet<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Resources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

/// The policy's decision about one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) level: Level,
    pub(crate) omit_stages: BTreeSet<Stage>,
    pub(crate) omit_managed_fields: bool,
}

impl AuditPolicy {
    /// Parses a policy.
    ///
    /// # Errors
    /// When the object is no Policy of version v1, or when a rule could never match as it is written.
    pub fn parse(text: &str) -> Result<Self, AuditPolicyError> {
        let policy: Self = serde_yaml::from_str(text)?;
        if policy.kind != KIND || policy.api_version != API_VERSION {
            return Err(AuditPolicyError::Kind { kind: policy.kind, api_version: policy.api_version });
        }
        if policy.rules.is_empty() {
            return Err(AuditPolicyError::Empty);
        }
        let mut errors = Vec::new();
        for (at, rule) in policy.rules.iter().enumerate() {
            rule.check(&Path::new("rules").index(at), &mut errors);
        }
        if errors.is_empty() { Ok(policy) } else { Err(AuditPolicyError::Invalid(errors)) }
    }

    /// What to record of a request. `user` is None if the credentials were not valid.
    pub(crate) fn verdict(&self, user: Option<&UserInfo>, attributes: &Attributes) -> Verdict {
        let rule = self.rules.iter().find(|rule| rule.matches(user, attributes));
        let mut omit_stages = self.omit_stages.clone();
        omit_stages.extend(rule.map(|rule| rule.omit_stages.clone()).unwrap_or_default());
        Verdict {
            level: rule.and_then(|rule| rule.level).unwrap_or_default(),
            omit_stages,
            omit_managed_fields: rule.and_then(|rule| rule.omit_managed_fields).unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Rule {
    fn check(&self, path: &Path, errors: &mut Vec<FieldError>) {
        if self.level.is_none() {
            errors.push(FieldError::required(&path.child("level"), ""));
        }
        if !self.paths.is_empty() && (!self.resources.is_empty() || !self.namespaces.is_empty()) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(&path.child("nonResourceURLs"), self.paths.clone(), detail));
        }
        for (at, url) in self.paths.iter().enumerate().filter(|(_, url)| *url != "*") {
            let path = path.child("nonResourceURLs").index(at);
            if !url.starts_with('/') {
                errors.push(FieldError::invalid(&path, url.as_str(), "non-resource URL rules must begin with a '/' character"));
            } else if url.trim_end_matches('*').len() + 1 < url.len() || url.trim_end_matches('*').contains('*') {
                errors.push(FieldError::invalid(
                    &path,
                    url.as_str(),
                    "non-resource URL wildcards '*' must be the final character of the rule",
                ));
            }
        }
        for (at, resources) in self.resources.iter().enumerate() {
            let path = path.child("resources").index(at);
            if resources.group.contains('/') {
                errors.push(FieldError::invalid(&path.child("group"), resources.group.as_str(), "must not contain a version"));
            }
            if resources.resources.is_empty() && !resources.resource_names.is_empty() {
                let detail = "using resourceNames requires at least one resource";
                errors.push(FieldError::invalid(&path.child("resourceNames"), resources.resource_names.clone(), detail));
            }
        }
    }

    fn matches(&self, user: Option<&UserInfo>, attributes: &Attributes) -> bool {
        let any = |list: &[String], wanted: &str| list.iter().any(|own| own == wanted);
        if !self.users.is_empty() && !user.is_some_and(|user| any(&self.users, &user.username)) {
            return false;
        }
        if !self.user_groups.is_empty() && !user.is_some_and(|user| user.groups.iter().any(|group| any(&self.user_groups, group))) {
            return false;
        }
        if !self.verbs.is_empty() && !any(&self.verbs, &attributes.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return attributes.is_resource()
                && (self.namespaces.is_empty() || any(&self.namespaces, &attributes.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|resources| resources.matches(attributes)));
        }
        self.paths.is_empty() || (!attributes.is_resource() && self.paths.iter().any(|path| path_matches(path, &attributes.path)))
    }
}

impl Resources {
    fn matches(&self, attributes: &Attributes) -> bool {
        if self.group != attributes.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let named = self.resource_names.is_empty() || self.resource_names.contains(&attributes.name);
        named && self.resources.iter().any(|pattern| resource_matches(pattern, attributes))
    }
}

/// `*`, `pods`, `pods/log`, `pods/*` (which is the subresources and the Pods themselves), `*/status`.
fn resource_matches(pattern: &str, attributes: &Attributes) -> bool {
    let (resource, sub) = (attributes.resource.as_str(), attributes.subresource.as_str());
    match pattern.split_once('/') {
        None if pattern == "*" => true,
        None => sub.is_empty() && pattern == resource,
        Some(("*", wanted)) => wanted == sub,
        Some((wanted, "*")) => wanted == resource,
        Some((wanted, wanted_sub)) => wanted == resource && wanted_sub == sub,
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == "*" || pattern == path || pattern.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: &str) -> Result<AuditPolicy, AuditPolicyError> {
        AuditPolicy::parse(&format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{rules}]}}"))
    }

    fn ask(verb: &str, resource: &str, namespace: &str, name: &str) -> Attributes {
        let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let own = str::to_owned;
        Attributes {
            verb: own(verb),
            group: own(group),
            resource: own(resource),
            subresource: own(sub),
            namespace: own(namespace),
            name: own(name),
            ..Attributes::default()
        }
    }

    fn path(path: &str) -> Attributes {
        Attributes { verb: "get".to_owned(), path: path.to_owned(), ..Attributes::default() }
    }

    #[test]
    fn rules_match_as_upstreams_do() {
        let jane = UserInfo::new("jane", &["devs"]);
        let pods = ask("get", "pods", "default", "x");
        for (rule, attributes, expected) in [
            ("", pods.clone(), true),
            ("users: [jane]", pods.clone(), true),
            ("users: [joe]", pods.clone(), false),
            ("userGroups: [devs]", pods.clone(), true),
            ("userGroups: [ops]", pods.clone(), false),
            ("verbs: [get]", pods.clone(), true),
            ("verbs: [list]", pods.clone(), false),
            ("namespaces: [default]", pods.clone(), true),
            ("namespaces: [other]", pods.clone(), false),
            ("namespaces: ['']", ask("get", "nodes", "", "n"), true),
            ("namespaces: [default]", path("/healthz"), false),
            ("resources: [{group: ''}]", ask("get", "pods/log", "default", "x"), true),
            ("resources: [{group: ''}]", ask("get", "deployments.apps", "default", "x"), false),
            ("resources: [{group: apps}]", ask("get", "deployments.apps", "default", "x"), true),
            ("resources: [{group: '', resources: [pods]}]", pods.clone(), true),
            ("resources: [{group: '', resources: [pods]}]", ask("get", "pods/log", "default", "x"), false),
            ("resources: [{group: '', resources: [pods/log]}]", ask("get", "pods/log", "default", "x"), true),
            ("resources: [{group: '', resources: [pods/log]}]", pods.clone(), false),
            ("resources: [{group: '', resources: ['pods/*']}]", ask("get", "pods/log", "default", "x"), true),
            ("resources: [{group: '', resources: ['*/log']}]", ask("get", "pods/log", "default", "x"), true),
            ("resources: [{group: '', resources: ['*/log']}]", pods.clone(), false),
            ("resources: [{group: '', resources: ['*']}]", ask("get", "pods/log", "default", "x"), true),
            ("resources: [{group: '', resources: [pods], resourceNames: [x]}]", pods.clone(), true),
            ("resources: [{group: '', resources: [pods], resourceNames: [y]}]", pods.clone(), false),
            ("nonResourceURLs: [/healthz]", path("/healthz"), true),
            ("nonResourceURLs: [/healthz]", path("/healthz/ping"), false),
            ("nonResourceURLs: ['/healthz*']", path("/healthz/ping"), true),
            ("nonResourceURLs: ['*']", path("/metrics"), true),
            ("nonResourceURLs: ['*']", pods.clone(), false),
        ] {
            let comma = if rule.is_empty() { "" } else { ", " };
            let policy = policy(&format!("{{level: Metadata{comma}{rule}}}")).expect("good");
            assert_eq!(policy.verdict(Some(&jane), &attributes).level == Level::Metadata, expected, "{rule} {attributes:?}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = policy(
            "{level: None, users: [jane], verbs: [get]}, {level: Request, omitStages: [Panic], omitManagedFields: true, users: [jane]}, {level: Metadata}",
        )
        .expect("good");
        let level = |user: Option<&str>, verb: &str| {
            policy.verdict(user.map(|user| UserInfo::new(user, &[])).as_ref(), &ask(verb, "pods", "default", "x")).level
        };
        assert_eq!((level(Some("jane"), "get"), level(Some("jane"), "update")), (Level::None, Level::Request));
        assert_eq!((level(Some("joe"), "get"), level(None, "get")), (Level::Metadata, Level::Metadata));
        let verdict = policy.verdict(Some(&UserInfo::new("jane", &[])), &ask("update", "pods", "default", "x"));
        assert_eq!(verdict.omit_stages.into_iter().collect::<Vec<_>>(), [Stage::RequestReceived, Stage::Panic]);
        assert!(verdict.omit_managed_fields);
        let silent = super::AuditPolicy { rules: Vec::new(), ..policy.clone() };
        assert_eq!(silent.verdict(None, &path("/")).level, Level::None, "what no rule matches is not recorded");
    }

    #[test]
    fn broken_policies_are_named() {
        for (rules, wanted) in [
            ("", "loaded illegal policy with 0 rules"),
            ("{users: [a]}", "rules[0].level: Required value"),
            (
                "{level: Metadata, namespaces: [a], nonResourceURLs: ['*']}",
                "rules cannot apply to both regular resources and non-resource URLs",
            ),
            ("{level: Metadata, nonResourceURLs: [healthz]}", "non-resource URL rules must begin with a '/' character"),
            ("{level: Metadata, nonResourceURLs: ['/a*b']}", "must be the final character of the rule"),
            ("{level: Metadata, resources: [{group: apps/v1}]}", "rules[0].resources[0].group: Invalid value"),
            ("{level: Metadata, resources: [{resourceNames: [a]}]}", "using resourceNames requires at least one resource"),
        ] {
            let error = policy(rules).expect_err("bad").to_string();
            assert!(error.contains(wanted), "{error}");
        }
        for bad in ["{level: Everything}", "{level: Metadata, omitStages: [Later]}", "{level: Metadata, colour: red}"] {
            assert!(matches!(policy(bad), Err(AuditPolicyError::Unreadable(_))), "{bad}");
        }
        assert!(matches!(AuditPolicy::parse("{kind: Policy, apiVersion: audit.k8s.io/v1beta1}"), Err(AuditPolicyError::Kind { .. })));
    }
}
