//! Containers, init containers and ephemeral containers: the shared checks, and the fields that each sort may not have.

use std::collections::HashSet;

use super::{Context, env, handler, resources, restart, security, volume};
use crate::at::At;
use crate::checks::Checks;
use crate::format;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const INIT_FORBIDDEN: [&str; 4] = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
const EPHEMERAL_FORBIDDEN: [&str; 9] = [
    "ports",
    "resources",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
];

/// Checks containers, init containers and ephemeral containers.
pub fn validate_all(spec: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let (containers, inits, ephemerals) = (spec.get("containers"), spec.get("initContainers"), spec.get("ephemeralContainers"));
    regular(&containers, context, checks);
    init(&inits, &containers, context, checks);
    ephemeral(&ephemerals, &containers, &inits, context, checks);
}

fn regular(containers: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    if containers.len() == 0 {
        checks.required(containers, "");
        return;
    }
    let mut names = HashSet::new();
    let mut host_ports = HashSet::new();
    for container in containers.items() {
        common(&container, context, checks);
        let name = container.get("name");
        if !names.insert(name.text()) {
            checks.duplicate(&name);
        }
        handler::validate_hooks(&container, context, checks);
        restart::validate(&container, checks);
    }
    for container in containers.items() {
        host_port_conflicts(&container, &mut host_ports, checks);
    }
}

fn init(containers: &At<'_>, regular: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let mut names: HashSet<&str> = regular.items().map(|container| container.get("name").text()).collect();
    for container in containers.items() {
        common(&container, context, checks);
        let policy = container.get("restartPolicy");
        restart::validate(&container, checks);
        let name = container.get("name");
        if !name.text().is_empty() && !names.insert(name.text()) {
            checks.duplicate(&name);
        }
        host_port_conflicts(&container, &mut HashSet::new(), checks);
        if policy.text() == "Always" {
            handler::validate_hooks(&container, context, checks);
            continue;
        }
        for field in INIT_FORBIDDEN {
            let field = container.get(field);
            if field.exists() {
                checks.forbidden(&field, "may not be set for init containers without restartPolicy=Always");
            }
        }
    }
}

fn ephemeral(containers: &At<'_>, regular: &At<'_>, inits: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let others: HashSet<&str> = regular.items().chain(inits.items()).map(|container| container.get("name").text()).collect();
    let mut names = others.clone();
    for container in containers.items() {
        common(&container, context, checks);
        image_not_padded(&container.get("image"), checks);
        let name = container.get("name");
        if !names.insert(name.text()) {
            checks.duplicate(&name);
        }
        let target = container.get("targetContainerName");
        if !target.text().is_empty() && !others.contains(target.text()) {
            checks.not_found(&target);
        }
        for field in EPHEMERAL_FORBIDDEN {
            let field = container.get(field);
            if !field.is_zero() {
                checks.forbidden(&field, "cannot be set for an Ephemeral Container");
            }
        }
        for mount in container.get("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.get(field).text().is_empty() {
                    checks.forbidden(&mount.get(field), "cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

/// The checks of every container.
fn common(container: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let name = container.get("name");
    if name.text().is_empty() {
        checks.required(&name, "");
    } else {
        checks.dns_label(&name);
    }
    let image = container.get("image");
    if image.text().is_empty() {
        checks.required(&image, "");
    }
    checks.one_of(&container.get("terminationMessagePolicy"), &MESSAGE_POLICIES);
    ports(&container.get("ports"), checks);
    env::validate(&container.get("env"), context, checks);
    env::validate_from(&container.get("envFrom"), checks);
    volume::validate_mounts(container, context, checks);
    volume::validate_devices(container, context, checks);
    checks.one_of(&container.get("imagePullPolicy"), &PULL_POLICIES);
    resources::validate(&container.get("resources"), context, checks);
    resize_policy(&container.get("resizePolicy"), context, checks);
    security::validate_container(&container.get("securityContext"), context.host_users, checks);
}

/// Rejects white space around an image name. Existing templates may contain it, Pods may not.
pub fn image_not_padded(image: &At<'_>, checks: &mut Checks) {
    if image.text().trim() != image.text() {
        checks.invalid(image, "must not have leading or trailing whitespace");
    }
}

fn ports(ports: &At<'_>, checks: &mut Checks) {
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if !name.text().is_empty() {
            let wrong = format::port_name(name.text());
            if !wrong.is_empty() {
                checks.format(&name, wrong);
            } else if !names.insert(name.text()) {
                checks.duplicate(&name);
            }
        }
        let number = port.get("containerPort");
        if number.int() == 0 {
            checks.required(&number, "");
        } else {
            checks.port(&number);
        }
        let host = port.get("hostPort");
        if host.int() != 0 {
            checks.port(&host);
        }
        checks.one_of(&port.get("protocol"), &PROTOCOLS);
    }
}

fn host_port_conflicts(container: &At<'_>, seen: &mut HashSet<String>, checks: &mut Checks) {
    for port in container.get("ports").items() {
        let host = port.get("hostPort");
        if host.int() == 0 {
            continue;
        }
        let claim = format!("{}/{}/{}", port.get("protocol").text(), port.get("hostIP").text(), host.int());
        if !seen.insert(claim.clone()) {
            checks.push(api_model::field::FieldError::duplicate(&host.path, claim));
        }
    }
}

fn resize_policy(policies: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let mut seen = HashSet::new();
    for policy in policies.items() {
        let (resource, restart) = (policy.get("resourceName"), policy.get("restartPolicy"));
        if !seen.insert(resource.text()) {
            checks.push(api_model::field::FieldError::duplicate(&policy.path, resource.text()));
        }
        // As upstream, the path does not contain the index of the element.
        checks.one_of(&At::new(resource.value(), policies.path.clone()), &["cpu", "memory"]);
        let at = At::new(restart.value(), policies.path.clone());
        checks.one_of(&at, &["NotRequired", "RestartContainer"]);
        if context.restart_policy == "Never" && restart.text() != "NotRequired" {
            checks.invalid(&at, "must be 'NotRequired' when `restartPolicy` is 'Never'");
        }
    }
}
