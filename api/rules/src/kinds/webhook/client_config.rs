//! `WebhookClientConfig`: the address of a webhook, as a URL or a Service.

use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// The required form of a URL.
const FORM: &str = "; desired format: https://host[/path]";

/// Checks a client config.
pub fn validate(config: &At<'_>, checks: &mut Checks) {
    let (address, service) = (config.get("url"), config.get("service"));
    match (address.exists(), service.exists()) {
        (true, false) => url(&address, checks),
        (false, true) => self::service(&service, checks),
        _ => checks.required(config, "exactly one of url or service is required"),
    }
}

fn url(at: &At<'_>, checks: &mut Checks) {
    let (scheme, rest) = at.text().split_once("://").unwrap_or(("", at.text()));
    if scheme != "https" {
        checks.invalid_value(&at.path, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() || scheme.is_empty() {
        checks.invalid_value(&at.path, "", format!("host must be specified{FORM}"));
    }
    let absent = [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ];
    for (part, complaint) in absent.into_iter().filter(|(part, _)| !part.is_empty()) {
        checks.invalid_value(&at.path, part, complaint);
    }
}

fn service(service: &At<'_>, checks: &mut Checks) {
    for (field, complaint) in [("name", "service name is required"), ("namespace", "service namespace is required")] {
        if service.get(field).text().is_empty() {
            checks.required(&service.get(field), complaint);
        }
    }
    let port = service.get("port");
    if !(1..=65_535).contains(&port.int()) {
        checks.invalid_value(&port.path, port.int(), "port is not valid: must be between 1 and 65535, inclusive");
    }
    path(&service.get("path"), checks);
}

fn path(at: &At<'_>, checks: &mut Checks) {
    let text = at.text();
    if text.is_empty() || text == "/" {
        return;
    }
    if text == "//" {
        return checks.invalid(at, "segment[0] may not be empty");
    }
    let Some(rest) = text.strip_prefix('/') else {
        return checks.invalid(at, "must start with a '/'");
    };
    for (index, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            checks.invalid(at, format!("segment[{index}] may not be empty"));
            continue;
        }
        for complaint in format::dns_subdomain(segment) {
            checks.invalid(at, format!("segment[{index}]: {complaint}"));
        }
    }
}
