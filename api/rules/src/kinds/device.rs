//! Devices (dynamic resource allocation): devices of drivers (ResourceSlice, DeviceClass), requests of Pods
//! (ResourceClaim and its template), and taints of devices (DeviceTaintRule).

mod admin;
mod attribute;
mod capacity;
mod claim;
mod request;
mod slice;
mod status;
mod taint;

use std::collections::HashSet;

use api_cel::device::{SELECTOR_COST_MAX, Selector};
use api_model::field::FieldError;
use serde_json::Value;

pub use admin::validate_admin_access;

use super::Rules;
use super::storage::driver_name;
use crate::at::At;
use crate::checks::Checks;
use crate::{edit, format};

/// The rules of ResourceClaims.
pub const CLAIM: Rules = Rules::new(claim::default, claim::validate_create, claim::validate_update);
/// The rules of ResourceClaimTemplates.
pub const CLAIM_TEMPLATE: Rules = Rules::new(claim::default_template, claim::validate_template, claim::update_template);
/// The rules of DeviceClasses.
pub const CLASS: Rules = Rules::new(|_| {}, validate_class, |_, new, _, checks| validate_class(new, checks));
/// The rules of ResourceSlices.
pub const SLICE: Rules = Rules::new(slice::default, slice::validate_create, slice::validate_update);
/// The rules of DeviceTaintRules.
pub const TAINT_RULE: Rules =
    Rules { prepare_update: taint::prepare_rule_update, ..Rules::new(taint::default_rule, taint::validate_rule, taint::update_rule) };

/// Most requests, constraints or configurations in a list.
const LIST_LEN_MAX: usize = 32;
/// Most selectors in a list.
const SELECTORS_MAX: usize = 32;
/// The longest selector expression, in bytes.
const EXPRESSION_LEN_MAX: usize = 10 * 1024;
/// The longest driver-specific parameters, in bytes of JSON.
const PARAMETERS_LEN_MAX: usize = 10 * 1024;
/// The longest name of a pool.
const POOL_NAME_LEN_MAX: usize = 253;
/// The longest part of a qualified name after the slash.
const ID_LEN_MAX: usize = 32;

fn validate_class(class: &At<'_>, checks: &mut Checks) {
    let spec = class.get("spec");
    selectors(&spec.get("selectors"), checks);
    list(&spec.get("config"), LIST_LEN_MAX, checks, configuration);
    let extended = spec.get("extendedResourceName");
    let is_extended = |name: &str| {
        let own = name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.");
        own && format::qualified_name(&format!("requests.{name}")).is_empty()
    };
    if extended.exists() && !is_extended(extended.text()) {
        checks.invalid(&extended, "must be a valid extended resource name");
    }
}

/// Checks every element of a list. In a list longer than `max`, no element is checked.
fn list(list: &At<'_>, max: usize, checks: &mut Checks, mut each: impl FnMut(&At<'_>, &mut Checks)) {
    if list.len() > max {
        return checks.too_many(list, max);
    }
    list.items().for_each(|item| each(&item, checks));
}

/// As `list`, and the elements' texts (or their fields `key`, if not empty) must be unique.
fn set(list: &At<'_>, max: usize, key: &str, checks: &mut Checks, mut each: impl FnMut(&At<'_>, &mut Checks)) {
    if list.len() > max {
        return checks.too_many(list, max);
    }
    list.items().for_each(|item| each(&item, checks));
    let mut seen = HashSet::new();
    for item in list.items() {
        let identity = if key.is_empty() { item.clone() } else { item.get(key) };
        if !seen.insert(identity.text()) {
            checks.push(FieldError::duplicate(&item.path, identity.text()));
        }
    }
}

fn selectors(selectors: &At<'_>, checks: &mut Checks) {
    list(selectors, SELECTORS_MAX, checks, |selector, checks| {
        let expression = selector.get("cel").get("expression");
        if !selector.get("cel").exists() {
            checks.required(&selector.get("cel"), "");
        } else if expression.text().len() > EXPRESSION_LEN_MAX {
            checks.too_long(&expression, EXPRESSION_LEN_MAX);
        } else {
            match Selector::compile(expression.text()) {
                Err(error) => checks.invalid(&expression, error.to_string()),
                Ok(compiled) if compiled.estimate() > SELECTOR_COST_MAX => {
                    checks.push(FieldError::forbidden(&expression.path, "too complex, exceeds cost limit"));
                }
                Ok(_) => {}
            }
        }
    });
}

/// Configuration for the driver; its parameters have no schema here.
fn configuration(config: &At<'_>, checks: &mut Checks) {
    let opaque = config.get("opaque");
    if !opaque.exists() {
        return checks.required(&opaque, "");
    }
    driver_name(&opaque.get("driver"), checks);
    raw(&opaque.get("parameters"), PARAMETERS_LEN_MAX, checks);
}

