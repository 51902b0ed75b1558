//! Ingress and IngressClass.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{self, fill_absent, inner};
use crate::format;

/// The rules of Ingresses.
pub const RULES: Rules = Rules { prepare_create, ..Rules::new(|_| {}, validate_create, validate_update) };
/// The rules of IngressClasses.
pub const CLASS: Rules = Rules::new(default_class, validate_class, update_class);

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const CONTROLLER_LEN_MAX: usize = 250;
const BAD_SEQUENCES: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const BAD_ENDS: [&str; 2] = ["/..", "/."];

fn prepare_create(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status".to_owned(), json!({"loadBalancer": {}}));
    }
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    validate(object, checks);
    let annotation = object.find("metadata.annotations").get(CLASS_ANNOTATION);
    let class = object.find("spec.ingressClassName");
    if annotation.exists() && class.exists() && annotation.text() != class.text() {
        let path = api_model::field::Path::new("annotations").child(CLASS_ANNOTATION);
        checks.invalid_value(&path, annotation.text(), "must match `ingressClassName` when both are specified");
    }
}

fn validate(object: &At<'_>, checks: &mut Checks) {
    let spec = object.get("spec");
    let (rules, backend) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.len() == 0 && !backend.exists() {
        checks.invalid_value(&spec.path, json!([]), "either `defaultBackend` or `rules` must be specified");
    }
    if backend.exists() {
        self::backend(&backend, checks);
    }
    for rule in rules.items() {
        host(&rule.get("host"), true, checks);
        let http = rule.get("http");
        if http.exists() && http.get("paths").len() == 0 {
            checks.required(&http.get("paths"), "");
        }
        for path in http.get("paths").items() {
            self::path(&path, checks);
        }
    }
    for tls in spec.get("tls").items() {
        for name in tls.get("hosts").items() {
            host(&name, false, checks);
        }
        if !tls.get("secretName").text().is_empty() {
            checks.dns_subdomain(&tls.get("secretName"));
        }
    }
    if spec.get("ingressClassName").exists() {
        checks.dns_subdomain(&spec.get("ingressClassName"));
    }
}

fn host(host: &At<'_>, in_rule: bool, checks: &mut Checks) {
    if host.text().is_empty() && in_rule {
        return;
    }
    if in_rule && host.text().parse::<IpAddr>().is_ok() {
        checks.invalid(host, "must be a DNS name, not an IP address");
    }
    if host.text().contains('*') {
        checks.format(host, format::wildcard_subdomain(host.text()));
    } else {
        checks.dns_subdomain(host);
    }
}

fn path(path: &At<'_>, checks: &mut Checks) {
    let (kind, text) = (path.get("pathType"), path.get("path"));
    match kind.text() {
        _ if !kind.exists() => return checks.required(&kind, "pathType must be specified"),
        "Exact" | "Prefix" => {
            if !text.text().starts_with('/') {
                checks.invalid_value(&text.path, text.text(), "must be an absolute path");
            }
            for bad in BAD_SEQUENCES.iter().filter(|bad| text.text().contains(**bad)) {
                checks.invalid(&text, format!("must not contain '{bad}'"));
            }
            for bad in BAD_ENDS.iter().filter(|bad| text.text().ends_with(**bad)) {
                checks.invalid(&text, format!("cannot end with '{bad}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.text().is_empty() && !text.text().starts_with('/') {
                checks.invalid(&text, "must be an absolute path");
            }
        }
        _ => checks.not_supported(&kind, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&path.get("backend"), checks);
}

fn backend(backend: &At<'_>, checks: &mut Checks) {
    let (service, resource) = (backend.get("service"), backend.get("resource"));
    match (service.exists(), resource.exists()) {
        (true, true) => checks.invalid_value(&backend.path, "", "cannot set both resource and service backends"),
        (false, false) => checks.invalid_value(&backend.path, "", "resource or service backend is required"),
        (false, true) => reference(&resource, checks),
        (true, false) => {
            let name = service.get("name");
            if name.text().is_empty() {
                checks.required(&name, "");
            } else {
                checks.format(&name, format::dns_1035_label(name.text()));
            }
            let (port_name, number) = (service.find("port.name"), service.find("port.number"));
            match (!port_name.text().is_empty(), number.int() != 0) {
                (true, true) => checks.invalid_value(&backend.path, "", "cannot set both port name & port number"),
                (true, false) => checks.format(&port_name, format::port_name(port_name.text())),
                (false, true) => checks.port(&number),
                (false, false) => checks.required(backend, "port name or number is required"),
            }
        }
    }
}

fn reference(reference: &At<'_>, checks: &mut Checks) {
    if reference.get("apiGroup").exists() {
        checks.dns_subdomain(&reference.get("apiGroup"));
    }
    for field in ["kind", "name"] {
        let at = reference.get(field);
        if at.text().is_empty() {
            checks.required(&at, "");
        } else {
            checks.format(&at, format::path_segment(at.text()));
        }
    }
}

fn validate_update(sub: Option<&str>, new: &At<'_>, _old: &At<'_>, checks: &mut Checks) {
    if sub != Some("status") {
        return validate(new, checks);
    }
    for ingress in new.find("status.loadBalancer.ingress").items() {
        let (ip, name) = (ingress.get("ip"), ingress.get("hostname"));
        if !ip.text().is_empty() {
            checks.format(&ip, format::ip(ip.text()));
        }
        host(&name, true, checks);
    }
}

fn default_class(object: &mut Value) {
    if let Some(parameters) = edit::spec(object).and_then(|spec| inner(spec, "parameters")) {
        fill_absent(parameters, "scope", "Cluster");
    }
}

fn validate_class(object: &At<'_>, checks: &mut Checks) {
    let controller = object.find("spec.controller");
    if controller.text().is_empty() {
        checks.required(&controller, "");
    } else {
        if controller.text().len() > CONTROLLER_LEN_MAX {
            checks.too_long(&controller, CONTROLLER_LEN_MAX);
        }
        match controller.text().split_once('/') {
            Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
                for message in format::dns_subdomain(domain) {
                    checks.invalid_value(&controller.path, domain, message);
                }
            }
            _ => checks.invalid(&controller, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        }
    }
    let parameters = object.find("spec.parameters");
    if !parameters.exists() {
        return;
    }
    reference(&parameters, checks);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    checks.one_of(&scope, &["Cluster", "Namespace"]);
    match (scope.text(), namespace.exists()) {
        ("Namespace", false) => checks.required(&namespace, "`parameters.scope` is set to 'Namespace'"),
        ("Namespace", true) => checks.dns_label(&namespace),
        ("Cluster", true) => checks.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'"),
        _ => {}
    }
}

fn update_class(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    checks.immutable(&new.find("spec.controller"), &old.find("spec.controller"));
    validate_class(new, checks);
}
