//! Pod specs, of a Pod or of a workload's template. The defaults and checks of each part have a file below this one, which
//! calls them in upstream's order.

mod affinity;
pub mod claim_spec;
mod container;
pub mod defaults;
mod dns;
mod env;
mod handler;
pub mod qos;
pub mod resources;
mod restart;
mod security;
mod toleration;
pub mod update;
mod volume;
pub mod warnings;

use std::collections::HashMap;

use api_model::field::FieldError;

use crate::at::At;
use crate::checks::Checks;
use crate::{format, meta};

pub use affinity::{node_selector, topology_term};
pub use handler::port as validate_port;
pub use toleration::{taints, validate as validate_tolerations};
pub use volume::persistent_source;

/// The longest host name that the kernel accepts.
const HOSTNAME_LEN_MAX: usize = 64;
/// Largest 32-bit number.
const INT32_MAX: i64 = i32::MAX as i64;
const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
/// The value of `preemptionPolicy` in messages.
pub const PREEMPTION_POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];

/// The facts about a Pod spec that the checks of its parts need.
pub struct Context<'a> {
    /// Well-formed volumes by name.
    pub volumes: HashMap<&'a str, At<'a>>,
    /// Names of resource claims.
    pub claims: Vec<&'a str>,
    /// The Pod's `terminationGracePeriodSeconds`.
    pub grace_period: Option<i64>,
    /// The Pod's `restartPolicy`.
    pub restart_policy: &'a str,
    /// Whether the Pod shares the host's user namespace.
    pub host_users: bool,
}

/// Checks a Pod spec. `pod_name` is absent for templates.
pub fn validate_spec(spec: &At<'_>, pod_name: Option<&str>, checks: &mut Checks) {
    let grace = spec.get("terminationGracePeriodSeconds");
    if !grace.exists() {
        checks.required(&grace, "");
    }
    let context = Context {
        volumes: volume::validate_all(&spec.get("volumes"), pod_name, checks),
        claims: spec.get("resourceClaims").items().map(|claim| claim.get("name").text()).filter(|name| !name.is_empty()).collect(),
        grace_period: grace.number(),
        restart_policy: spec.get("restartPolicy").text(),
        host_users: spec.get("hostUsers").value().and_then(serde_json::Value::as_bool).unwrap_or(true),
    };
    resources::validate_claims(&spec.get("resourceClaims"), checks);
    container::validate_all(spec, &context, checks);
    resources::validate_pod_level(spec, checks);
    host_network_ports(spec, pod_name.is_some(), checks);
    checks.one_of(&spec.get("restartPolicy"), &RESTART_POLICIES);
    checks.one_of(&spec.get("dnsPolicy"), &DNS_POLICIES);
    checks.labels(&spec.get("nodeSelector"));
    security::validate_pod(spec, checks);
    affinity::validate(&spec.get("affinity"), checks);
    dns::validate(spec, checks);
    gates(spec, checks);
    scheduling_group(&spec.get("schedulingGroup"), checks);
    affinity::validate_spread(&spec.get("topologySpreadConstraints"), checks);
    names(spec, checks);
    numbers(spec, checks);
    toleration::validate(&spec.get("tolerations"), checks);
    dns::validate_host_aliases(&spec.get("hostAliases"), checks);
    classes(spec, checks);
    operating_system(spec, checks);
}

/// Checks the template of a workload.
pub fn validate_template(template: &At<'_>, checks: &mut Checks) {
    let metadata = template.get("metadata");
    // Upstream's paths of these fields have no `metadata`.
    checks.labels(&At::new(metadata.get("labels").value(), template.path.child("labels")));
    let annotations = At::new(metadata.get("annotations").value(), template.path.child("annotations"));
    meta::annotations(&annotations, checks);
    validate_annotations(&annotations, &template.get("spec"), checks);
    validate_spec(&template.get("spec"), None, checks);
    let ephemeral = template.get("spec").get("ephemeralContainers");
    if ephemeral.len() > 0 {
        checks.forbidden(&ephemeral, "ephemeral containers not allowed in pod template");
    }
}

/// Checks the annotations that have a meaning for Pods.
pub fn validate_annotations(annotations: &At<'_>, spec: &At<'_>, checks: &mut Checks) {
    let mirror = annotations.key("kubernetes.io/config.mirror");
    if mirror.exists() && spec.get("nodeName").text().is_empty() {
        checks.invalid(&mirror, "must set spec.nodeName if mirror pod annotation is set");
    }
    let cost = annotations.key("controller.kubernetes.io/pod-deletion-cost");
    if cost.exists() {
        let text = cost.text();
        let canonical = !text.starts_with('+') && !(text.len() > 1 && (text.starts_with('0') || text.starts_with("-0")));
        if text.parse::<i32>().is_err() || !canonical {
            checks.invalid(&cost, "must be a 32bit integer");
        }
    }
}

