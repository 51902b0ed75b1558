//! The allowed changes of a Pod: a few fields through the Pod itself, the status through `status`, and ephemeral
//! containers and resources through their subresources.

use api_model::zero::same;
use serde_json::{Map, Value};

use super::{INT32_MAX, container, qos, restart};
use crate::at::At;
use crate::checks::Checks;
use crate::edit::{Fields, each};
use crate::{difference, format};

/// Upstream's list of the fields that an update may change.
const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Checks an update of the Pod itself.
pub fn validate(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    super::validate_pod(new, checks);
    annotations(new, old, checks);
    let (new_spec, old_spec) = (new.get("spec"), old.get("spec"));
    for list in ["containers", "initContainers"] {
        if new_spec.get(list).len() != old_spec.get(list).len() {
            checks.forbidden(&new_spec.get(list), "pod updates may not add or remove containers");
            return;
        }
        for item in new_spec.get(list).items() {
            container::image_not_padded(&item.get("image"), checks);
        }
    }
    if !deadline(&new_spec, &old_spec, checks) {
        return;
    }
    tolerations(&new_spec.get("tolerations"), &old_spec.get("tolerations"), checks);
    gates(&new_spec.get("schedulingGates"), &old_spec.get("schedulingGates"), checks);
    if new_spec.same(&old_spec) {
        return;
    }
    let defaulted = with_defaults(&old_spec);
    let old_spec = At::root(&defaulted);
    let munged = munge(&new_spec, &old_spec, checks);
    if !same(Some(&munged), old_spec.value()) {
        let changes = difference::describe(old_spec.value(), Some(&munged));
        checks.forbidden(&new_spec, format!("pod updates may not change fields other than {UPDATABLE}\n{changes}"));
    }
}

/// The spec of a stored Pod with the defaults of its resources as a whole: a Pod that an earlier version stored lacks those of huge pages.
fn with_defaults(old: &At<'_>) -> Value {
    let mut spec = old.value().and_then(Value::as_object).cloned().unwrap_or_default();
    qos::default_pod_level(&mut spec);
    Value::Object(spec)
}

