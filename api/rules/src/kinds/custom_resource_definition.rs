//! CustomResourceDefinition: names, versions and conversion. The files below check versions, schemas and
//! expressions.
//!
//! Upstream validates an internal form of the object, in which the fields that all versions share are in the spec
//! itself. Messages name the fields of that form (`spec.validation.openAPIV3Schema`), and so do ours.

mod expressions;
mod schema;
mod structural;
mod versions;

use std::collections::BTreeSet;

use api_model::field::Path;
use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::custom::conversion::REVIEW_VERSIONS;
use crate::format;

/// The rules of CustomResourceDefinitions.
pub const RULES: Rules =
    Rules { prepare_create, prepare_update, warnings: schema::warnings, ..Rules::new(default, validate_create, validate_update) };

/// Defaults of conversion and names.
fn default(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    if let Some(service) =
        spec.get_mut("conversion").and_then(|c| c.pointer_mut("/webhook/clientConfig/service")).and_then(Value::as_object_mut)
    {
        service.entry("port").or_insert_with(|| 443.into());
    }
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else { return };
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let empty = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().is_empty();
    if empty(names.get("singular")) && !kind.is_empty() {
        names.insert("singular".to_owned(), kind.to_lowercase().into());
    }
    if empty(names.get("listKind")) && !kind.is_empty() {
        names.insert("listKind".to_owned(), format!("{kind}List").into());
    }
}

fn prepare_create(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".to_owned(), json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": [], "storedVersions": []}));
    }
    remember_storage_version(object);
}

fn prepare_update(sub: Option<&str>, new: &mut Value, _old: &Value) {
    if sub.is_none() {
        remember_storage_version(new);
    }
}

/// Adds the storage version to `status.storedVersions`. A version stays there until a user has rewritten every object
/// and removes it.
fn remember_storage_version(object: &mut Value) {
    let version = storage_version(&At::root(object)).map(str::to_owned);
    let (Some(version), Some(status)) = (version, object.get_mut("status").and_then(Value::as_object_mut)) else { return };
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if let Some(stored) = stored.as_array_mut()
        && !stored.iter().any(|entry| entry.as_str() == Some(&version))
    {
        stored.push(version.into());
    }
}

fn storage_version<'a>(object: &At<'a>) -> Option<&'a str> {
    object.find("spec.versions").items().find(|version| version.get("storage").flag()).map(|version| version.get("name").text())
}

fn validate_create(object: &At<'_>, checks: &mut Checks) {
    let names = object.find("spec.names");
    let name = object.find("metadata.name");
    if name.text() != format!("{}.{}", names.get("plural").text(), object.find("spec.group").text()) {
        checks.invalid(&name, "must be spec.names.plural+\".\"+spec.group");
    }
    validate(object, None, checks);
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        accepted_names(new, checks);
        return;
    }
    validate(new, Some(old), checks);
    let was_established =
        old.find("status.conditions").items().any(|c| c.get("type").text() == "Established" && c.get("status").text() == "True");
    if was_established {
        checks.immutable(&new.find("spec.scope"), &old.find("spec.scope"));
        checks.immutable(&new.find("spec.names.kind"), &old.find("spec.names.kind"));
    }
    checks.immutable(&new.find("spec.group"), &old.find("spec.group"));
    checks.immutable(&new.find("spec.names.plural"), &old.find("spec.names.plural"));
}

fn validate(object: &At<'_>, old: Option<&At<'_>>, checks: &mut Checks) {
    let spec = object.get("spec");
    group(&spec.get("group"), checks);
    checks.one_of(&spec.get("scope"), &["Cluster", "Namespaced"]);
    versions::validate(&spec, checks);
    names(&spec.get("names"), true, checks);
    conversion(&spec.get("conversion"), checks);
    accepted_names(object, checks);
    stored_versions(object, checks);
    approval(object, old, checks);
    let preserve = spec.get("preserveUnknownFields");
    if preserve.flag() && !old.is_some_and(|old| old.find("spec.preserveUnknownFields").flag()) {
        checks
            .invalid(&preserve, "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead");
    }
}

fn group(group: &At<'_>, checks: &mut Checks) {
    let wrong = format::dns_subdomain(group.text());
    if group.text().is_empty() {
        checks.required(group, "");
    } else if !wrong.is_empty() {
        checks.invalid(group, wrong.join(","));
    } else if !group.text().contains('.') {
        checks.invalid(group, "should be a domain with at least one dot");
    }
}

fn accepted_names(object: &At<'_>, checks: &mut Checks) {
    names(&object.find("status.acceptedNames"), false, checks);
}

