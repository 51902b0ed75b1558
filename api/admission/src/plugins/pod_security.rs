//! PodSecurity: the Pod Security Standards (`privileged`, `baseline`, `restricted`), which labels of the namespace
//! select. `enforce` rejects Pods. `warn` sends warnings to the client, also for the Pod templates of Deployments and
//! other kinds. `audit` is not implemented here. The checks are in [`checks`].

pub mod checks;

use std::collections::BTreeMap;
use std::fmt;

use api_model::field::{FieldError, Path};
use api_model::kind::GroupResource;
use api_model::meta;
use api_model::view::View;
use serde_json::Value;

use crate::denied::Denied;
use crate::json;
use crate::plugin::Plugin;
use crate::pods;
use crate::request::{Operation, Request};

const PREFIX: &str = "pod-security.kubernetes.io/";
const MODES: [&str; 3] = ["enforce", "audit", "warn"];
/// How many existing Pods are checked when the level of a namespace changes; upstream's number.
const EXISTING_PODS_MAX: usize = 3000;

/// How much a Pod may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No restrictions.
    Privileged,
    /// Prevents known ways to escape from the container.
    Baseline,
    /// Follows current best practice.
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

/// A level with the version of the standards. The version stands only in messages: the checks are always the latest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Policy {
    level: Level,
    version: String,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

/// The plugin.
pub struct PodSecurity;

impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn validate(&self, request: &Request<'_>, view: &dyn View, warnings: &mut Vec<String>) -> Result<(), Denied> {
        if request.is("", "namespaces") {
            return namespace(request, view, warnings);
        }
        let Some(object) = request.object() else { return Ok(()) };
        let pod = concerns_pod(request);
        let template = if pod { Some(object) } else { template(request, object) };
        let Some(template) = template else { return Ok(()) };
        let (metadata, spec) = (template.get("metadata"), template.get("spec"));
        let (Some(spec), Some(namespace)) = (spec, view.get(&GroupResource::new("", "namespaces"), None, request.namespace)) else {
            return Ok(());
        };
        let enforce = policy(&namespace, "enforce");
        if pod {
            let broken = checks::broken(enforce.level, metadata, spec);
            if !broken.is_empty() {
                return Err(Denied::forbidden(request, format!("violates PodSecurity \"{enforce}\": {broken}")));
            }
        }
        let warn = policy(&namespace, "warn");
        let broken = checks::broken(warn.level, metadata, spec);
        if !broken.is_empty() {
            warnings.push(format!("would violate PodSecurity \"{warn}\": {broken}"));
        }
        Ok(())
    }
}

/// Whether the Pod of a request is checked: new Pods, new ephemeral containers, and updates that change images.
fn concerns_pod(request: &Request<'_>) -> bool {
    match request.operation {
        Operation::Create => request.is("", "pods"),
        Operation::Update if request.is_sub("", "pods", "ephemeralcontainers") => true,
        Operation::Update => request.is("", "pods") && images(request.old) != images(request.object()),
        Operation::Delete | Operation::Connect => false,
    }
}

fn images(pod: Option<&Value>) -> Vec<&str> {
    pod.map(pods::spec).into_iter().flat_map(pods::containers).map(|c| json::text(c, "image")).collect()
}

/// The Pod template in an object that creates Pods.
fn template<'a>(request: &Request<'_>, object: &'a Value) -> Option<&'a Value> {
    if !request.subresource.is_empty() || !matches!(request.operation, Operation::Create | Operation::Update) {
        return None;
    }
    match (request.kind.group.as_str(), request.kind.plural.as_str()) {
        ("", "podtemplates") => object.get("template"),
        ("" | "apps" | "batch", "replicationcontrollers" | "daemonsets" | "deployments" | "replicasets" | "statefulsets" | "jobs") => {
            object.pointer("/spec/template")
        }
        ("batch", "cronjobs") => object.pointer("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}

fn label<'a>(namespace: &'a Value, name: &str) -> Option<&'a str> {
    meta::labels(namespace)?.get(&format!("{PREFIX}{name}"))?.as_str()
}

/// The policy of a namespace. An unknown level counts as the strictest level, as upstream. The plugin rejects labels
/// with unknown levels, unless it was off when the label was written.
fn policy(namespace: &Value, mode: &str) -> Policy {
    let level = label(namespace, mode).map_or(Level::Privileged, |text| Level::parse(text).unwrap_or(Level::Restricted));
    let version = label(namespace, &format!("{mode}-version")).unwrap_or("latest").to_owned();
    Policy { level, version }
}

fn namespace(request: &Request<'_>, view: &dyn View, warnings: &mut Vec<String>) -> Result<(), Denied> {
    let Some(new) = request.object().filter(|_| matches!(request.operation, Operation::Create | Operation::Update)) else { return Ok(()) };
    let errors = label_errors(new);
    let unchanged = request.old.is_some_and(|old| label_errors(old) == errors);
    if !errors.is_empty() && !unchanged {
        return Err(Denied::invalid(request, errors));
    }
    let wanted = policy(new, "enforce");
    let raised = request.old.is_some_and(|old| policy(old, "enforce") != wanted && policy(old, "enforce").level <= wanted.level);
    if raised {
        warn_of_existing(meta::name(new), &wanted, view, warnings);
    }
    Ok(())
}

fn label_errors(namespace: &Value) -> Vec<FieldError> {
    let path = Path::new("metadata").child("labels");
    let mut errors = Vec::new();
    for mode in MODES {
        if let Some(text) = label(namespace, mode).filter(|text| Level::parse(text).is_none()) {
            errors.push(FieldError::invalid(
                &path.key(&format!("{PREFIX}{mode}")),
                text,
                "must be one of privileged, baseline, restricted",
            ));
        }
        let version = format!("{mode}-version");
        if let Some(text) = label(namespace, &version).filter(|text| !good_version(text)) {
            errors.push(FieldError::invalid(&path.key(&format!("{PREFIX}{version}")), text, "must be \"latest\" or \"v1.x\""));
        }
    }
    errors
}

fn good_version(text: &str) -> bool {
    text == "latest" || text.strip_prefix("v1.").is_some_and(|minor| minor.parse::<u16>().is_ok_and(|n| n.to_string() == minor))
}

/// Existing Pods stay. The client that raises the level gets warnings about the Pods that would fail the checks.
fn warn_of_existing(namespace: &str, wanted: &Policy, view: &dyn View, warnings: &mut Vec<String>) {
    let mut by_problem: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in view.list(&pods::resource(), Some(namespace)).iter().take(EXISTING_PODS_MAX) {
        let broken = checks::broken(wanted.level, pod.get("metadata"), pods::spec(pod));
        if !broken.is_empty() {
            by_problem.entry(broken.reasons()).or_default().push(meta::name(pod).to_owned());
        }
    }
    if by_problem.is_empty() {
        return;
    }
    warnings.push(format!("existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{wanted}\""));
    let mut lines: Vec<String> = by_problem.into_iter().map(|(problem, names)| format!("{}: {problem}", pod_list(&names))).collect();
    lines.sort();
    warnings.extend(lines);
}

/// The name of the first Pod, and the number of the others.
fn pod_list(names: &[String]) -> String {
    let first = names.first().map(String::as_str).unwrap_or_default();
    match names.len() {
        0 | 1 => first.to_owned(),
        2 => format!("{first} (and 1 other pod)"),
        n => format!("{first} (and {} other pods)", n - 1),
    }
}

#[cfg(test)]
mod tests;