/// The new spec in which every changeable field has its old value. A remaining difference is forbidden.
fn munge(new: &At<'_>, old: &At<'_>, checks: &mut Checks) -> Value {
    let mut spec = new.value().and_then(Value::as_object).cloned().unwrap_or_default();
    for list in ["containers", "initContainers"] {
        for (item, old) in each(&mut spec, list).zip(old.get(list).items()) {
            put(item, "image", &old.get("image"));
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        put(&mut spec, field, &old.get(field));
    }
    let grace = "terminationGracePeriodSeconds";
    if old.get(grace).int() < 0 && new.get(grace).number() == Some(1) {
        put(&mut spec, grace, &old.get(grace));
    }
    if old.get("schedulingGates").len() > 0 {
        gated(&mut spec, new, old, checks);
    }
    Value::Object(spec)
}

fn put(fields: &mut Fields, name: &str, old: &At<'_>) {
    match old.value() {
        Some(value) => fields.insert(name.to_owned(), value.clone()),
        None => fields.remove(name),
    };
}

/// The node selection of a Pod with a scheduling gate may become narrower.
fn gated(spec: &mut Fields, new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    let (now, before) = (new.get("nodeSelector"), old.get("nodeSelector"));
    if before.entries().any(|(key, value)| now.key(key).text() != value.text()) {
        checks.invalid(&now, "only additions to spec.nodeSelector are allowed (no mutations or deletions)");
    }
    put(spec, "nodeSelector", &before);
    let path = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (now, before) = (new.find(path), old.find(path));
    if before.len() > 0 && before.len() != now.len() {
        checks.invalid(&now, "no additions/deletions to non-empty NodeSelectorTerms list are allowed");
    } else if before.len() > 0 {
        for (now, before) in now.items().zip(before.items()) {
            if !only_additions(&now, &before) {
                checks.invalid(&now, "only additions are allowed (no mutations or deletions)");
            }
        }
    }
    let mut affinity = new.get("affinity").value().and_then(Value::as_object).cloned().unwrap_or_default();
    put(&mut affinity, "nodeAffinity", &old.find("affinity.nodeAffinity"));
    if affinity.is_empty() {
        spec.remove("affinity");
    } else {
        spec.insert("affinity".to_owned(), Value::Object(affinity));
    }
}

fn only_additions(new: &At<'_>, old: &At<'_>) -> bool {
    let count = |term: &At<'_>| term.get("matchExpressions").len() + term.get("matchFields").len();
    if count(old) == 0 && count(new) > 0 {
        return false;
    }
    ["matchExpressions", "matchFields"].iter().all(|list| {
        let (new, old) = (new.get(list), old.get(list));
        new.len() >= old.len() && old.items().zip(new.items()).all(|(old, new)| old.same(&new))
    })
}

/// Returns false for an error after which the update has no further checks.
fn deadline(new: &At<'_>, old: &At<'_>, checks: &mut Checks) -> bool {
    let (now, before) = (new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"));
    match (now.number(), before.number()) {
        (Some(seconds), _) if !(0..=INT32_MAX).contains(&seconds) => {
            checks.in_range(&now, 0, INT32_MAX);
            false
        }
        (Some(seconds), Some(limit)) if limit < seconds => {
            checks.invalid(&now, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            checks.invalid(&now, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn tolerations(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    let without_seconds = |at: &At<'_>| {
        let mut fields: Map<String, Value> = at.value().and_then(Value::as_object).cloned().unwrap_or_default();
        fields.remove("tolerationSeconds");
        Value::Object(fields)
    };
    let new_tolerations: Vec<Value> = new.items().map(|toleration| without_seconds(&toleration)).collect();
    if old.items().any(|old| !new_tolerations.iter().any(|new| same(Some(new), Some(&without_seconds(&old))))) {
        checks.forbidden(new, "existing toleration can not be modified except its tolerationSeconds");
    }
}

fn gates(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    for gate in new.items() {
        let name = gate.get("name");
        if !old.items().any(|old| old.get("name").text() == name.text()) {
            checks.forbidden(&name, format!("only deletion is allowed, but found new scheduling gate '{}'", name.text()));
        }
    }
}

fn annotations(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    let (new, old) = (new.find("metadata.annotations"), old.find("metadata.annotations"));
    let (now, before) = (new.key(MIRROR), old.key(MIRROR));
    match (now.exists(), before.exists()) {
        (true, false) => checks.forbidden(&now, "may not add mirror pod annotation"),
        (_, true) if now.text() != before.text() => checks.forbidden(&now, "may not remove or update mirror pod annotation"),
        _ => {}
    }
}

/// Checks an update of the status.
pub fn validate_status(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    annotations(new, old, checks);
    let (status, before) = (new.get("status"), old.get("status"));
    for condition in status.get("conditions").items() {
        let kind = condition.get("type").text();
        for message in format::qualified_name(kind) {
            // Upstream's path is below `metadata`.
            let path = new.get("metadata").get("conditions").path.child("Type");
            checks.invalid_value(&path, kind, message);
        }
    }
    let nominated = status.get("nominatedNodeName");
    if !nominated.text().is_empty() && nominated.text() != before.get("nominatedNodeName").text() {
        checks.dns_subdomain(&nominated);
    }
    if !before.get("qosClass").text().is_empty() {
        checks.immutable(&status.get("qosClass"), &before.get("qosClass"));
    }
    let spec = old.get("spec");
    if !restart::may_restart_all(&spec) {
        for (list, containers) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
            transitions(&status.get(list), &before.get(list), spec.get("restartPolicy").text(), &spec.get(containers), checks);
        }
    }
    let ephemeral = "ephemeralContainerStatuses";
    transitions(&status.get(ephemeral), &before.get(ephemeral), "Never", &At::new(None, spec.path.clone()), checks);
    for (list, single) in [("podIPs", "podIP"), ("hostIPs", "hostIP")] {
        addresses(&status.get(list), checks);
        let first = status.get(list).index(0).get("ip");
        if list == "hostIPs" && first.exists() && first.text() != status.get(single).text() {
            checks.invalid(&first, "must be equal to `hostIP`");
        }
    }
}

/// A container that has ended and will not restart must stay terminated.
fn transitions(new: &At<'_>, old: &At<'_>, policy: &str, containers: &At<'_>, checks: &mut Checks) {
    if policy == "Always" {
        return;
    }
    for (index, before) in old.items().enumerate() {
        let ended = before.find("state.terminated");
        let name = before.get("name").text();
        let container = containers.items().find(|container| container.get("name").text() == name);
        let code = ended.get("exitCode").int();
        let by_pod = code != 0 && policy == "OnFailure";
        if !ended.exists() || by_pod || restart::may_restart(container.as_ref(), policy, code) {
            continue;
        }
        if new.items().any(|now| now.get("name").text() == name && !now.find("state.terminated").exists()) {
            let at = At::new(None, new.path.index(index).child("state"));
            checks.forbidden(&at, "may not be transitioned to non-terminated state");
        }
    }
}

fn addresses(list: &At<'_>, checks: &mut Checks) {
    for address in list.items() {
        for message in format::ip(address.get("ip").text()) {
            checks.invalid_value(&address.path, address.get("ip").text(), message);
        }
    }
    let is_v6 = |at: &At<'_>| at.get("ip").text().contains(':');
    let sixes = list.items().filter(is_v6).count();
    if sixes > 1 || list.len() - sixes > 1 {
        checks.invalid(list, "may specify no more than one IP for each IP family");
    }
}

/// Checks an update through `ephemeralcontainers`.
pub fn validate_ephemeral(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    super::validate_pod(new, checks);
    annotations(new, old, checks);
    if old.find("metadata.annotations").key(MIRROR).exists() {
        let whole = At::new(None, api_model::field::Path::default());
        return checks.forbidden(&whole, "static pods do not support ephemeral containers");
    }
    let list = new.find("spec.ephemeralContainers");
    for before in old.find("spec.ephemeralContainers").items() {
        let name = before.get("name").text();
        match list.items().find(|now| now.get("name").text() == name) {
            None => checks.forbidden(&list, format!("existing ephemeral containers \"{name}\" may not be removed\n")),
            Some(now) if !now.same(&before) => {
                let changes = difference::describe(before.value(), now.value());
                checks.forbidden(&list, format!("existing ephemeral containers \"{name}\" may not be changed\n{changes}"));
            }
            Some(_) => {}
        }
    }
}

/// Checks an update through `resize`.
pub fn validate_resize(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    super::validate_pod(new, checks);
    let whole = At::new(None, api_model::field::Path::default());
    if old.find("metadata.annotations").key(MIRROR).exists() {
        return checks.forbidden(&whole, "static pods cannot be resized");
    }
    let (new_spec, old_spec) = (new.get("spec"), old.get("spec"));
    if qos::class(&new_spec) != qos::class(&old_spec) {
        checks.invalid_value(&new_spec.path, old.find("status.qosClass").text(), "Pod QOS Class may not change as a result of resizing");
    }
    resized_pod_level(&new_spec, &old_spec, checks);
    for list in ["containers", "initContainers"] {
        for (now, before) in new_spec.get(list).items().zip(old_spec.get(list).items()) {
            resized(&now, &before, checks);
            if list == "initContainers" && before.get("restartPolicy").text() != "Always" && !now.same(&before) {
                checks.forbidden(&new_spec, "resources for non-sidecar init containers are immutable");
            }
        }
    }
}

fn resized(new: &At<'_>, old: &At<'_>, checks: &mut Checks) {
    let removed = ["resource requests cannot be removed", "resource limits cannot be removed"];
    resized_lists(&new.get("resources"), &old.get("resources"), removed, "only cpu and memory resources are mutable", checks);
}

/// Checks `spec.resources` (KEP-5419): CPU and memory may change and may be added, but nothing may be removed.
fn resized_pod_level(new_spec: &At<'_>, old_spec: &At<'_>, checks: &mut Checks) {
    let defaulted = with_defaults(old_spec);
    let (resources, before) = (new_spec.get("resources"), At::root(&defaulted).get("resources"));
    if before.exists() && !resources.exists() {
        return checks.forbidden(&resources, "pod-level resources cannot be removed");
    }
    let removed = ["pod-level resource requests cannot be removed", "pod-level resource limits cannot be removed"];
    resized_lists(&resources, &before, removed, "only cpu and memory resources are mutable at pod-level", checks);
}

/// Compares requests and limits. `removed` is what is said of a removed request and of a removed limit, `fixed` of another resource that
/// changed.
fn resized_lists(resources: &At<'_>, before: &At<'_>, removed: [&str; 2], fixed: &str, checks: &mut Checks) {
    let mut changes = false;
    for (list, words) in ["requests", "limits"].into_iter().zip(removed) {
        let (now, before) = (resources.get(list), before.get(list));
        if before.fields().any(|name| !now.key(name).exists()) {
            checks.forbidden(&now, words);
        }
        let changed = |name: &str| !matches!(name, "cpu" | "memory") && now.key(name).text() != before.key(name).text();
        changes |= now.fields().chain(before.fields()).any(changed);
    }
    if changes {
        checks.forbidden(&At::new(None, api_model::field::Path::new("spec")), fixed);
    }
}

/// The object of a write to `ephemeralcontainers`: the old Pod with the new ephemeral containers.
pub fn prepare_ephemeral(new: &mut Value, old: &Value) {
    let wanted = new.pointer("/spec/ephemeralContainers").cloned();
    carry(new, old);
    if let (Some(spec), Some(wanted)) = (new.get_mut("spec").and_then(Value::as_object_mut), wanted) {
        spec.insert("ephemeralContainers".to_owned(), wanted);
    }
}

/// The object of a write to `resize`: the old Pod with the new resources of the Pod and of its containers.
pub fn prepare_resize(new: &mut Value, old: &Value) {
    let wanted = new.get("spec").cloned().unwrap_or_default();
    carry(new, old);
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let wanted = At::root(&wanted);
    put(spec, "resources", &wanted.get("resources"));
    for list in ["containers", "initContainers"] {
        for container in each(spec, list) {
            let name = crate::edit::text(container, "name").to_owned();
            if let Some(source) = wanted.get(list).items().find(|item| item.get("name").text() == name) {
                put(container, "resources", &source.get("resources"));
                put(container, "resizePolicy", &source.get("resizePolicy"));
            }
        }
    }
}

/// Copies the old Pod, and keeps the resource version of the request.
fn carry(new: &mut Value, old: &Value) {
    let version = api_model::meta::resource_version(new).to_owned();
    *new = old.clone();
    if !version.is_empty() {
        api_model::meta::set(new, "resourceVersion", version);
    }
}
