//! RuntimeClass: checks that a Pod's RuntimeClass exists, and writes its overhead and its scheduling rules into the
//! Pod.

use api_model::message::Message;
use std::sync::Arc;

use api_model::kind::GroupResource;
use api_model::view::View;
use serde_json::{Map, Value};

use crate::amount;
use crate::denied::Denied;
use crate::json;
use crate::plugin::Plugin;
use crate::pods;
use crate::request::{Operation, Request};

/// The plugin.
pub struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn admit(&self, request: &mut Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        let Some(class) = class_of(request, view)? else { return Ok(()) };
        let spec = request.object().map(pods::spec).cloned().unwrap_or_default();
        let overhead = class.pointer("/overhead/podFixed").filter(|o| !o.is_null());
        if overhead.is_some() && json::has(&spec, "overhead") && !same_amounts(overhead, spec.get("overhead")) {
            return Err(Denied::forbidden(request, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"));
        }
        let selector = node_selector(&spec, &class).map_err(|message| Denied::forbidden(request, message))?;
        let Some(spec) = request.object.as_deref_mut().and_then(|pod| pod.get_mut("spec")) else { return Ok(()) };
        if let Some(overhead) = overhead {
            json::set(spec, "overhead", overhead.clone());
        }
        if !selector.is_empty() {
            json::set(spec, "nodeSelector", selector);
        }
        let added = class.pointer("/scheduling/tolerations").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if !added.is_empty() {
            let merged = merge_tolerations(json::list(spec, "tolerations"), added);
            json::set(spec, "tolerations", merged);
        }
        Ok(())
    }

    fn validate(&self, request: &Request<'_>, view: &dyn View, _warnings: &mut Vec<String>) -> Result<(), Denied> {
        if !concerns(request) {
            return Ok(());
        }
        let class = class_of(request, view)?;
        let wanted = class.as_ref().and_then(|c| c.pointer("/overhead/podFixed")).filter(|o| !o.is_null());
        let given = request.object().map(pods::spec).and_then(|spec| spec.get("overhead")).filter(|o| !o.is_null());
        match (wanted, given) {
            (Some(_), _) if !same_amounts(wanted, given) => {
                Err(Denied::forbidden(request, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"))
            }
            (None, Some(_)) => {
                Err(Denied::forbidden(request, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
            }
            _ => Ok(()),
        }
    }
}

fn concerns(request: &Request<'_>) -> bool {
    request.operation == Operation::Create && request.is("", "pods")
}

/// The class that the Pod names, if it names one.
fn class_of(request: &Request<'_>, view: &dyn View) -> Result<Option<Arc<Value>>, Denied> {
    let name = request.object().map(pods::spec).map(|spec| json::text(spec, "runtimeClassName")).unwrap_or_default();
    if !concerns(request) || name.is_empty() {
        return Ok(None);
    }
    match view.get(&GroupResource::new("node.k8s.io", "runtimeclasses"), None, name) {
        Some(class) => Ok(Some(class)),
        None => Err(Denied::forbidden(request, format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

fn same_amounts(a: Option<&Value>, b: Option<&Value>) -> bool {
    amount::list(a) == amount::list(b)
}

fn node_selector(spec: &Value, class: &Value) -> Result<Map<String, Value>, Message> {
    let mut selector = json::map(spec, "nodeSelector").cloned().unwrap_or_default();
    for (key, wanted) in class.pointer("/scheduling/nodeSelector").and_then(Value::as_object).into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if let Some(given) = selector.get(key).filter(|given| *given != wanted) {
            let (wanted, given) = (text(wanted), text(given));
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {given}"
            )
            .into());
        }
        selector.insert(key.clone(), wanted.clone());
    }
    Ok(selector)
}

/// Merges both lists, without tolerations that another one covers.
fn merge_tolerations(own: &[Value], added: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = own.iter().chain(added).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (at, toleration) in all.iter().enumerate() {
        let earlier = merged.iter().any(|existing| covers(existing, toleration));
        let later = all.iter().skip(at + 1).any(|other| other != toleration && covers(other, toleration));
        if !earlier && !later {
            merged.push((*toleration).clone());
        }
    }
    merged
}

/// Whether `wide` tolerates all taints that `narrow` tolerates.
fn covers(wide: &Value, narrow: &Value) -> bool {
    let field = |of: &Value, name: &str| json::text(of, name).to_owned();
    let operator = |of: &Value| if json::text(of, "operator").is_empty() { "Equal".to_owned() } else { field(of, "operator") };
    let seconds = |of: &Value| of.get("tolerationSeconds").and_then(Value::as_i64);
    if wide == narrow {
        return true;
    }
    let every_key = field(wide, "key").is_empty() && operator(wide) == "Exists";
    if field(wide, "key") != field(narrow, "key") && !every_key {
        return false;
    }
    if field(wide, "effect") != field(narrow, "effect") && !field(wide, "effect").is_empty() {
        return false;
    }
    if let (true, Some(limit)) = (field(wide, "effect") == "NoExecute", seconds(wide))
        && seconds(narrow).is_none_or(|n| n > limit)
    {
        return false;
    }
    match operator(wide).as_str() {
        "Exists" => true,
        _ => operator(narrow) == "Equal" && field(wide, "value") == field(narrow, "value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Ask, Objects, verdict};
    use serde_json::json;

    fn view() -> Objects {
        let class = |name: &str, extra: Value| {
            let mut class =
                json!({ "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": name }, "handler": name });
            class.as_object_mut().expect("map").extend(extra.as_object().expect("map").clone());
            class
        };
        Objects::new([
            class("wasmtime", json!({})),
            class("heavy", json!({ "overhead": { "podFixed": { "cpu": "250m", "memory": "1Gi" } } })),
            class(
                "placed",
                json!({ "scheduling": { "nodeSelector": { "arch": "wasm" }, "tolerations": [{ "key": "wasm", "operator": "Exists" }] } }),
            ),
        ])
    }

    fn pod(spec: Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "ns" }, "spec": spec })
    }

    #[test]
    fn what_a_class_says_is_written_into_the_pod() {
        let heavy = json!({ "cpu": "250m", "memory": "1Gi" });
        let tolerations = json!([{ "key": "wasm", "operator": "Exists" }]);
        for (given, wanted) in [
            (json!({}), json!({})),
            (json!({ "runtimeClassName": "wasmtime" }), json!({ "runtimeClassName": "wasmtime" })),
            (json!({ "runtimeClassName": "heavy" }), json!({ "runtimeClassName": "heavy", "overhead": heavy })),
            (
                json!({ "runtimeClassName": "heavy", "overhead": { "cpu": "0.25", "memory": "1024Mi" } }),
                json!({ "runtimeClassName": "heavy", "overhead": heavy }),
            ),
            (
                json!({ "runtimeClassName": "placed", "nodeSelector": { "disk": "ssd" }, "tolerations": [{ "key": "wasm", "value": "x" }] }),
                json!({ "runtimeClassName": "placed", "nodeSelector": { "disk": "ssd", "arch": "wasm" }, "tolerations": tolerations }),
            ),
        ] {
            let outcome = Ask::create(pod(given)).admit(&RuntimeClass, &view()).expect("admitted");
            assert_eq!(outcome.object["spec"], wanted);
            assert_eq!(verdict(Ask::create(outcome.object).validate(&RuntimeClass, &view())), "ok");
        }
    }

    #[test]
    fn contradictions_are_rejected() {
        for (given, wanted) in [
            (json!({ "runtimeClassName": "x" }), "pod rejected: RuntimeClass \"x\" not found"),
            (
                json!({ "runtimeClassName": "heavy", "overhead": { "cpu": "1" } }),
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ),
            (
                json!({ "runtimeClassName": "placed", "nodeSelector": { "arch": "arm" } }),
                "conflict: runtimeClass.scheduling.nodeSelector[arch] = wasm; pod.spec.nodeSelector[arch] = arm",
            ),
        ] {
            assert_eq!(verdict(Ask::create(pod(given)).admit(&RuntimeClass, &view())), format!("pods \"p\" is forbidden: {wanted}"));
        }
        let wanted = "pods \"p\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        for spec in [json!({ "overhead": { "cpu": "1" } }), json!({ "runtimeClassName": "wasmtime", "overhead": { "cpu": "1" } })] {
            assert_eq!(verdict(Ask::create(pod(spec)).validate(&RuntimeClass, &view())), wanted);
        }
    }

    #[test]
    fn the_wider_toleration_stays() {
        let narrow = json!({ "key": "a", "operator": "Equal", "value": "1", "effect": "NoSchedule" });
        let wide = json!({ "key": "a", "operator": "Exists" });
        let brief = json!({ "key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5 });
        let long = json!({ "key": "b", "operator": "Exists", "effect": "NoExecute" });
        for (own, added, wanted) in [
            (vec![&narrow], vec![&wide], vec![&wide]),
            (vec![&wide], vec![&narrow], vec![&wide]),
            (vec![&brief], vec![&long], vec![&long]),
            (vec![&wide, &brief], vec![&wide], vec![&wide, &brief]),
        ] {
            let owned = |list: Vec<&Value>| list.into_iter().cloned().collect::<Vec<_>>();
            assert_eq!(merge_tolerations(&owned(own), &owned(added)), owned(wanted));
        }
    }
}
