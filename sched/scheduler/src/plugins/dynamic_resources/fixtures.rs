//! Claims, classes and slices for the tables of tests.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaim;
use sched_framework::DraManager;
use serde_json::{Value, json};

/// The driver of all devices.
pub(crate) const DRIVER: &str = "gpu.example.com";

/// A slice with these devices in the pool `pool` of one slice; `more` is merged into its spec.
pub(crate) fn slice(name: &str, more: Value, devices: Value) -> Value {
    let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
    let mut spec = json!({"driver": DRIVER, "pool": pool, "devices": devices});
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

/// A slice of a node with devices of these names, without attributes.
pub(crate) fn devices_of(node: &str, names: &[&str]) -> Value {
    let devices: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    slice(node, json!({"nodeName": node}), devices.into())
}

/// A device with so much memory that claims share; one unit of it without a request.
pub(crate) fn shared_device(name: &str, memory: u64) -> Value {
    let policy = json!({"default": "1", "validRange": {"min": "1", "step": "1"}});
    let capacity = json!({"memory": {"value": memory.to_string(), "requestPolicy": policy}});
    json!({"name": name, "allowMultipleAllocations": true, "capacity": capacity})
}

/// The claim `default/NAME` with these requests.
pub(crate) fn claim(name: &str, requests: Value) -> Value {
    claim_with(name, json!({"requests": requests}))
}

/// The same with constraints or configurations.
pub(crate) fn claim_with(name: &str, devices: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {"devices": devices},
    })
}

/// A request for one device of the class `gpu`, with more fields.
pub(crate) fn exactly(name: &str, more: Value) -> Value {
    let mut request = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    if let (Some(request), Value::Object(more)) = (request.as_object_mut(), more) {
        request.extend(more);
    }
    json!({"name": name, "exactly": request})
}

/// A claim for one device.
pub(crate) fn wanted(name: &str) -> Value {
    claim(name, json!([exactly("r", json!({}))]))
}

/// The same, allocated on a node and reserved for Pods.
pub(crate) fn allocated(name: &str, node: &str, device: &str, pods: &[&str]) -> Value {
    let mut claim = wanted(name);
    let selector = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    let result = json!({"request": "r", "driver": DRIVER, "pool": node, "device": device});
    let consumer = |pod: &&str| json!({"resource": "pods", "name": pod, "uid": pod});
    claim["status"] = json!({
        "allocation": {"devices": {"results": [result]}, "nodeSelector": selector},
        "reservedFor": pods.iter().map(consumer).collect::<Vec<_>>(),
    });
    claim
}

/// The objects as the scheduler has them: the class `gpu` for all devices of the driver, these slices and claims.
pub(crate) fn manager(slices: &[Value], claims: &[Value]) -> DraManager {
    let mut dra = DraManager::default();
    set_class(&mut dra, "gpu", json!({"selectors": [{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]}));
    slices.iter().for_each(|slice| set_slice(&mut dra, slice));
    claims.iter().for_each(|claim| set_claim(&mut dra, claim));
    dra
}

pub(crate) fn set_class(dra: &mut DraManager, name: &str, spec: Value) {
    let class = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a class");
    dra.set_class(name, Some(Arc::new(class)));
}

pub(crate) fn set_slice(dra: &mut DraManager, slice: &Value) {
    let name = slice["metadata"]["name"].as_str().expect("a name");
    dra.set_slice(name, Some(Arc::new(serde_json::from_value(slice.clone()).expect("a slice"))));
}

pub(crate) fn set_claim(dra: &mut DraManager, claim: &Value) {
    let key = format!("default/{}", claim["metadata"]["name"].as_str().expect("a name"));
    dra.set_claim(&key, Some(parsed(claim)));
}

pub(crate) fn parsed(claim: &Value) -> Arc<ResourceClaim> {
    Arc::new(serde_json::from_value(claim.clone()).expect("a claim"))
}
