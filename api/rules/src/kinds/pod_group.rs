//! Groups of Pods that are scheduled together: PodGroup, and Workload, whose templates controllers make PodGroups from.
//!
//! Fields of upstream's features that are off by default are forbidden, as upstream forbids them then: nothing would act on them.

use serde_json::{Value, json};

use super::Rules;
use crate::at::At;
use crate::checks::Checks;
use crate::edit;

/// The rules of PodGroups.
pub const RULES: Rules = Rules::new(default, validate_create, validate_update);
/// The rules of Workloads.
pub const WORKLOAD: Rules = Rules::new(|_| {}, validate_workload, validate_workload_update);

/// Most templates of a Workload.
const TEMPLATES_MAX: usize = 8;
/// Most claims of a group.
const CLAIMS_MAX: usize = 4;
/// The highest priority of a class that users define.
const PRIORITY_MAX: i64 = 1_000_000_000;
/// Fields of both PodGroups and templates that never change.
const IMMUTABLE: [&str; 3] = ["resourceClaims", "priorityClassName", "priority"];
/// Fields of both PodGroups and templates whose features are off by default upstream.
const FORBIDDEN: [&str; 2] = ["schedulingConstraints", "preemptionPolicy"];

fn default(group: &mut Value) {
    if let Some(spec) = edit::spec(group) {
        edit::fill_absent(spec, "disruptionMode", json!({"single": {}}));
    }
}

fn validate_create(group: &At<'_>, checks: &mut Checks) {
    let spec = group.get("spec");
    forbidden(&spec.get("parentCompositePodGroupName"), checks);
    let workload = spec.get("workloadRef");
    if workload.exists() {
        required(&workload.get("workloadName"), checks, Checks::dns_subdomain);
        required(&workload.get("templateName"), checks, Checks::dns_label);
    }
    validate_group(&spec, checks);
}

fn validate_update(sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    if sub == Some("status") {
        return validate_status(&new.get("status"), checks);
    }
    validate_create(new, checks);
    let (new, old) = (new.get("spec"), old.get("spec"));
    checks.immutable(&new.get("workloadRef"), &old.get("workloadRef"));
    validate_group_update(&new, &old, checks);
}

fn validate_status(status: &At<'_>, checks: &mut Checks) {
    let claims = status.get("resourceClaimStatuses");
    if claims.len() > CLAIMS_MAX {
        return checks.too_many(&claims, CLAIMS_MAX);
    }
    for claim in claims.items() {
        let name = claim.get("resourceClaimName");
        if name.exists() {
            checks.dns_subdomain(&name);
        }
    }
}

fn validate_workload(workload: &At<'_>, checks: &mut Checks) {
    let spec = workload.get("spec");
    let (groups, composites) = (spec.get("podGroupTemplates"), spec.get("compositePodGroupTemplates"));
    one(&spec, [("podGroupTemplates", groups.len() > 0), ("compositePodGroupTemplates", composites.len() > 0)], checks);
    if composites.len() > 0 {
        checks.forbidden(&composites, "");
    }
    let controller = spec.get("controllerRef");
    if controller.exists() {
        let group = controller.get("apiGroup");
        if !group.text().is_empty() {
            checks.dns_subdomain(&group);
        }
        for field in ["kind", "name"] {
            required(&controller.get(field), checks, |checks, at| checks.format(at, crate::format::path_segment(at.text())));
        }
    }
    if groups.len() > TEMPLATES_MAX {
        return checks.too_many(&groups, TEMPLATES_MAX);
    }
    unique(&groups, checks);
    for template in groups.items() {
        required(&template.get("name"), checks, Checks::dns_label);
        validate_group(&template, checks);
    }
}

fn validate_workload_update(_sub: Option<&str>, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    validate_workload(new, checks);
    let (new, old) = (new.get("spec"), old.get("spec"));
    checks.immutable(&new.get("controllerRef"), &old.get("controllerRef"));
    let (new, old) = (new.get("podGroupTemplates"), old.get("podGroupTemplates"));
    let with = |list: &At<'_>, name: &str| list.items().any(|item| item.get("name").text() == name);
    for template in new.items().filter(|template| !with(&old, template.get("name").text())) {
        checks.invalid(&template, "items may not be added");
    }
    if old.items().any(|template| !with(&new, template.get("name").text())) {
        checks.invalid_value(&new.path, Value::Null, "items may not be removed");
    }
    for template in new.items() {
        if let Some(old) = old.items().find(|old| old.get("name").text() == template.get("name").text()) {
            validate_group_update(&template, &old, checks);
        }
    }
}

