//! Requests, limits and resource claims.

use std::cmp::Ordering;
use std::collections::HashSet;

use api_model::field::{FieldError, Path};
use api_model::huge_pages::{self, is_huge_page};

use super::{Context, qos};
use crate::at::At;
use crate::checks::{Checks, NOT_NEGATIVE};
use crate::format;
use crate::quantity::{self, Quantity, compare};

/// Resources of quotas that are counted.
const INTEGERS: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
/// Resources of quotas that are measured.
const COMPUTE: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
const CONTAINER: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const FIELD_REFS: [&str; 6] =
    ["limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"];
const BYTE_DIVISORS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Whether a resource belongs to Kubernetes: its name has no domain, or the domain kubernetes.io.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the request of a resource may be less than its limit.
pub fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

fn is_quota_huge_page(name: &str) -> bool {
    is_huge_page(name) || name.starts_with("requests.hugepages-")
}

/// Whether quotas know a name without a domain.
pub fn is_standard_quota(name: &str) -> bool {
    COMPUTE.contains(&name) || INTEGERS.contains(&name) || is_quota_huge_page(name)
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && format::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Checks a resource name for any use: it must be qualified, and without a domain it must be known.
/// Returns whether it is valid.
pub fn validate_name(path: &Path, name: &str, checks: &mut Checks) -> bool {
    let wrong = format::qualified_name(name);
    if !wrong.is_empty() {
        for message in wrong {
            checks.invalid_value(path, name, message);
        }
        return false;
    }
    if !name.contains('/') && !is_standard_quota(name) && name != "storage" {
        checks.invalid_value(path, name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// A resource name of a container.
pub fn validate_container_name(path: &Path, name: &str, checks: &mut Checks) {
    validate_name(path, name, checks);
    if !name.contains('/') {
        if !CONTAINER.contains(&name) && !is_huge_page(name) {
            checks.invalid_value(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        checks.invalid_value(path, name, "doesn't follow extended resource name standard");
    }
}

/// A resource name of a quota.
pub fn validate_quota_name(path: &Path, name: &str, checks: &mut Checks) {
    validate_name(path, name, checks);
    if !name.contains('/') && !is_standard_quota(name) {
        checks.invalid_value(path, name, "must be a standard resource for quota");
    }
}

/// A quantity of a resource: not negative, and whole where the resource is counted.
pub fn validate_quantity(name: &str, at: &At<'_>, checks: &mut Checks) {
    let Ok(quantity) = quantity::parse(at.text()) else {
        return;
    };
    if quantity.nano() < 0 {
        checks.invalid(at, NOT_NEGATIVE);
    }
    if (INTEGERS.contains(&name) || is_extended(name)) && !quantity.is_whole() {
        checks.invalid(at, "must be an integer");
    }
}

/// Checks a container's `resources`.
pub fn validate(resources: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    requirements(resources, validate_container_name, checks);
    claim_names(&resources.get("claims"), context, checks);
}

/// Checks a resource list by the rules of limits; used for `overhead`.
pub fn validate_limits_only(list: &At<'_>, checks: &mut Checks) {
    limits(&At::new(list.value(), list.path.child("limits")), validate_container_name, checks);
}

/// Checks `resources` of the whole Pod.
pub fn validate_pod_level(spec: &At<'_>, checks: &mut Checks) {
    let resources = spec.get("resources");
    if !resources.exists() {
        return;
    }
    if resources.get("claims").exists() {
        checks.forbidden(&resources.get("claims"), "claims cannot be set for Resources at pod-level");
    }
    requirements(&resources, pod_level_name, checks);
    let requests = resources.get("requests");
    for (name, request) in qos::aggregate_requests(spec) {
        let own = requests.key(&name);
        let text = request.canonical();
        if compare(&text, own.text()) == Ordering::Greater {
            let value = if own.exists() { own.text() } else { "0" };
            let detail = format!("must be greater than or equal to aggregate container requests of {text}");
            checks.invalid_value(&own.path, value, detail);
        }
    }
    for (name, limit) in qos::aggregate_huge_pages(spec) {
        let (own, text) = (resources.get("limits").key(&name), limit.canonical());
        if own.exists() && compare(&text, own.text()) == Ordering::Greater {
            checks.invalid_value(&own.path, own.text(), format!("must be greater than or equal to aggregate container limits of {text}"));
        }
    }
    for (index, container) in spec.get("containers").items().enumerate() {
        for (name, limit) in container.find("resources.limits").entries() {
            let own = resources.get("limits").key(name);
            if own.exists() && compare(limit.text(), own.text()) == Ordering::Greater {
                let path = resources.path.child("containers").index(index).key(name).child("limits");
                checks.invalid_value(&path, limit.text(), format!("must be less than or equal to pod limits of {}", own.text()));
            }
        }
    }
}

fn pod_level_name(path: &Path, name: &str, checks: &mut Checks) {
    if validate_name(path, name, checks) && !qos::is_pod_level(name) {
        checks.push(FieldError::not_supported(path, name, &["cpu", "hugepages-", "memory"]));
    }
}

type NameCheck = fn(&Path, &str, &mut Checks);

fn limits(limits: &At<'_>, name_check: NameCheck, checks: &mut Checks) {
    for (name, quantity) in limits.entries() {
        name_check(&quantity.path, name, checks);
        validate_quantity(name, &quantity, checks);
        huge_pages_divide(name, &quantity, checks);
    }
}

fn requirements(resources: &At<'_>, name_check: NameCheck, checks: &mut Checks) {
    let (limits, requests) = (resources.get("limits"), resources.get("requests"));
    self::limits(&limits, name_check, checks);
    for (name, quantity) in requests.entries() {
        name_check(&quantity.path, name, checks);
        validate_quantity(name, &quantity, checks);
        let limit = limits.key(name);
        let order = compare(quantity.text(), limit.text());
        if !limit.exists() {
            if !is_overcommit_allowed(name) {
                checks.required(&limits, "Limit must be set for non overcommitable resources");
            }
        } else if order != Ordering::Equal && !is_overcommit_allowed(name) {
            checks.invalid_value(&requests.path, quantity.text(), format!("must be equal to {name} limit of {}", limit.text()));
        } else if order == Ordering::Greater {
            checks.invalid_value(
                &requests.path,
                quantity.text(),
                format!("must be less than or equal to {name} limit of {}", limit.text()),
            );
        }
        huge_pages_divide(name, &quantity, checks);
    }
    let named = |wanted: fn(&str) -> bool| limits.entries().chain(requests.entries()).any(|(name, _)| wanted(name));
    if named(is_huge_page) && !named(|name| name == "cpu" || name == "memory") {
        checks.forbidden(resources, "HugePages require cpu or memory");
    }
}

fn huge_pages_divide(name: &str, quantity: &At<'_>, checks: &mut Checks) {
    let Some(size) = name.strip_prefix(huge_pages::PREFIX) else {
        return;
    };
    let nano = |text: &str| quantity::parse(text).map_or(0, Quantity::nano);
    let (page, amount) = (nano(size), nano(quantity.text()));
    if page <= 0 || amount % page != 0 {
        checks.invalid(quantity, format!("{} is not positive integer multiple of {name}", quantity.text()));
    }
}

/// The claims of a container must be claims of the Pod.
fn claim_names(claims: &At<'_>, context: &Context<'_>, checks: &mut Checks) {
    let mut seen = HashSet::new();
    for claim in claims.items() {
        let name = claim.get("name").text();
        if name.is_empty() {
            checks.required(&claim, "");
            continue;
        }
        let request = claim.get("request");
        if !request.text().is_empty() {
            checks.dns_label(&request);
        }
        let key = if request.text().is_empty() { name.to_owned() } else { format!("{name}/{}", request.text()) };
        if seen.contains(name) || !seen.insert(key.clone()) {
            checks.push(FieldError::duplicate(&claim.path, key));
        }
        if !context.claims.contains(&name) {
            let mut error = FieldError::not_found(&claim.path, name);
            error.detail = match context.claims.as_slice() {
                [] => "must be one of the names in pod.spec.resourceClaims which is empty".to_owned(),
                names => format!("must be one of the names in pod.spec.resourceClaims: {}", names.join(", ")),
            };
            checks.push(error);
        }
    }
}

/// Checks `resourceClaims` of a Pod spec.
pub fn validate_claims(claims: &At<'_>, checks: &mut Checks) {
    let mut seen = HashSet::new();
    for claim in claims.items() {
        let name = claim.get("name");
        if name.text().is_empty() {
            checks.required(&name, "");
        } else if !seen.insert(name.text()) {
            checks.duplicate(&name);
        } else {
            checks.dns_label(&name);
        }
        let (direct, template) = (claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName"));
        match (direct.exists(), template.exists()) {
            (true, true) => checks.invalid(&claim, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),
            (false, false) => checks.invalid(&claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            (true, false) => checks.dns_subdomain(&direct),
            (false, true) => checks.dns_subdomain(&template),
        }
    }
}

/// Checks a `resourceFieldRef`.
pub fn validate_field_ref(reference: &At<'_>, in_volume: bool, checks: &mut Checks) {
    let (container, resource) = (reference.get("containerName"), reference.get("resource"));
    let name = resource.text();
    let is_huge = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    if in_volume && container.text().is_empty() {
        checks.required(&container, "");
    } else if name.is_empty() {
        checks.required(&resource, "");
    } else if !FIELD_REFS.contains(&name) && !is_huge {
        checks.not_supported(&resource, &FIELD_REFS);
    }
    let divisor = reference.get("divisor");
    let Some(text) = quantity::parse(divisor.text()).ok().filter(|divisor| divisor.nano() != 0).map(Quantity::canonical) else {
        return;
    };
    let bytes = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the";
    let detail = match name.split_once('.').map_or("", |(_, rest)| rest) {
        "cpu" if !["1m", "1"].contains(&text.as_str()) => "only divisor's values 1m and 1 are supported with the cpu resource".to_owned(),
        "cpu" => return,
        _ if BYTE_DIVISORS.contains(&text.as_str()) => return,
        "memory" => format!("{bytes} memory resource"),
        "ephemeral-storage" => format!("{bytes} local ephemeral storage resource"),
        rest if is_huge_page(rest) => format!("{bytes} hugepages resource"),
        _ => return,
    };
    checks.invalid_value(&divisor.path, name, detail);
}
