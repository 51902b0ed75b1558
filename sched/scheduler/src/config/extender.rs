//! `extenders`: the webhooks that filter and prioritize nodes, choose victims and bind Pods. Defaults and checks are upstream's. What
//! upstream accepts and never uses is rejected: TLS settings of a URL that is not `https`.

mod tls;

use std::collections::BTreeSet;
use std::time::Duration;

use api_model::field::{FieldError, Path};
use api_model::format;
use api_model::go::parse_duration;
use http::Uri;
use sched_framework::is_extended_resource;

pub(crate) use self::tls::TlsConfig;
use super::KubeSchedulerProfile;
use super::document;

/// Upstream's `DefaultExtenderTimeout`.
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time that a call may take: a Pod waits so long.
const HTTP_TIMEOUT_MAX: Duration = Duration::from_secs(3_600);

/// An extender.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Extender {
    /// Identifies the extender in messages: `urlPrefix` as it is written.
    pub name: String,
    /// Empty verbs are not supported by the extender.
    pub filter_verb: String,
    pub preempt_verb: String,
    pub prioritize_verb: String,
    pub bind_verb: String,
    /// The factor of the scores of `prioritize_verb`.
    pub weight: i64,
    /// The time limit of a call.
    pub http_timeout: Duration,
    /// Whether the extender gets the names of nodes and the UIDs of victims, not the whole objects.
    pub node_cache_capable: bool,
    /// The extender is interested in Pods that request one of these; in all Pods when there are none.
    pub managed_resources: BTreeSet<String>,
    /// Whether Pods are scheduled without the extender when a call fails.
    pub ignorable: bool,
    /// The connection to the extender.
    pub tls: TlsConfig,
}

impl Extender {
    /// The URL of a verb.
    pub fn url(&self, verb: &str) -> String {
        format!("{}/{verb}", self.name.trim_end_matches('/'))
    }