/// Checks of a whole Pod that do not apply to templates.
pub fn validate_pod(pod: &At<'_>, checks: &mut Checks) {
    let spec = pod.get("spec");
    validate_annotations(&pod.find("metadata.annotations"), &spec, checks);
    validate_spec(&spec, Some(pod.find("metadata.name").text()), checks);
    if spec.get("serviceAccountName").text().is_empty() {
        for volume in spec.get("volumes").items() {
            for source in volume.find("projected.sources").items() {
                let token = source.get("serviceAccountToken");
                if token.exists() {
                    checks.forbidden(&token, "must not be specified when serviceAccountName is not set");
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get(list).items() {
            container::image_not_padded(&container.get("image"), checks);
        }
    }
}

fn host_network_ports(spec: &At<'_>, is_pod: bool, checks: &mut Checks) {
    if !spec.get("hostNetwork").flag() {
        return;
    }
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let host = port.get("hostPort");
            if (is_pod || host.int() != 0) && host.int() != port.get("containerPort").int() {
                checks.invalid_value(&host.path, host.int(), "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn gates(spec: &At<'_>, checks: &mut Checks) {
    for gate in spec.get("readinessGates").items() {
        checks.qualified_name(&gate.get("conditionType"));
    }
    let mut seen = Vec::new();
    for gate in spec.get("schedulingGates").items() {
        let name = At::new(gate.get("name").value(), gate.path.clone());
        checks.qualified_name(&name);
        if seen.contains(&name.text()) {
            checks.duplicate(&name);
        }
        seen.push(name.text());
    }
}

fn scheduling_group(group: &At<'_>, checks: &mut Checks) {
    let name = group.get("podGroupName");
    if name.exists() {
        checks.dns_subdomain(&name);
    } else if group.exists() {
        checks.invalid_value(&group.path, "", "must specify one of: `podGroupName`");
    }
}

fn names(spec: &At<'_>, checks: &mut Checks) {
    for (field, check) in [
        ("serviceAccountName", format::dns_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", format::dns_subdomain),
        ("hostname", format::dns_label),
        ("subdomain", format::dns_label),
    ] {
        let name = spec.get(field);
        if !name.text().is_empty() {
            checks.format(&name, check(name.text()));
        }
    }
    let overriding = spec.get("hostnameOverride");
    if overriding.text().is_empty() {
        return;
    }
    checks.format(&overriding, format::dns_subdomain(overriding.text()));
    if overriding.text().len() > HOSTNAME_LEN_MAX {
        checks.push(FieldError::too_long(&overriding.path, HOSTNAME_LEN_MAX));
    }
    for field in ["hostNetwork", "setHostnameAsFQDN"] {
        if spec.get(field).flag() {
            checks.forbidden(&overriding, format!("may not be set together with {field}"));
        }
    }
}

fn numbers(spec: &At<'_>, checks: &mut Checks) {
    let deadline = spec.get("activeDeadlineSeconds");
    if deadline.exists() {
        checks.in_range(&deadline, 1, INT32_MAX);
    }
}

fn classes(spec: &At<'_>, checks: &mut Checks) {
    let priority = spec.get("priorityClassName");
    if !priority.text().is_empty() {
        checks.dns_subdomain(&priority);
    }
    let runtime = spec.get("runtimeClassName");
    if runtime.exists() {
        checks.dns_subdomain(&runtime);
    }
    let preemption = spec.get("preemptionPolicy");
    if preemption.exists() {
        checks.one_of(&preemption, &PREEMPTION_POLICIES);
    }
    let overhead = spec.get("overhead");
    if overhead.exists() {
        resources::validate_limits_only(&overhead, checks);
    }
}

fn operating_system(spec: &At<'_>, checks: &mut Checks) {
    let os = spec.get("os");
    if os.exists() {
        checks.one_of(&os.get("name"), &["linux", "windows"]);
    }
    if os.get("name").text() == "linux" {
        let options = spec.get("securityContext").get("windowsOptions");
        if options.exists() {
            checks.forbidden(&options, "windows options cannot be set for a linux pod");
        }
    }
}

#[cfg(test)]
mod tests;
