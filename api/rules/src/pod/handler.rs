//! Probes and lifecycle hooks.

use super::Context;
use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// Checks the lifecycle hooks and probes of a container whose sort may have them.
pub fn validate_hooks(container: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let lifecycle = container.get("lifecycle");
    for hook in ["postStart", "preStop"] {
        if lifecycle.get(hook).exists() {
            handler(&lifecycle.get(hook), &["exec", "httpGet", "tcpSocket", "sleep"], context, checks);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.get(name);
        if !probe.exists() {
            continue;
        }
        self::probe(&probe, context, checks);
        if name == "readinessProbe" {
            let grace = probe.get("terminationGracePeriodSeconds");
            if grace.exists() {
                checks.invalid(&grace, "must not be set for readinessProbes");
            }
        } else if probe.get("successThreshold").int() != 1 {
            checks.invalid(&probe.get("successThreshold"), "must be 1");
        }
    }
}

fn probe(probe: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], context, checks);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        checks.not_negative(&probe.get(field));
    }
    let grace = probe.get("terminationGracePeriodSeconds");
    if grace.exists() && grace.int() <= 0 {
        checks.invalid(&grace, "must be greater than 0");
    }
}

fn handler(owner: &At<'_>, kinds: &[&str], context: &Context<'_>, checks: &mut Checks) {
    let mut has_action = false;
    for kind in kinds {
        let action = owner.get(kind);
        if !action.exists() {
            continue;
        }
        if has_action {
            checks.forbidden(&action, "may not specify more than 1 handler type");
            continue;
        }
        has_action = true;
        match *kind {
            "exec" if action.get("command").len() == 0 => checks.required(&action.get("command"), ""),
            "httpGet" => http_get(&action, checks),
            "tcpSocket" | "grpc" => port(&action.get("port"), checks),
            "sleep" => sleep(&action, context, checks),
            _ => {}
        }
    }
    if !has_action {
        checks.required(owner, "must specify a handler type");
    }
}

fn http_get(action: &At<'_>, checks: &mut Checks) {
    if action.get("path").text().is_empty() {
        checks.required(&action.get("path"), "");
    }
    port(&action.get("port"), checks);
    if !["HTTP", "HTTPS"].contains(&action.get("scheme").text()) {
        checks.not_supported(&action.get("scheme"), &["HTTP", "HTTPS"]);
    }
    let headers = action.get("httpHeaders");
    for header in headers.items() {
        let name = header.get("name");
        for message in format::header_name(name.text()) {
            checks.invalid_value(&headers.path, name.text(), message);
        }
    }
}

/// A port's number or name.
pub fn port(port: &At<'_>, checks: &mut Checks) {
    if port.value().is_some_and(serde_json::Value::is_string) {
        checks.format(port, format::port_name(port.text()));
    } else {
        checks.port(port);
    }
}

fn sleep(action: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let seconds = action.get("seconds").int();
    if let Some(grace) = context.grace_period
        && !(0..=grace).contains(&seconds)
    {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        checks.invalid_value(&action.path, seconds, detail);
    }
}