    fn verbs(&self) -> [(&'static str, &str); 4] {
        [
            ("filterVerb", &self.filter_verb),
            ("preemptVerb", &self.preempt_verb),
            ("prioritizeVerb", &self.prioritize_verb),
            ("bindVerb", &self.bind_verb),
        ]
    }
}

/// The extenders in the order of their calls: as upstream, those that are ignorable go last.
pub(super) fn extenders(given: &[document::Extender], errors: &mut Vec<FieldError>) -> Vec<Extender> {
    let path = Path::new("extenders");
    let mut managed = BTreeSet::new();
    let mut extenders: Vec<Extender> = Vec::new();
    for (index, one) in given.iter().enumerate() {
        let path = path.index(index);
        check_weight(one, &path, errors);
        check_managed_resources(one, &mut managed, &path.child("managedResources"), errors);
        extenders.push(extender(one, &path, errors));
    }
    let binders = extenders.iter().filter(|extender| !extender.bind_verb.is_empty()).count();
    if binders > 1 {
        let value = format!("found {binders} extenders implementing bind");
        errors.push(FieldError::invalid(&path, value, "only one extender can implement bind"));
    }
    extenders.sort_by_key(|extender| extender.ignorable);
    extenders
}

/// Lets `NodeResourcesFit` of all profiles ignore the resources that extenders check in its place. Upstream puts them in place of
/// the profile's own `ignoredResources`; here both are ignored.
pub(super) fn ignore_resources(given: &[document::Extender], profiles: &mut [KubeSchedulerProfile]) {
    let ignored = given.iter().flat_map(|extender| &extender.managed_resources).filter(|resource| resource.ignored_by_scheduler);
    let names: Vec<String> = ignored.map(|resource| resource.name.clone()).collect();
    for profile in profiles {
        profile.arguments.node_resources_fit.ignored_resources.extend(names.iter().cloned());
    }
}

fn extender(given: &document::Extender, path: &Path, errors: &mut Vec<FieldError>) -> Extender {
    let url = url(&given.url_prefix, &path.child("urlPrefix"), errors);
    let http_timeout = http_timeout(given.http_timeout.as_deref(), &path.child("httpTimeout"), errors);
    let is_https = url.as_ref().is_some_and(|url| url.scheme_str() == Some("https"));
    let tls = TlsConfig::new(given, path, errors);
    match &url {
        Some(url) if is_https => {
            if let Err(error) = tls.client_config(url, http_timeout) {
                errors.push(FieldError::forbidden(&path.child("tlsConfig"), api_client::error::chain(&error)));
            }
        }
        Some(_) => {
            let detail = "needs a urlPrefix with the scheme https";
            let fields = [("enableHTTPS", given.enable_https), ("tlsConfig", given.tls_config.is_some())];
            let unused = fields.iter().filter(|(_, is_set)| *is_set);
            errors.extend(unused.map(|(field, _)| FieldError::forbidden(&path.child(field), detail)));
        }
        None => {}
    }
    let extender = Extender {
        name: given.url_prefix.clone(),
        filter_verb: given.filter_verb.clone(),
        preempt_verb: given.preempt_verb.clone(),
        prioritize_verb: given.prioritize_verb.clone(),
        bind_verb: given.bind_verb.clone(),
        weight: given.weight,
        http_timeout,
        node_cache_capable: given.node_cache_capable,
        managed_resources: given.managed_resources.iter().map(|resource| resource.name.clone()).collect(),
        ignorable: given.ignorable,
        tls,
    };
    if url.is_some() {
        for (field, verb) in extender.verbs().into_iter().filter(|(_, verb)| extender.url(verb).parse::<Uri>().is_err()) {
            errors.push(FieldError::invalid(&path.child(field), verb, "must be a part of a URL"));
        }
    }
    extender
}

/// The absolute URL; `None` when it is none.
fn url(text: &str, path: &Path, errors: &mut Vec<FieldError>) -> Option<Uri> {
    let url = text.parse::<Uri>().ok().filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
    let url = url.filter(|url| url.host().is_some_and(|host| !host.is_empty()) && url.query().is_none());
    match url {
        None => errors.push(FieldError::invalid(path, text, "must be a URL with the scheme http or https, a host, and no query")),
        Some(ref url) if url.authority().is_some_and(|authority| authority.as_str().contains('@')) => {
            errors.push(FieldError::forbidden(path, "must not contain a user; clients are authenticated by tlsConfig"));
        }
        Some(_) => {}
    }
    url
}

/// A duration of Go; 0 is the default.
fn http_timeout(text: Option<&str>, path: &Path, errors: &mut Vec<FieldError>) -> Duration {
    let Some(text) = text else { return HTTP_TIMEOUT };
    let nanoseconds = match parse_duration(text) {
        Ok(nanoseconds) => u64::try_from(nanoseconds).map_err(|_| "must be greater than or equal to zero".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    match nanoseconds.map(Duration::from_nanos) {
        Ok(Duration::ZERO) => HTTP_TIMEOUT,
        Ok(timeout) if timeout <= HTTP_TIMEOUT_MAX => timeout,
        Ok(_) => {
            errors.push(FieldError::invalid(path, text, "must be less than or equal to 1h"));
            HTTP_TIMEOUT
        }
        Err(detail) => {
            errors.push(FieldError::invalid(path, text, detail));
            HTTP_TIMEOUT
        }
    }
}

fn check_weight(given: &document::Extender, path: &Path, errors: &mut Vec<FieldError>) {
    if !given.prioritize_verb.is_empty() && given.weight <= 0 {
        errors.push(FieldError::invalid(&path.child("weight"), given.weight, "must have a positive weight applied to it"));
    }
}

/// Each resource is extended, and no other extender manages it.
fn check_managed_resources(given: &document::Extender, managed: &mut BTreeSet<String>, path: &Path, errors: &mut Vec<FieldError>) {
    for (index, resource) in given.managed_resources.iter().enumerate() {
        let (path, name) = (path.index(index).child("name"), resource.name.as_str());
        let wrong = format::qualified_name(name);
        if wrong.is_empty() && !is_extended_resource(name) {
            errors.push(FieldError::invalid(&path, name, "is an invalid extended resource name"));
        }
        errors.extend(wrong.into_iter().map(|message| FieldError::invalid(&path, name, message)));
        if !managed.insert(name.to_owned()) {
            errors.push(FieldError::invalid(&path, name, "duplicate extender managed resource name"));
        }
    }
}

#[cfg(test)]
mod tests;