/// Any JSON object of at most `max` bytes.
fn raw(at: &At<'_>, max: usize, checks: &mut Checks) {
    match at.value() {
        None => checks.required(at, ""),
        Some(value) if value.to_string().len() > max => checks.too_long(at, max),
        Some(Value::Object(_)) => {}
        Some(_) => checks.invalid_value(&at.path, "<value omitted>", "must be a valid JSON object"),
    }
}

/// One or more DNS subdomains, separated by slashes.
fn pool_name(name: &At<'_>, checks: &mut Checks) {
    if name.text().is_empty() {
        return checks.required(name, "");
    }
    if name.text().len() > POOL_NAME_LEN_MAX {
        checks.too_long(name, POOL_NAME_LEN_MAX);
    }
    for part in name.text().split('/') {
        for message in format::dns_subdomain(part) {
            checks.invalid_value(&name.path, part, message);
        }
    }
}

/// A C identifier, which may have a driver's domain as prefix.
fn qualified_name(at: &At<'_>, name: &str, checks: &mut Checks) {
    match name.split('/').collect::<Vec<_>>().as_slice() {
        [id] => identifier(at, id, checks),
        [domain, id] => {
            if domain.is_empty() {
                checks.invalid_value(&at.path, "", "the domain must not be empty");
            } else {
                let domain = Value::from(*domain);
                driver_name(&At::new(Some(&domain), at.path.clone()), checks);
            }
            if id.is_empty() {
                checks.invalid_value(&at.path, "", "the name must not be empty");
            } else {
                identifier(at, id, checks);
            }
        }
        _ => checks.invalid_value(&at.path, name, "must not contain more than one slash"),
    }
}

/// A qualified name that must have a domain.
fn fully_qualified_name(name: &At<'_>, checks: &mut Checks) {
    qualified_name(name, name.text(), checks);
    if !name.text().contains('/') {
        checks.invalid(name, "a fully qualified name must be a domain and a name separated by a slash");
    }
}

fn identifier(at: &At<'_>, id: &str, checks: &mut Checks) {
    if id.len() > ID_LEN_MAX {
        checks.too_long(at, ID_LEN_MAX);
    }
    for message in format::c_identifier(id) {
        checks.invalid_value(&at.path, id, message);
    }
}

/// NodePrepareResources may be skipped only together with NodeUnprepareResources.
fn skipped_operations(list: &At<'_>, checks: &mut Checks) {
    const ALL: [&str; 3] = ["*", "NodePrepareResources", "NodeUnprepareResources"];
    set(list, ALL.len(), "", checks, |operation, checks| {
        if !ALL.contains(&operation.text()) {
            checks.not_supported(operation, &ALL);
        }
    });
    let has = |name: &str| list.texts().any(|operation| operation == name);
    if has("NodePrepareResources") && !has("NodeUnprepareResources") && !has("*") {
        checks.invalid(list, "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped");
    }
}

/// Conditions that must be true before a Pod is bound, and conditions that fail the binding. A device has both or none.
fn binding_conditions(device: &At<'_>, checks: &mut Checks) {
    const CONDITIONS_MAX: usize = 4;
    let (wanted, failing) = (device.get("bindingConditions"), device.get("bindingFailureConditions"));
    for conditions in [&wanted, &failing] {
        set(conditions, CONDITIONS_MAX, "", checks, |condition, checks| checks.qualified_name(condition));
    }
    for condition in failing.items() {
        if wanted.texts().any(|other| other == condition.text()) {
            checks.invalid(&condition, "bindingFailureConditions must not overlap with bindingConditions");
        }
    }
    match (wanted.len(), failing.len()) {
        (0, 1..) => checks.invalid(&wanted, "bindingConditions are required to use bindingFailureConditions"),
        (1.., 0) => checks.invalid(&failing, "bindingFailureConditions are required to use bindingConditions"),
        _ => {}
    }
}

/// A uid in its normalized form.
fn uid(at: &At<'_>, checks: &mut Checks) {
    let groups: Vec<usize> = at.text().split('-').map(str::len).collect();
    let hex = at.text().bytes().all(|b| b == b'-' || b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if groups != [8, 4, 4, 4, 12] || !hex {
        let detail =
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        checks.invalid(at, detail);
    }
}

/// The defaults of the tolerations in a request.
fn default_tolerations(owner: &mut edit::Fields) {
    for toleration in edit::each(owner, "tolerations") {
        edit::fill(toleration, "operator", "Equal");
    }
}
