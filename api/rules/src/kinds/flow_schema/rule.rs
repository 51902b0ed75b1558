//! `PolicyRulesWithSubjects`: the subjects and the requests that a FlowSchema selects.

use crate::at::At;
use crate::checks::Checks;
use crate::format;

const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const SUBJECTS: [&str; 3] = ["Group", "ServiceAccount", "User"];

/// Checks a rule.
pub fn validate(rule: &At<'_>, checks: &mut Checks) {
    let subjects = rule.get("subjects");
    if subjects.len() == 0 {
        checks.required(&subjects, "subjects must contain at least one value");
    }
    for subject in subjects.items() {
        self::subject(&subject, checks);
    }
    let (resources, paths) = (rule.get("resourceRules"), rule.get("nonResourceRules"));
    if resources.len() == 0 && paths.len() == 0 {
        checks.required(rule, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    for rule in resources.items() {
        resource_rule(&rule, checks);
    }
    for rule in paths.items() {
        path_rule(&rule, checks);
    }
}

fn subject(subject: &At<'_>, checks: &mut Checks) {
    let kind = subject.get("kind");
    if !SUBJECTS.contains(&kind.text()) {
        return checks.not_supported(&kind, &SUBJECTS);
    }
    for (field, owner) in [("user", "User"), ("group", "Group"), ("serviceAccount", "ServiceAccount")] {
        let at = subject.get(field);
        match (kind.text() == owner, at.exists()) {
            (true, false) => checks.required(&at, &format!("{field} is required when subject kind is '{owner}'")),
            (true, true) if field == "serviceAccount" => service_account(&at, checks),
            (true, true) if at.get("name").text().is_empty() => checks.required(&at.get("name"), ""),
            (false, true) => checks.forbidden(&at, format!("{field} is forbidden when subject kind is not '{owner}'")),
            _ => {}
        }
    }
}

fn service_account(account: &At<'_>, checks: &mut Checks) {
    let (name, namespace) = (account.get("name"), account.get("namespace"));
    match name.text() {
        "" => checks.required(&name, ""),
        "*" => {}
        text => checks.format(&name, format::dns_subdomain(text)),
    }
    match namespace.text() {
        "" => checks.required(&namespace, "must specify namespace for service account"),
        text => checks.format(&namespace, format::dns_label(text)),
    }
}

fn resource_rule(rule: &At<'_>, checks: &mut Checks) {
    verbs(&rule.get("verbs"), checks);
    words(&rule.get("apiGroups"), "resource rules must supply at least one api group", "api groups", checks);
    words(&rule.get("resources"), "resource rules must supply at least one resource", "resources", checks);
    let namespaces = rule.get("namespaces");
    if namespaces.len() == 0 {
        if !rule.get("clusterScope").flag() {
            checks.required(&namespaces, "resource rules that are not cluster scoped must supply at least one namespace");
        }
        return;
    }
    words(&namespaces, "", "namespaces", checks);
    for namespace in namespaces.items().filter(|_| !has_wildcard(&namespaces)) {
        for complaint in format::dns_label(namespace.text()) {
            checks.invalid(&namespace, format!("each member of this list must be '*' or a DNS-1123 label; {complaint}"));
        }
    }
}

fn path_rule(rule: &At<'_>, checks: &mut Checks) {
    verbs(&rule.get("verbs"), checks);
    let urls = rule.get("nonResourceURLs");
    words(&urls, "nonResourceURLs must contain at least one value", "non-resource URLs", checks);
    for url in urls.items().filter(|_| !has_wildcard(&urls)) {
        if let Some(complaint) = path_problem(url.text()) {
            checks.invalid(&url, complaint);
        }
    }
}

fn path_problem(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || (stars == 1 && !path.ends_with("/*")) => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}

fn has_wildcard(list: &At<'_>) -> bool {
    list.texts().any(|word| word == "*")
}

fn verbs(list: &At<'_>, checks: &mut Checks) {
    words(list, "verbs must contain at least one value", "verbs", checks);
    if !has_wildcard(list) && list.texts().any(|verb| !VERBS.contains(&verb)) {
        checks.not_supported(list, &VERBS);
    }
}

fn words(list: &At<'_>, missing: &str, what: &str, checks: &mut Checks) {
    if list.len() == 0 {
        checks.required(list, missing);
    } else if list.len() > 1 && has_wildcard(list) {
        checks.invalid(list, format!("if '*' is present, must not specify other {what}"));
    }
}
