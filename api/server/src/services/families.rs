//! The address families of a Service in a cluster that has IPv4 only: upstream's `initIPFamilyFields`.

use api_model::field::{FieldError, Path};
use serde_json::{Map, Value, json};

/// The family of the cluster's addresses.
const FAMILY: &str = "IPv4";
const OTHER_FAMILY: &str = "IPv6";

/// Fills in `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` where the client left them out. Returns the errors of
/// families that the cluster does not have.
pub(super) fn settle(service: &mut Value, old: Option<&Value>) -> Vec<FieldError> {
    let before = old.and_then(|old| old.get("spec")).and_then(Value::as_object);
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return Vec::new() };
    if text(spec, "type") == "ExternalName" || before.is_some_and(|before| is_settled(spec, before)) {
        return Vec::new();
    }
    let cluster_ip = text(spec, "clusterIP").to_owned();
    if !cluster_ip.is_empty() && is_absent(spec, "clusterIPs") {
        spec.insert("clusterIPs".to_owned(), json!([cluster_ip]));
    }
    // Only the client knows the endpoints of a headless Service without selector: they may be of either family.
    let selects = spec.get("selector").and_then(Value::as_object).is_some_and(|selector| !selector.is_empty());
    let is_free = cluster_ip == "None" && !selects;
    if is_absent(spec, "ipFamilyPolicy") {
        spec.insert("ipFamilyPolicy".to_owned(), if is_free { "RequireDualStack" } else { "SingleStack" }.into());
    }
    if let Some(before) = before {
        release_second(spec, before);
    }
    let mut wrong = contradictions(spec);
    if wrong.is_empty() && !is_free {
        wrong = lacking(spec);
    }
    if !wrong.is_empty() {
        return wrong;
    }
    if is_absent(spec, "ipFamilies") {
        spec.insert("ipFamilies".to_owned(), json!([FAMILY]));
    }
    if is_free && text(spec, "ipFamilyPolicy") != "SingleStack" {
        add_second(spec);
    }
    Vec::new()
}

/// Whether an update changes nothing about families. Then nothing is checked, whatever families the cluster has now.
fn is_settled(new: &Map<String, Value>, old: &Map<String, Value>) -> bool {
    let same = |field: &str| new.get(field) == old.get(field);
    new == old || (text(new, "ipFamilyPolicy") == "PreferDualStack" && ["ipFamilyPolicy", "ipFamilies", "clusterIPs"].into_iter().all(same))
}

/// A change to `SingleStack` that does not name the families drops the second family.
fn release_second(new: &mut Map<String, Value>, old: &Map<String, Value>) {
    if text(new, "ipFamilyPolicy") != "SingleStack" {
        return;
    }
    for field in ["clusterIPs", "ipFamilies"] {
        if new.get(field) == old.get(field)
            && let Some(list) = new.get_mut(field).and_then(Value::as_array_mut)
        {
            list.truncate(1);
        }
    }
}

/// The errors of families and addresses that contradict each other, in any cluster.
fn contradictions(spec: &Map<String, Value>) -> Vec<FieldError> {
    let mut wrong = Vec::new();
    if text(spec, "ipFamilyPolicy") == "SingleStack" {
        for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if list(spec, field).len() == 2 {
                let detail = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
                wrong.push(FieldError::invalid(&path("ipFamilyPolicy"), "SingleStack", detail));
            }
        }
    }
    let addresses = list(spec, "clusterIPs");
    for (at, address) in addresses.iter().enumerate().skip(list(spec, "ipFamilies").len()) {
        if address.as_str().is_some_and(|address| address.contains(':')) {
            let detail = format!("{OTHER_FAMILY} is not configured on this cluster");
            wrong.push(FieldError::invalid(&path("clusterIPs").index(at), json!(addresses), detail));
        }
    }
    wrong
}

/// The errors of families that the cluster does not have.
fn lacking(spec: &Map<String, Value>) -> Vec<FieldError> {
    let mut wrong = Vec::new();
    if text(spec, "ipFamilyPolicy") == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        wrong.push(FieldError::invalid(&path("ipFamilyPolicy"), "RequireDualStack", detail));
    }
    for (at, family) in list(spec, "ipFamilies").iter().enumerate().filter(|(_, family)| *family != FAMILY) {
        wrong.push(FieldError::invalid(&path("ipFamilies").index(at), family.clone(), "not configured on this cluster"));
    }
    wrong
}

fn add_second(spec: &mut Map<String, Value>) {
    if let Some(Value::Array(families)) = spec.get_mut("ipFamilies")
        && let [only] = families.as_slice()
    {
        let second = if only == FAMILY { OTHER_FAMILY } else { FAMILY };
        families.push(second.into());
    }
}

fn path(field: &str) -> Path {
    Path::new("spec").child(field)
}

fn text<'a>(spec: &'a Map<String, Value>, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(spec: &'a Map<String, Value>, field: &str) -> &'a [Value] {
    spec.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn is_absent(spec: &Map<String, Value>, field: &str) -> bool {
    spec.get(field).is_none_or(|value| value.is_null() || value.as_array().is_some_and(Vec::is_empty))
}
