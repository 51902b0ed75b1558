//! The address families of a Service in a cluster that has IPv4 only.

use serde_json::{Map, Value, json};

/// Fills in `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` as upstream does where the client left
/// them out.
pub(super) fn fill_in(service: &mut Value) {
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let cluster_ip = text(spec, "clusterIP").to_owned();
    let is_headless = cluster_ip == "None";
    let selects = spec.get("selector").and_then(Value::as_object).is_some_and(|selector| !selector.is_empty());
    if !cluster_ip.is_empty() && is_absent(spec, "clusterIPs") {
        spec.insert("clusterIPs".to_owned(), json!([cluster_ip]));
    }
    // Nobody but the client knows the endpoints of a headless Service without selector: they may
    // be of either family.
    let both = is_headless && !selects;
    if is_absent(spec, "ipFamilyPolicy") {
        spec.insert("ipFamilyPolicy".to_owned(), if both { "RequireDualStack" } else { "SingleStack" }.into());
    }
    if is_absent(spec, "ipFamilies") {
        let both = both && text(spec, "ipFamilyPolicy") != "SingleStack";
        spec.insert("ipFamilies".to_owned(), if both { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
    }
}

fn text<'a>(spec: &'a Map<String, Value>, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn is_absent(spec: &Map<String, Value>, field: &str) -> bool {
    spec.get(field).is_none_or(|value| value.is_null() || value.as_array().is_some_and(Vec::is_empty))
}
