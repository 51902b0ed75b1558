//! Priority: resolves the PriorityClass of a Pod or a PodGroup to the number that the scheduler and the kubelets use.

use std::sync::Arc;

use api_model::kind::GroupResource;
use api_model::meta;
use api_model::view::View;
use serde_json::Value;

use crate::denied::Denied;
use crate::json;
use crate::plugin::Plugin;
use crate::pods;
use crate::request::{Operation, Request};

const PREEMPT: &str = "PreemptLowerPriority";
/// The built-in classes, which are valid even before they are stored.
const SYSTEM: [(&str, i64); 2] = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// The priority of a built-in class.
pub fn system_priority(class: &str) -> Option<i64> {
    SYSTEM.iter().find(|(name, _)| *name == class).map(|(_, value)| *value)
}

/// The plugin.
pub struct Priority;

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn admit(&self, request: &mut Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        let is_pod = request.is("", "pods");
        if !is_pod && !request.is("scheduling.k8s.io", "podgroups") {
            return Ok(());
        }
        match request.operation {
            Operation::Create => resolve(request, view, is_pod),
            Operation::Update => {
                keep(request);
                Ok(())
            }
            Operation::Delete | Operation::Connect => Ok(()),
        }
    }

    fn validate(&self, request: &Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if !request.is("scheduling.k8s.io", "priorityclasses") || !matches!(request.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        let wants_default = request.object().and_then(|c| c.get("globalDefault")).and_then(Value::as_bool) == Some(true);
        match default_class(view).filter(|_| wants_default) {
            Some(other) if request.operation == Operation::Create || meta::name(&other) != request.object_name() => {
                let message = format!("PriorityClass {} is already marked as default. Only one default can exist", meta::name(&other));
                Err(Denied::forbidden(request, message))
            }
            _ => Ok(()),
        }
    }
}

fn classes() -> GroupResource {
    GroupResource::new("scheduling.k8s.io", "priorityclasses")
}

/// The default class. A race can create several; the lowest one counts.
fn default_class(view: &dyn View) -> Option<Arc<Value>> {
    let classes = view.list(&classes(), None).into_iter();
    let defaults = classes.filter(|c| c.get("globalDefault").and_then(Value::as_bool) == Some(true));
    defaults.min_by_key(|c| c.get("value").and_then(Value::as_i64))
}

/// Name, value and preemption policy.
fn class_of(name: &str, view: &dyn View) -> Option<(String, i64, String)> {
    let read = |class: &Value| {
        let policy = json::text(class, "preemptionPolicy");
        let policy = if policy.is_empty() { PREEMPT } else { policy };
        (meta::name(class).to_owned(), class.get("value").and_then(Value::as_i64).unwrap_or_default(), policy.to_owned())
    };
    if name.is_empty() {
        return Some(default_class(view).map_or_else(|| (String::new(), 0, PREEMPT.to_owned()), |class| read(&class)));
    }
    let stored = view.get(&classes(), None, name).map(|class| read(&class));
    let system = || system_priority(name).map(|value| (name.to_owned(), value, PREEMPT.to_owned()));
    stored.or_else(system)
}

/// Name, value and preemption policy of a new object, unless its spec contradicts its class.
fn class_for(request: &Request<'_>, view: &dyn View, is_pod: bool) -> Result<(String, i64, String), Denied> {
    let spec = request.object().map_or(&Value::Null, pods::spec);
    let wanted = json::text(spec, "priorityClassName");
    let Some((name, value, policy)) = class_of(wanted, view) else {
        return Err(Denied::forbidden(request, format!("no PriorityClass with name {wanted} was found")));
    };
    let of = if is_pod { "pod" } else { "pod group" };
    if let Some(given) = spec.get("priority").and_then(Value::as_i64).filter(|given| *given != value) {
        return Err(Denied::forbidden(
            request,
            format!(
                "the integer value of priority ({given}) must not be provided in {of} spec; priority admission controller computed {value} from the given PriorityClass name"
            ),
        ));
    }
    let given = json::text(spec, "preemptionPolicy");
    if is_pod && !given.is_empty() && given != policy {
        return Err(Denied::forbidden(
            request,
            format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            ),
        ));
    }
    Ok((name, value, policy))
}

/// The group of Pods has no preemption policy of its own: the field's feature is off by default upstream.
fn resolve(request: &mut Request<'_>, view: &dyn View, is_pod: bool) -> Result<(), Denied> {
    let (name, value, policy) = class_for(request, view, is_pod)?;
    if let Some(spec) = request.object.as_deref_mut().and_then(|pod| pod.get_mut("spec")) {
        if !name.is_empty() {
            json::set(spec, "priorityClassName", name);
        }
        json::set(spec, "priority", value);
        if is_pod {
            json::set(spec, "preemptionPolicy", policy);
        }
    }
    Ok(())
}