/// Checks what PodGroups and templates have in common.
fn validate_group(spec: &At<'_>, checks: &mut Checks) {
    let policy = spec.get("schedulingPolicy");
    let gang = policy.get("gang");
    one(&policy, [("basic", policy.has("basic")), ("gang", gang.exists())], checks);
    if gang.exists() {
        let count = gang.get("minCount");
        match count.int() {
            0 => checks.required(&count, ""),
            ..0 => checks.invalid(&count, "must be greater than or equal to 1"),
            _ => {}
        }
    }
    FORBIDDEN.iter().for_each(|field| forbidden(&spec.get(field), checks));
    let mode = spec.get("disruptionMode");
    if mode.exists() {
        one(&mode, [("single", mode.has("single")), ("all", mode.has("all"))], checks);
    }
    let class = spec.get("priorityClassName");
    if !class.text().is_empty() {
        checks.dns_subdomain(&class);
    }
    let priority = spec.get("priority");
    if priority.int() > PRIORITY_MAX {
        checks.invalid(&priority, format!("must be less than or equal to {PRIORITY_MAX}"));
    }
    let claims = spec.get("resourceClaims");
    if claims.len() > CLAIMS_MAX {
        return checks.too_many(&claims, CLAIMS_MAX);
    }
    unique(&claims, checks);
    for claim in claims.items() {
        required(&claim.get("name"), checks, Checks::dns_label);
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        one(&claim, sources.map(|source| (source, claim.has(source))), checks);
        for source in sources.iter().map(|source| claim.get(source)).filter(At::exists) {
            checks.dns_subdomain(&source);
        }
    }
}

/// Checks a change of what PodGroups and templates have in common. Only the number of Pods of a gang may change.
fn validate_group_update(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    let (new_policy, old_policy) = (new.get("schedulingPolicy"), old.get("schedulingPolicy"));
    if new_policy.has("basic") != old_policy.has("basic") {
        checks.invalid(&new_policy.get("basic"), crate::checks::IMMUTABLE);
    }
    match (old_policy.has("gang"), new_policy.has("gang")) {
        (false, true) => checks.invalid_value(&new_policy.get("gang").path, Value::Null, "field cannot be set once created"),
        (true, false) => checks.invalid_value(&new_policy.get("gang").path, Value::Null, "field cannot be cleared once set"),
        _ => {}
    }
    // The modes are objects without fields: their presence counts.
    let (new_mode, old_mode) = (new.get("disruptionMode"), old.get("disruptionMode"));
    if ["single", "all"].iter().any(|mode| new_mode.has(mode) != old_mode.has(mode)) {
        checks.invalid(&new_mode, crate::checks::IMMUTABLE);
    }
    for field in IMMUTABLE {
        checks.immutable(&new.get(field), &old.get(field));
    }
}

/// Exactly one of the fields must be set.
fn one(at: &At<'_>, fields: [(&str, bool); 2], checks: &mut Checks) {
    let list = |only_set: bool| {
        let names = fields.iter().filter(|(_, is_set)| *is_set || !only_set).map(|(name, _)| format!("`{name}`"));
        names.collect::<Vec<_>>().join(", ")
    };
    match fields.iter().filter(|(_, is_set)| *is_set).count() {
        0 => checks.invalid_value(&at.path, "", format!("must specify one of: {}", list(false))),
        1 => {}
        _ => {
            let detail = format!("exactly one of {} is required, but multiple fields are set", list(false));
            checks.invalid_value(&at.path, format!("{{{}}}", list(true)), detail);
        }
    }
}

/// The text must be set and have the format.
fn required(at: &At<'_>, checks: &mut Checks, format: impl Fn(&mut Checks, &At<'_>)) {
    if at.text().is_empty() { checks.required(at, "") } else { format(checks, at) }
}

fn forbidden(at: &At<'_>, checks: &mut Checks) {
    if at.exists() {
        checks.forbidden(at, "");
    }
}

/// No two elements may have the same name.
fn unique(list: &At<'_>, checks: &mut Checks) {
    let mut names = Vec::new();
    for item in list.items() {
        let name = item.get("name").text();
        if names.contains(&name) {
            checks.duplicate(&item);
        }
        names.push(name);
    }
}