fn names(names: &At<'_>, required: bool, checks: &mut Checks) {
    if required {
        for field in ["plural", "singular", "kind", "listKind"] {
            if names.get(field).text().is_empty() {
                checks.required(&names.get(field), "");
            }
        }
    }
    for field in ["plural", "singular"] {
        label(&names.get(field), names.get(field).text(), "", checks);
    }
    for field in ["kind", "listKind"] {
        let at = names.get(field);
        label(&at, &at.text().to_lowercase(), "may have mixed case, but should otherwise match: ", checks);
    }
    names.get("shortNames").items().for_each(|name| label(&name, name.text(), "", checks));
    let list_kind = names.get("listKind");
    if !list_kind.text().is_empty() && list_kind.text() == names.get("kind").text() {
        checks.invalid(&list_kind, "kind and listKind may not be the same");
    }
    names.get("categories").items().for_each(|name| label(&name, name.text(), "", checks));
}

fn label(at: &At<'_>, text: &str, prefix: &str, checks: &mut Checks) {
    let wrong = format::dns_1035_label(text);
    if !text.is_empty() && !wrong.is_empty() {
        checks.invalid(at, format!("{prefix}{}", wrong.join(",")));
    }
}

fn conversion(conversion: &At<'_>, checks: &mut Checks) {
    if !conversion.exists() {
        return;
    }
    let strategy = conversion.get("strategy");
    checks.one_of(&strategy, &["None", "Webhook"]);
    let config = At::new(conversion.find("webhook.clientConfig").value(), conversion.path.child("webhookClientConfig"));
    let reviews = At::new(conversion.find("webhook.conversionReviewVersions").value(), conversion.path.child("conversionReviewVersions"));
    if strategy.text() != "Webhook" {
        if config.exists() {
            checks.forbidden(&config, "should not be set when strategy is not set to Webhook");
        }
        if reviews.len() > 0 {
            checks.forbidden(&reviews, "should not be set when strategy is not set to Webhook");
        }
        return;
    }
    if !config.exists() {
        checks.required(&config, "required when strategy is set to Webhook");
    } else {
        super::webhook::client_config::validate(&config, checks);
    }
    if reviews.len() == 0 {
        checks.required(&reviews, "");
    } else {
        review_versions(&reviews, checks);
    }
}

fn review_versions(reviews: &At<'_>, checks: &mut Checks) {
    let mut seen = BTreeSet::new();
    for version in reviews.items() {
        let wrong = format::dns_1035_label(version.text());
        if !seen.insert(version.text()) {
            checks.invalid(&version, "duplicate version");
        } else if !wrong.is_empty() {
            checks.invalid(&version, wrong.join(","));
        }
    }
    if !reviews.texts().any(|version| REVIEW_VERSIONS.contains(&version)) {
        checks.invalid(reviews, format!("must include at least one of {}", REVIEW_VERSIONS.join(", ")));
    }
}

fn stored_versions(object: &At<'_>, checks: &mut Checks) {
    let stored = object.find("status.storedVersions");
    if stored.len() == 0 {
        return checks.invalid_value(&stored.path, json!([]), "must have at least one stored version");
    }
    if let Some(version) = storage_version(object).filter(|version| !stored.texts().any(|stored| stored == *version)) {
        checks.invalid(&stored, format!("must have the storage version {version}"));
    }
    let versions = object.find("spec.versions");
    let version_names: BTreeSet<&str> = versions.items().map(|version| version.get("name").text()).collect();
    for gone in stored.items().filter(|stored| !version_names.contains(stored.text())) {
        let name = gone.text();
        checks.invalid(
            &gone,
            format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage \
                 migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            ),
        );
    }
}

const APPROVED: &str = "api-approved.kubernetes.io";

/// Groups of the Kubernetes community need an approval annotation.
fn approval(object: &At<'_>, old: Option<&At<'_>>, checks: &mut Checks) {
    let group = object.find("spec.group");
    let is_protected =
        ["k8s.io", "kubernetes.io"].iter().any(|domain| group.text() == *domain || group.text().ends_with(&format!(".{domain}")));
    let word = |object: &At<'_>| object.find("metadata.annotations").key(APPROVED).text().to_owned();
    let approval = word(object);
    if !is_protected || old.is_some_and(|old| word(old) == approval) {
        return;
    }
    let path = Path::new("metadata").child("annotations").key(APPROVED);
    if approval.is_empty() {
        let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
        checks.required(&At::new(None, path), detail);
    } else if !approval.starts_with("unapproved") && !approval.starts_with("https://") && !approval.starts_with("http://") {
        let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111";
        checks.invalid_value(&path, approval, detail);
    }
}

#[cfg(test)]
mod tests;
