//! `dnsConfig` and `hostAliases`.

use crate::at::At;
use crate::checks::Checks;
use crate::format;

/// Limits of libc's resolver.
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_LIST_CHARS_MAX: usize = 2048;

/// Checks `dnsConfig` and `dnsPolicy`.
pub fn validate(spec: &At<'_>, checks: &mut Checks) {
    let config = spec.get("dnsConfig");
    let (servers, searches) = (config.get("nameservers"), config.get("searches"));
    if spec.get("dnsPolicy").text() == "None" {
        if !config.exists() {
            return checks.required(&config, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.len() == 0 {
            return checks.required(&servers, "must provide at least one DNS nameserver when `dnsPolicy` is None");
        }
    }
    if servers.len() > NAMESERVERS_MAX {
        checks.invalid(&servers, format!("must not have more than {NAMESERVERS_MAX} nameservers"));
    }
    for server in servers.items() {
        checks.format(&server, format::ip(server.text()));
    }
    if searches.len() > SEARCHES_MAX {
        checks.invalid(&searches, format!("must not have more than {SEARCHES_MAX} search paths"));
    }
    if searches.texts().map(|search| search.len() + 1).sum::<usize>() > SEARCH_LIST_CHARS_MAX + 1 {
        let detail = format!("must not have more than {SEARCH_LIST_CHARS_MAX} characters (including spaces) in the search list");
        checks.invalid(&searches, detail);
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        for message in format::dns_subdomain_with_underscore(name) {
            checks.invalid_value(&search.path, name, message);
        }
    }
    for option in config.get("options").items() {
        if option.get("name").text().is_empty() {
            checks.required(&option, "must not be empty");
        }
    }
}

/// Checks `hostAliases`.
pub fn validate_host_aliases(aliases: &At<'_>, checks: &mut Checks) {
    for alias in aliases.items() {
        checks.format(&alias.get("ip"), format::ip(alias.get("ip").text()));
        for name in alias.get("hostnames").items() {
            checks.dns_subdomain(&name);
        }
    }
}