/// Keeps the fields when an old client that does not know them leaves them out.
fn keep(request: &mut Request<'_>) {
    let Some(old) = request.old.and_then(|old| old.get("spec")) else { return };
    let Some(spec) = request.object.as_deref_mut().and_then(|pod| pod.get_mut("spec")) else { return };
    for field in ["priority", "preemptionPolicy"] {
        // A PodGroup has the first of the two alone.
        if let (false, Some(value)) = (json::has(spec, field), old.get(field)) {
            json::set(spec, field, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects, verdict};
    use serde_json::json;

    fn class(name: &str, value: i64, default: bool) -> Value {
        json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name }, "value": value, "globalDefault": default })
    }

    fn pod(spec: Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "ns" }, "spec": spec })
    }

    #[test]
    fn classes_become_numbers() {
        let none = Objects::default();
        let mut gentle = class("gentle", 5, false);
        gentle["preemptionPolicy"] = "Never".into();
        let some = Objects::new([class("high", 1000, false), class("usual", 10, true), class("also-usual", 20, true), gentle]);
        let spec = |name: &str, priority: i64, policy: &str| {
            let mut spec = json!({ "priority": priority, "preemptionPolicy": policy });
            if !name.is_empty() {
                spec["priorityClassName"] = name.into();
            }
            spec
        };
        for (view, given, wanted) in [
            (&none, json!({}), spec("", 0, PREEMPT)),
            (&some, json!({}), spec("usual", 10, PREEMPT)),
            (&some, json!({ "priorityClassName": "high" }), spec("high", 1000, PREEMPT)),
            (&some, json!({ "priorityClassName": "high", "priority": 1000 }), spec("high", 1000, PREEMPT)),
            (&some, json!({ "priorityClassName": "gentle" }), spec("gentle", 5, "Never")),
            (&none, json!({ "priorityClassName": "system-node-critical" }), spec("system-node-critical", 2_000_001_000, PREEMPT)),
        ] {
            let outcome = Ask::create(pod(given)).admit(&Priority, view).expect("admitted");
            assert_eq!(outcome.object["spec"], wanted);
        }
    }

    #[test]
    fn contradictions_are_rejected() {
        let view = Objects::new([class("high", 1000, false)]);
        for (given, wanted) in [
            (json!({ "priorityClassName": "nope" }), "no PriorityClass with name nope was found"),
            (
                json!({ "priorityClassName": "high", "priority": 1 }),
                "the integer value of priority (1) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name",
            ),
            (
                json!({ "preemptionPolicy": "Never" }),
                "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name",
            ),
        ] {
            assert_eq!(verdict(Ask::create(pod(given)).admit(&Priority, &view)), format!("pods \"p\" is forbidden: {wanted}"));
        }
    }

    #[test]
    fn a_group_of_pods_gets_the_priority_of_its_class_and_no_preemption_policy() {
        let group = |spec: Value| {
            let metadata = json!({ "name": "g", "namespace": "ns" });
            json!({ "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec })
        };
        let view = Objects::new([class("high", 1000, false)]);
        let admitted = |spec: Value| Ask::create(group(spec)).admit(&Priority, &view);
        assert_eq!(admitted(json!({})).expect("admitted").object["spec"], json!({ "priority": 0 }));
        let of_class = json!({ "priorityClassName": "high" });
        assert_eq!(admitted(of_class).expect("admitted").object["spec"], json!({ "priorityClassName": "high", "priority": 1000 }));
        let message = "podgroups.scheduling.k8s.io \"g\" is forbidden: the integer value of priority (5) must not be provided in pod group \
                       spec; priority admission controller computed 0 from the given PriorityClass name";
        assert_eq!(verdict(admitted(json!({ "priority": 5 }))), message);
        let old = group(json!({ "priority": 7 }));
        let updated = Ask::update(&old, group(json!({}))).admit(&Priority, &view).expect("admitted");
        assert_eq!(updated.object["spec"], old["spec"]);
    }

    #[test]
    fn an_update_keeps_what_it_does_not_name() {
        let old = pod(json!({ "priority": 7, "preemptionPolicy": "Never" }));
        let outcome = Ask::update(&old, pod(json!({}))).admit(&Priority, &Objects::default()).expect("admitted");
        assert_eq!(outcome.object["spec"], old["spec"]);
    }

    #[test]
    fn there_is_one_default() {
        let view = Objects::new([class("usual", 10, true)]);
        let usual = class("usual", 10, true);
        let message = "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass usual is already marked as default. Only one default can exist";
        assert_eq!(verdict(Ask::create(class("second", 1, true)).validate(&Priority, &view)), message);
        let second = class("second", 1, false);
        assert_eq!(verdict(Ask::update(&second, class("second", 1, true)).validate(&Priority, &view)), message);
        assert_eq!(verdict(Ask::update(&usual, usual.clone()).validate(&Priority, &view)), "ok");
        assert_eq!(verdict(Ask::create(second.clone()).validate(&Priority, &view)), "ok");
    }
}
